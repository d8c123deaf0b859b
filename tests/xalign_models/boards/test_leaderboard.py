"""The tables: means and differences worked out by hand, marks, and the test behind the marks."""

from __future__ import annotations

import csv
import io
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import binomtest

from xalign_models.boards.leaderboard import detail, leaderboard
from xalign_models.errors import ResultsError
from xalign_models.published import FOLDER
from xalign_models.results.items import write_outcomes
from xalign_models.results.reading import read_results
from xalign_models.results.significance import sign_flip_test
from xalign_models.tables.formats import to_json, to_markdown

PLAIN, LSAR, AFFINE = "xalign/plain__tiny", "xalign/lsar__tiny", "xalign/affine__tiny__gettext"


def cells(board):
    return {row.name: row.cells for row in board.rows}


def printed(board, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(board)
    return console.file.getvalue()


def test_mean_and_difference_by_hand(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.50, "de": 0.30})
    put(LSAR, "T", {"en": 0.70, "de": 0.35}, baseline=PLAIN)
    found = cells(leaderboard(read_results(tmp_path)))
    assert found[PLAIN]["T"].score == pytest.approx(40.0)
    assert found[PLAIN]["T"].difference is None
    assert found[LSAR]["T"].score == pytest.approx(52.5)
    assert found[LSAR]["T"].difference == pytest.approx(12.5)
    assert found[LSAR]["T"].covered is None
    assert (found[PLAIN]["T"].best, found[LSAR]["T"].best) == (False, True)


def test_difference_is_over_common_subsets_and_coverage_is_said(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.9, "de": 0.1, "fr": 0.2})
    put(AFFINE, "T", {"de": 0.2, "fr": 0.4, "xx": 1.0}, baseline=PLAIN)
    board = leaderboard(read_results(tmp_path))
    found = cells(board)
    assert found[PLAIN]["T"].score == pytest.approx(15)  # over de and fr, as the row beside it
    assert found[AFFINE]["T"].score == pytest.approx(30)
    assert found[AFFINE]["T"].difference == pytest.approx(15)
    assert board.common == {"T": ["de", "fr"]}
    assert "T 2 of 4" in board.legend[0]


def test_rows_of_other_languages_stand_apart_and_say_theirs(put, tmp_path) -> None:
    everything = {"en": 0.9, "de": 0.1, "fr": 0.2, "it": 0.3}
    put(PLAIN, "T", everything)
    put(LSAR, "T", dict.fromkeys(everything, 0.5), baseline=PLAIN)
    put(AFFINE, "T", {"de": 0.2, "xx": 1.0}, baseline=PLAIN)
    put(AFFINE, "U", {"de": 0.2}, baseline=PLAIN)
    put("xalign/lir__tiny", "T", {"de": 0.3}, baseline=PLAIN)
    put("xalign/other__tiny", "T", {"fr": 0.3}, baseline=PLAIN)
    board = leaderboard(read_results(tmp_path))
    rows = [(row.label, row.apart, list(row.cells)) for row in board.rows]
    assert rows[:3] == [("plain", False, ["T"]), ("affine (gettext)", False, ["U"]), ("lsar", False, ["T"])]
    assert [row.group for row in board.rows[3:]] == ["other languages (1)"] * 2 + ["other languages (2)"]
    apart = {row.name: row.cells["T"] for row in board.rows if row.apart}
    assert apart[AFFINE].score == pytest.approx(20)  # over de, which the others have, too
    assert apart[AFFINE].difference == pytest.approx(10)
    assert (apart[AFFINE].covered, apart[AFFINE].of, apart[AFFINE].languages) == (1, 4, ("de",))
    assert apart[AFFINE].lines() == ["20.0", "+10.0?", "1/4"]
    assert not any(cell.best or cell.ranks for cell in apart.values())
    assert any(line.startswith("Other languages (2)") and line.endswith("T over fr.") for line in board.legend)


