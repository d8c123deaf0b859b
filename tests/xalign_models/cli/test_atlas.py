"""``xalign import mteb-results`` and ``xalign choose``: reports, the same as JSON, and errors of one line."""

from __future__ import annotations

import json

import pytest

from xalign_models.atlas.table import load_atlas
from xalign_models.atlas.update import place


@pytest.fixture
def clone(tmp_path):
    for model in ("org__a", "org__b"):
        path = tmp_path / "clone" / "results" / model / "r1" / "Tatoeba.json"
        path.parent.mkdir(parents=True)
        entry = {"hf_subset": "deu-eng", "languages": ["deu-Latn", "eng-Latn"], "main_score": 0.5, "f1": 0.5}
        content = {"dataset_revision": "0123456789", "mteb_version": "2.0.0", "scores": {"test": [entry]}}
        path.write_text(json.dumps(content))
    (tmp_path / "clone" / "results" / "org__b" / "r1" / "STS17.json").write_text("{")
    return tmp_path / "clone"


def test_a_report_without_output_writes_nothing(xalign, clone):
    before = sorted(clone.parent.rglob("*"))
    _, out, _ = xalign("import", "mteb-results", clone, "--json")
    report = json.loads(out)
    assert report["comparable"] == [
        {"task": "Tatoeba", "dataset_revision": "0123456789", "metric": "f1", "models": 2, "subsets": 1, "scores": 2}
    ]
    assert [line.split(":")[0] for line in report["left_out"]] == ["org__b/r1/STS17.json"]
    assert sorted(clone.parent.rglob("*")) == before


def test_output_has_the_chosen_models_alone(xalign, clone, tmp_path):
    _, out, _ = xalign("import", "mteb-results", clone, "-o", tmp_path / "out", "-m", "org/a")
    assert "1 result of 1 model," in out
    assert [path.name for path in (tmp_path / "out" / "results").iterdir()] == ["org__a"]


def test_a_wrong_path_is_one_error(xalign, tmp_path):
    status, out, (line,) = xalign("import", "mteb-results", tmp_path / "nowhere")
    assert (status, out) == (2, "")
    assert "nowhere" in line


@pytest.fixture
def ten(clone):
    """A copy of public results with as many models as a column of the table needs."""
    source = clone / "results" / "org__a" / "r1" / "Tatoeba.json"
    for number in range(10):
        path = clone / "results" / f"org__m{number}" / "r1" / "Tatoeba.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(source.read_bytes())
    return clone


def test_an_update_replaces_a_table_and_no_other_file(xalign, ten, tmp_path):
    notes, table = tmp_path / "notes.txt", tmp_path / "table.npz"
    notes.write_text("a year of notes")
    status, out, (line,) = xalign("atlas", "update", ten, "-o", notes)
    assert (status, out, notes.read_text()) == (2, "", "a year of notes")
    assert line.endswith(f"--output {notes} exists and is not an atlas table; name a new file.")
    assert all(xalign("atlas", "update", ten, "-o", table)[0] == 0 for _ in range(2))


def test_an_update_with_a_wrong_language_writes_nothing(xalign, ten, tmp_path):
    status, out, (line,) = xalign("atlas", "update", ten, "-o", tmp_path / "table.npz", "-l", "Klingonese")
    assert (status, out) == (2, "")
    assert "Klingonese" in line
    assert not (tmp_path / "table.npz").exists()


def test_an_update_leaves_out_tasks_that_mteb_does_not_know(xalign, ten, tmp_path):
    for number in range(10):
        folder = ten / "results" / f"org__m{number}" / "r1"
        (folder / "TaskOf2099.json").write_bytes((folder / "Tatoeba.json").read_bytes())
    status, out, _ = xalign("atlas", "update", ten, "-o", tmp_path / "table.npz", "--json")
    assert status == 0
    assert "TaskOf2099: left out, the installed mteb does not know this task" in json.loads(out)["left_out"]
    assert {column.task for column in load_atlas(tmp_path / "table.npz").columns} == {"Tatoeba"}


def test_an_update_replaces_a_damaged_table_of_the_cache(xalign, ten):
    place().parent.mkdir(parents=True)
    place().write_text("cut off")
    status, _, (line,) = xalign("atlas", "update", ten)
    assert (status, str(place()) in line, "packaged" in line) == (0, True, True)
    assert {column.task for column in load_atlas(place()).columns} == {"Tatoeba"}


def test_an_update_lists_changes_under_one_header(xalign, ten, tmp_path):
    out = xalign("atlas", "update", ten, "-o", tmp_path / "table.npz", "-l", "German")[1].splitlines()
    assert int(out[0].removeprefix("deu-Latn: ").removesuffix(" changes").replace(",", "")) == len(out) - 3 > 10
    assert [line.split("\t")[0] for line in out].count("kind") == 1


def test_choose_prints_what_a_team_lead_decides_by(xalign):
    wish = ("--languages", "German,nb", "--task", "Bitext", "--max-params", "600M", "--license", "MIT", "--top", "3")
    status, out, err = xalign("choose", *wish)
    assert status == 0
    header, first, *others = (line.split("\t") for line in out.splitlines())
    assert header[:5] == ["model", "score", "90%", "worst", "measured"]
    assert len(others) == 2
    row = dict(zip(header, first, strict=True))
    assert row["licence"] == "mit"
    assert row["worst"].endswith(("German", "Norwegian Bokmål"))
    assert "smallest within two points of the first" in "\n".join(err)
    assert any(line.startswith("- number of tasks with scores in each language: German ") for line in err)


def test_choose_as_json_has_all_models_and_their_limits(xalign):
    arguments = ("--languages", "sw", "--max-params", "0.6B", "--license", "permissive", "--dim", "768", "--json")
    report = json.loads(xalign("choose", *arguments)[1])
    assert report["wish"]["max_parameters"] == 600_000_000
    assert len(report["candidates"]) > 20
    for candidate in report["candidates"]:
        assert candidate["low"] <= candidate["score"] <= candidate["high"]
        assert candidate["about"]["parameters"] <= 600_000_000
        assert candidate["about"]["dimension"] <= 768
        assert candidate["about"]["licence"] in {"mit", "apache-2.0", "apache-2", "cc-by-4.0", "bsd-3-clause"}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "--languages"),
        (("--languages", "sw", "--max-params", "big"), "--max-params big"),
        (("--languages", "sw", "--task", "chat"), "--task chat"),
        (("--languages", "sw", "--license", " "), "--license ' ' names no licence"),
        (("--languages", "sw", "--max-params", "1"), "--max-params"),
        (("--languages", "sw", "--top", "-1"), "--top"),
        (("--languages", "sw", "--dim", "0"), "--dim"),
        (("--languages", "Klingonese"), "Klingonese"),
        (("--languages", "sw", "--results", "nowhere"), "nowhere"),
    ],
)
def test_a_wrong_wish_is_one_error(xalign, arguments, part):
    status, out, (line,) = xalign("choose", *arguments)
    assert (status, out) == (2, "")
    assert part in line
