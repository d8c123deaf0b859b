"""The recommended alignment undoes what was planted, is none where nothing is to be gained, and says why."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.stats

from xalign_models import alignments, corpora
from xalign_models.alignments import make
from xalign_models.errors import AlignmentError, DataError, LanguageError, ModelError
from xalign_models.models import api
from xalign_models.models.building import build
from xalign_models.ranking.ranks import gold_ranks, normalise
from xalign_models.recommend import judging, proxies
from xalign_models.recommend.candidates import FOLDS, PLAIN, Candidate, folds, sentence_keys
from xalign_models.recommend.judging import Labelled, loss_p, recommend
from xalign_models.recommend.proxies import CLASSIFICATION, KINDS, RETRIEVAL
from xalign_models.results.significance import sign_flip_test

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_another_seed_draws_other_folds_and_chooses_the_same():
    data = spaces(turn=True, noise=0.1)
    pivot = data["deu-Latn"][1]
    first, second = (sentence_keys(pivot, seed) % FOLDS for seed in (0, 1))
    assert 0.1 < (first == second).mean() < 0.4
    assert recommend(data, PIVOT, seed=1).chosen == recommend(data, PIVOT).chosen


@pytest.mark.slow
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
    assert judged.chosen == PLAIN and judged.verdicts[1].losses[0] == "deu-Latn"
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
    with pytest.raises(DataError, match="deu-Latn, fra-Latn: fewer than 30 rows"):
        recommend(spaces(n=25), PIVOT)
    found = recommend(spaces(n=100), PIVOT, [Candidate("lir", (("k", 99),)), Candidate("centered")])
    assert found.verdicts[-1].candidate.method == "lir"
    assert found.verdicts[-1].error


def test_repetitions_of_a_sentence_are_not_its_neighbours():
    rng = np.random.default_rng(0)
    rows = {code: rng.standard_normal((200, 8)).astype(np.float32) for code in ("deu-Latn", "eng-Latn")}
    repeated = {code: np.repeat(x, 12, axis=0) for code, x in rows.items()}
    assert judging.recommend_centring(repeated).verdicts[0].score == pytest.approx(0.5, abs=0.1)


def test_without_translations_languages_that_lie_apart_are_centred_and_others_are_not():
    rng = np.random.default_rng(0)
    rows = {code: rng.standard_normal((200, 16)) for code in ("deu-Latn", "eng-Latn", "fra-Latn")}
    together = judging.recommend_centring(rows)
    assert together.chosen == PLAIN
    assert together.measure == "mixed"
    assert together.verdicts[0].score == pytest.approx(2 / 3, abs=0.03)  # the share of other languages in the pool
    apart = judging.recommend_centring({code: x + 2 * rng.standard_normal(16) for code, x in rows.items()})
    assert apart.chosen == Candidate("centered")
    plain, centred = apart.verdicts
    assert plain.score < 0.2 < centred.score
    assert centred.score == pytest.approx(2 / 3, abs=0.05)
    with pytest.raises(DataError, match="two or more"):
        judging.recommend_centring({"deu-Latn": rows["deu-Latn"]})


def test_text_without_translations_beside_parallel_text_is_left_out(
    workdir, tiny_model, write_text, monkeypatch, caplog
):
    texts, load = [f"own:{write_text(workdir / name, 60)}" for name in ("parallel", "alone")], corpora.load
    kind = {texts[0]: "parallel", texts[1]: "monolingual"}
    monkeypatch.setattr(corpora, "load", lambda name: dataclasses.replace(load(name), kind=kind[name]))
    backbone, tried = str(tiny_model), [Candidate("procrustes")]
    mixed, paired = (
        api.recommend(backbone=backbone, corpus=names, device="cpu", tried=tried) for names in (texts, texts[:1])
    )
    assert mixed == paired
    assert mixed.measure == "MRR"
    assert f"{texts[1]}: left out" in caplog.text
    assert texts[0] not in caplog.text
    chosen = dataclasses.replace(mixed, chosen=tried[0])
    monkeypatch.setattr(api, "recommend", lambda **options: chosen)
    fitted = api.fit("auto", backbone=backbone, corpus=texts, device="cpu").xalign_spec.alignment
    assert (fitted.method, fitted.corpora) == ("procrustes", (texts[0],))


def test_auto_fits_what_is_recommended(workdir, tiny_model, write_text, caplog):
    text = write_text(workdir / "fit", 60)
    found = api.recommend(backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    model = api.fit("auto", backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    assert found.reason in caplog.text
    alignment = model.xalign_spec.alignment
    assert (alignment.method if alignment else "") == found.chosen.method


def test_auto_says_which_options_do_not_apply_to_the_plain_backbone(
    workdir, tiny_model, write_text, monkeypatch, caplog
):
    names = {"backbone": str(tiny_model), "corpus": f"own:{write_text(workdir / 'fit', 60)}", "device": "cpu"}
    found = judging.Recommendation(PLAIN, (), "The plain backbone: it is the best.")
    monkeypatch.setattr(api, "recommend", lambda **options: found)
    api.fit("auto", **names)
    assert [record.getMessage() for record in caplog.records] == [found.reason]
    options = {"label": "--label", "default_lang": "--default-lang", "prompts": "--prompts", "unknown": "--unknown"}
    values = {"label": "mine", "default_lang": "deu", "prompts": "default", "unknown": "mean"}
    for chosen in ({name} for name in options), [{*options}]:
        for given in chosen:
            caplog.clear()
            assert api.fit("auto", **names, **{name: values[name] for name in given}).xalign_spec.alignment is None
            _, said = (record.getMessage() for record in caplog.records)
            assert {option for option in options.values() if option in said} == {options[name] for name in given}


@pytest.mark.parametrize("kind", ["parallel", "monolingual"])
def test_a_prompt_that_the_backbone_lacks_is_refused_before_anything_is_judged(
    workdir, tiny_model, write_text, monkeypatch, kind
):
    text, load = write_text(workdir / "fit", 60), corpora.load
    monkeypatch.setattr(corpora, "load", lambda name: dataclasses.replace(load(name), kind=kind))
    names = {"backbone": str(tiny_model), "corpus": f"own:{text}", "device": "cpu"}
    for prompts in ("clustering", ["default", "clustering"]):
        with pytest.raises(ModelError, match="has no prompt clustering; it has default"):
            api.recommend(**names, prompts=prompts)
        with pytest.raises(ModelError, match="has no prompt clustering"):
            api.fit("auto", **names, prompts=prompts)


def test_an_alignment_is_judged_under_the_prompt_to_fit(workdir, tiny_model, write_text, monkeypatch):
    """Also under one of no role, such as a task's: the vectors that are judged are those of the fit."""
    names = {"backbone": str(tiny_model), "corpus": f"own:{write_text(workdir / 'fit', 60)}", "device": "cpu"}
    seen = []
    monkeypatch.setattr(judging, "recommend", lambda data, pivot, **others: seen.append(data["deu-Latn"][0]))
    overrides = {"prompts": (("clustering", "w1 w2 "), ("query", "w3 "))}
    for prompts in ("clustering", "query", "default"):
        api.recommend(**names, overrides=overrides, prompts=prompts)
    assert len({rows.tobytes() for rows in seen}) == 3


