"""The gate: every verdict, every exit code."""

from __future__ import annotations

import copy
import io
import json

import pytest
from rich.console import Console

from xalign_models.errors import ResultsError
from xalign_models.evaluation.gate import Verdict, compare, make_baseline, read_baseline, write_baseline
from xalign_models.evaluation.results import read_results

A, B = "xalign/plain__tiny", "xalign/lsar__tiny"
PAIRS = {"aaa_Latn-bbb_Latn": 0.2, "bbb_Latn-aaa_Latn": 0.9, "aaa_Latn-ccc_Latn": 0.4, "ccc_Latn-aaa_Latn": 0.5}


def judged(report) -> dict[tuple[str, str, str], str]:
    return {(row.model, row.task, row.language): str(row.verdict) for row in report.rows}


def printed(report, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(report.to_rich())
    return console.file.getvalue()


@pytest.fixture
def results(put, tmp_path):
    put(A, "S", {"en": 0.5, "de": 0.7})
    put(B, "S", {"en": 0.6, "de": 0.8})
    put(A, "P", PAIRS)
    return read_results(tmp_path)


def test_baseline_by_hand(results) -> None:
    baseline = make_baseline(results)
    assert baseline["tolerance"] == {"default": 0.5}
    assert baseline["scores"][A]["S"] == {
        "dataset_revision": "d1",
        "subsets": 2,
        "mean": 60.0,
        "languages": {"en": 50.0, "de": 70.0},
    }
    # aaa: into (0.9 + 0.5) / 2 = 0.7, from (0.2 + 0.4) / 2 = 0.3; bbb: into 0.2, from 0.9; ccc: into 0.4, from 0.5
    pairs = baseline["scores"][A]["P"]
    assert pairs["languages"] == pytest.approx({"aaa-Latn": 50.0, "bbb-Latn": 55.0, "ccc-Latn": 45.0})
    assert pairs["mean"] == pytest.approx(50.0)
    assert make_baseline(results, models=["lsar__tiny"], tasks=["S"])["scores"].keys() == {B}
    with pytest.raises(ResultsError, match="nope"):
        make_baseline(results, tasks=["nope"])


def test_same_results_pass(results) -> None:
    report = compare(results, make_baseline(results))
    assert set(judged(report).values()) == {"ok"}
    assert report.exit_code == 0
    assert printed(report).splitlines() == ["Gate passed (ok: 10)."]


@pytest.mark.parametrize(
    ("moved", "verdict", "code"),
    [(0.006, "regression", 1), (0.005, "ok", 0), (0.0, "ok", 0), (-0.005, "ok", 0), (-0.006, "improved", 0)],
)
def test_tolerance(results, put, tmp_path, moved: float, verdict: str, code: int) -> None:
    baseline = make_baseline(results)
    put(A, "S", {"en": round(0.5 - moved, 6), "de": 0.7})
    report = compare(read_results(tmp_path), baseline)
    assert judged(report)[A, "S", "en"] == verdict
    assert judged(report)[A, "S", "de"] == judged(report)[A, "S", "mean"] == "ok"  # the mean moves half as far
    assert report.exit_code == code


def test_a_tasks_own_tolerance(results, put, tmp_path) -> None:
    baseline = make_baseline(results)
    put(A, "S", {"en": 0.48, "de": 0.68})
    put(B, "S", {"en": 0.58, "de": 0.78})
    baseline["tolerance"] = {"default": 0.5, "S": 2.0}
    assert compare(read_results(tmp_path), baseline).exit_code == 0
    baseline["tolerance"] = {"default": 2.0, "S": 1.9}
    report = compare(read_results(tmp_path), baseline)
    assert report.exit_code == 1
    assert report.rows[0].tolerance == 1.9


def test_missing_model_task_and_language(results, put, tmp_path) -> None:
    baseline = make_baseline(results)
    baseline["scores"]["xalign/gone__tiny"] = {"S": baseline["scores"][A]["S"]}
    baseline["scores"][A]["Gone"] = baseline["scores"][A]["S"]
    put(B, "S", {"en": 0.6})
    report = compare(read_results(tmp_path), baseline)
    verdicts = judged(report)
    assert verdicts["xalign/gone__tiny", "S", "mean"] == verdicts[A, "Gone", "mean"] == "missing"
    assert verdicts[B, "S", "de"] == verdicts[B, "S", "mean"] == "missing"  # a mean of one is not the mean of two
    assert verdicts[B, "S", "en"] == "ok"
    assert report.exit_code == 2
    assert printed(report).splitlines()[-1].startswith("Gate CANNOT JUDGE")


def test_a_missing_pair_takes_the_tasks_means_with_it(results, put, tmp_path) -> None:
    baseline = make_baseline(results)
    put(A, "P", dict.fromkeys(list(PAIRS)[:3], 0.1))
    report = compare(read_results(tmp_path), baseline)
    assert {verdict for key, verdict in judged(report).items() if key[1] == "P"} == {"missing"}
    assert report.exit_code == 2


def test_a_wider_run_is_compared_like_for_like(results, put, tmp_path) -> None:
    baseline = make_baseline(results)
    put(A, "P", {**PAIRS, "aaa_Latn-ddd_Latn": 0.0, "ddd_Latn-aaa_Latn": 0.0})
    put(A, "S", {"en": 0.5, "de": 0.7, "fr": 0.0})
    assert set(judged(compare(read_results(tmp_path), baseline)).values()) == {"ok"}


def test_none_of_the_baselines_languages(results, put, tmp_path) -> None:
    baseline = make_baseline(results)
    put(A, "P", {"xxx_Latn-yyy_Latn": 0.5})
    assert compare(read_results(tmp_path), baseline).exit_code == 2


def test_changed_data_cannot_be_judged(results, put, tmp_path) -> None:
    baseline = make_baseline(results)
    put(A, "S", {"en": 0.1, "de": 0.1}, data="d2")
    report = compare(read_results(tmp_path), baseline)
    assert judged(report)[A, "S", "mean"] == "data changed"
    assert (A, "S", "en") not in judged(report)
    assert report.exit_code == 2


def test_an_unreadable_file_cannot_be_judged(results, put, tmp_path) -> None:
    baseline = make_baseline(results)
    put(A, "S", {"en": 0.5, "de": 0.7}, revision="older", date="2020-01-01T00:00:00Z")
    path = put(A, "S", {"en": 0.5, "de": 0.7}) / "S.json"
    path.write_text(path.read_text()[:50])
    report = compare(read_results(tmp_path), baseline)
    assert judged(report)[A, "S", "mean"] == "missing"
    assert (report.exit_code, report.unreadable) == (2, (path,))
    with pytest.raises(ResultsError, match=r"S\.json cannot be read"):
        make_baseline(read_results(tmp_path), models=[A, B])


def test_regression_outweighs_what_cannot_be_judged(results, put, tmp_path) -> None:
    baseline = make_baseline(results)
    put(A, "S", {"en": 0.1, "de": 0.7})
    put(B, "S", {"en": 0.1, "de": 0.1}, data="d2")
    report = compare(read_results(tmp_path), baseline)
    assert report.exit_code == 1
    assert [row.verdict for row in report.rows[:3]] == [Verdict.REGRESSION, Verdict.REGRESSION, Verdict.DATA_CHANGED]


def test_only_differing_rows_are_printed(results, put, tmp_path) -> None:
    baseline = make_baseline(results)
    put(A, "S", {"en": 0.49, "de": 0.70})
    for width in (80, 120):
        *table, summary = printed(compare(read_results(tmp_path), baseline), width).splitlines()
        assert sum(line.startswith("regression") for line in table) == 1
        assert "-1.00" in "".join(table)
        assert not any(line.startswith("ok") for line in table)
        assert summary == "Gate FAILED: scores fell (regression: 1, ok: 9)."


def test_json_has_every_row(results) -> None:
    report = compare(results, make_baseline(results))
    plain = json.loads(json.dumps(report.to_json()))
    assert (plain["exit_code"], len(plain["rows"])) == (0, 10)
    assert plain["rows"][0].keys() >= {
        "model",
        "task",
        "language",
        "expected",
        "found",
        "difference",
        "tolerance",
        "verdict",
    }
    assert plain["rows"][0]["difference"] == 0


def test_what_the_baseline_lacks_is_counted(results) -> None:
    report = compare(results, make_baseline(results, models=[B]))
    assert report.unguarded == ((A, "P"), (A, "S"))
    assert "results that the baseline does not have: 2" in report.summary()


def test_only_what_is_chosen_is_compared(results, put, tmp_path) -> None:
    baseline = make_baseline(results, models=[A])
    baseline["scores"]["xalign/gone__tiny"] = {"S": baseline["scores"][A]["S"]}
    put(A, "P", dict.fromkeys(PAIRS, 0.1))
    results = read_results(tmp_path)
    for models, tasks, code, keys, unguarded in (
        (None, None, 1, {(A, "S"), (A, "P"), ("xalign/gone__tiny", "S")}, ((B, "S"),)),
        (["plain__tiny"], ["S"], 0, {(A, "S")}, ()),
        ([A], ["P"], 1, {(A, "P")}, ()),
        (None, ["S"], 2, {(A, "S"), ("xalign/gone__tiny", "S")}, ((B, "S"),)),
        (["gone__tiny"], None, 2, {("xalign/gone__tiny", "S")}, ()),  # of the baseline alone
        ([B], None, 2, set(), ((B, "S"),)),  # of the results alone
    ):
        report = compare(results, baseline, models, tasks)
        assert {(row.model, row.task) for row in report.rows} == keys
        assert (report.exit_code, report.unguarded) == (code, unguarded)
    for wrong in ({"models": ["nope"]}, {"tasks": ["nope"]}):
        with pytest.raises(ResultsError, match="'nope'; there are some of"):
            compare(results, baseline, **wrong)


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"tolerance": 1, "scores": {}}'])
def test_no_baseline_is_one_clear_line(tmp_path, content: str | None) -> None:
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ResultsError, match="baseline") as error:
        read_baseline(path)
    assert "\n" not in str(error.value)


def test_an_empty_or_malformed_baseline_does_not_pass(results) -> None:
    assert compare(results, {"tolerance": {}, "scores": {}}).exit_code == 2
    good = make_baseline(results)
    for key, value in (
        ("mean", "high"),
        ("mean", float("nan")),
        ("languages", None),
        ("languages", {"en": float("nan")}),
    ):
        bad = copy.deepcopy(good)
        bad["scores"][A]["S"][key] = value
        with pytest.raises(ResultsError, match="malformed"):
            compare(results, bad)
    with pytest.raises(ResultsError, match="malformed"):
        compare(results, {**good, "tolerance": {"default": float("nan")}})


def test_writing_keeps_tolerances_and_other_models(results, tmp_path) -> None:
    path = tmp_path / "results" / "baseline.json"
    write_baseline(path, {**make_baseline(results, models=[B]), "tolerance": {"default": 0.25, "S": 1.0}})
    write_baseline(path, make_baseline(results, models=[A], tasks=["S"]))
    written = read_baseline(path)
    assert written["tolerance"] == {"default": 0.25, "S": 1.0}
    assert {model: list(of_model) for model, of_model in written["scores"].items()} == {A: ["S"], B: ["S"]}
    assert compare(read_results(tmp_path), written).exit_code == 0
