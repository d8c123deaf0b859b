"""Public functions and readers on made-up inputs, most of which they accept: properties hold, refusals are one line.

``python -m tests.chaos --fuzz 100000`` tries so many; the number here is small.
"""

from __future__ import annotations

import json
import math
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from xalign_models.errors import XAlignError

FUZZ = int(os.environ.get("XALIGN_FUZZ", "500"))
SEED = int(os.environ.get("XALIGN_CHAOS_SEED", "0"))

CODES = ["deu-Latn", "eng-Latn", "fra-Latn", "zho-Hans", "arb-Arab", "hin-Deva", "tha-Thai", "spa-Latn"]
texts = st.text(max_size=40)
plain = st.text("abc äß日本العر. ,!?'\"-0123456789", min_size=1, max_size=30).filter(str.strip)
scores_ = st.floats(0, 1, allow_nan=False)
seeds = st.integers(0, 2**32 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nine of ten good ones."""
    return st.integers(0, 9).flatmap(lambda i: bad if i == 0 else good)


def rows(n: int, d: int, number: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal((n, d)).astype(np.float32)


FUZZED: dict[str, tuple[st.SearchStrategy[Any], Callable[..., None]]] = {}


def fuzzed(strategy: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(check: Callable[..., None]) -> Callable[..., None]:
        FUZZED[check.__name__] = strategy, check
        return check

    return register


FORMS = [*CODES, "de", "en", "deu", "deu_Latn", "zh-CN", "pt-BR", "eng-GB", "srp-Cyrl", "zho_Hant", "th", "ara"]


@fuzzed(
    st.lists(st.sampled_from(FORMS), min_size=1, max_size=5).flatmap(
        lambda codes: mostly(st.just(codes), texts.map(lambda text: [*codes, text]))
    )
)
def canonical(codes: list[str]) -> None:
    from xalign_models.languages import canonical, display_name, is_canonical, to_flores

    for code in codes:
        found = canonical(code)
        assert is_canonical(found)
        assert canonical(found) == found == canonical(to_flores(found))
        assert display_name(found)


@fuzzed(
    st.tuples(
        st.lists(plain, min_size=1, max_size=6),
        mostly(st.just(None), st.binary(max_size=60)),
        st.sampled_from(["txt", "tsv", "jsonl"]),
    )
)
def own_text(given: tuple[list[str], bytes | None, str]) -> None:
    from xalign_models.corpora.own_text import own

    sentences, damage, kind = given
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "txt":
            for code in ("deu", "eng"):
                (folder / f"{code}.txt").write_text("".join(f"{one}\n" for one in sentences))
            path = folder
        elif kind == "tsv":
            path = folder / "own.tsv"
            path.write_text("deu\teng\n" + "".join(f"{one}\t{one}\n" for one in sentences))
        else:
            path = folder / "own.jsonl"
            path.write_text("".join(json.dumps({"de": one, "en": one}) + "\n" for one in sentences))
        if damage is not None:
            next(iter(folder.iterdir())).write_bytes(damage)
        corpus = own(path)
        columns = list(corpus.parallel(corpus.languages).values())
        if damage is None:
            assert columns == [sentences] * 2


@fuzzed(
    st.tuples(
        st.dictionaries(st.sampled_from(CODES), mostly(scores_, json_values), min_size=1, max_size=5),
        mostly(st.just(None), st.binary(max_size=60)),
    )
)
def results_and_gate(given: tuple[dict[str, Any], bytes | None]) -> None:
    from xalign_models.boards.baseline import read_before
    from xalign_models.boards.gate import compare
    from xalign_models.results.reading import read_results

    scores, damage = given
    with tempfile.TemporaryDirectory() as name:
        entries = [{"hf_subset": subset, "languages": [], "main_score": value} for subset, value in scores.items()]
        for side, values in (("old", [{**entry, "main_score": 0.5} for entry in entries]), ("new", entries)):
            folder = Path(name) / side / "results" / "me__model" / "1"
            folder.mkdir(parents=True)
            (folder / "T.json").write_text(json.dumps({"dataset_revision": "1", "scores": {"test": values}}))
        if damage is not None:
            (folder / "T.json").write_bytes(damage)
        report = compare(read_results(Path(name) / "new"), read_before(Path(name) / "old"))
        usable = {
            subset: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
            for subset, value in scores.items()
        }
        if damage is not None:
            assert report.exit_code == 3
        elif not all(usable.values()):
            assert report.exit_code == 1
            assert {row.language for row in report.rows if "impossible" in row.reason} == {
                subset for subset, good in usable.items() if not good
            }
        else:
            assert report.exit_code == (1 if any(value < 0.49 - 1e-9 for value in scores.values()) else 0)


percents = st.floats(-100, 100, allow_nan=False)


@fuzzed(st.fixed_dictionaries({
    "tolerance": st.dictionaries(texts, st.floats(0, 100), max_size=3),
    "scores": st.dictionaries(texts, st.dictionaries(texts, st.fixed_dictionaries({
        "dataset_revision": st.none() | texts,
        "scores": st.dictionaries(texts, mostly(percents, json_values), min_size=1, max_size=2)}), max_size=1),
        max_size=2)}))  # fmt: skip
def baselines(given: dict[str, Any]) -> None:
    from xalign_models.boards.baseline import read_baseline, read_before, write_baseline

    with tempfile.TemporaryDirectory() as name:
        path, copy = Path(name) / "a.json", Path(name) / "b.json"
        path.write_text(json.dumps(given))
        read = read_baseline(path)
        write_baseline(copy, read, {})
        assert read_baseline(copy).scores == read.scores
        for value in read_before(path).results.tables.values():
            assert all(abs(score) <= 1 for score in value.values().values())


@fuzzed(st.tuples(st.text(st.characters()), st.sampled_from(["terminal", "html", "markdown", "github"])))
def escaping(given: tuple[str, Any]) -> None:
    from xalign_models.tables.escaping import escape

    assert escape(*given).isprintable()


@fuzzed(st.lists(st.tuples(st.text(min_size=1, max_size=20), texts, seeds), min_size=1, max_size=5))
def store(given: list[tuple[str, str, int]]) -> None:
    from xalign_models.backbones.raw import key as key_of
    from xalign_models.store import EmbeddingStore

    kept = {}
    with tempfile.TemporaryDirectory() as name, EmbeddingStore(Path(name), max_bytes=2**24) as where:
        for prompt, text, number in given:
            key = key_of(prompt, text)
            kept[key] = rows(1, 4, number)
            where.put("space", [key], kept[key])
        for key, vector in kept.items():
            np.testing.assert_array_equal(where.get("space", [key])[0], vector[0])


@fuzzed(st.tuples(st.lists(st.tuples(plain, texts), min_size=1, max_size=6), st.binary(max_size=20)))
def journal(given: tuple[list[tuple[str, str]], bytes]) -> None:
    from xalign_models.generation.journal import Journal

    entries, torn = given
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "j.jsonl"
        Journal(path, ["text"]).append([{"text": text, "translation": made} for text, made in entries])
        with path.open("ab") as handle:  # as a kill in the middle of a line leaves it
            handle.write(torn.replace(b"\n", b""))
        again = Journal(path, ["text"])
        first = dict(reversed(entries))
        assert {text: again.get(text)["translation"] for text in first} == first


@fuzzed(st.tuples(texts, texts, st.sampled_from([None, *CODES]), st.booleans()))
def cleaning(given: tuple[str, str, str | None, bool]) -> None:
    from xalign_models.generation.translators.base import clean

    written, source, language, finished = given
    found = clean(written, source, language, finished=finished)
    assert found.problem or found.text.strip()
    assert found.problem in {"", "empty", "endless", "untranslated", "not English"}


numbers = st.integers(1, 10) | st.floats(1, 10) | st.sampled_from(["7", "8/10", "9,5"])


@fuzzed(st.tuples(texts, st.fixed_dictionaries(
    {key: mostly(numbers, json_values) for key in ("Semantic", "emotional", "pragmatic fit")}), texts))  # fmt: skip
def critics_scores(given: tuple[str, dict[str, Any], str]) -> None:
    from xalign_models.generation.critics import parse_scores

    before, scores, after = given
    found = parse_scores(before.replace("{", "") + json.dumps(scores) + after)
    assert found is None or all(1 <= score <= 10 for score in found)


@fuzzed(st.tuples(st.sampled_from(["centered", "lir", "lsar", "procrustes", "affine"]), st.integers(4, 20),
                  st.integers(2, 6), st.lists(st.sampled_from(CODES), min_size=2, max_size=4, unique=True), seeds,
                  st.floats(1e-3, 1e3)))  # fmt: skip
def alignments(given: tuple[str, int, int, list[str], int, float]) -> None:
    from xalign_models.alignments import load, make

    method, n, d, codes, number, scale = given
    codes = ["eng-Latn", *(code for code in codes if code != "eng-Latn")]
    data = {code: scale * rows(n, d, number + i) for i, code in enumerate(codes)}
    fitted = make(method).fit(data)
    with tempfile.TemporaryDirectory() as name:
        fitted.save(Path(name))
        again = load(name)
    for code, vectors in data.items():
        moved = fitted.transform(vectors, code)
        assert moved.shape == vectors.shape
        assert np.isfinite(moved).all()
        np.testing.assert_array_equal(again.transform(vectors, code), moved)
        middle = fitted.transform(vectors.mean(axis=0, keepdims=True), code)  # the maps are affine
        np.testing.assert_allclose(
            middle, moved.mean(axis=0, keepdims=True), rtol=1e-3, atol=1e-3 * np.abs(vectors).max()
        )


@fuzzed(st.tuples(st.integers(1, 40), st.integers(2, 8), seeds, st.floats(0, 2)))
def gold_ranks(given: tuple[int, int, int, float]) -> None:
    from xalign_models.ranking.ranks import gold_ranks, normalise, precision_at

    n, d, number, noise = given
    a = normalise(rows(n, d, number))
    b = normalise(a + np.float32(noise) * rows(n, d, number + 1))
    forward, backward = gold_ranks(a, b, tile=16)
    assert forward.min() >= 1
    assert max(forward.max(), backward.max()) <= n
    swapped = gold_ranks(b, a, tile=7)
    np.testing.assert_array_equal(swapped[0], backward)
    np.testing.assert_array_equal(swapped[1], forward)
    shares = precision_at(forward)
    assert 0 <= shares["precision_at_1"] <= shares["precision_at_5"] <= shares["precision_at_10"] <= 1


@fuzzed(st.tuples(st.integers(1, 8), st.integers(3, 12), st.integers(1, 3), seeds))
def average_precision(given: tuple[int, int, int, int]) -> None:
    from sklearn.metrics import average_precision_score

    from xalign_models.ranking.ranks import average_precision, target_counts

    n, m, k, number = given
    rng = np.random.default_rng(number)
    queries, pool = rng.integers(-2, 3, (n, 3)).astype(np.float32), rng.integers(-2, 3, (m, 3)).astype(np.float32)
    targets = np.stack([rng.permutation(m)[:k] for _ in range(n)])
    found = average_precision(target_counts(queries, pool, targets))
    for i in range(n):
        np.testing.assert_allclose(
            found[i], average_precision_score(np.isin(np.arange(m), targets[i]), queries[i] @ pool.T)
        )


@fuzzed(st.tuples(st.integers(1, 4), st.integers(2, 12), seeds, st.floats(0.01, 2), st.integers(1, 10)))
def soft_ndcg(given: tuple[int, int, int, float, int]) -> None:
    import torch

    from xalign_models.training.lira.ndcg import soft_ndcg

    b, n, number, tau, k = given
    scores = torch.from_numpy(rows(b, n, number))
    relevance = torch.zeros(b, n)
    relevance[:, 0] = 1
    mask = torch.ones(b, n, dtype=torch.bool)
    found = soft_ndcg(scores, relevance, mask, k=k, tau=tau, tau_k=k / 2)
    assert ((found >= 0) & (found <= 1 + 1e-5)).all()
    order = torch.randperm(n, generator=torch.Generator().manual_seed(number % 2**31))
    torch.testing.assert_close(
        soft_ndcg(scores[:, order], relevance[:, order], mask, k=k, tau=tau, tau_k=k / 2), found, rtol=1e-4, atol=1e-5
    )


@fuzzed(st.tuples(st.integers(2, 20), seeds, mostly(st.floats(1e-3, 10), st.floats(-1, 1e-7))))
def soft_ranks(given: tuple[int, int, float]) -> None:
    import torch

    from xalign_models.training.lira.ranks import average_ranks, soft_ranks

    n, number, tau = given
    scores = torch.from_numpy(rows(1, n, number)[0]).double()
    ranks = soft_ranks(scores, tau)
    assert float(ranks.sum()) == pytest.approx(n * (n + 1) / 2)
    assert (ranks.argsort() == average_ranks(scores).argsort()).all()


@fuzzed(st.tuples(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 5), seeds))
def edits(given: tuple[list[int], int, int]) -> None:
    from xalign_tasks.analyses.lipschitz import levenshtein, perturb

    units, most, number = given
    other = perturb(units, most, list(range(5)), random.Random(number))
    distance = levenshtein(units, other)
    assert abs(len(units) - len(other)) <= distance <= max(len(units), len(other))
    assert distance == levenshtein(other, units)
    assert distance <= most


@fuzzed(st.tuples(st.lists(st.floats(-1, 1), min_size=1, max_size=200)))
def paired_tests(given: tuple[list[float]]) -> None:
    from xalign_models.results.proportions import fall_of, interval, p_of_fall
    from xalign_models.results.significance import holm

    gaps = np.array(given[0])
    falls = [fall_of(sign * gaps / len(gaps), 1 / len(gaps)) for sign in (1, -1)]
    p, mirrored = (p_of_fall(fall, 0.01) for fall in falls)
    for fall in falls:
        low, high = interval(fall)
        assert low <= fall.total <= high
    assert 0 <= p <= 1
    assert p + mirrored >= 0.999
    adjusted = holm([p, mirrored, 0.5])
    assert all(one >= other for one, other in zip(adjusted, [p, mirrored, 0.5], strict=True))


@fuzzed(
    st.tuples(
        st.sampled_from(["a", "e5-small"]),
        st.none() | st.integers(-1, 12),
        st.none() | st.integers(1, 512),
        mostly(st.sampled_from(["float32", "bfloat16"]), plain),
    )
)
def specs(given: tuple[str, int | None, int | None, Any]) -> None:
    from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec

    name, layer, most, dtype = given
    backbone = BackboneSpec(name, "some/model", layer=layer, max_tokens=most, dtype=dtype)
    spec = ModelSpec(backbone, AlignmentSpec("lir-2", "lir", (("k", 2),), ("ntrex",)))
    assert ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert spec.name == f"xalign/lir-2__{name}"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FUZZED))
def test_fuzz(name: str) -> None:
    strategy, check = FUZZED[name]
    counts: Counter[str] = Counter()

    @seed(SEED)
    @settings(
        max_examples=max(5, FUZZ // len(FUZZED)), deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def attempt(value: Any) -> None:
        try:
            check(value)
            counts["accepted"] += 1
        except XAlignError as error:
            assert "\n" not in str(error)
            counts["refused"] += 1

    attempt()
    if log := os.environ.get("XALIGN_CHAOS_LOG"):
        with Path(log).open("a") as handle:
            handle.write(json.dumps({"function": name, "accepted": counts["accepted"], "refused": counts["refused"]}))
            handle.write("\n")
    assert math.isfinite(counts["accepted"])
    assert counts["accepted"] > counts["refused"]
