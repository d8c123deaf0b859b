"""The gate: every verdict for its reason, none hidden behind another."""

from __future__ import annotations

import io
import json
import re
import shutil
import time
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from xalign_models.boards.baseline import make_baseline, read_before, write_baseline
from xalign_models.boards.gate import compare
from xalign_models.boards.verdicts import GateReport, GateRow, Verdict, decide
from xalign_models.errors import ResultsError
from xalign_models.results.languages import into_and_from, language_weights
from xalign_models.results.proportions import fall_of, interval, p_of_fall
from xalign_models.results.reading import read_results

A, B = "xalign/plain__tiny", "xalign/lsar__tiny"
PAIRS = {"aaa_Latn-bbb_Latn": 0.2, "bbb_Latn-aaa_Latn": 0.9, "aaa_Latn-ccc_Latn": 0.4, "ccc_Latn-aaa_Latn": 0.5}
CODES = [f"{a}{b}{c}_Latn" for a in "abcd" for b in "abc" for c in "abcd"][:37]


def judged(report) -> dict[tuple[str, str, str], str]:
    return {row.key: str(row.verdict) for row in report.rows}


def reasons(report, verdict: str) -> dict[str, str]:
    return {row.language: row.reason for row in report.rows if row.verdict == verdict}


def printed(report, width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(report)
    return console.file.getvalue()


@pytest.fixture
def results(put, tmp_path):
    put(A, "S", {"en": 0.5, "de": 0.7})
    put(B, "S", {"en": 0.6, "de": 0.8})
    put(A, "P", PAIRS)
    return read_results(tmp_path)


@pytest.fixture
def keep(put, tmp_path):
    """The results so far as a folder to compare with, and what compares the later ones with it."""

    def copy():
        shutil.copytree(tmp_path / "results", tmp_path / "old" / "results", dirs_exist_ok=True)

        def run(*tolerances: str, **chosen) -> GateReport:
            return compare(read_results(tmp_path), read_before(tmp_path / "old", tolerances), **chosen)

        return run

    return copy


@pytest.fixture
def put_hits(put):
    """Writes a result of right and wrong answers, with its items; hits are (n,) bool by subset."""

    def write(model, task, hits, **more):
        scores = {subset: float(np.mean(right)) for subset, right in hits.items()}
        ranks = {subset: np.where(right, 1, 9).astype(np.int32) for subset, right in hits.items()}
        return put(model, task, scores, ranks=ranks, **more)

    return write


def with_noise(hits, rng, lost: float, won: float):
    """The answers of another model: shares ``lost`` and ``won`` of all items turn wrong and right."""
    new = hits.copy()
    new[rng.choice(np.flatnonzero(hits), round(lost * len(hits)), replace=False)] = False
    new[rng.choice(np.flatnonzero(~hits), round(won * len(hits)), replace=False)] = True
    return new


@pytest.fixture
def healthy():
    """Answers in 37 languages, 1,000 each, 80% right."""
    rng = np.random.default_rng(0)
    return {code: rng.permutation(np.arange(1000) < 800) for code in CODES}


def test_shares_by_hand() -> None:
    # aaa: into (bbb-aaa, ccc-aaa), from (aaa-bbb, aaa-ccc); bbb and ccc: one pair each way
    assert language_weights(PAIRS) == {
        "mean": dict.fromkeys(PAIRS, 0.25),
        "aaa-Latn": dict.fromkeys(PAIRS, 0.25),
        "bbb-Latn": {"bbb_Latn-aaa_Latn": 0.5, "aaa_Latn-bbb_Latn": 0.5},
        "ccc-Latn": {"ccc_Latn-aaa_Latn": 0.5, "aaa_Latn-ccc_Latn": 0.5},
    }
    assert language_weights(["en"]) == {"en": {"en": 1.0}}  # the mean is the same
    assert language_weights(["aaa_Latn-bbb_Latn"])["bbb-Latn"] == {"aaa_Latn-bbb_Latn": 1.0}  # there is only Into


@given(st.sets(st.tuples(*[st.sampled_from(["aaa_Latn", "bbb_Latn", "ccc_Latn"])] * 2), min_size=1))
def test_a_languages_row_is_the_mean_of_into_and_from(pairs) -> None:
    scores = {f"{source}-{target}": i / 10 for i, (source, target) in enumerate(sorted(pairs))}
    into, leaving = into_and_from(scores)
    for language in into.keys() | leaving.keys():
        weights = language_weights(scores)[language.replace("_", "-")]
        assert sum(weights.values()) == pytest.approx(1)
        mean = fmean(side[language] for side in (into, leaving) if language in side)
        assert sum(weight * scores[subset] for subset, weight in weights.items()) == pytest.approx(mean)


def test_same_results_pass(results, keep, tmp_path) -> None:
    write_baseline(tmp_path / "baseline.json", make_baseline(results), {})
    for report in (keep()(), compare(results, read_before(tmp_path / "baseline.json"))):
        assert set(judged(report).values()) == {"pass"}
        assert report.exit_code == 0
        assert printed(report).splitlines() == ["Gate passed (pass: 10)."]
    rows = {row.key: row for row in report.rows}
    assert rows[A, "P", "bbb-Latn"].old == pytest.approx(55)  # (20 + 90) / 2
    assert rows[A, "P", "mean"].new == pytest.approx(50)


@pytest.mark.parametrize(("moved", "code"), [(0.0061, 1), (0.006, 0), (0.0, 0), (-0.2, 0)])
def test_without_items_the_tolerance_decides(results, put, keep, moved: float, code: int) -> None:
    run = keep()
    put(A, "S", {"en": round(0.5 - moved, 6), "de": 0.7})
    report = run("0.6")
    assert (judged(report)[A, "S", "en"] == "fail") == (code == 1)
    assert judged(report)[A, "S", "de"] == judged(report)[A, "S", "mean"] == "pass"  # the mean moves half as far
    assert report.exit_code == code


def test_other_numbers_of_items_are_no_reason_to_pass(put_hits, keep) -> None:
    """Rows of a subset with fewer items than before, whose score is the same, are not judged by the tolerance alone."""
    hits = {code: np.arange(400) % 5 > 0 for code in ("aa", "bb")}
    put_hits(A, "S", hits)
    run = keep()
    put_hits(A, "S", {**hits, "aa": hits["aa"][:300]})
    report = run("5")
    assert judged(report) == {(A, "S", "mean"): "cannot tell", (A, "S", "aa"): "cannot tell", (A, "S", "bb"): "pass"}
    assert {*reasons(report, "cannot tell").values()} == {"other items: aa had 400 and has 300 now"}
    assert report.exit_code == 3


def test_a_tasks_own_tolerance(results, put, keep) -> None:
    run = keep()
    put(A, "S", {"en": 0.48, "de": 0.68})
    assert run("S=2").exit_code == run("2").exit_code == 0
    report = run("2", "S=1.9")
    assert (report.exit_code, report.rows[0].tolerance) == (1, 1.9)
    for wrong in ("Floors=1", f"{A}=1"):
        with pytest.raises(ResultsError, match=r"No results of the tolerance's task '.*'; there are results of"):
            run(wrong)


def test_one_language_down_ten_points_among_37(put_hits, keep, healthy) -> None:
    put_hits(A, "S", healthy)
    run = keep()
    rng = np.random.default_rng(1)
    put_hits(A, "S", {**healthy, CODES[7]: with_noise(healthy[CODES[7]], rng, 0.11, 0.01)})
    report = run()
    assert reasons(report, "fail") == {CODES[7]: "fell"}
    (row,) = report.open_rows
    assert row.difference == pytest.approx(-10)
    assert row.low < -10 < row.high < -8
    assert row.p < 1e-10
    assert report.exit_code == 1


def test_a_fall_within_the_noise_is_not_a_regression_nor_a_pass(put_hits, keep, healthy) -> None:
    put_hits(A, "S", healthy)
    run = keep()
    rng = np.random.default_rng(1)
    put_hits(A, "S", {**healthy, CODES[7]: with_noise(healthy[CODES[7]], rng, 0.033, 0.027)})
    for tolerances in ((), ("0.5",)):  # 0.6 points down, within one tolerance and beyond the other
        report = run(*tolerances)
        assert reasons(report, "cannot tell") == {CODES[7]: "too few items to tell"}
        assert report.exit_code == 3
        assert report.open_rows[0].difference == pytest.approx(-0.6)
    # one-sided 95% bound: 0.6 + 0.05 for continuity + 1.645 * sqrt(60 / 1000 / 1000) * 100, and a little for Tango and
    # for neighbours that moved together by chance
    supported = float(re.search(r"support a tolerance of ([\d.]+) points", report.summary())[1])
    assert 1.92 < supported < 2.05
    assert (run(f"{supported}").exit_code, run(f"{supported - 0.01}").exit_code) == (0, 3)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("inf"), "inf is not finite"),
        (2.0, "200% is not between 0% and 100%"),
        (-0.1, "-10% is not between 0% and 100%"),
        (float("nan"), "nan is not finite"),
        ("0.8", '"0.8" is not a number'),
        (True, "true is not a number"),
        (None, "null is not a number"),
    ],
)
def test_an_impossible_score_fails_and_hides_nothing(put, keep, tmp_path, value, said: str) -> None:
    """In one language; 35 others pass, and another that fell is named beside it."""
    put(A, "S", dict.fromkeys(CODES, 0.8))
    run = keep()
    put(A, "S", {**dict.fromkeys(CODES, 0.8), CODES[3]: value, CODES[5]: 0.7})
    report = run()
    assert reasons(report, "fail") == {CODES[3]: f"impossible score: {said}", CODES[5]: "fell"}
    assert judged(report)[A, "S", CODES[0]] == "pass"
    assert sum(row.verdict == "pass" for row in report.rows) == 36  # with the mean over what both have
    assert report.exit_code == 1
    with pytest.raises(ResultsError, match="A baseline needs usable results: .*" + CODES[3]):
        make_baseline(read_results(tmp_path))
    assert compare(read_results(tmp_path), read_before(tmp_path / "old"), tasks=["S"]).exit_code == 1