def test_corpora_to_judge_on_are_read_in_the_languages_that_are_fitted(workdir, tiny_model, write_text, monkeypatch):
    text, asked = write_text(workdir / "fit", 60), []
    other = write_text(workdir / "other", 70)
    (workdir / "other" / "ita.txt").write_text((workdir / "other" / "deu.txt").read_text())
    monkeypatch.setattr(judging, "recommend", lambda data, pivot, **others: asked.append((data, others)))
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
    with pytest.raises(LanguageError, match="has no fra-Latn; name another with --judge"):
        api.recommend(**names, languages=["fra-Latn"], judge=f"own:{_only(other)}")
    absent = {**names, "backbone": str(workdir / "no_model")}  # a model that is not opened before the text to judge on
    with pytest.raises(DataError, match="nothing"):
        api.recommend(**absent, judge=f"own:{workdir / 'nothing'}")
    with pytest.raises(AlignmentError, match="--judge applies to the method auto only"):
        api.fit("centered", **names, judge=f"own:{other}")


def _only(folder):
    (folder / "fra.txt").unlink()
    return folder


def test_text_without_translations_is_taken_as_such(workdir, tiny_model, write_text, monkeypatch):
    text, load = write_text(workdir / "fit", 60), corpora.load
    monkeypatch.setattr(corpora, "load", lambda name: dataclasses.replace(load(name), kind="monolingual"))
    assert api.recommend(backbone=str(tiny_model), corpus=f"own:{text}", device="cpu").measure == "mixed"