def test_every_mean_of_a_block_is_over_the_same_subsets(put, tmp_path) -> None:
    """Whatever rows lack: in a column of a block, each score is the mean over one set of subsets."""
    rng = np.random.default_rng(0)
    scores = {f"s{place}": float(rng.random()) for place in range(6)}
    held = {}
    for place in range(12):
        held[name] = (
            set(rng.choice(sorted(scores), rng.integers(1, 7), replace=False))
            if (name := f"xalign/m{place}__tiny")
            else ()
        )
        put(name, "T", {subset: scores[subset] for subset in held[name]})
    board = leaderboard(read_results(tmp_path), significance=False)
    main = [row for row in board.rows if not row.apart]
    for row in board.rows:
        subsets = row.cells["T"].languages if row.apart else board.common["T"]
        assert set(subsets) <= held[row.name]
        assert row.cells["T"].score == pytest.approx(100 * np.mean([scores[subset] for subset in subsets]))
        assert row.apart == (not set(board.common["T"]) <= held[row.name])
    areas = [len(common) * sum(common <= other for other in held.values()) for common in map(frozenset, held.values())]
    assert len(main) * len(board.common["T"]) >= max(areas)


def test_languages_may_be_chosen(put, tmp_path) -> None:
    spoken = {f"{code}-en": [f"{code}-Latn", "eng-Latn"] for code in ("deu", "fra", "swh")}
    put(PLAIN, "T", {"deu-en": 0.2, "fra-en": 0.4, "swh-en": 0.9}, languages=spoken)
    put(LSAR, "T", {"deu-en": 0.3}, baseline=PLAIN, languages=spoken)
    board = leaderboard(read_results(tmp_path), languages=["deu-Latn", "fra-Latn"])  # English is in all pairs
    assert board.common == {"T": ["deu-en", "fra-en"]}
    assert [(row.apart, round(row.cells["T"].score)) for row in board.rows] == [(False, 30), (True, 30)]
    assert board.rows[1].cells["T"].languages == ("deu-en",)


def test_languages_are_found_by_any_code_that_mteb_gives_them(put, tmp_path) -> None:
    spoken = {"ar": ["ara-Arab"], "fa": ["fas-Arab"], "ko": ["kor-Kore"], "de": ["deu-Latn"], "x": ["python-Code"]}
    put(PLAIN, "T", {"ar": 0.9, "fa": 0.8, "ko": 0.7, "de": 0.1, "x": 0.2}, languages=spoken)
    results = read_results(tmp_path)
    assert results.tables[PLAIN, "T"].frame.spoken[-1] == ("python-Code",)
    board = leaderboard(results, languages=["arb-Arab", "pes-Arab", "kor-Hang"])
    assert cells(board)[PLAIN]["T"].score == pytest.approx(80)


@pytest.mark.parametrize("new", [{"data": "d2"}, {"split": "validation"}])
@pytest.mark.parametrize("subsets", [("de", "fr"), ("aaa_Latn-bbb_Latn", "bbb_Latn-aaa_Latn")])
def test_other_text_is_marked_by_language_too(put, tmp_path, new, subsets) -> None:
    put(PLAIN, "T", dict.fromkeys(subsets, 0.2))
    put(LSAR, "T", dict.fromkeys(subsets, 0.3))
    board = detail(read_results(tmp_path), "T")
    assert not any("≠" in text for text in (*board.columns, *board.legend))
    put(AFFINE, "T", dict.fromkeys(subsets, 0.9), **new)
    board = detail(read_results(tmp_path), "T")
    assert {column.split()[0] for column in board.columns if column.endswith(" ≠")} == {AFFINE.removeprefix("xalign/")}
    assert {column.split()[0] for column in cells(board)["mean"]} == {"plain__tiny", "lsar__tiny"}
    assert any(line.startswith("≠: ") for line in board.legend)


def test_best_is_among_those_that_cover_most(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.2, "de": 0.2})
    put(LSAR, "T", {"en": 0.3, "de": 0.3}, baseline=PLAIN)
    put(AFFINE, "T", {"en": 0.9}, baseline=PLAIN)
    found = cells(leaderboard(read_results(tmp_path)))
    assert [name for name in found if found[name]["T"].best] == [LSAR]