def test_a_correlation_may_be_negative(put, keep) -> None:
    put(A, "S", {"en": -0.1}, metric="cosine_spearman")
    assert keep()().exit_code == 0


def test_one_broken_language_of_pairs_is_one_row(put, keep) -> None:
    codes = CODES[:10]
    pairs = {f"{a}-{b}": 0.8 for a in codes for b in codes if a != b}
    put(A, "P", pairs)
    run = keep()
    bad = {pair: float("nan") if codes[3] in pair else 0.6 if codes[5] in pair else 0.8 for pair in pairs}
    put(A, "P", bad)
    report = run("10")
    shown = codes[3].replace("_", "-"), codes[5].replace("_", "-")
    assert reasons(report, "fail") == {shown[0]: "impossible score: nan is not finite", shown[1]: "fell"}
    assert sum(row.verdict == "pass" for row in report.rows) == 9  # eight languages and the mean
    put(A, "P", {**pairs, f"{codes[0]}-{codes[1]}": float("nan")})  # of languages that have other pairs
    assert list(reasons(run(), "fail")) == [f"{codes[0]}-{codes[1]}"]


@pytest.mark.parametrize("against", ["folder", "baseline"])
def test_a_missing_language_and_a_fallen_one_are_both_named(put, keep, tmp_path, against: str) -> None:
    codes = CODES[:6]
    pairs = {f"{a}-{b}": 0.8 for a in codes for b in codes if a != b}
    put(A, "P", pairs)
    put(A, "S", dict.fromkeys(codes, 0.8))
    run = keep()
    if against == "baseline":
        write_baseline(tmp_path / "old.json", make_baseline(read_results(tmp_path)), {})
        run = lambda: compare(read_results(tmp_path), read_before(tmp_path / "old.json"))  # noqa: E731
    put(A, "P", {pair: 0.5 if codes[1] in pair else 0.8 for pair in pairs if codes[0] not in pair})
    put(A, "S", {code: 0.5 if code == codes[1] else 0.8 for code in codes[1:]})
    report = run()
    verdicts = judged(report)
    for task, lost, fallen in (("S", codes[0], codes[1]), ("P", *(one.replace("_", "-") for one in codes[:2]))):
        assert verdicts[A, task, lost] == "cannot tell"
        assert verdicts[A, task, fallen] == "fail"
    assert set(reasons(report, "cannot tell").values()) == {"missing: no new score"}
    assert report.exit_code == 1
    out = printed(report)
    assert codes[0] in out
    assert codes[1] in out