def test_held_out_rows_are_ranked_among_all_rows():
    """Each held-out row against every row of the text, in both directions and to the next language."""
    data = spaces(n=60, noise=1.0)
    trials = folds([data], 0)
    scored = proxies.score(trials, PIVOT, PLAIN, proxies.references(trials[0], 0))
    for language, following in (("deu-Latn", "fra-Latn"), ("fra-Latn", "deu-Latn")):
        own, pivot, third = (normalise(rows) for rows in (*data[language], data[following][0]))
        expected = []
        for fold in range(FOLDS):
            held = np.flatnonzero(sentence_keys(data[language][1], 0) % FOLDS == fold)
            for queries, pool in ((own, pivot), (pivot, own), (own, third), (third, own)):
                scores = queries[held] @ pool.T
                expected += [1 / (row >= row[gold] - 1e-7).sum() for row, gold in zip(scores, held, strict=True)]
        np.testing.assert_allclose(scored[RETRIEVAL, False][language][1], expected)


def test_within_a_language_the_pivots_nearest_sentence_is_to_be_found():
    data = spaces(n=60, noise=0.0)
    trials = folds([data], 0)
    scored = proxies.score(trials, PIVOT, PLAIN, proxies.references(trials[0], 0))
    assert (scored[RETRIEVAL, True]["deu-Latn"][1] == 1).all()  # without noise both sides are the same
    rng = np.random.default_rng(5)
    noisy = {language: (rng.standard_normal(x.shape), y) for language, (x, y) in data.items()}
    trials = folds([noisy], 0)
    scored = proxies.score(trials, PIVOT, PLAIN, proxies.references(trials[0], 0))
    assert scored[RETRIEVAL, True]["deu-Latn"][1].mean() < 0.3


def test_agreement_is_spearmans_correlation_of_all_pairs_but_the_diagonal():
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 20, 20))
    first += second
    off = ~np.eye(20, dtype=bool)
    shares = proxies.agreement(first, second)
    assert shares.mean() == pytest.approx(scipy.stats.spearmanr(first[off], second[off]).statistic)
    assert proxies.agreement(second, second).mean() == pytest.approx(1)


def test_centroids_of_one_half_classify_the_other():
    rng = np.random.default_rng(0)
    classes, half = np.arange(80) % 4, rng.random(80) < 0.5
    train = normalise(np.eye(4)[classes] + 0.01 * rng.standard_normal((80, 4)))
    assert proxies.centroid_hits(train, train, classes, half).all()
    assert not proxies.centroid_hits(train, np.roll(train, 1, axis=0), classes, half).any()
    only_first = np.where(half[:, None], train, 0)  # then only the second half can be classified beyond class 0
    hits = proxies.centroid_hits(only_first, train, classes, half)
    assert hits[~half].all() and not hits[half & (classes > 0)].any()