@pytest.mark.parametrize("new", [{"data": "d2"}, {"split": "validation"}])
def test_no_difference_across_revisions_and_splits_of_the_text(put, tmp_path, new) -> None:
    put(PLAIN, "T", {"en": 0.2})
    put(LSAR, "T", {"en": 0.3}, baseline=PLAIN, **new)
    board = leaderboard(read_results(tmp_path))
    assert [row.apart for row in board.rows] == [False, True]
    assert cells(board)[LSAR]["T"].difference is None
    assert cells(board)[LSAR]["T"].lines() == ["30.0", "≠"]
    assert any(line.startswith("≠") for line in board.legend)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"languages": ["fra-Latn"]}, "No subset has only languages of fra-Latn; add languages to --languages."),
        ({"study": True}, "There are no studies among the results; leave out --studies."),
        ({"metric": "f1"}, "No readable result has 'f1'; there are main_score, precision_at_1."),
        ({"metric": "f1", "languages": ["fra-Latn"]}, "No readable result has 'f1'"),
    ],
)
def test_an_empty_board_says_why(put, tmp_path, options, reason: str) -> None:
    put(PLAIN, "T", {"en": 0.2, "de": 0.2})
    with pytest.raises(ResultsError) as error:
        leaderboard(read_results(tmp_path), **options)
    assert reason in str(error.value)


def test_dagger_marks_fitted_text_only(put, tmp_path) -> None:
    put(LSAR, "NTREXPrecision", {"en": 0.3}, baseline=PLAIN, trained=("NTREXPrecision", "NTREXBitextMining"))
    put(LSAR, "FloresPrecision", {"en": 0.3}, baseline=PLAIN, trained=("NTREXPrecision", "NTREXBitextMining"))
    board = leaderboard(read_results(tmp_path))
    assert cells(board)[LSAR]["NTREXPrecision"].lines() == ["30.0†"]
    assert cells(board)[LSAR]["FloresPrecision"].lines() == ["30.0"]
    assert any(line.startswith("†") for line in board.legend)


def test_tatoeba_has_a_column_for_each_direction(put, tmp_path) -> None:
    put(PLAIN, "Tatoeba36", {"eng_Latn-deu_Latn": 0.8, "deu_Latn-eng_Latn": 0.6, "eng_Latn-fra_Latn": 0.4})
    board = leaderboard(read_results(tmp_path))
    assert list(board.columns) == ["Tatoeba36 eng→X", "Tatoeba36 X→eng"]
    assert [cell.score for cell in cells(board)[PLAIN].values()] == pytest.approx([60.0, 60.0])
    table = cells(detail(read_results(tmp_path), "Tatoeba36"))
    assert table["deu-Latn"]["plain__tiny eng→X"].score == pytest.approx(80)
    assert table["deu-Latn"]["plain__tiny X→eng"].score == pytest.approx(60)
    assert table["fra-Latn"].keys() == {"plain__tiny eng→X"}
    assert table["mean"]["plain__tiny eng→X"].score == pytest.approx(60)


def test_rows_are_grouped_by_backbone_the_plain_one_first(put, tmp_path) -> None:
    for model, base in (
        (LSAR, PLAIN),
        ("org/foreign", None),
        (AFFINE, PLAIN),
        ("xalign/lsar__big", "xalign/plain__big"),
        (PLAIN, None),
    ):
        put(model, "T", {"en": 0.5}, baseline=base)
    board = leaderboard(read_results(tmp_path))
    assert [(row.group, row.label) for row in board.rows] == [
        ("big", "lsar"),
        ("tiny", "plain"),
        ("tiny", "affine (gettext)"),
        ("tiny", "lsar"),
        ("other models", "org/foreign"),
    ]


def test_the_legend_gives_a_rows_full_name(put, tmp_path) -> None:
    lusifer = "xalign/lusifer__tiny__small-llm"
    for model, base in ((PLAIN, None), (LSAR, PLAIN), (AFFINE, PLAIN), (lusifer, PLAIN)):
        put(model, "T", {"en": 0.5}, baseline=base)
    board = leaderboard(read_results(tmp_path))
    (line,) = (line for line in board.legend if "xalign/ROW__BACKBONE" in line)
    for row in board.rows:
        label, *brackets = row.label.removesuffix(")").split(" (")
        assert "__".join([f"xalign/{label}", row.group, *brackets]) == row.name
    assert [row.label for row in board.rows if "(" in row.label] == ["affine (gettext)", "lusifer (small-llm)"]
    assert "text it was fitted on or LUSIFER's language model" in line


def test_choice_of_models_tasks_and_metric(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.5})
    put(LSAR, "T", {"en": 0.6}, baseline=PLAIN)
    put(LSAR, "U", {"en": 0.6}, baseline=PLAIN, metric="spearman")
    results = read_results(tmp_path)
    board = leaderboard(results, models=["lsar__tiny"], tasks=["T"])
    assert cells(board).keys() == {LSAR}
    assert cells(board)[LSAR]["T"].difference == pytest.approx(10)  # to a model that is not shown
    assert list(leaderboard(results, metric="spearman").columns) == ["U"]
    for wrong in ({"models": ["lasr__tiny"]}, {"tasks": ["TT"]}, {"metric": "ndcg"}):
        with pytest.raises(ResultsError, match=r"there are .*(lsar__tiny|T|spearman)"):
            leaderboard(results, **wrong)


