"""The front on a small planted pool: measures by definition, thinning, intervals, and all arms with a small model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import DataError
from xalign_models.plugins import ANALYSES
from xalign_models.ranking.pools import quota
from xalign_models.ranking.ranks import normalise
from xalign_models.specs import AlignmentSpec
from xalign_tasks.analyses import front
from xalign_tasks.analyses.front import MEASURES, Pool, bootstrap, narrowed, thinned, values
from xalign_tasks.lareqa import XQuADR
from xalign_tasks.lareqa.reader import Side

LANGUAGES = ("deu-Latn", "eng-Latn", "fra-Latn")


def planted(questions=12, extra=8):
    """Questions in three languages, each with an answer in every language; further sentences answer nothing."""
    size = questions + extra
    texts = [f"w{row} w{row + 1} w{30 + index}" for index in range(3) for row in range(size)]
    targets = np.stack([np.arange(questions) + index * size for index in range(3)], axis=1)
    asked = pd.DataFrame(
        {
            "text": [f"w{row} w{40 + index}" for index in range(3) for row in range(questions)],
            "language": np.repeat(LANGUAGES, questions),
            "cluster": np.tile(np.arange(questions), 3),
        }
    )
    candidates = pd.DataFrame({"text": texts, "language": np.repeat(LANGUAGES, size)})
    return Pool("planted", XQuADR.metadata, asked, candidates, np.tile(targets, (3, 1)))


def spaces(pool, own=1.0, d=12):
    """Vectors whose content is shared and whose language adds ``own`` in a dimension of its own."""
    rng = np.random.default_rng(0)
    content = rng.standard_normal((20, d))
    marks = own * np.eye(3)
    question_ids, pool_ids = pool.ids
    asked = content[pool.clusters] + 0.1 * rng.standard_normal((len(question_ids), d))
    answers = np.tile(content, (3, 1)) + 0.1 * rng.standard_normal((len(pool_ids), d))
    return normalise(np.hstack([asked, marks[question_ids]])), normalise(np.hstack([answers, marks[pool_ids]]))


def test_measures_are_their_definitions():
    pool = planted()
    queries, texts = spaces(pool, own=2.0)
    found = values(pool, queries, texts)
    asked, of_pool = pool.ids
    for row in range(0, len(queries), 5):
        scores = texts @ queries[row]
        order = np.argsort(-scores)
        assert found["share"][row] == pytest.approx(100 * np.mean(of_pool[order[:10]] == asked[row]))
        reciprocal = []
        for target in pool.targets[row]:
            kept = [place for place in order if place == target or place not in pool.targets[row]]
            reciprocal.append(100 / (1 + kept.index(target)))
        assert found["same"][row] == pytest.approx(reciprocal[asked[row]])
        assert found["other"][row] == pytest.approx(np.mean(np.delete(reciprocal, asked[row])))
        gains = [place in pool.targets[row] for place in order]
        discount = 1 / np.log2(np.arange(len(order)) + 2)
        assert found["ndcg"][row] == pytest.approx(100 * (gains * discount)[:10].sum() / discount[:3].sum())


def test_languages_apart_cost_the_other_side_and_a_quota_shares_evenly():
    pool = planted()
    near, far = (values(pool, *spaces(pool, own)) for own in (0.1, 4.0))
    assert far["other"].mean() < near["other"].mean() - 10
    assert far["share"].mean() > 90
    _, of_pool = pool.ids
    even = values(pool, *spaces(pool, 4.0), quota(of_pool))
    assert even["other"].mean() > far["other"].mean() + 10
    assert 30 <= even["share"].mean() <= 40


def test_a_thinned_pool_has_one_answer_a_question_and_keeps_all_else():
    pool = planted(questions=19, extra=1)
    thin = thinned(pool, seed=1)
    assert (thin.targets >= 0).sum(axis=1).tolist() == [1] * 57
    assert len(thin.candidates) == 60 - 2 * 19
    texts, languages = thin.candidates["text"], thin.candidates["language"]
    answers = thin.targets.max(axis=1)
    for row, cluster in enumerate(thin.clusters):
        assert texts[answers[row]].startswith(f"w{cluster} ")
        assert len({answers[other] for other in np.flatnonzero(thin.clusters == cluster)}) == 1
    counts = [np.mean([languages[row] == code for row in answers]) for code in ("eng-Latn", "deu-Latn", "fra-Latn")]
    assert counts[0] > 0.4 and counts[0] > counts[2]
    assert np.isnan(values(thin, *spaces_of(thin))["same"]).any()


def spaces_of(pool):
    rng = np.random.default_rng(0)
    return normalise(rng.standard_normal((len(pool.questions), 6))), normalise(
        rng.standard_normal((len(pool.candidates), 6))
    )


def test_questions_that_share_a_sentence_are_thinned_alike():
    pool = planted()
    shared = pool.targets.copy()
    shared[pool.clusters == 1] = shared[pool.clusters == 0][0]
    thin = thinned(Pool(**{**pool.__dict__, "targets": shared}))
    assert (thin.targets >= 0).sum(axis=1).tolist() == [1] * 36
    assert len({*thin.targets[thin.clusters <= 1].max(axis=1)}) == 1


def test_queries_of_one_product_are_one_cluster_in_all_locales(workdir):
    lists = {"id": {"q0": ["i0"], "q1": ["i0", "i1"]}, "vn": {"q0": ["i0"], "q1": ["i1"], "q2": ["i1", "i2"]}}
    for locale, wanted in lists.items():
        folder = workdir / "data" / "product_search_standin" / locale
        folder.mkdir(parents=True)
        pairs = [{"query_id": q, "item_id": i, "label": 1} for q, items in wanted.items() for i in items]
        tables = {
            "query": {q: {"query": f"{locale} {q}"} for q in wanted},
            "item": {f"i{i}": {"title": f"title {i}"} for i in range(3)},
            "pairs_info": pairs,
        }
        for name, table in tables.items():
            (folder / f"{name}.json").write_text(json.dumps(table))
    asked = front.product_pool().questions
    found = {frozenset(part["text"]) for _, part in asked.groupby("cluster")}
    assert found == {frozenset({"id q0", "id q1", "vn q0"}), frozenset({"vn q1", "vn q2"})}


def test_the_bootstrap_resamples_clusters():
    rng = np.random.default_rng(0)
    by_cluster = rng.normal(50, 10, 400)
    clusters = np.tile(np.arange(400), 5)
    mean, low, high = bootstrap(by_cluster[clusters], clusters)
    assert mean == pytest.approx(by_cluster.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * 10 / 20, rel=0.2)  # five translations are no more evidence
    gaps = np.where(np.arange(2000) % 2, np.nan, 7.0)
    assert bootstrap(gaps, clusters) == pytest.approx((7, 7, 7))
    assert all(np.isnan(bootstrap(np.full(5, np.nan), np.arange(5))))


def test_the_bootstrap_counts_questions_that_are_alike_in_a_paragraph_for_less():
    by_paragraph = np.random.default_rng(0).normal(50, 10, 200)
    _, low, high = bootstrap(by_paragraph.repeat(5), np.arange(1000))
    assert (high - low) / 2 == pytest.approx(1.96 * 10 / np.sqrt(200), rel=0.2)


def test_a_narrowed_side_keeps_whole_paragraphs():
    side = Side({"a": "A?", "b": "B?"}, ["s0", "s1", "s2", "s3"], {"a": 3, "b": 0}, ["p", "p", "q", "q"])
    small = narrowed(side, 1)
    assert (small.questions, small.candidates, small.answers, small.contexts) == (
        {"a": "A?"}, ["s2", "s3"], {"a": 1}, ["q", "q"],
    )  # fmt: skip
    assert narrowed(side, None) == side


@pytest.mark.slow
def test_every_arm_stands_in_table_and_figure(monkeypatch, workdir, tiny_model, write_text):
    text = f"own:{write_text(workdir / 'fit', 40)}"
    methods = {name: AlignmentSpec(name, name, corpora=(text,)) for name in ("centered", "shift", "minivec2vec")}
    methods["broken"] = AlignmentSpec("broken", "lir", (("k", 99),), (text,))
    monkeypatch.setattr(front, "fits", lambda: {"": methods})
    monkeypatch.setattr(front, "lareqa_pool", lambda task, rows: planted())
    findings = ANALYSES["front"](Request(models=(str(tiny_model),), device="cpu", tasks=("XQuAD-R",)))
    table = findings.tables["front"]
    assert {*table["measure"]} == {*MEASURES}
    arms = table[table["pool"] == "planted"]["method"].unique()
    assert [*arms] == [
        "plain", "quota", "z-scores", "mixed with English", "centered", "shift", "minivec2vec",
        *(f"shift {a:g}" for a in front.STRENGTHS),
    ]  # fmt: skip
    found = table[table["pool"] == "planted"].set_index(["method", "measure"])
    assert found.loc["shift 0", "value"].tolist() == found.loc["plain", "value"].tolist()
    assert found.loc["shift 1", "value"].tolist() == found.loc["shift", "value"].tolist()
    assert (found["difference"].xs("plain") == 0).all()
    assert ((found["low"] <= found["value"]) & (found["value"] <= found["high"])).all()
    assert any("planted, broken" in note for note in findings.notes)
    assert [*findings.figures] == ["plain__tiny-planted"]
    assert findings.data.keys() == {"XQuAD-R", text}


def test_a_pool_without_answers_in_the_own_language_has_a_table_and_no_figure(monkeypatch, workdir, tiny_model):
    pool = planted()
    other = replace(pool, candidates=pool.candidates.assign(language="ita-Latn"))
    monkeypatch.setattr(front, "fits", lambda: {"": {}})
    monkeypatch.setattr(front, "lareqa_pool", lambda task, rows: other)
    found = ANALYSES["front"](Request(models=(str(tiny_model),), device="cpu", tasks=("MLQA-R",)))
    assert not found.figures
    assert len(found.tables["front"])


def test_without_text_the_reason_is_given(tiny_model):
    with pytest.raises(DataError, match="XQuAD-R is missing"):
        ANALYSES["front"](Request(models=(str(tiny_model),), tasks=("XQuAD-R",)))
    for tasks in (("STS17",), ("XQuAD-R", "STS17")):
        with pytest.raises(DataError, match="the front has no pool STS17; it has XQuAD-R, MLQA-R"):
            ANALYSES["front"](Request(models=(str(tiny_model),), tasks=tasks))