def test_what_is_missing_cannot_be_told(results, put, keep, tmp_path) -> None:
    run = keep()
    put(B, "S", {"en": 0.6})
    (tmp_path / "results" / A.replace("/", "__") / "r1" / "P.json").unlink()
    report = run()
    verdicts = judged(report)
    assert verdicts[B, "S", "de"] == verdicts[A, "P", "mean"] == "cannot tell"
    assert verdicts[B, "S", "en"] == "pass"
    assert reasons(report, "cannot tell") == {"mean": "missing: no new result", "de": "missing: no new score"}
    assert report.exit_code == 3
    assert printed(report).splitlines()[-1].startswith("Gate CANNOT TELL (cannot tell: 2, pass: ")


def test_a_result_without_scores_is_missing(results, put, keep) -> None:
    run = keep()
    path = put(A, "S", {}) / "S.json"
    for scores in ({}, {"test": []}):
        path.write_text(json.dumps({**json.loads(path.read_text()), "scores": scores}))
        assert reasons(run(), "cannot tell") == {"mean": "missing: the new result has no scores"}


@pytest.mark.parametrize("side", ["old", "results"])
def test_a_damaged_file_cannot_be_told(results, keep, tmp_path, side: str) -> None:
    run = keep()
    root = tmp_path / "old" / "results" if side == "old" else tmp_path / "results"
    path = root / A.replace("/", "__") / "r1" / "S.json"
    path.write_text(path.read_text()[:50])
    report = run()
    assert "cannot be read" in reasons(report, "cannot tell")["mean"]
    assert report.exit_code == 3