def test_models_may_be_called_as_for_a_run(put, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("xalign/plain__LaBSE", "xalign/plain__org-foreign", "org/foreign", "xalign/plain__here")
    for model in names:
        put(model, "T", {"en": 0.5})
    (tmp_path / "some" / "here").mkdir(parents=True)
    results = read_results(tmp_path)
    for given, expected in (
        ("LaBSE", names[0]),  # a backbone
        ("plain__LaBSE", names[0]),
        ("org/foreign", names[2]),  # what the results call so comes first
        ("some/here", names[3]),
    ):
        assert cells(leaderboard(results, models=[given])).keys() == {expected}
        assert cells(detail(results, "T", models=[given]))["mean"].keys() == {expected.removeprefix("xalign/")}
    (tmp_path / "results" / "org__foreign" / "r1" / "T.json").unlink()
    assert cells(leaderboard(read_results(tmp_path), models=["org/foreign"])).keys() == {names[1]}


# significance


def ranks_of(hits) -> np.ndarray:
    return np.where(hits, 1, 4).astype(np.uint16)


def pair_of_models(put, mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray], task: str = "T") -> None:
    for model, base, hits in ((LSAR, PLAIN, mine), (PLAIN, None, theirs)):
        scores = {subset: round(float(np.mean(one)), 6) for subset, one in hits.items()}
        put(model, task, scores, baseline=base, ranks={subset: ranks_of(one) for subset, one in hits.items()})


@pytest.mark.parametrize(("won", "lost"), [(4, 0), (5, 0), (6, 0), (9, 3), (7, 5), (0, 8)])
def test_few_changes_are_tested_exactly(won: int, lost: int) -> None:
    gaps = np.concatenate([np.full(won, 0.01), np.full(lost, -0.01), np.zeros(70)])
    assert sign_flip_test(gaps) == pytest.approx(binomtest(won, won + lost).pvalue)


@pytest.mark.parametrize("size", [0.01, 0.3])
def test_one_change_is_no_evidence(size: float) -> None:
    assert sign_flip_test(np.array([0.0, size, 0.0])) == sign_flip_test(np.array([-size])) == 1


def test_nothing_moved_is_no_evidence() -> None:
    assert sign_flip_test(np.zeros(7)) == sign_flip_test(np.zeros(0)) == 1


@pytest.mark.parametrize("moved", [1, 2, 3])
@pytest.mark.parametrize("subsets", [1, 3])
def test_models_that_differ_on_few_items_are_shown(put, tmp_path, moved: int, subsets: int) -> None:
    base = np.arange(40) < 20
    mine = base.copy()
    mine[20 : 20 + moved] = True
    names = [f"s{place}" for place in range(subsets)]
    pair_of_models(put, dict.fromkeys(names, mine), dict.fromkeys(names, base))
    assert cells(leaderboard(read_results(tmp_path)))[LSAR]["T"].test == "may be chance"


def test_a_task_of_one_item_is_shown_without_an_interval(put, tmp_path) -> None:
    pair_of_models(put, {"en": np.array([True])}, {"en": np.array([False])})
    board = leaderboard(read_results(tmp_path))
    cell = cells(board)[LSAR]["T"]
    assert (cell.test, cell.low, cell.high, cell.difference) == ("may be chance", None, None, 100)
    assert "Infinity" not in json.dumps(to_json(board))


def test_the_test_has_no_step_at_any_number_of_one_sided_changes() -> None:
    p = [sign_flip_test(np.full(n, 0.01)) for n in range(2, 49)]
    assert p == pytest.approx([2.0 ** (1 - n) for n in range(2, 49)])


def test_uneven_changes_are_tested_exactly() -> None:
    gaps = np.random.default_rng(1).normal(0.3, 1, 10)
    sums = [np.dot(gaps, signs) for signs in itertools.product((-1, 1), repeat=10)]
    assert sign_flip_test(gaps) == pytest.approx(np.mean(np.abs(sums) >= abs(gaps.sum()) - 1e-12))


