"""Ranks of the counterparts for every pair of many languages: batched on an accelerator, resumable, memory bounded."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from xalign_models.alignments.solvers import procrustes
from xalign_models.ranking.ranks import TIE, Floats, Ranks, gold_ranks, normalise

if TYPE_CHECKING:
    import torch

BUDGET = 1 << 30
"""Bytes of vectors that stay in memory."""
_NEWTON_STEPS = 60  # 1.5^60 = 3.7e10: singular values down to that part of the largest are brought to one
_ORTHOGONAL = 1e-9

Pair = tuple[str, str]
AnyRanks = npt.NDArray[np.integer]
"""Ranks in the smallest integers that hold them."""
Placed: TypeAlias = "tuple[torch.Tensor, torch.Tensor | None]"


class Sides(NamedTuple):
    """One language.

    Attributes:
        rows: (n, d) float32 unit rows that are ranked; row i of every language means the same.
        fit: (m, d) rows that a rotation is fitted on, likewise; None where none is.
    """

    rows: Floats
    fit: Floats | None = None


class Vectors:
    """Float32 matrices by name, in memory up to a budget and beyond it in a temporary file.

    Args:
        budget: Bytes.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self.left = budget
        self._kept: dict[str, Sides] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __setitem__(self, name: str, sides: Sides) -> None:
        """Keep them; what is beyond the budget is written and mapped, so that the system may drop its pages."""
        self._kept[name] = Sides(*(None if one is None else self._place(one) for one in sides))  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Sides:
        """What was kept under that name."""
        return self._kept[name]

    def _place(self, rows: Floats) -> Floats:
        self.left -= rows.nbytes
        if self.left >= 0:
            return rows
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="xalign-vectors-")
        with tempfile.NamedTemporaryFile(dir=self._folder.name, delete=False) as file:
            mapped = np.memmap(file, dtype=np.float32, mode="w+", shape=rows.shape)
        mapped[:] = rows
        mapped.flush()
        return mapped