def test_other_text_cannot_be_compared_but_impossible_scores_are_seen(results, put, keep) -> None:
    run = keep()
    put(A, "S", {"en": 0.1, "de": 2.0}, data="d2")
    report = run()
    assert reasons(report, "cannot tell") == {"mean": "other text: revision d1 before, d2 now"}
    assert list(reasons(report, "fail")) == ["de"]
    put(A, "S", {"en": 0.1, "de": 0.1}, data="d2")
    assert run().exit_code == 3


@pytest.mark.parametrize("baseline", [False, True])
def test_other_splits_cannot_be_compared(results, put, keep, tmp_path, baseline: bool) -> None:
    path = tmp_path / "b.json" if baseline else tmp_path / "old"
    write_baseline(tmp_path / "b.json", make_baseline(results), {})
    keep()
    assert compare(read_results(tmp_path), read_before(path)).exit_code == 0
    put(A, "S", {"en": 0.5, "de": 0.7}, split="validation")
    report = compare(read_results(tmp_path), read_before(path))
    assert reasons(report, "cannot tell") == {"mean": "other text: split test before, validation now"}
    assert report.exit_code == 3


def test_a_baseline_without_splits_is_compared_with_any(results, put, tmp_path) -> None:
    """As earlier versions wrote it."""
    write_baseline(tmp_path / "b.json", make_baseline(results), {})
    put(A, "S", {"en": 0.5, "de": 0.7}, split="validation")
    content = json.loads((tmp_path / "b.json").read_text())
    for model, task in results.tables:
        del content["scores"][model][task]["split"]
    (tmp_path / "b.json").write_text(json.dumps(content))
    assert compare(read_results(tmp_path), read_before(tmp_path / "b.json")).exit_code == 0
    write_baseline(tmp_path / "b.json", make_baseline(read_results(tmp_path), models=[B]), {})
    written = json.loads((tmp_path / "b.json").read_text())["scores"]
    assert ("split" in written[A]["S"], written[B]["S"]["split"]) == (False, "test")


def test_a_wider_run_is_compared_like_for_like(results, put, keep) -> None:
    run = keep()
    put(A, "P", {**PAIRS, "aaa_Latn-ddd_Latn": 0.0, "ddd_Latn-aaa_Latn": 0.0})
    put(A, "S", {"en": 0.5, "de": 0.7, "fr": 0.0})
    put("xalign/new__tiny", "S", {"en": 0.1})
    report = run()
    assert set(judged(report).values()) == {"pass"}
    assert report.unguarded == (("xalign/new__tiny", "S"),)
    assert "new results without an old one: 1" in report.summary()
    put("xalign/new__tiny", "S", {"en": float("nan")})
    assert run().exit_code == 1  # impossible, whatever there was before