def test_many_changes_agree_with_resampling() -> None:
    rng = np.random.default_rng(2)
    gaps = rng.normal(0.12, 1, 300)
    signs = rng.choice([-1.0, 1.0], (20000, 300))
    assert sign_flip_test(gaps) == pytest.approx(np.mean(np.abs(signs @ gaps) >= abs(gaps.sum())), abs=0.01)


def test_chance_differences_rarely_count() -> None:
    rng = np.random.default_rng(3)
    wrong = np.mean([sign_flip_test(rng.choice([-1.0, 0.0, 1.0], 400)) < 0.05 for _ in range(2000)])
    assert 0.03 < wrong < 0.07


def test_a_difference_that_may_be_chance_is_marked(put, tmp_path) -> None:
    base = np.arange(1000) < 500
    better, same = base.copy(), base.copy()
    better[500:560] = True  # 60 won, none lost
    same[[600, 601, 2]] = ~same[[600, 601, 2]]  # two won, one lost
    pair_of_models(put, {"en": better}, {"en": base}, "A")
    pair_of_models(put, {"en": same}, {"en": base}, "B")
    put(LSAR, "C", {"en": 0.5}, baseline=PLAIN)
    put(PLAIN, "C", {"en": 0.4})
    board = leaderboard(read_results(tmp_path))
    found = cells(board)[LSAR]
    assert (found["A"].test, found["B"].test, found["C"].test) == (
        "untested over languages",
        "may be chance",
        "not tested",
    )
    assert found["A"].lines() == ["56.0", "+6.0°"]
    assert found["B"].lines() == ["50.1", "+0.1~"]
    assert found["C"].lines() == ["50.0", "+10.0?"]
    assert {line[:1] for line in board.legend} >= {*"~°?"}
    assert cells(leaderboard(read_results(tmp_path), significance=False))[LSAR]["A"].test in (None, "not tested")


def test_sentences_not_pairs_are_the_unit(put, tmp_path) -> None:
    """Copies of the same evidence are no more evidence: 5 sentences won in 10 pairs each are p = 0.06, not 1e-15."""
    base = np.zeros(200, dtype=bool)
    mine = np.arange(200) < 5
    names = [f"s{i}" for i in range(10)]
    pair_of_models(put, dict.fromkeys(names, mine), dict.fromkeys(names, base))
    assert cells(leaderboard(read_results(tmp_path)))[LSAR]["T"].test == "may be chance"


def test_subsets_of_different_length_weigh_the_same(put, tmp_path) -> None:
    """The shares add up to the macro difference, whatever the lengths."""
    from xalign_models.results.items import Items

    rng = np.random.default_rng(4)
    mine, theirs = ({"en": rng.random(90) < p, "de": rng.random(40) < p} for p in (0.6, 0.4))
    pair_of_models(put, mine, theirs)
    results = read_results(tmp_path)
    rows = {"mean": {"de": 0.5, "en": 0.5}, "lacking": {"de": 0.5, "fr": 0.5}}
    falls = Items("main_score").falls(results.tables[LSAR, "T"], results.tables[PLAIN, "T"], rows)
    assert falls.keys() == {"mean"}
    assert -100 * falls["mean"].total == pytest.approx(cells(leaderboard(results))[LSAR]["T"].difference, abs=1e-3)


def test_labels_and_average_precisions_are_tested_too(put, tmp_path) -> None:
    rng = np.random.default_rng(5)
    theirs = rng.random(400)
    close = np.clip(theirs + rng.normal(0, 0.2, 400), 0, 1)
    truth = np.where(theirs < 0.5, "good", "bad")
    for task, mine, base in (
        ("AP", np.sqrt(theirs), theirs),
        ("Close", close, theirs),
        ("Labels", np.stack([truth, truth], axis=1), np.stack([np.full(400, "good"), truth], axis=1)),
    ):
        for model, of, items in ((LSAR, PLAIN, mine), (PLAIN, None, base)):
            score = items.mean() if items.ndim == 1 else np.mean(items[:, 0] == items[:, 1])
            put(model, task, {"en": round(float(score), 6)}, baseline=of, ranks={"en": items})
    found = cells(leaderboard(read_results(tmp_path)))[LSAR]
    assert {task: found[task].test for task in found} == {
        "AP": "untested over languages",
        "Close": "may be chance",
        "Labels": "untested over languages",
    }


