"""Ranks of translations in both directions: counting in blocks, against mteb's evaluator and against sorting."""

import time
from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from benchmarks.devices import every_device, memory_growth, synchronise
from xalign_models.ranking.neighbours import measured_ranks
from xalign_models.ranking.pairs import Sides, all_pairs, pair_ranks, polar_by_products, polar_by_svd
from xalign_models.ranking.ranks import TILE, gold_ranks, normalise, precision_at

FLORES = 1012
"""Sentences of a language in FLORES-200's devtest."""


def embeddings(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows of two sides of a made-up parallel corpus; about half of them find their translation."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((n, d))
    noise = np.sqrt(np.sqrt(d) / 3.5 - 1)  # a translation's cosine is 3.5 deviations above the others'
    return tuple(normalise(shared + noise * rng.standard_normal((n, d))) for _ in range(2))


def throughput(n: int, d: int, seconds: float) -> dict[str, float]:
    return {
        "pairs_per_s": n * n / seconds,
        "language_pairs_per_s": 1 / seconds,
        "gflop_per_s": 2 * n * n * d / seconds / 1e9,  # one product serves both directions
    }


def by_mteb(a: np.ndarray, b: np.ndarray, metrics: bool = True) -> list[float]:
    """Accuracy by mteb in both directions of a language pair: its search, then all its metrics or accuracy alone."""
    from mteb._evaluators import BitextMiningEvaluator
    from mteb.abstasks import AbsTaskBitextMining
    from mteb.similarity_functions import cos_sim

    class Cosine:
        similarity = staticmethod(cos_sim)

    gold = [(i, i) for i in range(len(a))]
    found = [BitextMiningEvaluator._similarity_search(None, x, y, Cosine()) for x, y in ((a, b), (b, a))]
    if metrics:
        return [AbsTaskBitextMining._compute_metrics(None, side, gold)["accuracy"] for side in found]
    return [np.mean([hit["corpus_id"] == i for i, hit in enumerate(side)]) for side in found]


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize("part", ["search", "search and metrics"])
@pytest.mark.parametrize("d", [384, 1024])
def test_against_mteb(compare, note, d, part):
    """P@1, P@5 and P@10, against mteb's own search and then its bitext metrics such as F1."""
    pytest.importorskip("mteb", reason="mteb is not installed")
    a, b = embeddings(FLORES, d)
    theirs = partial(by_mteb, a, b, metrics=part != "search")

    def ours():
        return [precision_at(ranks)["precision_at_1"] for ranks in gold_ranks(a, b)]

    pair = compare(ours, theirs, f"mteb's {part}", 9)
    assert 0.2 < min(pair.ours) <= max(pair.ours) < 1
    np.testing.assert_allclose(pair.ours, pair.theirs, rtol=0, atol=1e-6)
    note(**throughput(FLORES, d, pair.seconds), precision_at_1=pair.ours)


@pytest.mark.parametrize(("n", "d"), [(FLORES, 384), (2000, 384), (FLORES, 1024)])
def test_against_sorting(compare, note, n, d):
    a, b = embeddings(n, d)

    def theirs():
        scores = a @ b.T
        own = np.arange(n)[:, None]
        return [np.argmax(np.argsort(-side, axis=1) == own, axis=1) + 1 for side in (scores, scores.T)]

    pair = compare(lambda: gold_ranks(a, b), theirs, "sorting")
    for ours, sorted_ in zip(pair.ours, pair.theirs, strict=True):
        assert np.abs(ours - sorted_).max() <= 1  # two products may round a near tie differently
        assert np.mean(ours == sorted_) > 0.99
    note(**throughput(n, d, pair.seconds))


@pytest.mark.parametrize(("n", "d"), [(FLORES, 384), (8 * FLORES, 384), (FLORES, 1024)])
def test_against_faiss(compare, note, pytestconfig, n, d):
    """P@10 by exact ranks against FAISS's exact search for the ten nearest."""
    faiss = pytest.importorskip("faiss")
    faiss.omp_set_num_threads(pytestconfig.getoption("--bench-threads"))
    a, b = embeddings(n, d)

    def found(queries, documents):
        nearest = faiss.knn(queries, documents, 10, metric=faiss.METRIC_INNER_PRODUCT)[1]
        return (nearest == np.arange(n)[:, None]).any(axis=1).mean()

    pair = compare(
        lambda: [precision_at(ranks)["precision_at_10"] for ranks in gold_ranks(a, b)],
        lambda: [found(a, b), found(b, a)],
        f"faiss {faiss.__version__}",
    )
    np.testing.assert_allclose(pair.ours, pair.theirs, rtol=0, atol=2 / n)  # near ties
    note(**throughput(n, d, pair.seconds))


@pytest.mark.parametrize(("n", "d"), [(FLORES, 384), (FLORES, 768), (FLORES, 1024)])
def test_neighbourhoods_beside_ranks(compare, n, d):
    """The cost of CSLS, margin, MEXA and hubness beside the ranks; the ratio is the time of plain ranks over both."""
    a, b = embeddings(n, d)
    pair = compare(lambda: measured_ranks(a, b), lambda: gold_ranks(a, b), "ranks alone", rounds=15)
    for ranks, plain in zip(pair.ours, pair.theirs, strict=False):
        np.testing.assert_array_equal(ranks, plain)


@pytest.mark.quick
@pytest.mark.parametrize("tile", [70, TILE])
def test_ranks_are_exact_with_ties(benchmark, note, tile):
    """Products of small integers are exact in float32, so scores tie; ties count against the model."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (FLORES, 16)).astype(np.float32) for _ in range(2))
    ranks = benchmark.pedantic(gold_ranks, (a, b, tile), rounds=1)
    scores = a.astype(np.int64) @ b.astype(np.int64).T
    for found, side in zip(ranks, (scores, scores.T), strict=True):
        np.testing.assert_array_equal(found, rankdata(-side, method="max", axis=1).diagonal())
    ties = sum(FLORES - len(np.unique(row)) for row in scores)
    assert ties > FLORES
    note(tied_scores=ties)


def test_memory_is_a_tile(benchmark, note):
    """The peak does not grow with n."""
    n, d = 16_384, 64
    a, b = embeddings(n, d)

    growth = memory_growth()
    benchmark.pedantic(gold_ranks, (a, b), rounds=1)
    used = growth()
    note(peak_bytes=used, score_matrix_bytes=4 * n * n)
    assert used < 32 << 20  # the tile takes 2.5 MB; a first product leaves the rest behind


def many_languages(count: int, d: int, n: int = FLORES, fit: int = 0) -> dict[str, Sides]:
    """Made-up languages: noisy copies of the same content, in float32."""
    rng = np.random.default_rng(0)
    shape = (n + fit, d)
    spectrum = np.geomspace(1, 1e-2, d, dtype=np.float32) if fit else 1
    content = rng.standard_normal(shape, dtype=np.float32)
    found = {}
    for i in range(count):
        rows = (content + 2 * rng.standard_normal(shape, dtype=np.float32)) * spectrum
        found[f"l{i:03}"] = Sides(normalise(rows[:n]), normalise(rows[n:]) if fit else None)
    return found


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_all_of_flores(benchmark, note, pytestconfig):
    """All pairs at d = 384, and at 40 places in between the same pair by mteb, in both directions."""
    pytest.importorskip("mteb", reason="mteb is not installed")
    count = pytestconfig.getoption("--bench-all-languages")
    growth = memory_growth()
    found = many_languages(count, 384)
    pairs = list(combinations(found, 2))
    sampled = set(np.linspace(0, len(pairs) - 1, min(40, len(pairs))).astype(int).tolist())
    own, theirs, gaps = np.zeros(len(pairs)), {}, []

    def run() -> None:
        ranked = all_pairs(found.__getitem__, pairs)
        for i in range(len(pairs)):
            start = time.perf_counter()
            (a, b), forward, backward, _ = next(ranked)
            ours = [precision_at(direction[0]) for direction in (forward, backward)]
            own[i] = time.perf_counter() - start
            if i in sampled:
                start = time.perf_counter()
                accuracy = by_mteb(found[a].rows, found[b].rows)
                theirs[i] = time.perf_counter() - start
                gaps.extend(abs(x["precision_at_1"] - y) for x, y in zip(ours, accuracy, strict=True))

    benchmark.pedantic(run, rounds=1)
    ratios = sorted(seconds / own[i] for i, seconds in theirs.items())
    peak, different, largest = growth(), sum(gap > 1e-6 for gap in gaps), max(gaps)
    note(languages=count, directions=2 * len(pairs), ratio=float(np.median(ratios)), ratios=ratios, peak_bytes=peak,
         seconds=own.sum(), ms_per_direction=500 * np.median(own[[*theirs]]), largest_gap=largest, different=different,
         mteb_ms_per_direction=500 * np.median([*theirs.values()]), **throughput(FLORES, 384, own.mean()))  # fmt: skip
    assert different <= 2 and largest <= 1.2 / FLORES  # two products may round a near tie differently: one sentence
    assert peak < 1 << 30


@every_device
@pytest.mark.parametrize(("d", "fit"), [(384, 0), (1024, 0), (2048, 0), (4096, 0), (384, 1997), (1024, 1997)])
def test_all_pairs_in_batches(clocked, note, device, d, fit):
    """The batched path, which rotates each pair if there are rows to fit on; a few pairs are checked one by one.

    A CPU runs the same code on small data.
    """
    cuda = device == "cuda"
    count = (204 if d == 384 or not fit else 40) if cuda else 4
    n, fit = (FLORES, fit) if cuda else (60, fit // 4)
    found = many_languages(count, d if cuda else min(d, 512), n, fit)
    pairs = list(combinations(found, 2))
    where = {"device": "cuda"} if cuda else {"device": "cpu:0", "budget": 1 << 29}  # "cpu" would take pairs one by one
    chosen = {pairs[i] for i in np.linspace(0, len(pairs) - 1, 4).astype(int)}
    kept = {}

    def run() -> None:
        for pair, *both, _ in all_pairs(found.__getitem__, pairs, **where):
            if pair in chosen:
                kept[pair] = both

    run()  # warms up
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    _, seconds = clocked(run)
    peak = torch.cuda.max_memory_allocated() if cuda else 0
    gaps = [
        np.abs(x - y).max()
        for (a, b), both in kept.items()
        for x, y in zip(both, pair_ranks(found[a], found[b])[:2], strict=True)
    ]
    note(gpu=torch.cuda.get_device_name() if cuda else "none", languages=count, d=d, fit_rows=fit, seconds=seconds,
         peak_device_bytes=peak, largest_rank_gap=int(max(gaps)), torch=torch.__version__,
         **throughput(n, found["l000"].rows.shape[1], seconds / len(pairs)))  # fmt: skip
    assert max(gaps) <= (1 if not fit else 3)  # products in another order round a near tie differently


@every_device
@pytest.mark.parametrize("d", [384, 1024, 4096])
@pytest.mark.parametrize("how", ["products", "default", "gesvd", "gesvdj", "gesvda"])
def test_polar_factors(clocked, note, device, d, how):
    """The orthogonal factors of a batch of d x d matrices, by products and by SVD drivers, as Procrustes needs them."""
    cuda = device == "cuda"
    if not cuda and how.startswith("gesvd"):
        pytest.skip("a driver of cuSOLVER")
    if cuda and d == 4096 and how in {"gesvdj", "gesvda"}:
        pytest.skip("takes minutes")
    size = (max(1, 4096 // d) if how == "products" else max(1, 1024 // d)) if cuda else 2
    d_used = d if cuda else d // 16
    rng = torch.Generator(device).manual_seed(0)
    x, y = (torch.randn(size, 2 * d_used, d_used, generator=rng, device=device) for _ in range(2))
    spectrum = torch.logspace(0, -2, d_used, device=device)
    cross = ((x * spectrum).mT @ ((x + y) * spectrum)).double()

    def run() -> torch.Tensor:
        if how == "products":
            found, good = polar_by_products(cross)
            assert bool(good.all())
        else:
            found = polar_by_svd(cross, None if how == "default" else how)
        synchronise(device)
        return found

    run()
    found, seconds = clocked(run)
    eye = torch.eye(d_used, dtype=torch.float64, device=device)
    error = float((found.mT @ found - eye).abs().max())
    symmetric = float(((s := found.mT @ cross) - s.mT).abs().max() / s.abs().max())  # W^T M is, and positive, if polar
    note(seconds_per_matrix=seconds / size, batch=size, d=d_used, orthogonality_error=error, asymmetry=symmetric)
    assert max(error, symmetric) < 1e-6