def test_only_what_is_chosen_is_compared(results, put, keep) -> None:
    run = keep()
    put(A, "P", dict.fromkeys(PAIRS, 0.1))
    for models, tasks, code, keys in (
        (None, None, 1, {(A, "S"), (A, "P"), (B, "S")}),
        (["plain__tiny"], ["S"], 0, {(A, "S")}),
        ([A], ["P"], 1, {(A, "P")}),
        ([B], ["P"], 3, set()),  # nothing to compare does not pass
    ):
        report = run(models=models, tasks=tasks)
        assert {row.key[:2] for row in report.rows} == keys
        assert report.exit_code == code
    for wrong in ({"models": ["nope"]}, {"tasks": ["Floors"]}):
        with pytest.raises(ResultsError, match="'(nope|Floors)'; there are results of"):
            run(**wrong)


def test_damaged_items_fall_back_to_the_tolerance(put_hits, keep, healthy, tmp_path) -> None:
    put_hits(A, "S", healthy)
    run = keep()
    new = {**healthy, CODES[7]: with_noise(healthy[CODES[7]], np.random.default_rng(1), 0.05, 0.035)}
    folder = put_hits(A, "S", new)
    assert run().exit_code == 3  # 1.5 points of 1,000, not more than chance after the correction
    (folder / "items" / "S.npz").write_bytes(b"PK")
    report = run()
    assert (report.exit_code, report.rows[0].p) == (1, None)


def test_json_has_every_row_and_hostile_names_are_shown_escaped(put, keep) -> None:
    name = "evil/\x1b[31mred\u202e[bold]"
    put(name, "S", {"en\n|x": 0.5})
    run = keep()
    put(name, "S", {"en\n|x": 0.1})
    report = run()
    plain = json.loads(json.dumps(report.to_json()))
    assert plain["exit_code"] == 1
    (row,) = plain["rows"]
    assert (row["model"], row["language"], row["difference"], row["verdict"]) == (name, "en\n|x", -40, "fail")
    out = printed(report, 200)
    assert not {"\x1b", "\u202e"} & set(out)
    assert r"\x1b[31mred\u202e[bold]" in "".join(out.split())
    assert r"en\n|x" in out


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_of_80_columns_shows_whole_names(put, keep, width) -> None:
    name = "xalign/procrustes__multilingual-e5-small-q4"
    put(name, "ProductSearchStandIn", {"en": 0.5})
    run = keep()
    put(name, "ProductSearchStandIn", {"en": 0.1})
    out = printed(run(), width)
    assert all(text in out for text in (name.removeprefix("xalign/"), "ProductSearchStandIn", "-40.00"))
    assert max(map(len, out.splitlines())) <= width


def simulated(rng, languages: int, n: int, moved: float, loss: float, everywhere: bool) -> GateReport:
    """A report on answers of which a share changes by chance; ``loss`` more are lost, in all languages or in one."""
    rows, total = [], np.zeros(n)

    def add(name: str, gaps) -> None:
        fall = fall_of(gaps, 1 / n)
        high, low = (-100 * end for end in interval(fall))
        new, p = 80 + 100 * gaps.sum(), p_of_fall(fall, 0.01)
        rows.append(GateRow("m", "t", name, 1.0, Verdict.PASS, "", 80, new, low, high, p))

    for language in range(languages):
        extra = loss if everywhere or language == 0 else 0
        chance = rng.random(n)
        gaps = 1 / n * ((chance > 1 - (moved - extra) / 2) * 1.0 - (chance < (moved + extra) / 2))
        total += gaps / languages
        add(str(language), gaps)
    add("mean", total)
    return GateReport(tuple(decide(rows)))


@pytest.mark.slow
def test_allowed_falls_raise_few_false_alarms() -> None:
    """All of 22 languages fell by exactly the tolerance, the hardest case that must not fail."""
    rng = np.random.default_rng(0)
    codes = [simulated(rng, 22, 1000, 0.04, 0.01, True).exit_code for _ in range(60)]
    assert codes.count(1) <= 7  # 5% are 3; 8 or more have a probability of 0.01


