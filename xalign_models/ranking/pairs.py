"""Ranks of the counterparts for every pair of many languages: batched on an accelerator, memory bounded."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from xalign_models.linalg.arrays import Float32
from xalign_models.linalg.solvers import procrustes
from xalign_models.ranking.neighbours import NAMES, ROWS, Measures, measured_ranks, neighbour_measures
from xalign_models.ranking.ranks import TIE, Ranks, gold_ranks, normalise

_NEWTON_STEPS = 60  # 1.5^60 = 3.7e10: singular values above the largest divided by this converge to one
_ORTHOGONAL = 1e-9


def rotated_ranks(fit_a: Float32, fit_b: Float32, a: Float32, b: Float32) -> tuple[Ranks, Ranks]:
    """Ranks of the counterparts before and after the rotation that takes ``fit_a`` closest to ``fit_b``.

    Args:
        fit_a: (m, d) rows the rotation is fitted on; row i of ``fit_b`` is the counterpart of row i.
        fit_b: (m, d).
        a: (n, d) unit rows that are ranked; row i of ``b`` is the counterpart of row i.
        b: (n, d) unit rows.

    Returns:
        For a_i among the rows of b, and for b_i among those of a: (2, n) ranks before and after; 1 is best.
    """
    turned = normalise(a @ procrustes(fit_a, fit_b).astype(np.float32))
    forward, backward = zip(gold_ranks(a, b), gold_ranks(turned, b), strict=True)
    return np.stack(forward), np.stack(backward)


def polar(matrices: Tensor) -> Tensor:
    """The orthogonal factor U V^T of each M = U S V^T, (k, d, d) float64.

    It uses Newton-Schulz, X <- (3 X - X X^T X) / 2 from M / |M|_2, which needs only batched products; an
    accelerator's SVD handles one matrix at a time. Matrices that do not become orthogonal (a singular value below
    1e-10 of the largest) use SVD.
    """
    factors, good = polar_by_products(matrices)
    if not bool(good.all()):
        factors[~good] = polar_by_svd(matrices[~good])
    return factors


def polar_by_svd(matrices: Tensor, driver: str | None = None) -> Tensor:
    """:func:`polar` by SVD; ``driver`` is torch's name of a cuSOLVER routine."""
    left, _, right = torch.linalg.svd(matrices, full_matrices=False, driver=driver)
    product: Tensor = left @ right
    return product


def polar_by_products(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`polar` by Newton-Schulz, and (k,) whether each matrix became orthogonal."""
    x = matrices / _bound(matrices)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    good = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for step in range(_NEWTON_STEPS):
        gram = x.mT @ x
        if step % 4 == 3:
            good = (gram - eye).abs().amax(dim=(1, 2)) < _ORTHOGONAL
            if bool(good.all()):
                break
        x = 1.5 * x - 0.5 * (x @ gram)
    return x, good


def _bound(matrices: Tensor) -> Tensor:
    """(k, 1, 1): upper bound of the largest singular value, the minimum of sqrt(|M|_1 |M|_inf) and |M|_F."""
    size = matrices.abs()
    norms = (size.sum(1).amax(1) * size.sum(2).amax(1)).sqrt()
    return torch.minimum(norms, torch.linalg.matrix_norm(matrices))[:, None, None]


BUDGET = 1 << 30
"""Maximum number of bytes of vectors in memory."""

Pair = tuple[str, str]
Placed = tuple[Tensor, Tensor | None]


class Sides(NamedTuple):
    """Vectors of one language.

    Attributes:
        rows: (n, d) float32 unit rows to rank; row i of every language has the same meaning.
        fit: (m, d) rows to fit a rotation on, aligned likewise; None for no rotation.
    """

    rows: Float32
    fit: Float32 | None = None


class LanguageVectors:
    """Float32 matrices by name: in memory up to a budget in bytes, beyond it in a temporary file."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._free = budget
        self._by_name: dict[str, Sides] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __setitem__(self, name: str, sides: Sides) -> None:
        """Store a language; vectors beyond the budget are memory-mapped, so the system can drop their pages."""
        self._by_name[name] = Sides(*(None if side is None else self._place(side) for side in sides))  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Sides:
        return self._by_name[name]

    def _place(self, rows: Float32) -> Float32:
        self._free -= rows.nbytes
        if self._free >= 0:
            return rows
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="xalign-vectors-")
        with tempfile.NamedTemporaryFile(dir=self._folder.name, delete=False) as file:
            file.write(np.ascontiguousarray(rows).data)  # not through a map: a full disk would end in SIGBUS
        return np.memmap(file.name, np.float32, "r+", shape=rows.shape)


