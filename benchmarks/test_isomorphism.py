"""IsomorphismStudy: decompositions, products, memory and time of a language pair."""

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from benchmarks.devices import memory_growth
from xalign_models.linalg import solvers
from xalign_models.ranking import pairs
from xalign_models.ranking.pairs import rotated_ranks
from xalign_models.ranking.ranks import normalise

NTREX, FLORES = 1997, 1012
"""Sentences of a language to fit on and to rank."""


def two_languages(n: int, m: int, d: int, noise: float = 0.5) -> tuple[np.ndarray, ...]:
    """Unit rows of two made-up languages, (n, d) to fit on and (m, d) to rank; the second rotates the coordinates."""
    rng = np.random.default_rng(0)
    content = rng.standard_normal((n + m, d), dtype=np.float32)
    sides = (content, np.roll(content, d // 2, axis=1))
    a, b = (normalise(side + noise * rng.standard_normal(content.shape, dtype=np.float32)) for side in sides)
    return a[:n], b[:n], a[n:], b[n:]


def test_against_one_fit_and_one_sort_per_direction(compare):
    """One fit and no sort, against scipy's Procrustes and a sort of all scores for each direction."""
    sides = two_languages(NTREX, FLORES, 384, noise=1.5)

    def theirs():
        own, found = np.arange(FLORES)[:, None], []
        for fit_a, fit_b, a, b in (sides, [sides[i] for i in (1, 0, 3, 2)]):
            weight = orthogonal_procrustes(fit_a, fit_b)[0]
            scores = (a @ b.T, normalise(a @ weight) @ b.T)
            found.append([np.argmax(np.argsort(-side, axis=1) == own, axis=1) + 1 for side in scores])
        return np.array(found)

    pair = compare(lambda: rotated_ranks(*sides), theirs, "scipy and a sort per direction")
    assert np.abs(np.array(pair.ours) - pair.theirs).max() <= 1  # two products may round a near tie differently
    assert np.mean(np.array(pair.ours) == pair.theirs) > 0.99
    assert 0.2 < np.mean(pair.theirs == 1) < 0.9


@pytest.mark.quick
@pytest.mark.parametrize(
    ("n", "d", "sizes"), [(200, 64, [64]), (40, 64, [40, 24]), (40, 400, [40, 40])], ids=["n >= d", "n < d", "2n < d"]
)
def test_decompositions_and_products_of_a_pair(benchmark, note, monkeypatch, n, d, sizes):
    """Both directions take one SVD of d x d or, when n < d, two of at most n x n: inside the rows' span and outside."""
    sides = two_languages(n, 100, d)
    svd, gold_ranks, found, products = solvers.svd, pairs.gold_ranks, [], []
    monkeypatch.setattr(solvers, "svd", lambda x, **options: (found.append(len(x)), svd(x, **options))[1])
    monkeypatch.setattr(pairs, "gold_ranks", lambda *args: (products.append(1), gold_ranks(*args))[1])
    benchmark.pedantic(rotated_ranks, sides, rounds=1)
    assert found == sizes
    assert len(products) == 2
    note(svds=found, score_matrices=len(products))


@pytest.mark.parametrize("d", [1024, 4096])
def test_peak_memory_of_a_pair(benchmark, note, d):
    """At a language model's size, and with more rows than dimensions."""
    sides = two_languages(NTREX, FLORES, d)
    growth = memory_growth()
    forward, _ = benchmark.pedantic(rotated_ranks, sides, rounds=1)
    used = growth()
    assert np.mean(forward[0] == 1) < 0.01
    assert np.mean(forward[1] == 1) > 0.99
    bound = 12 * 8 * max(d, NTREX) ** 2
    note(peak_bytes=used, bound_bytes=bound)
    assert used < bound
