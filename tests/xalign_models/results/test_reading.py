"""Reading results: what counts, what is skipped, and what must not be mistaken for a result."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xalign_models.errors import DataError, ResultsError
from xalign_models.results.languages import into_and_from, language_pairs
from xalign_models.results.reading import read_result, read_results

PLAIN = "xalign/plain__tiny"


def test_scores_by_subset_and_metric(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.5, "de": 0.25}, metric="accuracy", trained=("T",))
    results = read_results(tmp_path)
    table = results.tables[PLAIN, "T"]
    assert (table.dataset_revision, table.trained_on, table.baseline) == ("d1", True, None)
    assert table.values() == table.values("accuracy") == {"en": 0.5, "de": 0.25}
    assert table.columns.keys() == {"main_score", "accuracy"}
    assert (results.models, results.tasks) == ([PLAIN], ["T"])


def test_the_root_may_be_the_results_folder(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.5})
    assert read_results(tmp_path / "results").models == [PLAIN]


def test_neighbours_are_not_results(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.5})
    for name in ("baseline.json", "README.md", "published/index.json", "throughput/h200/run.json"):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    folder = tmp_path / "results" / "xalign__plain__tiny" / "r1"
    (folder / "T.json.aside-20261121T000000").write_text("{")
    (folder / ".T.json").write_text("{")
    (folder / "run_settings.jsonl").write_text("{}\n")
    results = read_results(tmp_path)
    assert list(results.tables) == [(PLAIN, "T")]
    assert not results.unreadable


def test_newest_revision_counts_for_each_task(put, tmp_path, caplog) -> None:
    put(PLAIN, "T", {"en": 0.9}, revision="new", date="2026-11-21T12:00:00+01:00")
    put(
        PLAIN, "T", {"en": 0.1}, revision="old", date="2026-11-21T10:00:00+00:00"
    )  # an hour earlier, in fact later in text
    put(PLAIN, "T", {"en": 0.5}, revision="zzz", date="2026-11-21T11:30:00Z")
    put(PLAIN, "U", {"en": 0.3}, revision="old")
    results = read_results(tmp_path)
    assert results.tables[PLAIN, "T"].revision == "zzz"
    assert results.tables[PLAIN, "U"].revision == "old"
    first, second = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{PLAIN}: revision old is ignored for the newer new on T;" in first
    assert f"{PLAIN}: revision new is ignored for the newer zzz on T;" in second
    assert "xalign fit --label" in first


def test_without_a_date_the_files_time_counts(put, tmp_path) -> None:
    late = put("org/foreign", "T", {"en": 0.2}, revision="b", date=None)
    early = put("org/foreign", "T", {"en": 0.1}, revision="c", date=None)
    os.utime(early / "T.json", (1e9, 1e9))
    os.utime(late / "T.json", (2e9, 2e9))
    (early / "model_meta.json").unlink()  # the folder's name will do
    assert read_results(tmp_path).tables["org/foreign", "T"].revision == "b"


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"task_name": "T", "scores": {"te',
        "[]",
        "[" * 100_000,
        '{"task_name": "U", "scores": {}}',
        "{}",
        '{"scores": [1]}',
        "\udcff",
    ],
)
def test_a_damaged_file_is_skipped_and_named(put, tmp_path, caplog, content: str) -> None:
    put(PLAIN, "T", {"en": 0.4}, revision="old", date="2026-01-01T00:00:00Z")
    folder = put(PLAIN, "T", {"en": 0.5})
    put(PLAIN, "U", {"en": 0.5})
    (folder / "T.json").write_bytes(content.encode(errors="surrogateescape"))
    results = read_results(tmp_path)
    assert list(results.tables) == [(PLAIN, "U")]  # the old revision does not stand in for the damaged one
    assert results.unreadable == {(PLAIN, "T"): folder / "T.json"}
    ignored, warning = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "revision old is ignored" in ignored
    assert str(folder / "T.json") in warning
    assert "xalign run" in warning
    assert "\n" not in warning


def test_a_subset_called_as_the_mean_is_refused_beside_others(put, tmp_path, caplog) -> None:
    folder = put(PLAIN, "T", {"en": 0.5, "mean": 0.25})
    put(PLAIN, "U", {"mean": 0.5})  # which is the mean
    results = read_results(tmp_path)
    assert list(results.tables) == [(PLAIN, "U")]
    assert results.unreadable == {(PLAIN, "T"): folder / "T.json"}
    assert "it calls a subset 'mean', like the mean over all" in caplog.text


@pytest.mark.parametrize("target", ["nowhere", "T.json"])
def test_a_link_that_leads_nowhere_is_skipped_and_named(put, tmp_path, caplog, target: str) -> None:
    """As of data that git-annex or DVC has not fetched."""
    folder = put(PLAIN, "T", {"en": 0.5})
    put(PLAIN, "U", {"en": 0.5})
    (folder / "T.json").unlink()
    (folder / "T.json").symlink_to(target)
    results = read_results(tmp_path)
    assert (list(results.tables), [*results.unreadable]) == ([(PLAIN, "U")], [(PLAIN, "T")])
    assert str(folder / "T.json") in caplog.text


@pytest.mark.parametrize("date", [1e18, -1e18, float("inf"), float("nan")])
def test_an_impossible_date_is_named(put, tmp_path, caplog, date: float) -> None:
    folder = put(PLAIN, "T", {"en": 0.5})
    data = json.loads((folder / "T.json").read_text())
    (folder / "T.json").write_text(json.dumps({**data, "date": date}))
    assert not read_results(tmp_path).tables
    assert f"its date {date!r} is impossible" in caplog.text


def test_a_damaged_file_of_an_older_date_hides_no_newer_result(put, tmp_path) -> None:
    folder = put(PLAIN, "T", {"en": 0.4}, revision="old", date="2026-01-01T00:00:00Z")
    put(PLAIN, "T", {"en": 0.5}, date="2026-02-01T00:00:00Z")
    data = json.loads((folder / "T.json").read_text())
    (folder / "T.json").write_text(json.dumps({**data, "scores": [1]}))  # written last
    results = read_results(tmp_path)
    assert results.tables[PLAIN, "T"].values() == {"en": 0.5}
    assert not results.unreadable


def test_a_file_is_read_by_a_path_from_its_own_folder(put, monkeypatch) -> None:
    monkeypatch.chdir(put("org/model", "T", {"en": 0.4}))
    table = read_result(Path("T.json"))
    assert (table.model, table.revision, table.values()) == ("org/model", "r1", {"en": 0.4})


@pytest.mark.parametrize(
    "content",
    ["[]", "{", "", '{"name": 1}', "[" * 100_000, '{"name": "xalign/../../other"}', '{"name": "xalign/lsar__tiny"}'],
)
def test_metadata_that_are_damaged_or_another_models_are_as_none(put, tmp_path, caplog, content: str) -> None:
    folder = put("xalign/centered__tiny", "T", {"en": 0.4}, baseline=PLAIN, trained=("T",))
    assert read_results(tmp_path).tables["xalign/centered__tiny", "T"].baseline == PLAIN
    assert not caplog.records
    (folder / "model_meta.json").write_text(content)
    table = read_results(tmp_path).tables["xalign/centered__tiny", "T"]
    assert (table.baseline, table.trained_on) == (None, False)
    assert [record.getMessage().count("model_meta.json is damaged") for record in caplog.records] == [1]


@pytest.mark.parametrize(
    ("metric", "value", "kept"),
    [
        ("main_score", 1.0000005, True),
        ("main_score", -0.3, False),
        ("main_score", -1e-7, True),
        ("main_score", 55.2, False),
        ("precision_at_5", -0.1, False),
        ("after_precision_at_1", 1.2, False),
        ("cosine_spearman", -0.9, True),
        ("cosine_spearman", -1.1, False),
        ("main_score", float("nan"), False),
        ("ndcg_at_10", float("inf"), False),
        ("sentences", 2009, True),
    ],
)
def test_scores_outside_their_bounds_are_named_and_left_out(put, tmp_path, caplog, metric, value, kept) -> None:
    folder = put(PLAIN, "T", {"en": 0.4, "de": 0.5})
    data = json.loads((folder / "T.json").read_text())
    data["scores"]["test"][1][metric] = value
    (folder / "T.json").write_text(json.dumps(data))
    table = read_results(tmp_path).tables[PLAIN, "T"]
    assert ("de" in table.values(metric)) == kept
    assert "en" in table.values()
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [] if kept else len(messages) == 1 and f"{metric} of de ({value})" in messages[0]


@pytest.mark.parametrize(("metric", "kept"), [("cosine_spearman", True), ("kendall", True), ("f1", False)])
def test_a_main_score_has_the_range_of_the_metric_that_it_equals(put, tmp_path, metric: str, kept: bool) -> None:
    put(PLAIN, "T", {"en": -0.3, "de": 0.5}, metric=metric)
    table = read_results(tmp_path).tables[PLAIN, "T"]
    assert ("en" in table.values()) == kept
    assert table.impossible == ({} if kept else {"en": "-30% is not between 0% and 100%"})


def test_the_public_repository_and_mtebs_cache_are_read_too(put, tmp_path) -> None:
    put("org/own", "T", {"en": 0.4})
    (tmp_path / "remote").mkdir()
    put("org/public", "T", {"en": 0.6})
    (tmp_path / "remote" / "results").mkdir()
    (tmp_path / "results" / "org__public").rename(tmp_path / "remote" / "results" / "org__public")
    (tmp_path / "remote" / "paths.json").write_text("{}")
    assert read_results(tmp_path).models == ["org/own", "org/public"]
    assert read_results(tmp_path / "remote").models == ["org/public"]


def test_many_files_of_an_older_form_are_counted(put, tmp_path, caplog) -> None:
    folder = put(PLAIN, "T", {"en": 0.4})
    for number in range(20):
        (folder / f"Old{number}.json").write_text('{"test": {"en": {}}, "mteb_dataset_name": "Old"}')
    assert len(read_results(tmp_path).unreadable) == 20
    assert len(caplog.records) == 6
    assert "15 more files without a complete result are skipped" in caplog.text


def test_no_numbers_are_left_out(put, tmp_path) -> None:
    folder = put(PLAIN, "T", {"en": 0.4, "de": float("nan")})
    entry = json.loads((folder / "T.json").read_text())
    entry["scores"]["test"][0] |= {"flag": True, "per_class": [1, 2], "nothing": None}
    (folder / "T.json").write_text(json.dumps(entry))
    table = read_results(tmp_path).tables[PLAIN, "T"]
    assert table.values() == {"en": 0.4}
    assert table.columns.keys() == {"main_score", "precision_at_1"}


def test_several_splits_stay_apart(put, tmp_path) -> None:
    folder = put(PLAIN, "T", {"en": 0.4})
    data = json.loads((folder / "T.json").read_text())
    data["scores"]["dev"] = [{"hf_subset": "en", "main_score": 0.2, "languages": ["eng-Latn"]}]
    (folder / "T.json").write_text(json.dumps(data))
    assert read_results(tmp_path).tables[PLAIN, "T"].values() == {"test/en": 0.4, "dev/en": 0.2}


def test_no_results_is_one_clear_line(tmp_path) -> None:
    with pytest.raises(ResultsError, match="No results under .*xalign run") as error:
        read_results(tmp_path)
    assert "\n" not in str(error.value)


def test_into_and_from_by_hand() -> None:
    scores = {"aaa_Latn-bbb_Latn": 0.2, "aaa_Latn-ccc_Latn": 0.4, "bbb_Latn-aaa_Latn": 0.9}
    into, leaving = into_and_from(scores)
    assert into == {"aaa_Latn": 0.9, "bbb_Latn": 0.2, "ccc_Latn": 0.4}
    assert leaving == pytest.approx({"aaa_Latn": 0.3, "bbb_Latn": 0.9})
    with pytest.raises(DataError):
        into_and_from({})


def test_language_pairs_need_both_sides_in_full() -> None:
    assert language_pairs(["deu_Latn-eng_Latn"]) == {"deu_Latn-eng_Latn": ("deu_Latn", "eng_Latn")}
    assert language_pairs(["deu_Latn-eng_Latn", "en-ar"]) is None


def test_tables_need_neither_mteb_nor_torch_nor_pandas() -> None:
    heavy = "{'mteb', 'torch', 'pandas', 'scipy.stats', 'transformers'}"
    ours = "xalign_models.boards.gate, xalign_models.boards.leaderboard"
    code = f"import sys, {ours}; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_results_of_the_same_subsets_share_them(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.5, "de": 0.25})
    put("xalign/lir-1__tiny", "T", {"en": 0.5, "de": 0.75})
    put("xalign/lir-2__tiny", "T", {"de": 0.75, "en": 0.5})
    first, second, other = (table.frame for table in read_results(tmp_path).tables.values())
    assert len({id(frame) for frame in (first, second, other)}) == 2


def test_only_the_chosen_models_are_read(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.5})
    put("org/other", "T", {"en": 0.25})
    for path in (tmp_path / "results" / "org__other").glob("*/T.json"):
        path.write_text("{")
    results = read_results(tmp_path, chosen=lambda specs: specs.keys() - {"org/other"})
    assert (results.models, results.unreadable) == ([PLAIN], {})