@pytest.mark.parametrize("damage", ["stale", "other", "cut"])
def test_items_that_do_not_give_the_scores_are_not_used(put, tmp_path, damage: str) -> None:
    hits = np.arange(100) < 50
    pair_of_models(put, {"en": ~hits}, {"en": hits})
    path = tmp_path / "results" / "xalign__lsar__tiny" / "r1" / "items" / "T.npz"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:60])
    else:
        write_outcomes(path, {"en": np.arange(100) < 60 if damage == "stale" else np.zeros(100)})
    assert cells(leaderboard(read_results(tmp_path)))[LSAR]["T"].test in (None, "not tested")


def test_a_difference_in_few_of_many_languages_may_be_chance(put, tmp_path) -> None:
    """With languages as a sample, a large gain in one language of twenty is no gain; over sentences alone it is one."""
    rng = np.random.default_rng(7)
    spoken = {f"s{place:02}": [f"l{place:02}"] for place in range(20)}
    base = {subset: rng.random(300) < 0.5 for subset in spoken}
    one = base | {"s00": np.ones(300, dtype=bool)}
    every = {subset: hits | (rng.random(300) < 0.2) for subset, hits in base.items()}
    for model, hits in ((PLAIN, base), (LSAR, one), (AFFINE, every)):
        scores = {subset: round(float(np.mean(values)), 6) for subset, values in hits.items()}
        ranks = {subset: ranks_of(values) for subset, values in hits.items()}
        put(model, "T", scores, baseline=None if model == PLAIN else PLAIN, ranks=ranks, languages=spoken)
    found = {name: row["T"] for name, row in cells(leaderboard(read_results(tmp_path))).items()}
    assert (found[LSAR].test, found[AFFINE].test) == ("may be chance", "holds")
    assert found[LSAR].low < 0 < found[AFFINE].low
    assert found[PLAIN].score_low < found[PLAIN].score < found[PLAIN].score_high
    few = cells(leaderboard(read_results(tmp_path), languages=["l00", "l01", "l02"]))
    assert few[LSAR]["T"].test == few[AFFINE]["T"].test == "untested over languages"


def test_marks_hold_for_all_comparisons_of_the_board(put, tmp_path) -> None:
    """Forty tasks on which the models are equal: without a correction two would be marked on average."""
    rng = np.random.default_rng(8)
    for number in range(40):
        base = rng.random(200) < 0.5
        mine = base ^ (rng.random(200) < 0.2)
        pair_of_models(put, {"en": mine}, {"en": base}, f"T{number:02}")
    tests = [cell.test for cell in cells(leaderboard(read_results(tmp_path)))[LSAR].values()]
    assert tests == ["may be chance"] * 40


def test_a_gain_across_languages_stands_beside_its_price_within(put, tmp_path) -> None:
    spoken = {"en-en": ["eng-Latn"], "en-de": ["eng-Latn", "deu-Latn"]}
    put(PLAIN, "T", {"en-en": 0.9, "en-de": 0.3}, languages=spoken)
    put(LSAR, "T", {"en-en": 0.8, "en-de": 0.6}, baseline=PLAIN, languages=spoken)
    folder = put(PLAIN, "Pool", {"en": 0.2}), put(LSAR, "Pool", {"en": 0.4}, baseline=PLAIN)
    for place, same in zip(folder, (0.8, 0.7), strict=True):
        result = json.loads((place / "Pool.json").read_text())
        result["scores"]["test"][0]["one_target_same"] = same
        (place / "Pool.json").write_text(json.dumps(result))
    found = cells(leaderboard(read_results(tmp_path)))[LSAR]
    assert found["T"].lines() == ["70.0", "+10.0?", "same -10.0"]
    assert found["Pool"].lines() == ["40.0", "+20.0?", "same -10.0"]


def test_the_mean_of_a_task_by_language_is_over_what_the_models_share(put, tmp_path) -> None:
    put(PLAIN, "T", {"en": 0.9, "de": 0.1})
    put(LSAR, "T", {"de": 0.2}, baseline=PLAIN)
    put(AFFINE, "T", {"de": 0.3}, baseline=PLAIN)
    found = cells(detail(read_results(tmp_path), "T"))
    assert [round(cell.score) for cell in found["mean"].values()] == [10, 30, 20]  # not 50 for plain
    assert round(found["en"]["plain__tiny"].score) == 90


# detail


