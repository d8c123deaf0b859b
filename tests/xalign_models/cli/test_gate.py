"""The gate's command: its exit statuses, what it refuses, and what it leaves for others to read."""

from __future__ import annotations

import json
import shutil
from xml.etree import ElementTree as ET

import pytest


@pytest.fixture
def put(workdir):
    """Writes results of two languages: of German, and of French, which stays."""

    def write(model="a", task="T", score=0.5, name="de"):
        folder = workdir / "results" / f"xalign__plain__{model}" / "r1"
        folder.mkdir(parents=True, exist_ok=True)
        entries = [
            {"hf_subset": subset, "languages": ["deu-Latn"], "main_score": value}
            for subset, value in ((name, score), ("fr", 0.5))
        ]
        (folder / f"{task}.json").write_text(json.dumps({"dataset_revision": "1", "scores": {"test": entries}}))

    for model in ("a", "LaBSE"):
        for task in ("T", "U"):
            write(model, task)
    return write


@pytest.fixture
def old(put, workdir):
    shutil.copytree(workdir / "results", workdir / "old" / "results")
    return "old"


def refused(result, *parts) -> bool:
    status, out, (line,) = result
    assert (status, out) == (2, "")
    assert line.startswith("error: ")
    assert all(part in line for part in parts), line
    return True


def test_the_status_is_of_what_is_chosen(xalign, put, workdir) -> None:
    assert refused(xalign("gate"), "No old results", "xalign gate --update")
    assert xalign("gate", "--update") == (0, "wrote results/baseline.json\n", [])
    assert xalign("gate") == (0, "Gate passed (pass: 12).\n", [])
    put(score=0.3)
    (workdir / "results" / "xalign__plain__LaBSE" / "r1" / "U.json").unlink()
    for arguments, status, verdicts in (
        ((), 1, ["fail"] * 2 + ["cannot tell"] + ["pass"] * 7),
        (("-m", "plain__a"), 1, ["fail"] * 2 + ["pass"] * 4),
        (("-m", "plain__a", "-t", "U"), 0, ["pass"] * 3),
        (("-m", "LaBSE"), 3, ["cannot tell"] + ["pass"] * 3),
    ):
        found, out, err = xalign("gate", *arguments, "--json")
        report = json.loads(out)
        assert (found, report["exit_code"], err) == (status, status, [])
        assert [row["verdict"] for row in report["rows"]] == verdicts
        assert xalign("gate", *arguments)[0] == status
    assert "Gate FAILED (fail: 2, pass: 4)" in xalign("gate", "-m", "plain__a")[1]
    assert xalign("gate", "--update", "-m", "plain__a", "-t", "T")[0] == xalign("gate", "-m", "plain__a")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("-m", "nope"), ("model 'nope'; there are results of",)),
        (("-t", "T,Floors"), ("task 'Floors'; there are results of T, U",)),
        (("--tolerance", "-1"), ("--tolerance: -1: at least 0 is needed", "not -1")),
        (("--tolerance", "T=inf"), ("--tolerance: T=inf", "finite", "not inf")),
        (("--tolerance", "T=much"), ("--tolerance: T=much", "a number is needed", "not 'much'")),
        (("--tolerance", "0,5"), ("default twice", "a point in decimals")),
        (("--tolerance", "T=0,5"), ("--tolerance T=0,5 is unclear", "with a point")),
        (("--tolerance", "Floors=1"), ("tolerance's task 'Floors'; there are results of T, U",)),
        (("--tolerance", "plain__a=1"), ("tolerance's task 'plain__a'",)),
        (
            ("--against", "nowhere"),
            ("No old results at nowhere: name a folder that `xalign run` wrote, or write a baseline",),
        ),
        (("--against", "results/xalign__plain__a"), ("No results under",)),
        (("--update",), ("old is a folder",)),
        (("--throughput", "a", "b"), ("leave out --against",)),
        (("--junit", "README.md/gate.xml"), ("README.md",)),
        (("--junit", "README.md"), ("README.md exists and is not JUnit XML", "name a new file")),
        (("--junit", "results"), ("results exists and is not JUnit XML", "name a new file")),
        (("--junit", "/dev/null"), ("/dev/null exists and is not JUnit XML",)),
        (("--tolerance", "1,languages=0.5"), ("languages=0.5 has no effect below the default of 1",)),
    ],
)
def test_wrong_usage_is_one_line_and_2(xalign, old, workdir, arguments, parts) -> None:
    (workdir / "README.md").write_text("Mine.")
    first = () if "--against" in arguments else ("--against", old)
    assert refused(xalign("gate", *first, *arguments), *parts)
    assert (workdir / "README.md").read_text() == "Mine."


