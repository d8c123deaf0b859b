"""One threshold holds the rate of false positives in every pair of languages, from text without labels."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from xalign_models import Thresholds
from xalign_models.errors import DataError, FileError, LanguageError

CODES = ("eng-Latn", "deu-Latn", "tha-Thai")


def planted(seed, rows=800, dim=32):
    """Row-parallel meanings, in cones that are wider or narrower by language."""
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((rows, dim))
    cones = np.random.default_rng(99).standard_normal((3, dim))
    return {code: meaning + 0.4 * rng.standard_normal((rows, dim)) + width * cone
            for code, cone, width in zip(CODES, cones, (0.3, 1.5, 0.8), strict=True)}  # fmt: skip


def cosines(x, y):
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


def test_one_threshold_has_the_rate_in_every_pair_where_a_raw_one_has_not():
    thresholds = Thresholds.fit(planted(0))
    texts, rng = planted(1, rows=4000), np.random.default_rng(2)
    raw, rates = [], []
    english = np.quantile(cosines(texts["eng-Latn"], texts["eng-Latn"][rng.permutation(4000)]), 0.99)
    for query in CODES:
        for document in CODES:
            scores = cosines(texts[query], np.roll(texts[document], 1, axis=0))
            rates.append((thresholds.standardise(scores, query, document) > thresholds.at(0.01)).mean())
            raw.append((scores > english).mean())
    assert max(raw) > 0.1
    assert thresholds.at(0.01) == pytest.approx(1)
    assert all(0.004 < rate < 0.02 for rate in rates)


@pytest.mark.parametrize(("rows", "least", "most"), [(5, 0.03, 0.2), (100, 0.005, 0.015)])
def test_few_texts_are_named_as_more_unrelated_ones_pass(caplog, rows, least, most):
    """At a rate of 1%, the mean over fits on different texts."""
    texts, passed = planted(100, rows=2000), []
    for seed in range(6):
        thresholds = Thresholds.fit(planted(seed, rows=rows))
        for query in CODES:
            scores = cosines(texts[query], np.roll(texts["deu-Latn"], 1, axis=0))
            passed.append((thresholds.standardise(scores, query, "de") > thresholds.at(0.01)).mean())
    assert least < np.mean(passed) < most
    assert ("deu-Latn, eng-Latn, tha-Thai: fewer than 100 texts" in caplog.text) == (rows < 100)


def test_median_and_spread_by_hand():
    thresholds = Thresholds({"eng-Latn": {"deu-Latn": (0.5, 0.25), "eng-Latn": (0.0, 1.0)}}, tuple(range(1, 8)))
    np.testing.assert_allclose(thresholds.standardise([0.75, 0.25], "en", ["de", "eng"]), [1.0, 0.25])
    np.testing.assert_allclose(thresholds.standardise([[0.75], [0.5]], "en", "de"), [[1.0], [0.0]])
    begin = time.perf_counter()
    thresholds.standardise(np.zeros((1000, 1000)), "en", "de")
    assert time.perf_counter() - begin < 1
    assert thresholds.at(0.01) == 4
    assert 3 < thresholds.at(0.015) < 4
    with pytest.raises(LanguageError, match="tha"):
        thresholds.standardise([0.1], "en", "tha")
    with pytest.raises(DataError, match="between"):
        thresholds.at(0.5)


@pytest.mark.parametrize(
    ("scores", "sides"),
    [([0.1, 0.2, 0.3], (["de"], ["en"])), ([0.1], ("de", ["en", "en"])), (np.ones((2, 2)), (["de", "en"], "en")),
     (0.1, (["de"], "en")), ([0.1], (["de"], ["en", "en"]))],
)  # fmt: skip
def test_languages_that_are_not_one_per_score_are_refused(scores, sides):
    facts = {code: dict.fromkeys(("deu-Latn", "eng-Latn"), (0.0, 1.0)) for code in ("deu-Latn", "eng-Latn")}
    with pytest.raises(ValueError, match="Give one language per score"):
        Thresholds(facts, tuple(range(1, 8))).standardise(scores, *sides)


def test_translations_in_the_text_do_not_count_and_seeds_repeat():
    texts = planted(3, rows=40)
    assert Thresholds.fit(texts) == Thresholds.fit(texts)
    same = Thresholds.fit({"eng-Latn": texts["eng-Latn"], "deu-Latn": texts["eng-Latn"]})
    unit = texts["eng-Latn"] / np.linalg.norm(texts["eng-Latn"], axis=1, keepdims=True)
    exact = (unit @ unit.T)[~np.eye(40, dtype=bool)]
    assert same.pairs["eng-Latn"]["deu-Latn"][0] == pytest.approx(np.median(exact), abs=0.01)


def test_a_saved_file_comes_back_and_damage_is_refused(tmp_path):
    path = tmp_path / "thresholds.json"
    thresholds = Thresholds.fit(planted(0, rows=50), samples=1000)
    thresholds.save(path)
    assert Thresholds.load(path) == thresholds
    content = json.loads(path.read_text())
    pairs = ({}, 3, {"a": {"b": [0, 0]}}, {"a": {}}, {"a": {"b": [0, "1"]}})
    for change in ({"format": 2}, {"quantiles": ["x"] * 7}, {"quantiles": []}, *({"pairs": wrong} for wrong in pairs)):
        path.write_text(json.dumps(content | change))
        with pytest.raises(FileError, match="not a file of thresholds"):
            Thresholds.load(path)


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((1, 4)),
        np.zeros((3, 4)),
        np.full((3, 4), np.nan),
        np.ones(4),
        np.ones((5, 4)),
        [[1, 2], [3]],
        ["a", "b"],
    ],
)
def test_vectors_that_cannot_be_measured_are_refused(rows):
    with pytest.raises(DataError):
        Thresholds.fit({"eng-Latn": rows})


@pytest.mark.parametrize("samples", [0, -1])
def test_samples_that_are_none_are_refused(samples):
    with pytest.raises(DataError, match=f"samples={samples}; it must be at least 1"):
        Thresholds.fit({"eng-Latn": planted(0)["eng-Latn"]}, samples=samples)


@pytest.mark.parametrize("seed", range(6))
def test_too_few_samples_are_refused(seed):
    with pytest.raises(DataError, match="all cosines are equal; give more"):
        Thresholds.fit({"eng-Latn": np.eye(2)}, samples=1, seed=seed)


def test_vectors_of_different_widths_are_refused():
    narrow, wide = np.eye(3), np.eye(4)
    for texts in (({"eng-Latn": narrow, "deu-Latn": wide},), ({"eng-Latn": narrow}, {"eng-Latn": wide})):
        with pytest.raises(DataError, match=r"different widths \(3, 4\)"):
            Thresholds.fit(*texts)