def test_tatoeba_with_other_subsets_or_splits_is_shown(put, tmp_path) -> None:
    path = put(PLAIN, "Tatoeba36", {"deu_Latn-eng_Latn": 0.6, "eng_Latn-eng_Latn": 0.9}) / "Tatoeba36.json"
    table = cells(detail(read_results(tmp_path), "Tatoeba36"))
    assert table["eng-Latn"]["plain__tiny eng→X"].score == pytest.approx(90)
    put(PLAIN, "Tatoeba36", {"deu_Latn-eng_Latn": 0.6, "eng_Latn-deu_Latn": 0.8, "other": 0.9})
    assert cells(detail(read_results(tmp_path), "Tatoeba36"))["other"]["plain__tiny"].score == pytest.approx(90)
    put(PLAIN, "Tatoeba36", {"deu_Latn-eng_Latn": 0.6, "eng_Latn-deu_Latn": 0.8})
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"scores": {**result["scores"], "dev": result["scores"]["test"]}}))
    assert cells(detail(read_results(tmp_path), "Tatoeba36"))["dev/eng_Latn-deu_Latn"]["plain__tiny"].score == 80
    board = leaderboard(read_results(tmp_path))
    assert [cell.score for cell in cells(board)[PLAIN].values()] == pytest.approx([80, 60])


def test_detail_of_pairs_is_into_and_from(put, tmp_path) -> None:
    scores = {"aaa_Latn-bbb_Latn": 0.2, "bbb_Latn-aaa_Latn": 0.9, "aaa_Latn-ccc_Latn": 0.4, "ccc_Latn-aaa_Latn": 0.5}
    put(PLAIN, "T", scores, trained=("T",))
    board = detail(read_results(tmp_path), "T")
    found = cells(board)
    assert list(found) == ["mean", "aaa-Latn", "bbb-Latn", "ccc-Latn"]
    assert found["aaa-Latn"]["plain__tiny Into X"].score == pytest.approx(70)
    assert found["aaa-Latn"]["plain__tiny From X"].score == pytest.approx(30)
    assert found["mean"]["plain__tiny Into X"].score == pytest.approx(50)
    assert [row.cells["plain__tiny Into X"].fitted for row in board.rows] == [True, False, False, False]


def test_detail_of_others_is_by_subset_with_published_beside(put, tmp_path) -> None:
    tracks = {"en-en": ["eng-Latn"], "en-ar": ["eng-Latn", "arb-Arab"]}
    put(PLAIN, "STS17CrossLingual", {"en-en": 0.8, "en-ar": 0.5}, languages=tracks, metric="cosine_spearman")
    results = read_results(tmp_path)
    assert list(detail(results, "STS17CrossLingual").columns) == ["plain__tiny"]
    found = cells(detail(results, "STS17CrossLingual", published=True))
    assert found["en-en"]["plain__tiny"].score == pytest.approx(80)
    assert found["en-en"]["LLaMA2-7B self-prompts samples 0 [isomorphism]"].score == pytest.approx(72)  # printed 0.72
    assert found["en-ar"]["LLaMA2-7B self-prompts samples 0 [isomorphism]"].score == pytest.approx(17)  # TR/AR-EN: 0.17
    other = detail(results, "STS17CrossLingual", metric="main_score", models=[PLAIN], published=True)
    assert "pearson" not in " ".join(other.columns)


def test_published_tatoeba_goes_to_its_direction(put, tmp_path) -> None:
    put(PLAIN, "Tatoeba36", {"eng_Latn-afr_Latn": 0.8, "afr_Latn-eng_Latn": 0.6})
    found = cells(detail(read_results(tmp_path), "Tatoeba36", published=True))
    assert found["afr-Latn"]["mBERT Original [lsar] eng→X"].score == pytest.approx(38.9)
    assert not any("[lsar] X→eng" in column for column in found["afr-Latn"])


def test_a_published_mean_over_all_subsets_needs_none_of_them(put, tmp_path) -> None:
    put(PLAIN, "XQuAD-R", {"deu-Latn": 0.4, "ell-Grek": 0.2}, metric="map", languages={"ell-Grek": ["ell-Grek"]})
    found = cells(detail(read_results(tmp_path), "XQuAD-R", published=True))
    assert found["mean"]["plain__tiny"].score == pytest.approx(30)
    assert found["mean"]["mBERT (X-X) LSAR OSCAR [lsar]"].score == pytest.approx(45.89)
    assert list(found["deu-Latn"]) == ["plain__tiny"]  # of one target and of MLQA-R nothing is mixed in