@pytest.mark.slow
def test_falls_of_three_points_are_found() -> None:
    rng = np.random.default_rng(0)
    everywhere = [simulated(rng, 22, 1000, 0.04, 0.03, True) for _ in range(30)]
    assert all(report.exit_code == 1 for report in everywhere)
    alone = [simulated(rng, 22, 3000, 0.04, 0.03, False) for _ in range(30)]
    found = sum(("m", "t", "0") in {row.key for row in report.rows if row.verdict == "fail"} for report in alone)
    assert found >= 27
    assert all(report.exit_code for report in alone)  # those that are not found are not passed


def test_a_proven_mean_leaves_its_level_to_the_languages() -> None:
    """Two languages and a mean: weights 1, 1 and 2, by hand."""

    def corrected(**p: float) -> dict[str, float | None]:
        rows = [GateRow("m", "t", name, 1, Verdict.PASS, "", 80, 80, -1, 1, value) for name, value in p.items()]
        return {row.language: row.p for row in decide(rows)}

    assert corrected(mean=0.01, de=0.02, fr=0.5) == pytest.approx({"mean": 0.02, "de": 0.04, "fr": 0.5})
    assert corrected(mean=0.9, de=0.02, fr=0.5) == pytest.approx({"mean": 1, "de": 0.08, "fr": 1})


def test_copies_of_a_sentence_vouch_for_no_more_than_one(put_hits, keep) -> None:
    """120 sentences, five times each, are not 600."""
    rng = np.random.default_rng(0)
    put_hits(A, "S", {"de": np.repeat(rng.random(120) < 0.75, 5), "fr": rng.random(600) < 0.75})
    verdicts = judged(keep()())
    assert (verdicts[A, "S", "de"], verdicts[A, "S", "fr"]) == ("cannot tell", "pass")


def test_items_that_did_not_move_vouch_for_no_more_than_their_number(put_hits, keep) -> None:
    """Of 20 items, none falls with a probability of 67% where the model lost two points."""
    put_hits(A, "S", {"de": np.arange(20) % 5 > 0, "fr": np.arange(400) % 4 > 0})
    report = keep()()
    assert judged(report) == {(A, "S", "de"): "cannot tell", (A, "S", "fr"): "pass", (A, "S", "mean"): "cannot tell"}
    assert report.exit_code == 3


def test_a_small_language_is_no_smaller_in_the_mean(put_hits, keep) -> None:
    """Lengths of 20 and 4,000: an item of the first is 100 times as much of the mean as 1 / 4,000."""
    put_hits(A, "S", {"de": np.arange(20) < 16, "fr": np.arange(4000) < 3000})
    assert judged(keep()("8"))[A, "S", "mean"] == "cannot tell"


def test_languages_may_have_a_tolerance_of_their_own(put_hits, keep, healthy) -> None:
    put_hits(A, "S", healthy)
    put_hits(A, "U", {CODES[0]: healthy[CODES[0]]})
    run = keep()
    noise = np.random.default_rng(1)
    put_hits(A, "S", {code: with_noise(hits, noise, 0.021, 0.02) for code, hits in healthy.items()})
    assert run().exit_code == 3
    assert run("1", "languages=2").exit_code == 0
    report = run("3", "languages=2", "U=0.2")
    tolerances = {row.key[1:]: row.tolerance for row in report.rows}
    assert tolerances["S", "mean"] == tolerances["S", CODES[0]] == 3
    assert tolerances["U", CODES[0]] == 0.2  # it has no mean beside it


def test_of_two_new_revisions_the_later_hides_no_fall(put, keep, tmp_path) -> None:
    put(A, "S", {"en": 0.5})
    run = keep()
    put(A, "S", {"en": 0.1})
    put(A, "S", {"en": 0.5}, revision="r2")
    report = run()
    assert report.exit_code == 3
    assert "several revisions, r1, r2 under" in reasons(report, "cannot tell")["mean"]
    with pytest.raises(ResultsError, match=f"{A} on S has the revisions r1, r2"):
        make_baseline(read_results(tmp_path))


def test_of_two_old_revisions_the_later_hides_no_fall(put, keep) -> None:
    put(A, "S", {"en": 0.5})
    folder = put(A, "S", {"en": 0.1}, revision="r2")
    run = keep()
    shutil.rmtree(folder)
    put(A, "S", {"en": 0.1})
    report = run()
    assert report.exit_code == 3
    assert "several revisions, r1, r2 under" in reasons(report, "cannot tell")["mean"]