def planted(gains, n=400):
    """Scores by language: zeros, and equal gains with unit noise."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(n)
    noise = (noise - noise.mean()) / noise.std()
    keys = np.arange(n, dtype=np.uint32)
    return {language: (keys, gain + noise) for language, gain in gains.items()}


def test_losses_are_corrected_by_holm_over_the_languages():
    one = planted({"fra-Latn": -0.12})
    p = sign_flip_test(one["fra-Latn"][1]) / 2
    assert 0.05 / 10 < p < 0.05
    assert judging._losses(one) == ("fra-Latn",)
    others = dict.fromkeys((f"l{i}" for i in range(9)), 0.0)
    assert judging._losses(planted({"fra-Latn": -0.12, **others})) == ()
    assert judging._losses(planted({"fra-Latn": -0.2, "deu-Latn": -0.2, **others})) == ("fra-Latn", "deu-Latn")


@pytest.mark.parametrize("small", [-0.06, 0.0, 0.06])
def test_p_values_are_of_the_mean_over_languages_whatever_their_numbers_of_rows(small):
    """The p of random signs of the mean that is the score; sentences of both languages have one sign."""
    rng = np.random.default_rng(0)
    gains = [mean + noise - noise.mean() for mean, noise in ((0.01, 0.2 * rng.standard_normal(2000)),
                                                             (small, 0.35 * rng.standard_normal(60)))]  # fmt: skip
    keys = [np.arange(2000), np.arange(1980, 2040)]  # the last 20 sentences are the first of the second language's
    signs = rng.choice([-1.0, 1.0], (4000, 2040))
    flipped = np.mean([signs[:, own] @ rows / len(rows) for own, rows in zip(keys, gains, strict=True)], axis=0)
    mean = np.mean([rows.mean() for rows in gains])
    candidate = {code: (own.astype(np.uint32), rows) for code, own, rows in zip("ab", keys, gains, strict=True)}
    plain = {code: (own, 0 * rows) for code, (own, rows) in candidate.items()}
    verdict = judging._verdict(Candidate("centered"), candidate, plain)
    assert verdict.gain == pytest.approx(mean)
    assert verdict.p_gain == pytest.approx((flipped >= mean).mean(), abs=0.02)
    assert loss_p(candidate, plain) == pytest.approx((flipped <= mean).mean(), abs=0.02)


def by_kind(**gains):
    """Planted scores of every kind; ``gains`` are those of French, the same language's last."""
    zero = (0.0, 0.0)
    return {
        (kind, within): planted({"fra-Latn": gains.get(kind, zero)[within], "deu-Latn": 0.5})
        for kind in KINDS
        for within in (False, True)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_in_one_language_excludes_by_kind_and_a_price_does_not(kind):
    candidate, plain = Candidate("centered"), by_kind()
    plain = {key: {code: (keys, 0 * rows) for code, (keys, rows) in scored.items()} for key, scored in plain.items()}
    harmed, priced = by_kind(**{kind: (-0.5, 0.0)}), by_kind(**{kind: (0.0, -0.5)})
    for use in ("", CLASSIFICATION):
        verdict = judging._judgement(candidate, harmed, plain, {*judging.VETOES, use})
        (row,) = (row for row in verdict.card if row.kind == kind)
        assert row.losses == ("fra-Latn",) and row.worst == "fra-Latn" and row.worst_gain == pytest.approx(-0.5)
        assert row.gain == pytest.approx(0.0) and row.interval[0] < 0 < row.interval[1]
        assert any("fra-Latn" in loss for loss in verdict.losses) == (use == kind or kind != CLASSIFICATION)
        verdict = judging._judgement(candidate, priced, plain, {*judging.VETOES, use})
        (row,) = (row for row in verdict.card if row.kind == kind)
        assert verdict.losses == () and row.losses == ()
        assert row.price == pytest.approx(0.0) and row.cells()["same-language change"].startswith("+0.0 [")


def test_the_interval_is_that_of_the_mean_over_sentences():
    gains = planted({"fra-Latn": 0.3})
    mean, (low, high) = judging._interval(gains)
    centre, error = 0.3 * 400 / 402, np.sqrt(400 * np.var(gains["fra-Latn"][1]) + 1 + 0.18 * 400 / 402) / 402
    assert (mean, low, high) == pytest.approx((0.3, centre - 1.96 * error, centre + 1.96 * error), abs=1e-5)
    twice = {"fra-Latn": gains["fra-Latn"], "deu-Latn": gains["fra-Latn"]}  # the same sentences say nothing new
    again, ends = judging._interval(twice)
    assert (again, *ends) == pytest.approx((mean, low, high))


def test_maps_are_fitted_under_the_prompt_of_each_role():
    """Queries and documents lie apart, each language by another offset: means of queries do not serve documents."""
    rng = np.random.default_rng(1)
    data = spaces()
    offsets = {language: 8 * rng.standard_normal(16) for language in (*data, PIVOT)}
    documents = {language: (x + offsets[language], y + offsets[PIVOT]) for language, (x, y) in data.items()}
    tried = [Candidate("centered")]
    found = recommend(data, PIVOT, tried, documents=documents)
    plain, verdict = found.verdicts
    assert verdict.score > plain.score + 0.2 and not verdict.error
    assert found.chosen == tried[0]
    assert verdict.score == pytest.approx(recommend(data, PIVOT, tried).verdicts[0].score, abs=0.02)


@pytest.mark.slow
def test_a_labelled_task_replaces_the_proxy_of_its_kind_and_excludes():
    data = spaces(shift=3.0)
    keys = np.arange(200, dtype=np.uint32)

    def task(kind, gain):
        score = lambda candidate: ({"en-fr": (keys, (candidate != PLAIN) * (gain + keys / 1000))}, {})  # noqa: E731
        return Labelled(kind, "Planted", score)

    tried = [Candidate("centered")]
    for kind in KINDS:
        harmed = recommend(data, PIVOT, tried, labelled=[task(kind, -1.0)])
        assert (harmed.chosen == PLAIN) == (kind != CLASSIFICATION)
        assert recommend(data, PIVOT, tried, labelled=[task(kind, -1.0)], use=kind).chosen == PLAIN
        helped = recommend(data, PIVOT, tried, labelled=[task(kind, 1.0)])
        assert helped.chosen == tried[0]
        (row,) = (row for row in helped.card if row.kind == kind)
        assert row.judge == "Planted" and row.price is None and row.cells()["same-language change"] == "not judged"
    assert "classification (en-fr)" in harmed.reason
    with pytest.raises(DataError, match="--for dancing"):
        recommend(data, PIVOT, tried, use="dancing")


def test_a_task_judges_by_its_items(workdir, tiny_model, write_text, monkeypatch):
    from xalign_models.models.building import load_encoder
    from xalign_models.models.labelled import is_task, labelled

    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "own", 30)))
    assert is_task("OwnParallel") and not is_task("ntrex") and not is_task("own:folder")
    with pytest.raises(DataError, match="mteb's own tasks keep no outcomes"):  # before a model or text is opened
        api.recommend(backbone=str(workdir / "no_model"), corpus=f"own:{workdir / 'own'}", judge="MLQARetrieval")
    languages = {"deu-Latn", "eng-Latn"}
    judge = labelled("OwnParallel", languages, lambda _: load_encoder(str(tiny_model), device="cpu"))
    across, within = judge.score(PLAIN)
    assert judge.kind == RETRIEVAL and not within and len(across) == 2
    assert all(len(keys) == len(hits) == 30 and {*hits} <= {0.0, 1.0} for keys, hits in across.values())
    with pytest.raises(LanguageError, match="no part across"):
        labelled("OwnParallel", {"deu-Latn"}, lambda _: None)


