"""Intervals against simulation, independent formulas and planted orders."""

from __future__ import annotations

import csv
import itertools

import numpy as np
import pytest
from scipy import stats

from docs.tools.coverage import DESIGNS, TABLE, coverage
from xalign_models.boards.leaderboard import leaderboard
from xalign_models.results.intervals import FEWEST, Sample, estimate, pair_tests, ranks
from xalign_models.results.items import Items
from xalign_models.results.reading import read_results
from xalign_models.results.significance import holm

MANY = [f"l{place}" for place in range(FEWEST + 4)]


def sample(scores: np.ndarray, spoken: list[tuple[str, ...]] | None = None) -> Sample:
    """A sample of scores (subsets, n), by default with a language for each subset."""
    keys = [f"s{place:04}" for place in range(len(scores))]
    return Sample.of(
        dict(zip(keys, scores, strict=True)), dict(zip(keys, spoken or [(key,) for key in keys], strict=True))
    )


def one(hits: np.ndarray) -> Sample:
    return sample(hits[None].astype(float))


def test_over_few_languages_the_interval_is_that_of_the_bootstrap_over_sentences() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.choice([-1.0, 0.0, 1.0], 800, p=[0.05, 0.8, 0.15])
    means = [gaps[rng.integers(0, 800, 800)].mean() for _ in range(20000)]
    interval = estimate(one(gaps))
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.002)
    assert not interval.over_languages


@pytest.mark.parametrize("n", [15, 30, 60])
def test_over_few_languages_the_interval_covers_rare_changes(n: int) -> None:
    """Exact, over all numbers of won and lost items; without a move the normal interval is empty."""
    won, lost = (part.ravel() for part in np.indices((n + 1, n + 1)))
    won, lost = won[won + lost <= n], lost[won + lost <= n]
    moved = np.arange(n)
    ends = np.array([
        (interval.low, interval.high)
        for up, down in zip(won, lost, strict=True)
        for interval in [estimate(one((moved < up).astype(float) - (moved >= n - down)))]
    ])  # fmt: skip
    for up, down in [(0.01, 0.0), (0.04, 0.01), (0.1, 0.02), (0.2, 0.2), (0.3, 0.05)]:
        chances = stats.binom.pmf(won, n, up) * stats.binom.pmf(lost, n - won, down / (1 - up))
        assert chances[(ends[:, 0] <= up - down) & (up - down <= ends[:, 1])].sum() >= 0.92


def test_pseudo_values_are_those_of_leaving_a_language_out() -> None:
    """Of pairs, of single languages, and of both, with a language that all pairs have."""
    rng = np.random.default_rng(1)
    pairs = list(itertools.permutations("abcde", 2))
    for spoken in (
        pairs,
        [(code,) for code in "abcd"],
        [("a",), ("a", "b"), ("c", "b"), ("c",)],
        [("e", c) for c in "abc"],
    ):
        scores = rng.random((len(spoken), 7))
        found = sample(scores, spoken)
        names = sorted({code for codes in spoken for code in codes} - set.intersection(*map(set, spoken)))
        left = [scores[[name not in codes for codes in spoken]].mean() for name in names]
        assert found.languages == pytest.approx([len(names) * scores.mean() - (len(names) - 1) * mean for mean in left])
        assert found.shares.sum() == pytest.approx(scores.mean())
        assert found.cells.sum(axis=1) == pytest.approx(0, abs=1e-6)  # float32


def test_without_noise_of_sentences_the_interval_is_students() -> None:
    means = stats.norm.ppf((np.arange(21) + 0.5) / 21)  # without skew
    interval = estimate(sample(np.repeat(means[:, None], 50, axis=1) + 1))
    assert (interval.low, interval.high) == pytest.approx(
        stats.t.interval(0.95, 20, 1, means.std(ddof=1) / np.sqrt(21))
    )
    assert interval.over_languages


def test_p_and_interval_agree() -> None:
    """An end of the interval has p = 0.05, whatever the skew, once the test over sentences is far below it."""
    rng = np.random.default_rng(2)
    scores = np.repeat(rng.exponential(size=(22, 1)), 80, axis=1) + rng.normal(0, 0.1, (22, 80))
    interval = estimate(sample(scores))
    for end in (interval.low, interval.high):
        assert estimate(sample(scores - end)).p == pytest.approx(0.05, abs=1e-6)


def test_small_p_are_as_rare_as_they_say() -> None:
    """Holm's procedure reads the far tail, where an estimated skewness alone makes p of 0.002 twice as frequent."""
    rng, found = np.random.default_rng(3), []
    for _ in range(30):
        models = rng.normal(size=(40, 12, 1)) + rng.normal(0, 0.1, (40, 12, 400))
        found.append(pair_tests([sample(scores) for scores in models]))
    p_values = np.concatenate(found)
    assert 0.03 < (p_values < 0.05).mean() < 0.05
    assert (p_values < 0.002).mean() < 0.002


def test_the_board_needs_as_many_languages_as_the_committed_simulation_says() -> None:
    with TABLE.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "board"]
    assert {row["name"] for row in rows} == {design.name for design in DESIGNS}
    wrong = [int(row["languages"]) for row in rows if not 92 <= float(row["coverage"]) <= 97]
    counts = sorted({int(row["languages"]) for row in rows})
    assert next(count for count in counts if count > max(wrong, default=0)) <= FEWEST


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_intervals_cover_the_truth(design) -> None:
    assert 91 <= coverage(design, 22, 300, compared=0)["board"] <= 99  # 95 with a standard error of 1.3