def all_pairs(
    get: Callable[[str], Sides], pairs: Iterable[Pair], *, device: str = "cpu", budget: int | None = None
) -> Iterator[tuple[Pair, Ranks, Ranks, Measures]]:
    """Ranks of the counterparts in both directions, pair by pair, each score computed once.

    Args:
        get: Function that returns a language's vectors; called for every pair.
        pairs: Pairs of languages, best sorted by first language.
        device: On ``cpu``, :func:`pair_ranks` ranks one pair at a time. On any other device, torch ranks as
            many pairs with the same first language at a time, and keeps as many languages there, as the budget allows.
        budget: Bytes on the device, half for vectors and half for scores; by default half of its free memory.

    Yields:
        The pair (a, b), ranks (s, n) of b's rows for a's, ranks (s, n) of a's rows for b's, and the measures of
        :mod:`xalign_models.ranking.neighbours`, (2, 7) by direction. s = 1. With rows to fit on s = 2, ranks before and
        after the rotation that takes a's fit rows closest to b's, and the measures are (2, 0).
    """
    if device == "cpu":
        for pair in pairs:
            yield pair, *pair_ranks(*map(get, pair))
        return
    half = (budget or torch.cuda.mem_get_info(device)[0] // 2) // 2
    pairs = list(pairs)
    sample = get(pairs[0][0]) if pairs else Sides(np.empty((1, 1), dtype=np.float32))
    size = max(1, half // _bytes_of_pair(sample))
    on_device = lru_cache(max(1, half // sum(side.nbytes for side in sample if side is not None)))
    put = on_device(lambda name: place(get(name), device))
    for first, group in groupby(pairs, key=lambda pair: pair[0]):
        partners = [pair[1] for pair in group]
        for start in range(0, len(partners), size):
            batch = partners[start : start + size]
            ranked = batch_ranks(put(first), [put(code) for code in batch])
            for partner, forward, backward, measures in zip(batch, *ranked, strict=True):
                yield (first, partner), forward, backward, measures


def _bytes_of_pair(a: Sides) -> int:
    """Bytes that :func:`batch_ranks` needs per pair: scores, masks, rows, float64 fit rows and d x d matrices."""
    n, d = a.rows.shape
    fitting = 0 if a.fit is None else 12 * len(a.fit) * d + 6 * 8 * d * d + 8 * n * d
    size: int = 6 * n * n + 4 * n * d + fitting
    return size


def pair_ranks(a: Sides, b: Sides) -> tuple[Ranks, Ranks, Measures]:
    """Ranks (s, n) of one pair in each direction and the measures, on the CPU; see :func:`all_pairs`."""
    if a.fit is None or b.fit is None:
        forward, backward, measures = measured_ranks(a.rows, b.rows)
        return forward[None], backward[None], measures
    return *rotated_ranks(a.fit, b.fit, a.rows, b.rows), np.empty((2, 0))


def place(sides: Sides, device: str) -> Placed:
    """A language's vectors as tensors on a device."""
    rows, fit = (None if side is None else torch.from_numpy(np.ascontiguousarray(side)).to(device) for side in sides)
    assert rows is not None
    return rows, fit


def batch_ranks(a: Placed, partners: Sequence[Placed]) -> tuple[Ranks, Ranks, Measures]:
    """:func:`pair_ranks` of one language and several, as a batch on their device: (k, s, n), (k, s, n), (k, 2, 7)."""
    rows, fit = a
    several = torch.stack([partner for partner, _ in partners])
    scores = rows @ several.mT
    counts = [_counts(scores)]
    fits = [target for _, target in partners if target is not None]
    if fit is not None:
        if len(fit) >= fit.shape[1]:
            weights = polar(fit.double().mT @ torch.stack(fits).double())
        else:  # the rotation is underdetermined, and the solver defines the choice
            exact = [procrustes(fit.cpu().numpy(), target.cpu().numpy()) for target in fits]
            weights = torch.from_numpy(np.stack(exact)).to(rows.device)
        turned = rows @ weights.float()
        counts.append(_counts(torch.nn.functional.normalize(turned, dim=2) @ several.mT))
    forward, backward = (torch.stack(rank_sides, dim=1).cpu().numpy() for rank_sides in zip(*counts, strict=True))
    if fit is not None:
        return forward, backward, np.empty((len(partners), 2, 0))
    if len(rows) > ROWS:
        return forward, backward, np.full((len(partners), 2, len(NAMES)), np.nan)
    first = np.concatenate([forward, backward], axis=1) == 1
    return forward, backward, neighbour_measures(scores, first)


def _counts(scores: Tensor) -> tuple[Tensor, Tensor]:
    """(k, n) ranks in each direction of scores (k, n, n); ties count as in ``gold_ranks``."""
    least = scores.diagonal(dim1=1, dim2=2) - TIE
    return (scores >= least[:, :, None]).sum(2), (scores >= least[:, None, :]).sum(1)