def test_the_card_is_saved_with_the_model_and_hostile_ones_are_not(workdir, tiny_model, write_text, monkeypatch):
    import json

    import xalign_models

    text = write_text(workdir / "fit", 60)
    found = recommend(spaces(shift=3.0), PIVOT, [Candidate("centered")])
    monkeypatch.setattr(api, "recommend", lambda **_: found)
    model = api.fit("auto", backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    xalign_models.save(model, workdir / "saved")
    claims = json.loads((workdir / "saved" / "xalign.json").read_text())
    assert [row["use"] for row in claims["card"]] == [*KINDS]
    readme = (workdir / "saved" / "README.md").read_text()
    assert "| use | score | change | worst language |" in readme and "`similarity`" in readme
    again = xalign_models.load(str(workdir / "saved"), device="cpu")
    assert again.xalign_claims["card"] == claims["card"]
    again.xalign_claims = {"card": [{**claims["card"][0], "use": "a|b\n# Title"}]}
    xalign_models.save(again, workdir / "hostile")
    readme = (workdir / "hostile" / "README.md").read_text()
    assert "\n# Title" not in readme and "a|b" not in readme
    again.xalign_claims = {"card": {"use": 1}}
    xalign_models.save(again, workdir / "other")
    assert "| use |" not in (workdir / "other" / "README.md").read_text()


def test_an_explicit_method_has_the_card_of_its_own_candidate(workdir, tiny_model, write_text, xalign):
    """As ``auto`` would write it, whether or not it would choose the method."""
    import json

    text = write_text(workdir / "fit", 60)
    status, _, err = xalign("fit", "lsar", "--backbone", str(tiny_model), "--corpus", f"own:{text}", "-o", "saved")
    assert status == 0, err
    card = json.loads((workdir / "saved" / "xalign.json").read_text())["card"]
    assert [row["use"] for row in card] == [*KINDS]
    found = api.recommend(backbone=str(tiny_model), corpus=f"own:{text}", tried=[Candidate("lsar")], limit=None)
    assert card == [row.cells() for row in found.verdicts[1].card]
    assert "| use | score |" in (workdir / "saved" / "README.md").read_text()


@pytest.mark.parametrize("kind", ["parallel", "monolingual"])
def test_a_labelled_task_judges_maps_onto_the_pivot(workdir, tiny_model, write_text, monkeypatch, kind):
    """Every candidate that is judged on a task has the pivot of the recommendation; the text has no English."""
    text, load, made = write_text(workdir / "fit", 60, ("deu", "fra")), corpora.load, []
    monkeypatch.setattr(corpora, "load", lambda name: dataclasses.replace(load(name), kind=kind))
    monkeypatch.setattr(api, "is_task", lambda name: True)
    monkeypatch.setattr(api, "load_encoder", lambda spec, **_: made.append(build(spec, device="cpu").xalign_spec))
    tried = [Candidate("shift")] + [Candidate("procrustes"), Candidate("centered+affine")] * (kind == "parallel")

    def judge(name, languages, encoder):
        for candidate in tried:
            encoder(candidate)
        raise StopIteration

    monkeypatch.setattr(api, "labelled", judge)
    with pytest.raises(StopIteration):
        names = {"backbone": str(tiny_model), "corpus": f"own:{text}", "judge": "Task"}
        api.recommend(**names, pivot="deu", device="cpu")
    assert [dict(spec.alignment.params)["pivot"] for spec in made] == ["deu-Latn"] * len(tried)