def test_a_difference_in_one_language_is_none_over_languages() -> None:
    """Certain for these languages, unknown for others: the case that languages taken as fixed get wrong."""
    scores = np.zeros((len(MANY), 300))
    scores[0] = 1
    found = estimate(sample(scores))
    assert found.over_languages
    assert found.p > 0.1
    assert estimate(sample(scores[:2])).p < 1e-6  # two languages: over sentences alone


def test_one_sentence_says_nothing() -> None:
    assert (estimate(one(np.array([0.5]))).low, estimate(one(np.array([0.5]))).p) == (-np.inf, 1)


def test_equal_scores_differ_by_nothing() -> None:
    scores = sample(np.random.default_rng(3).random((len(MANY), 40)))
    found = estimate(scores - scores)
    assert (found.low, found.high, found.p) == (0, 0, 1)


def test_shares_add_up_to_the_macro_mean(put, tmp_path) -> None:
    rng = np.random.default_rng(2)
    hits = {"a": rng.random(70) < 0.3, "b": rng.random(40) < 0.9}
    scores = {subset: round(float(one.mean()), 6) for subset, one in hits.items()}
    ranks = {subset: np.where(one, 1, 4).astype(np.uint16) for subset, one in hits.items()}
    put("xalign/plain__tiny", "T", scores, ranks=ranks)
    table = read_results(tmp_path).tables["xalign/plain__tiny", "T"]
    mean = (hits["a"].mean() + hits["b"].mean()) / 2
    assert Items("main_score").sample(table, frozenset("ab")).shares.sum() == pytest.approx(mean)
    assert Items("main_score").sample(table, frozenset("abc")) is None


def ranked(hits: np.ndarray) -> list[tuple[int, int]]:
    return ranks(hits.mean(axis=1).tolist(), holm(pair_tests([one(row) for row in hits])))


def test_planted_ranks_are_found_whatever_the_order() -> None:
    rng = np.random.default_rng(3)
    hits = np.array([rng.random(3000) < p for p in (0.9, 0.5, 0.5, 0.1)])
    found = ranked(hits)
    assert found == [(1, 1), (2, 3), (2, 3), (4, 4)]
    order = [2, 0, 3, 1]
    assert ranked(hits[order]) == [found[i] for i in order]


def test_equal_models_share_all_ranks() -> None:
    hits = np.random.default_rng(4).random(500) < 0.5
    assert ranked(np.stack([hits, hits, hits])) == [(1, 3)] * 3


def test_a_constant_lead_is_certain() -> None:
    base = np.linspace(0, 1, 100)
    assert ranked(np.stack([base, base + 0.1])) == [(2, 2), (1, 1)]


def test_chance_rarely_orders_equal_models() -> None:
    """With Holm's correction, five models of one quality are ordered anywhere in about 5% of the tries or fewer."""
    rng = np.random.default_rng(5)
    wrong = sum(ranked(rng.random((5, 400)) < 0.5) != [(1, 5)] * 5 for _ in range(200))
    assert wrong / 200 < 0.09


def test_board_has_intervals_and_marks_ties(put, tmp_path) -> None:
    rng = np.random.default_rng(6)
    base = rng.random(1000) < 0.5
    good = base | (rng.random(1000) < 0.5)
    same = good.copy()
    same[:4] = ~same[:4]
    names = {"xalign/plain__tiny": base, "xalign/lsar__tiny": good, "xalign/centered__tiny": same}
    for name, hits in names.items():
        plain = None if name.startswith("xalign/plain") else "xalign/plain__tiny"
        ranks = np.where(hits, 1, 4).astype(np.uint16)
        put(name, "T", {"en": round(float(hits.mean()), 6)}, baseline=plain, ranks={"en": ranks})
    board = leaderboard(read_results(tmp_path))
    cells = {row.name: row.cells["T"] for row in board.rows}
    top = cells["xalign/lsar__tiny"]
    interval = estimate(one(good.astype(float) - base))
    assert (top.low, top.high) == pytest.approx((100 * interval.low, 100 * interval.high), abs=1e-3)
    assert cells["xalign/plain__tiny"].ranks == (3, 3)
    assert {name for name, cell in cells.items() if cell.best or cell.tied} == {*names} - {"xalign/plain__tiny"}


@pytest.mark.parametrize("languages", [FEWEST - 1, FEWEST + 3])
def test_the_pairs_of_many_models_are_tested_as_two_are(languages: int) -> None:
    """With equal models, a model apart in a few sentences, and sentences that some subsets lack."""
    rng = np.random.default_rng(9)
    first = rng.random((languages, 120)) < 0.6
    few = first.copy()
    few[0, :7] ^= True
    models = [first, first, few, *(rng.random((4, languages, 120)) < 0.7)]
    keys = [f"s{place:02}" for place in range(languages)]
    samples = [
        Sample.of({key: row[: 120 - place] for place, (key, row) in enumerate(zip(keys, hits, strict=True))},
                  {key: (key,) for key in keys})
        for hits in models
    ]  # fmt: skip
    expected = [estimate(one - other).p for one, other in itertools.combinations(samples, 2)]
    assert pair_tests(samples) == pytest.approx(expected, rel=1e-4)
    assert expected[0] == 1
