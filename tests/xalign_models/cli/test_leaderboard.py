"""The board's options: forms, one task by language, and the page."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.xalign_models.page.conftest import data_in
from xalign_models.cli.leaderboard import make

PLAIN, LSAR = "xalign/plain__tiny", "xalign/lsar__tiny"


@pytest.fixture
def board(xalign, tmp_path):
    """Runs ``xalign leaderboard`` on two models and a task: (exit status, standard output, lines of standard error)."""
    for model, score in ((PLAIN, 0.5), (LSAR, 0.625)):
        folder = tmp_path / "results" / model.replace("/", "__") / "r1"
        folder.mkdir(parents=True)
        entry = {"hf_subset": "deu-Latn", "languages": ["deu-Latn"], "main_score": score}
        result = {"task_name": "SIB200ZeroShot", "dataset_revision": "d", "scores": {"test": [entry]}}
        (folder / "SIB200ZeroShot.json").write_text(json.dumps(result))
        (folder / "model_meta.json").write_text(json.dumps({"name": model}))

    def run(*arguments):
        return xalign("leaderboard", "-o", tmp_path, *arguments)

    return run


def test_a_pipe_gets_a_line_per_model(board) -> None:
    status, out, _ = board()
    assert status == 0
    assert [line.split("\t") for line in out.splitlines()][1:] == [[LSAR, "62.5"], [PLAIN, "50.0"]]


@pytest.mark.parametrize("form", ["table", "tsv", "csv", "markdown", "latex", "json"])
def test_each_form_has_the_scores_by_language_too(board, form: str) -> None:
    for arguments in ((), ("--by-language", "-t", "SIB200ZeroShot")):
        status, out, _ = board("--format", form, *arguments)
        assert status == 0
        assert "62.5" in out
        assert ("deu-Latn" in out.partition('"common"')[0]) == bool(arguments)


def test_csv_by_language_is_for_programs(board) -> None:
    _, out, _ = board("--by-language", "-t", "SIB200ZeroShot", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {(row["language"], row["column"].split()[0], float(row["score"])) for row in rows} >= {
        ("deu-Latn", "lsar__tiny", 62.5),
        ("deu-Latn", "plain__tiny", 50.0),
    }


@pytest.mark.parametrize(
    ("arguments", "part"),
    [(("--serve",), "--html DIR"), (("--by-language",), "-t"), (("-m", "nothing"), "nothing")],
)
def test_wrong_uses_are_one_line(board, arguments, part: str) -> None:
    status, out, err = board(*arguments)
    assert (status, out) == (2, "")
    (line,) = err
    assert part in line


@pytest.mark.parametrize(
    "arguments",
    [
        "--narrow --json", "--means --by-language", "--means --json", "--html page --format csv", "--html page --means",
        "--format csv --json", "--markdown --json", "--html page --by-language",
    ],
)  # fmt: skip
def test_several_forms_of_output_are_refused(board, tmp_path, arguments: str) -> None:
    status, out, (line,) = board("-t", "SIB200ZeroShot", *arguments.split())
    assert (status, out) == (2, "")
    assert "ask for several forms of output; choose one." in line
    for same in (("--markdown", "--narrow"), ("--json", "--format", "json"), ("--means", "--format", "csv")):
        assert board(*same)[0] == 0


@pytest.mark.parametrize("form", ["--html page", "--means", "--by-language -t SIB200ZeroShot"])
@pytest.mark.parametrize("choice", [("--benchmark", "XAlign(parallel)"), ("--studies",)])
def test_a_choice_without_effect_is_refused(board, tmp_path, monkeypatch, form: str, choice) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, (line,) = board(*form.split(), *choice)
    assert (status, out, (tmp_path / "page").exists()) == (2, "", False)
    assert f"{choice[0]} has no effect with {form.split(maxsplit=1)[0]}; leave one out." in line


OWN = "XAlign(LUSIFER, te)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--benchmark", OWN, "-t", "SIB200ZeroShot"), "--benchmark and --tasks both choose tasks; leave one out."),
        (("--benchmark", "XAlign(parallel)", "-t", "Tatoeba36"), "--benchmark and --tasks both choose tasks"),
        (("--benchmark", OWN, "--languages", "de"), f"--languages has no effect on {OWN}, which has a board"),
        (("--benchmark", OWN, "--studies"), f"--studies has no effect on {OWN}"),
    ],
)
def test_a_benchmark_drops_no_option(board, arguments, message: str) -> None:
    status, out, (line,) = board(*arguments)
    assert (status, out) == (2, "")
    assert message in line


def test_mtebs_benchmarks_have_a_board_too(board, put, tmp_path) -> None:
    status, out, (line,) = board("--benchmark", "MTEB(eng, v2)")
    assert (status, out) == (2, "")
    assert "No results of MTEB(eng, v2); score models with" in line
    put(PLAIN, "STS12", {"default": 0.5})
    status, out, _ = board("--benchmark", "MTEB(eng, v2)", "--json")
    assert (status, json.loads(out)["columns"]) == (0, ["STS12"])


def test_a_run_of_a_benchmark_and_other_tasks_shows_both(board, put, tmp_path) -> None:
    put(PLAIN, "IndicLangClassification", {"default": 0.5})
    tasks = {"SIB200ZeroShot", "IndicLangClassification"}
    assert set(make({PLAIN}, tasks, tmp_path, OWN).columns) == tasks


def test_the_page_knows_what_mteb_says_of_tasks(board, tmp_path) -> None:
    status, out, _ = board("--html", tmp_path / "page")
    assert (status, out) == (0, f"wrote {tmp_path / 'page' / 'index.html'}\n")
    page = (tmp_path / "page" / "index.html").read_text()
    data = data_in(page)
    (task,) = data["tasks"]
    assert "News" in task["domains"]  # of mteb's SIB200Classification, which ours is adapted from
    assert task["type"] == "Classification"
    assert board("--html", tmp_path / "page", "-m", "lsar__tiny")[0] == 0
    page = (tmp_path / "page" / "index.html").read_text()
    assert [row["name"] for row in data_in(page)["rows"]] == [LSAR]
    assert board("--html", tmp_path / "page", "-t", "Nothing")[0] == 2


def test_a_page_that_is_not_ours_stays(board, tmp_path) -> None:
    (tmp_path / "index.html").write_text("<title>My site</title>")
    status, out, (line,) = board("--html", tmp_path)
    assert (status, out) == (2, "")
    assert "index.html exists and is not a board of xalign; choose another folder." in line
    assert (tmp_path / "index.html").read_text() == "<title>My site</title>"