def test_published_reviews_stand_by_language(put, tmp_path) -> None:
    reviews = {one: [one] for one in ("eng-Latn", "deu-Latn", "fra-Latn", "jpn-Jpan")}
    put(PLAIN, "AmazonReviewsZeroShot", dict.fromkeys(reviews, 0.8), metric="accuracy", languages=reviews)
    found = cells(detail(read_results(tmp_path), "AmazonReviewsZeroShot", published=True))
    assert found["deu-Latn"]["XLM-R Original layer 11 OSCAR [lsar]"].score == pytest.approx(78.32)
    assert found["mean"]["XLM-R Original layer 11 OSCAR [lsar]"].score == pytest.approx(80.32)


def test_published_means_over_other_languages_are_left_out(put, tmp_path) -> None:
    put(PLAIN, "FloresPrecision", {"eng_Latn-arb_Arab": 0.8, "arb_Arab-eng_Latn": 0.6})
    assert len(detail(read_results(tmp_path), "FloresPrecision", published=True).columns) == 2
    seven = {f"{source}-{target}": 0.5 for source in SEVEN for target in SEVEN if source != target}
    put(PLAIN, "FloresPrecision", seven)
    found = cells(detail(read_results(tmp_path), "FloresPrecision", published=True))
    into = [column for column in found["eng-Latn"] if column.startswith("LLaMA2-7B self-prompts before")]
    assert {column.rsplit("] ")[-1] for column in into} == {"Into X", "From X"}


SEVEN = sorted(
    {
        code.replace("-", "_")
        for row in csv.DictReader((FOLDER / "isomorphism-table-04.csv").read_text(encoding="utf-8").splitlines())
        for code in row["subset"].split("->")
        if code != "*"
    }
)


# rendering


def many(put, tmp_path):
    tasks = [
        "FloresPrecision",
        "NTREXPrecision",
        "STS17CrossLingual",
        "LanguageIdentity",
        "Orthogonality",
        "ProductSearchStandIn",
    ]
    for model, base in ((PLAIN, None), (LSAR, PLAIN), (AFFINE, PLAIN), ("intfloat/multilingual-e5-small", None)):
        for number, task in enumerate(tasks):
            put(model, task, {"en": 0.5 + number / 100 + (base is not None) / 50}, baseline=base)
    return leaderboard(read_results(tmp_path))


@pytest.mark.parametrize("width", [60, 80, 120, 300])
def test_it_fits_and_nothing_is_cut(put, tmp_path, width: int) -> None:
    text = printed(many(put, tmp_path), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for number in range(6):
        assert f"{50 + number}.0" in text
        assert f"{52 + number}.0" in text
    assert "+2.0" in text
    assert "xalign/plain" not in text


def test_markdown_and_json_say_the_same(put, tmp_path) -> None:
    board = many(put, tmp_path)
    head, rule, *rows = [line for line in to_markdown(board).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in (head, rule, *rows)} == {len(board.columns) + 2}
    assert "| lsar | **52.0** (+2.0?) |" in to_markdown(board)
    assert [line.count("**") for line in rows if line.startswith("| **")] == [2] * len(
        {row.group for row in board.rows}
    )
    plain = json.loads(json.dumps(to_json(board)))
    assert sum(len(row["cells"]) for row in plain["rows"]) == 24
    for row, line in zip(plain["rows"], (line for line in rows if not line.startswith("| **")), strict=True):
        scores = [f"{row['cells'][column]['score']:.1f}" for column in plain["columns"]]
        assert [cell.strip(" *").split()[0].rstrip("*") for cell in line.split("|")[2:-1]] == scores


def test_a_board_imports_none_of_the_slow_libraries(put, tmp_path) -> None:
    hits = np.arange(1000) < 500
    pair_of_models(put, {"en": ~hits}, {"en": hits})
    code = (
        "import sys; from xalign_models.cli import main; sys.argv = ['xalign', 'leaderboard', '-o', sys.argv[1]]\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert not left.code\n"
        "print(*sorted({'mteb', 'torch', 'transformers', 'pandas', 'datasets', 'scipy.stats'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    *table, slow = done.stdout.splitlines()
    assert len(table) == 3
    assert slow == ""
