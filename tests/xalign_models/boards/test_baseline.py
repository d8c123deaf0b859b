"""The baseline: what it keeps, and that nothing wrong in it is believed."""

from __future__ import annotations

import codecs
import json

import pytest

from xalign_models.boards.baseline import (
    make_baseline,
    parse_tolerances,
    read_baseline,
    read_before,
    write_baseline,
)
from xalign_models.errors import ResultsError
from xalign_models.results.reading import read_results

A, B = "xalign/plain__tiny", "xalign/lsar__tiny"


@pytest.fixture
def results(put, tmp_path):
    put(A, "S", {"en": 0.5, "de": 0.123456789})
    put(B, "S", {"en": 0.6})
    return read_results(tmp_path)


def test_it_has_each_subset_in_percent(results, tmp_path) -> None:
    baseline = make_baseline(results)
    expected = {"dataset_revision": "d1", "split": "test", "scores": {"de": 12.3456789, "en": 50.0}}
    assert baseline.scores[A]["S"].model_dump() == expected
    assert make_baseline(results, models=["lsar__tiny"], tasks=["S"]).scores.keys() == {B}
    with pytest.raises(ResultsError, match="nope"):
        make_baseline(results, tasks=["nope"])
    write_baseline(tmp_path / "baseline.json", baseline, {})
    before = read_before(tmp_path / "baseline.json")
    assert before.results.tables[A, "S"].values() == pytest.approx({"de": 0.123456789, "en": 0.5})


@pytest.mark.parametrize("value", [1.0000005, 1.0000000000000002, 1.0])
def test_a_score_just_above_one_is_kept_as_one(put, tmp_path, value: float) -> None:
    put(A, "S", {"en": value})
    assert make_baseline(read_results(tmp_path)).scores[A]["S"].scores == {"en": 100.0}


def test_a_model_with_damaged_results_alone_is_not_left_out(put, results, tmp_path) -> None:
    (put("org/c", "S", {"en": 0.5}) / "S.json").write_text("{")
    with pytest.raises(ResultsError, match=r"A baseline needs usable results: .*org__c"):
        make_baseline(read_results(tmp_path))


def test_writing_keeps_tolerances_and_other_models(results, tmp_path) -> None:
    path = tmp_path / "results" / "baseline.json"
    write_baseline(path, make_baseline(results, models=[B]), {"default": 0.25, "S": 2})
    write_baseline(path, make_baseline(results, models=[A]), {"S": 3})
    written = read_baseline(path)
    assert written.tolerance == {"default": 0.25, "S": 3}
    assert {model: list(tasks) for model, tasks in written.scores.items()} == {A: ["S"], B: ["S"]}
    assert read_before(path, ["0.1"]).tolerance == {"default": 0.1, "S": 3}


def test_a_damaged_file_is_not_written_over(results, tmp_path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text("{")
    with pytest.raises(ResultsError, match=r"baseline\.json: Invalid JSON"):
        write_baseline(path, make_baseline(results), {})
    assert path.read_text() == "{"


def test_tolerances_are_points() -> None:
    assert parse_tolerances(["1", "T=2.5", "U=3"]) == {"default": 1, "T": 2.5, "U": 3}
    assert parse_tolerances([]) == {}
    for wrong in ("-1", "T=-0.1", "nan", "T=inf", "100.5", "much", "T="):
        with pytest.raises(ResultsError, match=r"--tolerance: .*A tolerance is 0 to 100 points\.$"):
            parse_tolerances([wrong])


@pytest.mark.parametrize("twice", [["0", "5"], ["T=2", "1", "T=3"], ["default=1", "2"], ["T=1", "T=1"]])
def test_a_tolerance_given_twice_is_refused(twice) -> None:
    """The last would count, and a decimal comma makes two of one."""
    with pytest.raises(ResultsError, match=r"(default|T) twice\. Give it once, with a point in decimals: 0\.5\.$"):
        parse_tolerances(twice)


@pytest.mark.parametrize("given", [["languages=0.5"], ["2", "languages=1"], ["0.2", "T=0.3", "languages=0.1"]])
def test_a_tolerance_of_languages_that_has_no_effect_is_refused(results, tmp_path, given) -> None:
    path = tmp_path / "baseline.json"
    write_baseline(path, make_baseline(results), {"default": 1, "languages": 1.5})
    for place in (path, tmp_path):
        with pytest.raises(ResultsError, match=r"^--tolerance languages=\S+ has no effect below the default of \d"):
            read_before(place, given)
    with pytest.raises(ResultsError, match="has no effect"):
        write_baseline(path, make_baseline(results), parse_tolerances([text for text in given if "T" not in text]))
    assert read_before(path, ["2"]).tolerance["languages"] == 1.5  # the file's, which the command need not repeat
    assert read_before(path, ["T=0.5", "languages=0.8"]).tolerance["languages"] == 0.8


def test_a_baseline_saved_with_a_byte_order_mark_is_read(results, tmp_path) -> None:
    path = tmp_path / "baseline.json"
    write_baseline(path, make_baseline(results), {})
    before = read_baseline(path)
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert read_baseline(path) == before


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"tolerance": {"default": -1}}, "tolerance / default"),
        ({"tolerance": {"default": float("nan")}}, "tolerance / default"),
        ({"tolerance": {"default": "1"}}, "tolerance / default"),
        ({"tolerance": {"a\n\x1b": -1}}, r"tolerance / a\n\x1b"),
        ({"tolerance": 1}, "tolerance"),
        ({"tolerances": {}}, "tolerances"),
        ({"scores": {A: {"S": {"dataset_revision": "d1", "scores": {"en": 101}}}}}, "S / scores / en"),
        ({"scores": {A: {"S": {"dataset_revision": "d1", "scores": {"en": float("inf")}}}}}, "S / scores / en"),
        ({"scores": {A: {"S": {"dataset_revision": "d1", "scores": {"en": "high"}}}}}, "S / scores / en"),
        ({"scores": {A: {"S": {"dataset_revision": "d1", "scores": {}}}}}, "S / scores"),
        ({"scores": {A: {"S": {"scores": {"en": 50}}}}}, "S / dataset_revision"),
        ({"scores": {A: {"S": {"dataset_revision": "d1", "mean": 3, "subsets": 1}}}}, "S / scores"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, where: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"tolerance": {"default": 1.0}, "scores": {}, **change}))
    with pytest.raises(ResultsError) as error:
        read_baseline(path)
    assert f"{where}: " in str(error.value)
    assert "\n" not in str(error.value)


def test_a_subset_listed_twice_is_refused(results, tmp_path) -> None:
    """JSON's readers take the last of two, so that it could replace the score to keep up."""
    path = tmp_path / "baseline.json"
    write_baseline(path, make_baseline(results), {})
    path.write_text(path.read_text().replace('"en": 60.0', '"en": 60.0, "en": 1.0'))
    with pytest.raises(ResultsError, match=r"baseline\.json: en is listed more than once"):
        read_baseline(path)


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000])
def test_no_baseline_is_one_clear_line(tmp_path, content: bytes | None) -> None:
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ResultsError, match="baseline") as error:
        read_baseline(path)
    assert "\n" not in str(error.value)
