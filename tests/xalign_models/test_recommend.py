"""The recommended alignment undoes what was planted, is none where nothing is to be gained, and says why."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from xalign_models import alignments, corpora
from xalign_models import recommend as recommendation
from xalign_models.alignments import make
from xalign_models.errors import AlignmentError, DataError, LanguageError
from xalign_models.models import api
from xalign_models.ranking.ranks import gold_ranks, normalise
from xalign_models.recommend import PLAIN, Candidate, recommend
from xalign_models.recommend.candidates import FOLDS, sentence_keys
from xalign_models.recommend.judging import loss_p

PIVOT = "eng-Latn"


def spaces(turn=False, shift=0.0, noise=0.5, n=300, d=16, seed=0):
    """Two languages beside the pivot, all noisy forms of one content."""
    rng = np.random.default_rng(seed)
    content = rng.standard_normal((n, d))
    pivot = content + noise * rng.standard_normal((n, d))
    data = {}
    for language in ("deu-Latn", "fra-Latn"):
        matrix = np.linalg.qr(rng.standard_normal((d, d))).Q if turn else np.eye(d)
        rows = (content + noise * rng.standard_normal((n, d))) @ matrix + shift * rng.standard_normal(d)
        data[language] = (rows, pivot)
    return data


def test_a_planted_rotation_is_found_and_a_shift_is_centred():
    turned = recommend(spaces(turn=True, noise=0.1), PIVOT)
    assert turned.chosen == Candidate("procrustes")
    assert turned.verdicts[0].candidate == PLAIN
    (best,) = (verdict for verdict in turned.verdicts if verdict.candidate == turned.chosen)
    assert best.score > 0.99 > 0.2 > turned.verdicts[0].score
    assert best.candidate.label in turned.reason
    moved = recommend(spaces(shift=3.0), PIVOT, [Candidate("lsar", (("rank", 1),)), Candidate("centered")])
    assert moved.chosen == Candidate("centered")


@pytest.mark.parametrize("seed", range(3))
def test_of_equals_the_first_is_chosen_and_what_is_better_is(seed):
    turned = spaces(turn=True)
    same = (Candidate("procrustes", (("shrink", 0.01),)), Candidate("procrustes"))
    assert recommend(turned, PIVOT, same, seed).chosen == same[0]
    assert recommend(turned, PIVOT, same[::-1], seed).chosen == same[1]
    worse = (Candidate("procrustes", (("shrink", 1000.0),)), Candidate("procrustes"))
    found = recommend(turned, PIVOT, worse, seed)
    assert found.chosen == worse[1]
    assert "chance could explain" not in found.reason


def test_equal_means_are_told_from_lower_ones_whatever_most_sentences_say():
    """Few large losses outweigh many small gains: the mean is what candidates are ordered by."""
    rng = np.random.default_rng(0)
    keys = np.repeat(np.arange(400, dtype=np.uint32), 2)
    ranks = rng.integers(1, 4, 800)
    best, shuffled = ({"deu-Latn": (keys, 1 / order)} for order in (ranks, rng.permutation(ranks)))
    low = ranks.copy()
    low[:40], low[40:] = 50, np.maximum(1, low[40:] - (rng.random(760) < 0.05))
    lower = {"deu-Latn": (keys, 1 / low)}
    assert loss_p(best, best) == 1.0
    assert loss_p(shuffled, best) > 0.05 > loss_p(lower, best)
    pairs = [side["deu-Latn"][1].reshape(400, 2) for side in (lower, best)]
    sums = (pairs[0] - pairs[1]).sum(axis=1)
    expected = scipy.stats.t.cdf(sums.mean() / (sums.std(ddof=1) / np.sqrt(400)), 399)
    assert loss_p(lower, best) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_recommended_where_there_is_only_noise(seed):
    found = recommend(spaces(noise=0.8, seed=seed), PIVOT)
    assert found.chosen == PLAIN
    assert found.reason.startswith("The plain backbone")
    assert "p = " in found.reason or "worse in" in found.reason


def test_what_is_chosen_is_no_worse_than_the_plain_backbone_on_fresh_rows():
    for seed in range(3):
        for form in ({"turn": True}, {"shift": 2.0}, {"noise": 1.0}):
            whole = spaces(n=600, seed=seed, **form)
            fit = {language: tuple(side[:300] for side in sides) for language, sides in whole.items()}
            chosen = recommend(fit, PIVOT).chosen
            if chosen == PLAIN:
                continue
            method = make(chosen.method, **dict(chosen.params))
            pivots = {PIVOT: fit["deu-Latn"][1]}
            alignment = method.fit(fit if method.parallel else pivots | {one: sides[0] for one, sides in fit.items()})
            for language, sides in whole.items():
                x, y = (side[300:] for side in sides)
                before = gold_ranks(normalise(x), normalise(y))[0]
                after = gold_ranks(*(normalise(alignment.transform(*side)) for side in ((x, language), (y, PIVOT))))[0]
                assert (1 / after).mean() > (1 / before).mean() - 0.02


def test_a_candidate_that_harms_one_language_is_not_chosen(monkeypatch):
    """It helps German and Turkish, which are turned, and turns French, which was not."""
    rng = np.random.default_rng(0)
    content = rng.standard_normal((300, 16))
    turn = np.linalg.qr(rng.standard_normal((16, 16))).Q
    noisy = lambda rows: rows + 0.5 * rng.standard_normal(rows.shape)  # noqa: E731
    data = {language: (noisy(content @ turn), content) for language in ("deu-Latn", "tur-Latn")}
    data["fra-Latn"] = noisy(content), content

    class Back:
        """Turns every language but the pivot back."""

        pivot = PIVOT

        def fit(self, _):
            return self

        def transform(self, rows, language):
            return rows if language == PIVOT else rows @ turn.T

    monkeypatch.setattr(alignments, "make", lambda *_, **__: Back())
    found = recommend(data, PIVOT, [Candidate("procrustes")])
    assert found.verdicts[1].losses == ("fra-Latn", "fra-Latn (similarity)")
    assert found.verdicts[1].gain > 0
    assert found.chosen == PLAIN
    assert "worse in fra-Latn" in found.reason


def test_repeated_sentences_are_in_one_fold():
    rng = np.random.default_rng(0)
    pivot = np.repeat(rng.standard_normal((50, 4)), 3, axis=0)
    keys = sentence_keys(pivot, 0)
    assert (keys.reshape(50, 3) == keys.reshape(50, 3)[:, :1]).all()
    assert len(set(keys)) == 50


def test_another_seed_draws_other_folds_and_chooses_the_same():
    data = spaces(turn=True, noise=0.1)
    pivot = data["deu-Latn"][1]
    first, second = (sentence_keys(pivot, seed) % FOLDS for seed in (0, 1))
    assert 0.1 < (first == second).mean() < 0.4
    assert recommend(data, PIVOT, seed=1).chosen == recommend(data, PIVOT).chosen


def test_another_text_judges_what_held_out_rows_cannot():
    """Text of one kind lies in half of the dimensions, where a map helps and bends the others at random."""
    rng = np.random.default_rng(0)
    d, half = 16, 8

    def text(kind, n):
        content = np.zeros((n, d))
        content[:, kind] = rng.standard_normal((n, half))
        turned = content.copy()
        turned[:, :half] = turned[:, :half] @ rotation
        return {"deu-Latn": (turned + 0.05 * rng.standard_normal((n, d)), content)}

    rotation = np.linalg.qr(rng.standard_normal((half, half))).Q
    messages, news = text(slice(0, half), 400), text(slice(half, d), 400)
    tried = (Candidate("affine", (("ridge", 0),)),)
    assert recommend(messages, PIVOT, tried).chosen == tried[0]
    judged = recommend(messages, PIVOT, tried, judge=news)
    assert judged.chosen == PLAIN and judged.verdicts[1].losses == ("deu-Latn",)
    assert recommend(messages, PIVOT, tried, judge=text(slice(0, half), 400)).chosen == tried[0]


def test_what_is_judged_is_not_fitted(monkeypatch):
    data, fitted = spaces(), []
    judge = {"fra-Latn": tuple(side[:100] for side in data["fra-Latn"])}
    make = alignments.make

    def watched(method, **params):
        alignment = make(method, **params)
        monkeypatch.setattr(alignment, "fit", lambda rows, fit=alignment.fit: fitted.append(rows) or fit(rows))
        return alignment

    monkeypatch.setattr(alignments, "make", watched)
    found = recommend(data, PIVOT, (Candidate("centered"),), judge=judge)
    assert fitted
    assert all(len(rows[language]) == 200 for rows in fitted for language in (*data, PIVOT))
    assert found.verdicts[0].worst == "fra-Latn"
    with pytest.raises(DataError, match="has ita-Latn; it may only have languages of the fit text"):
        recommend(data, PIVOT, judge={"ita-Latn": judge["fra-Latn"]})


def test_few_pairs_are_refused_and_a_candidate_that_cannot_be_fitted_is_named():
    with pytest.raises(DataError, match="deu-Latn, fra-Latn: fewer than 50 rows"):
        recommend(spaces(n=40), PIVOT)
    found = recommend(spaces(n=100), PIVOT, [Candidate("lir", (("k", 99),)), Candidate("centered")])
    assert found.verdicts[-1].candidate.method == "lir"
    assert found.verdicts[-1].error


def test_without_translations_languages_that_lie_apart_are_centred_and_others_are_not():
    rng = np.random.default_rng(0)
    rows = {code: rng.standard_normal((200, 16)) for code in ("deu-Latn", "eng-Latn", "fra-Latn")}
    together = recommendation.recommend_centring(rows)
    assert together.chosen == PLAIN
    assert together.measure == "mixed"
    assert together.verdicts[0].score == pytest.approx(2 / 3, abs=0.03)  # the share of other languages in the pool
    apart = recommendation.recommend_centring({code: x + 2 * rng.standard_normal(16) for code, x in rows.items()})
    assert apart.chosen == Candidate("centered")
    plain, centred = apart.verdicts
    assert plain.score < 0.2 < centred.score
    assert centred.score == pytest.approx(2 / 3, abs=0.05)
    with pytest.raises(DataError, match="two or more"):
        recommendation.recommend_centring({"deu-Latn": rows["deu-Latn"]})


def test_auto_fits_what_is_recommended(workdir, tiny_model, write_text, caplog):
    text = write_text(workdir / "fit", 60)
    found = api.recommend(backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    model = api.fit("auto", backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    assert found.reason in caplog.text
    alignment = model.xalign_spec.alignment
    assert (alignment.method if alignment else "") == found.chosen.method


def test_corpora_to_judge_on_are_read_in_the_languages_that_are_fitted(workdir, tiny_model, write_text, monkeypatch):
    text, asked = write_text(workdir / "fit", 60), []
    other = write_text(workdir / "other", 70)
    (workdir / "other" / "ita.txt").write_text((workdir / "other" / "deu.txt").read_text())
    monkeypatch.setattr(recommendation, "recommend", lambda data, pivot, **others: asked.append((data, others)))
    names = {"backbone": str(tiny_model), "corpus": f"own:{text}", "device": "cpu"}
    api.recommend(**names, languages=["deu-Latn", "eng-Latn"], judge=f"own:{other}")
    ((data, others),) = asked
    assert [*data] == [*others["judge"]] == ["deu-Latn"]
    assert [len(side) for sides in (data["deu-Latn"], others["judge"]["deu-Latn"]) for side in sides] == [
        60,
        60,
        70,
        70,
    ]
    with pytest.raises(LanguageError, match="name another text with --judge"):
        api.recommend(**names, languages=["fra-Latn"], judge=f"own:{_only(other)}")
    with pytest.raises(AlignmentError, match="--judge applies to the method auto only"):
        api.fit("centered", **names, judge=f"own:{other}")


def _only(folder):
    (folder / "fra.txt").unlink()
    return folder


def test_text_without_translations_is_taken_as_such(workdir, tiny_model, write_text, monkeypatch):
    import dataclasses

    text, load = write_text(workdir / "fit", 60), corpora.load
    monkeypatch.setattr(corpora, "load", lambda name: dataclasses.replace(load(name), kind="monolingual"))
    assert api.recommend(backbone=str(tiny_model), corpus=f"own:{text}", device="cpu").measure == "mixed"