@pytest.mark.parametrize("before", [None, "", "<testsuites />", "<?xml version='1.0'?>\n<testsuite name='other'/>"])
def test_junit_xml_replaces_junit_xml(xalign, old, workdir, before) -> None:
    if before is not None:
        (workdir / "gate.xml").write_text(before)
    for _ in range(2):
        assert xalign("gate", "--against", old, "--junit", "gate.xml")[0] == 0
        assert ET.parse(workdir / "gate.xml").getroot().attrib["tests"] == "12"


@pytest.mark.parametrize("arguments", [("--tolerance", "Floors=1"), ("--json",), ("--junit", "gate.xml")])
def test_an_update_that_cannot_do_as_told_writes_nothing(xalign, put, workdir, arguments) -> None:
    """A wrong name in a baseline would make every later gate fail."""
    assert refused(xalign("gate", "--update", *arguments), "Floors" if arguments[1:] == ("Floors=1",) else "--update")
    assert not (workdir / "results" / "baseline.json").exists()


def test_against_old_results(xalign, put, old) -> None:
    assert xalign("gate", "--against", old)[0] == 0
    put(score=0.48)
    assert xalign("gate", "--against", old)[0] == 1
    assert xalign("gate", "--against", old, "--tolerance", "5,T=1.9")[0] == 1
    assert xalign("gate", "--against", old, "--tolerance", "1", "--tolerance", "T=2")[0] == 0
    put(score=float("inf"))
    assert xalign("gate", "--against", old)[0] == 1


def test_other_tools_read_it(xalign, put, old, workdir, monkeypatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(workdir / "summary.md"))
    put(score=0.3)
    (workdir / "results" / "xalign__plain__LaBSE" / "r1" / "U.json").unlink()
    status, out, err = xalign("gate", "--against", old, "--junit", "gate.xml", "--json")
    assert status == json.loads(out)["exit_code"] == 1
    assert [line[:20] for line in err] == ["::error title=T mean", "::error title=T de::", "::warning title=U me"]
    root = ET.parse(workdir / "gate.xml").getroot()
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("10", "2", "1")
    assert "| fail | `xalign/plain__a` | `T` | `de` | `fell: 50.00 to 30.00" in (workdir / "summary.md").read_text()


def test_a_missing_only_result_cannot_be_told(xalign, put, old, workdir) -> None:
    """The folder is there and empty, as after a run that failed; a folder that is not there is wrong usage."""
    shutil.rmtree(workdir / "results")
    (workdir / "results").mkdir()
    status, out, err = xalign("gate", "--against", old, "--json")
    report = json.loads(out)
    assert (status, report["exit_code"], err) == (3, 3, [])
    assert {row["reason"] for row in report["rows"]} == {"missing: no new result"}
    assert refused(xalign("gate", "--against", old, "--output", "nowhere"), "No results under")


def test_a_plan_says_how_many_items_a_tolerance_needs(xalign) -> None:
    status, out, err = xalign("gate", "plan", "--tolerance", "1", "--churn", "4", "--languages", "22", "--json")
    (row,) = json.loads(out)
    assert (status, err, row["tolerance"], row["languages"]) == (0, [], 1, 22)
    assert 6000 < row["items"] < 7000
    assert f"\t{row['items']}\n" in xalign("gate", "plan", "--languages", "22")[1]
    assert refused(xalign("gate", "plan", "--tolerance", "0"), "--tolerance", "at least 0.01")


@pytest.mark.parametrize(
    "option", ["--tolerance 2.5", "--json", "-o .", "--against old", "--update", "-m a", "-t T", "--junit gate.xml"]
)
def test_an_option_before_plan_is_refused(xalign, workdir, option) -> None:
    name = {"-o": "--output", "-m": "--models", "-t": "--tasks"}.get(option.split()[0], option.split()[0])
    assert refused(xalign("gate", *option.split(), "plan"), f"{name} has no effect before plan; write it after plan")