def all_pairs(
    get: Callable[[str], Sides], pairs: Iterable[Pair], *, device: str = "cpu", budget: int | None = None
) -> Iterator[tuple[Pair, Ranks, Ranks]]:
    """Ranks of the counterparts in both directions, pair by pair, each score computed once.

    Args:
        get: A language's vectors; called anew for every pair.
        pairs: Of languages; those that start with the same language are best next to each other.
        device: ``cpu``: one pair at a time by :func:`gold_ranks`. Any other: as many pairs of one first language at a
            time as the budget allows, by torch; languages stay on the device as far as it allows.
        budget: Bytes on the device, half of them for vectors, half for scores; by default half of what is free.

    Yields:
        The pair (a, b), ranks (s, n) of b's rows for a's and (s, n) of a's for b's. s = 1, or 2 where there are rows to
        fit on: before and after a's rows are turned by the rotation that takes its fit rows closest to b's.
    """
    if device == "cpu":
        for pair in pairs:
            yield pair, *pair_ranks(*map(get, pair))
        return
    half = (budget or _free(device) // 2) // 2
    pairs = list(pairs)
    sample = get(pairs[0][0]) if pairs else Sides(np.empty((1, 1), dtype=np.float32))
    size = max(1, half // _bytes_of_pair(sample))
    on_device = lru_cache(max(1, half // sum(one.nbytes for one in sample if one is not None)))
    put = on_device(lambda name: place(get(name), device))
    for first, group in groupby(pairs, key=lambda pair: pair[0]):
        others = [pair[1] for pair in group]
        for start in range(0, len(others), size):
            some = others[start : start + size]
            forward, backward = batch_ranks(put(first), [put(one) for one in some])
            for i, one in enumerate(some):
                yield (first, one), forward[i], backward[i]


def _free(device: str) -> int:
    import torch

    return torch.cuda.mem_get_info(device)[0]


def _bytes_of_pair(a: Sides) -> int:
    """What :func:`batch_ranks` holds for one more pair: scores, masks; rows; float64 fit rows and d x d matrices."""
    n, d = a.rows.shape
    fitting = 0 if a.fit is None else 12 * len(a.fit) * d + 6 * 8 * d * d + 8 * n * d
    held: int = 6 * n * n + 4 * n * d + fitting
    return held


def pair_ranks(a: Sides, b: Sides) -> tuple[Ranks, Ranks]:
    """What :func:`all_pairs` gives for one pair, (s, n) in each direction, on the CPU."""
    if a.fit is None or b.fit is None:
        forward, backward = gold_ranks(a.rows, b.rows)
        return forward[None], backward[None]
    return rotated_ranks(a.fit, b.fit, a.rows, b.rows)


def rotated_ranks(fit_a: Floats, fit_b: Floats, a: Floats, b: Floats) -> tuple[Ranks, Ranks]:
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


def place(sides: Sides, device: str) -> Placed:
    """A language's vectors as tensors on a device."""
    import torch

    rows, fit = (None if one is None else torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in sides)
    assert rows is not None
    return rows, fit


def batch_ranks(a: Placed, others: Sequence[Placed]) -> tuple[Ranks, Ranks]:
    """:func:`pair_ranks` of one language and several, as a batch on their device: (k, s, n) in each direction.

    Products are float32; torch must not be set to round them.
    """
    import torch

    rows, fit = a
    several = torch.stack([one for one, _ in others])
    found = [_counts(rows, several)]
    fits = [one for _, one in others if one is not None]
    if fit is not None:
        if len(fit) >= fit.shape[1]:
            weights = polar(fit.double().mT @ torch.stack(fits).double())
        else:  # the rotation is free where no row reaches; the solver says how it is chosen there
            exact = [procrustes(fit.cpu().numpy(), one.cpu().numpy()) for one in fits]
            weights = torch.from_numpy(np.stack(exact)).to(rows.device)
        turned = rows @ weights.float()
        found.append(_counts(torch.nn.functional.normalize(turned, dim=2), several))
    forward, backward = (torch.stack(one, dim=1).cpu().numpy() for one in zip(*found, strict=True))
    return forward, backward


def _counts(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(k, n) ranks in each direction of rows (n, d) or (k, n, d), and (k, n, d); ties as in :func:`gold_ranks`."""
    scores = a @ b.mT
    least = scores.diagonal(dim1=1, dim2=2) - TIE
    return (scores >= least[:, :, None]).sum(2), (scores >= least[:, None, :]).sum(1)


def polar(matrices: torch.Tensor) -> torch.Tensor:
    """The orthogonal factor U V^T of each M = U S V^T, (k, d, d) float64.

    On an accelerator by Newton-Schulz, X <- (3 X - X X^T X) / 2 from M / |M|_2: nothing but batched products, where
    its SVD takes one matrix after the other. What does not become orthogonal (a singular value below 1e-10 of the
    largest), and everything on a CPU, is done by SVD.
    """
    import torch

    if matrices.device.type == "cpu":
        return polar_by_svd(matrices)
    found, good = polar_by_products(matrices)
    if not bool(good.all()):
        found[~good] = polar_by_svd(matrices[~good])
    return torch.as_tensor(found)


def polar_by_svd(matrices: torch.Tensor, driver: str | None = None) -> torch.Tensor:
    """:func:`polar` by SVD; the driver is cuSOLVER's, as torch names them."""
    import torch

    left, _, right = torch.linalg.svd(matrices, full_matrices=False, driver=driver)
    product: torch.Tensor = left @ right
    return product


def polar_by_products(matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`polar` by Newton-Schulz, and (k,) which of them became orthogonal."""
    import torch

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


def _bound(matrices: torch.Tensor) -> torch.Tensor:
    """(k, 1, 1): the largest singular value from above, sqrt(|M|_1 |M|_inf) or |M|_F, whichever is less."""
    import torch

    size = matrices.abs()
    norms = (size.sum(1).amax(1) * size.sum(2).amax(1)).sqrt()
    return torch.minimum(norms, torch.linalg.matrix_norm(matrices))[:, None, None]


class RankLog:
    """Ranks of pairs in a file that is only appended to: an interrupted run goes on at the next pair.

    A record is one write; half a record, left by a process that died in it, is cut off.

    Args:
        path: The file; None keeps nothing.
        identity: Of everything that determines the ranks; a file of another one is begun anew.
        shape: (s, n) of a direction's ranks.
    """

    def __init__(self, path: Path | None, identity: str, shape: tuple[int, int]) -> None:
        self.path = path
        self._head = hashlib.sha256(f"{identity} {shape}".encode()).digest()
        name = ("S", 24)
        self._record = np.dtype([
            ("a", *name), ("b", *name), ("ranks", np.min_scalar_type(shape[1]), (2, *shape)),
        ])  # fmt: skip
        self._file: Any = None

    def read(self) -> dict[Pair, tuple[AnyRanks, AnyRanks]]:
        """What is there: pair to its ranks in both directions."""
        if self.path is None or not self.path.is_file():
            return {}
        data = self.path.read_bytes()
        if data[: len(self._head)] != self._head:
            self.path.unlink()
            return {}
        body = memoryview(data)[len(self._head) :]
        whole = len(body) // self._record.itemsize
        with self.path.open("r+b") as file:
            file.truncate(len(self._head) + whole * self._record.itemsize)
        records = np.frombuffer(body, dtype=self._record, count=whole)
        return {(one["a"].decode(), one["b"].decode()): tuple(one["ranks"]) for one in records}

    def append(self, pair: Pair, forward: AnyRanks, backward: AnyRanks) -> None:
        """One pair's ranks."""
        if self.path is None:
            return
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
            if not self._file.tell():
                self._file.write(self._head)
        record = np.array([(*(one.encode() for one in pair), (forward, backward))], dtype=self._record)
        self._file.write(record.tobytes())

    def close(self, remove: bool = False) -> None:
        """Close the file; ``remove`` it when its ranks are kept elsewhere."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if remove and self.path is not None:
            self.path.unlink(missing_ok=True)
