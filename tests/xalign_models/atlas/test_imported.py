"""Reading public results: what is whole is read alike from every source, and what is not is named and left out."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pytest

from xalign_models.atlas.imported import FEWEST, comparable, read_public, write_results
from xalign_models.errors import ResultsError
from xalign_models.results.reading import read_results

SCORES = {"deu_Latn-eng_Latn": 0.9, "eng_Latn-deu_Latn": 0.8}


def plain(results):
    """All that a table or a file says of results."""
    return [
        (one.model, one.revision, one.task, one.mteb_version, one.dataset_revision, one.metric, one.rows())
        for one in results
    ]


def test_a_result_keeps_its_provenance(write_result, tmp_path):
    folder = write_result("org/model", SCORES, version="1.38.0", text="abc").parent
    meta = {"name": "org/model", "loader_kwargs": {"model_prompts": {"query": "query: "}}}
    (folder / "model_meta.json").write_text(json.dumps(meta))
    (result,) = read_public(tmp_path).results
    write_results([result], tmp_path / "ours", "a clone")
    (written,) = tmp_path.glob("ours/results/*/*/model_meta.json")
    assert json.loads(written.read_text())["loader_kwargs"] == meta["loader_kwargs"]
    assert (result.model, result.revision, result.task) == ("org/model", "r1", "NTREXBitextMining")
    assert (result.mteb_version, result.dataset_revision, result.metric) == ("1.38.0", "abc", "f1")
    assert result.rows()[0] == ("test", "deu_Latn-eng_Latn", ("deu-Latn", "eng-Latn"), 0.9)


def test_a_broken_file_is_named_and_left_out(write_result, tmp_path):
    write_result("org/whole", SCORES)
    write_result("org/cut", SCORES).write_text('{"scores": {"test": [')
    write_result("org/other", SCORES).write_text('{"scores": {"test": [{"hf_subset": "a"}]}}')
    imported = read_public(tmp_path)
    assert [result.model for result in imported.results] == ["org/whole"]
    assert [problem.split(":")[0] for problem in imported.problems] == [
        "org__cut/r1/NTREXBitextMining.json",
        "org__other/r1/NTREXBitextMining.json",
    ]


def test_of_two_revisions_the_more_complete_counts(write_result, tmp_path):
    write_result("org/model", SCORES, revision="old", version="1.2.0")
    write_result("org/model", {"deu_Latn-eng_Latn": 0.1}, revision="new", version="2.0.0")
    imported = read_public(tmp_path)
    assert [result.revision for result in imported.results] == ["old"]
    assert imported.problems == ("org/model new NTREXBitextMining: left out, old has the same task",)


def test_of_two_whole_revisions_the_one_of_the_newer_mteb_counts(write_result, tmp_path):
    write_result("org/model", SCORES, revision="a", version="1.10.0")
    write_result("org/model", SCORES, revision="b", version="1.9.0")
    assert [result.revision for result in read_public(tmp_path).results] == ["a"]


def test_other_texts_and_other_metrics_stay_apart(write_result, tmp_path):
    write_result("org/model", SCORES, revision="a", text="d1")
    write_result("org/model", SCORES, revision="b", text="d2")
    write_result("org/model", SCORES, revision="c", text="d2", metric="accuracy")
    imported = read_public(tmp_path)
    assert len(imported.results) == 3
    assert not imported.problems
    assert [(row["dataset_revision"], row["metric"]) for row in comparable(imported.results)] == [
        ("d1", "f1"),
        ("d2", "accuracy"),
        ("d2", "f1"),
    ]


@pytest.mark.parametrize("score", [1.01, -0.5, float("nan"), 90.0, True, "0.5"])
def test_a_score_out_of_range_is_named_and_left_out(write_result, tmp_path, score):
    write_result("org/model", {**SCORES, "deu_Latn-fra_Latn": score})
    imported = read_public(tmp_path)
    assert {row[1] for row in imported.results[0].rows()} == {*SCORES}
    (problem,) = imported.problems
    assert problem.startswith("org/model r1 NTREXBitextMining: 1 of 3 scores left out, e.g. deu_Latn-fra_Latn: ")


def test_a_correlation_may_be_negative(write_result, tmp_path):
    write_result("org/model", {"deu_Latn": -0.5}, task="STS17", metric="cosine_spearman")
    assert not read_public(tmp_path).problems


def test_a_run_of_perfect_scores_is_left_out_with_its_other_results(write_result, tmp_path):
    subsets = [
        f"{a}_Latn-{b}_Latn"
        for a in ("deu", "fra", "spa", "ita", "por", "nld", "swe", "dan")
        for b in ("eng", "pol", "ces", "slk", "ron", "cat", "glg")
    ]
    assert len(subsets) >= FEWEST
    write_result("org/perfect", dict.fromkeys(subsets, 1.0))
    write_result("org/perfect", SCORES, task="Tatoeba")
    write_result("org/good", dict.fromkeys(subsets, 0.99))
    imported = read_public(tmp_path)
    assert [result.model for result in imported.results] == ["org/good"]
    assert len(imported.problems) == 2
    assert all("56 of 56 subsets of NTREXBitextMining are exactly 1" in problem for problem in imported.problems)


def test_f1_is_not_taken_for_accuracy_where_both_are_equal(tmp_path):
    rows = [
        ("a__b", "r", "2.0", "Tatoeba", "d", "test", f"s{i}", "deu-Latn eng-Latn", score, metric)
        for i, (score, metric) in enumerate([(1.0, "accuracy"), (1.0, "accuracy"), (0.5, "f1")])
    ]
    columns = "model revision mteb_version task dataset_revision split subset languages main_score metric".split()
    pd.DataFrame(rows, columns=columns).to_parquet(tmp_path / "table.parquet")
    (result,) = read_public(tmp_path / "table.parquet").results
    assert result.metric == "f1"
    assert result.rows()[2] == ("test", "s2", ("deu-Latn", "eng-Latn"), 0.5)


def test_two_texts_of_a_revision_do_not_overwrite_each_other(tmp_path):
    columns = "model revision mteb_version task dataset_revision split subset languages main_score metric".split()
    rows = [("org/m", "r", "2.0", "T", text, "test", "de", "deu-Latn", 0.5, "f1") for text in ("old", "new")]
    pd.DataFrame(rows, columns=columns).to_parquet(tmp_path / "table.parquet")
    imported = read_public(tmp_path / "table.parquet")
    assert len(imported.results) == 2
    (line,) = write_results(imported.results, tmp_path, "the table")
    assert line == "org/m r T: not written, T.json has another text or metric of this revision"
    assert read_results(tmp_path).tables["org/m", "T"].dataset_revision == imported.results[0].dataset_revision


def test_a_table_with_names_that_leave_the_folder_is_refused_line_by_line(tmp_path):
    columns = "model revision mteb_version task dataset_revision split subset languages main_score metric".split()
    row = ("a__b", "../../r", "2.0", "Tatoeba", "d", "test", "s", "deu-Latn eng-Latn", 0.5, "f1")
    pd.DataFrame([row], columns=columns).to_parquet(tmp_path / "table.parquet")
    imported = read_public(tmp_path / "table.parquet")
    assert not imported.results
    assert "a name that no folder can have" in imported.problems[0]


def test_what_is_written_reads_as_our_own_results_do(write_result, tmp_path):
    write_result("org/model", SCORES)
    imported = read_public(tmp_path)
    write_results(imported.results, tmp_path / "ours", "a clone")
    assert plain(read_public(tmp_path / "ours").results) == plain(imported.results)
    table = read_results(tmp_path / "ours").tables["org/model", "NTREXBitextMining"]
    assert table.values() == SCORES
    assert table.values("f1") == SCORES


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"scores": []}',
        '{"scores": {"test": [1]}}',
        "[" * 100_000,
        "\x00",
        '{"scores": {"test": [{"hf_subset": "a", "languages": ["deu-Latn"], "main_score": "high"}]}}',
        '{"scores": {"test": [{"hf_subset": "a", "languages": [["deu"]], "main_score": 0.5}]}}',
        '{"scores": {"test": [{"hf_subset": "a", "languages": [], "main_score": 0.5}]}, "dataset_revision": [1]}',
    ],
)
def test_whatever_a_file_holds_is_a_line(write_result, tmp_path, content):
    write_result("org/model", SCORES).write_text(content)
    imported = read_public(tmp_path)
    assert not imported.results
    assert len(imported.problems) == 1


@pytest.mark.parametrize(
    ("column", "value", "count"),
    [("main_score", "high", None), ("model", None, 0), ("subset", None, 1), ("metric", 3, 1)],
)
def test_whatever_a_table_holds_is_a_line(tmp_path, column, value, count):
    columns = "model revision mteb_version task dataset_revision split subset languages main_score metric".split()
    row = dict(
        zip(columns, ("a__b", "r", "2.0", "Tatoeba", "d", "test", "s", "deu-Latn eng-Latn", 0.5, "f1"), strict=True)
    )
    pd.DataFrame([row | {column: value}]).to_parquet(tmp_path / "table.parquet")
    if count is None:
        with pytest.raises(ResultsError, match="not a table of results"):
            read_public(tmp_path / "table.parquet")
    else:
        assert len(read_public(tmp_path / "table.parquet").results) == count


@pytest.mark.parametrize("name", ["nothing", "text.parquet", "empty"])
def test_what_is_no_result_is_refused_in_one_line(tmp_path, name):
    (tmp_path / "text.parquet").write_text("no table")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match=name):
        read_public(tmp_path / name)


@pytest.mark.realdata
@pytest.mark.slow
def test_the_whole_table_is_read_fast_and_small(public_scores):
    """Processor time, which other work on the machine does not lengthen."""
    code = f"""
from pathlib import Path
from xalign_models.atlas.imported import read_public
assert sum(len(result.rows()) for result in read_public(Path({str(public_scores)!r})).results) > 1_000_000
status = Path("/proc/self/status").read_text()  # a child's ru_maxrss can be its parent's
print(1024 * int(status.partition("VmHWM:")[2].split()[0]), sum(os.times()[:2]))
"""
    done = subprocess.run([sys.executable, "-c", f"import os{code}"], capture_output=True, text=True, check=True)
    memory, seconds = map(float, done.stdout.split())
    assert seconds < 20
    assert memory < 1.5e9


@pytest.mark.realdata
@pytest.mark.slow
def test_files_of_fifty_models_give_the_numbers_of_the_table(tmp_path, public_scores):
    table = read_public(public_scores).results
    models = sorted({result.model for result in table})[:50]
    chosen = [result for result in table if result.model in models]
    write_results(chosen, tmp_path, "the table")
    assert plain(read_public(tmp_path).results) == plain(chosen)