def test_a_subset_listed_twice_cannot_be_told(put, keep, tmp_path) -> None:
    """Whichever of the two counted, the other could hide a fall."""
    put(A, "S", {"en": 0.5, "de": 0.7})
    run = keep()
    path = put(A, "S", {"en": 0.1, "de": 0.7}) / "S.json"
    content = json.loads(path.read_text())
    split = next(iter(content["scores"].values()))
    split.append({**split[0], "main_score": 0.5})
    path.write_text(json.dumps(content))
    report = run()
    assert report.exit_code == 3
    assert "cannot be read" in reasons(report, "cannot tell")["mean"]


def test_planted_errors_in_an_alignment_trip_it(put_hits, keep) -> None:
    from xalign_models.alignments.procrustes import Procrustes

    rng = np.random.default_rng(0)
    meanings = rng.standard_normal((1000, 32)).astype(np.float32)
    codes = ["eng-Latn", "deu-Latn", "fra-Latn", "spa-Latn"]
    turns = {code: np.linalg.qr(rng.standard_normal((32, 32)))[0].astype(np.float32) for code in codes}
    texts = {
        code: meanings @ turn + 0.9 * rng.standard_normal(meanings.shape, np.float32) for code, turn in turns.items()
    }
    fitted = Procrustes().fit({code: vectors[:500] for code, vectors in texts.items()})

    def score(transform) -> None:
        english = transform(texts["eng-Latn"][500:], "eng-Latn")
        hits = {}
        for code in codes[1:]:
            cosines = transform(texts[code][500:], code) @ english.T
            hits[f"{code}-eng-Latn"] = cosines.argmax(1) == np.arange(500)
        put_hits(A, "S", hits)

    score(fitted.transform)
    run = keep()
    assert run().exit_code == 0

    def transposed(vectors, code):
        return vectors @ fitted.transform(np.eye(32, dtype=np.float32), code).T

    score(transposed)
    report = run()
    assert report.exit_code == 1
    assert len(reasons(report, "fail")) == 4  # three languages and the mean
    swapped = {"deu-Latn": "fra-Latn", "fra-Latn": "deu-Latn"}
    score(lambda vectors, code: fitted.transform(vectors, swapped.get(code, code)))
    assert set(reasons(run(), "fail")) == {"deu-Latn-eng-Latn", "fra-Latn-eng-Latn", "mean"}


def test_the_tolerance_that_the_summary_names_passes() -> None:
    for low in (-2.5709, -2.57, -2.5791):
        row = GateRow(A, "T", "deu", 1.0, Verdict.CANNOT_TELL, "", 80.0, 79.0, low, 0.5, 0.4)
        named = re.search(r"tolerance of ([\d.]+) points", GateReport((row,)).summary())[1]
        assert decide([row._replace(tolerance=float(named))])[0].verdict == Verdict.PASS


def test_scores_of_many_decimals_pass_their_own_baseline(put, tmp_path) -> None:
    put(A, "S", {"en": 0.81436781, "de": 0.123456789012345})
    results, path = read_results(tmp_path), tmp_path / "baseline.json"
    write_baseline(path, make_baseline(results), {})
    assert compare(results, read_before(path, ["0"])).exit_code == 0


def test_thousands_of_pairs_are_compared_in_linear_time(put, keep) -> None:
    codes = [f"{a}{b}{c}_Latn" for a in "abcdef" for b in "abcdef" for c in "abcde"]
    pairs = {f"{a}-{b}": 0.5 for a in codes for b in codes if a != b}
    put(A, "P", pairs)
    run = keep()
    start = time.process_time()
    report = run()
    assert len(report.rows) == len(codes) + 1
    assert time.process_time() - start < 6  # more by a search of a list for each of 32,220 pairs


def test_a_baseline_file_needs_no_items(put_hits, tmp_path, healthy, caplog) -> None:
    folder = put_hits(A, "S", healthy)
    write_baseline(tmp_path / "baseline.json", make_baseline(read_results(tmp_path)), {})
    (folder / "items" / "S.npz").write_bytes(b"damaged")
    report = compare(read_results(tmp_path), read_before(tmp_path / "baseline.json"))
    assert report.exit_code == 0
    assert not caplog.records  # reading it would warn
