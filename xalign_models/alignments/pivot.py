"""Alignments that map every language onto a pivot language, fitted on translations."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from xalign_models.alignments.base import Alignment, as_matrix, common_dim, listed, read_only, require_mapping
from xalign_models.errors import AlignmentError
from xalign_models.linalg.arrays import AnyFloats, Float64

ParallelData = Mapping[str, npt.ArrayLike | tuple[npt.ArrayLike, npt.ArrayLike]]


class FewPairsWarning(UserWarning):
    """A method's maps were fitted on fewer pairs (by language) than they have dimensions."""

    def __init__(self, method: str, dim: int, pairs: Mapping[str, int]) -> None:
        fewest = min(pairs, key=pairs.__getitem__)
        super().__init__(f"{method}: fewer pairs ({fewest} {pairs[fewest]}) than dimensions ({dim}); use affine.")
        self.method, self.dim, self.pairs = method, dim, pairs


@contextmanager
def few_pairs_said_once() -> Iterator[None]:
    """Collect warnings about few pairs, and issue one for all languages at the end."""
    few: list[FewPairsWarning] = []
    show = warnings.showwarning

    def keep(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if isinstance(message, FewPairsWarning):
            few.append(message)
        else:
            show(message, *args, **kwargs)

    with warnings.catch_warnings():
        warnings.showwarning = keep
        yield
    if few:
        pairs = {language: count for warning in few for language, count in warning.pairs.items()}
        warnings.warn(FewPairsWarning(few[0].method, few[0].dim, pairs), stacklevel=2)


class PivotAlignment(Alignment):
    """``y = x W_l + b_l`` between language l and the pivot; the pivot itself maps by the identity.

    Attributes:
        weights_: W (L, d, d), the pivot's first.
        shifts_: b (L, d).
    """

    arrays: ClassVar[tuple[str, ...]] = ("weights_", "shifts_")
    parallel = True

    pivot: str

    def fit(self, data: ParallelData, y: None = None) -> Self:
        """Fit one map per language on parallel rows; ``languages_`` starts with the pivot.

        Args:
            data: Language to its embeddings (n, d), row-aligned with the pivot's, which must then be a key too; or
                language to a tuple (its embeddings, the pivot's) if it has its own pair corpus. The forms can be mixed.
            y: Ignored; pipelines of scikit-learn pass it.

        Raises:
            AlignmentError: Rows are not aligned, the pivot is missing, a matrix is empty or not finite, dimensions
                differ, or the method cannot be solved on so few rows.
        """
        pairs = self._pairs(data)
        sides: dict[str, AnyFloats] = {}
        for language, (x, pivot) in pairs.items():
            sides |= {language: x, f"{language}'s pivot side": pivot}
        dim = common_dim(sides)
        maps = [self._identity(dim)]
        for language, (x, pivot) in pairs.items():
            try:
                maps.append(self._solve(read_only(x), read_only(pivot)))
            except AlignmentError as error:
                raise AlignmentError(f"{language}: {error}") from None
        short = {language: len(x) for language, (x, _) in pairs.items() if len(x) < dim}
        if short and not self.shrunk:
            warnings.warn(FewPairsWarning(self.method, dim, short), stacklevel=3)
        for name, parts in zip(self.arrays, zip(*maps, strict=True), strict=True):
            setattr(self, name, np.stack(parts))
        self.languages_, self.dim_ = (self.pivot, *pairs), dim
        return self

    @property
    def shrunk(self) -> bool:
        """Whether the maps are shrunk to the identity."""
        return False

    def _identity(self, dim: int) -> tuple[Float64, ...]:
        """The pivot's map, in the form of :meth:`_solve`."""
        return np.eye(dim), np.zeros(dim)

    @abstractmethod
    def _solve(self, x: AnyFloats, pivot: AnyFloats) -> tuple[Float64, ...]:
        """The arrays of a language's map, by default W (d, d) and b (d,), from row-aligned matrices (n, d)."""

    def _pairs(self, data: ParallelData) -> dict[str, tuple[AnyFloats, AnyFloats]]:
        """Every language but the pivot with its checked, row-aligned (x, pivot)."""
        require_mapping(data)
        shared = {language: as_matrix(rows, language) for language, rows in data.items() if not isinstance(rows, tuple)}
        if shared and self.pivot not in shared:
            raise AlignmentError(
                f"the pivot {self.pivot} is not among {', '.join(shared)}; add its rows, pass the key of another "
                "language as pivot=, or pass tuples (x, pivot)."
            )
        counts = {language: len(rows) for language, rows in shared.items()}
        if len(set(counts.values())) > 1:
            raise AlignmentError(
                f"rows are not aligned: {listed(counts)}; row i must be the same sentence in every language."
            )
        pairs: dict[str, tuple[AnyFloats, AnyFloats]] = {}
        for language, rows in data.items():
            if language == self.pivot:
                continue
            if not isinstance(rows, tuple):
                pairs[language] = shared[language], shared[self.pivot]
                continue
            own, other = rows
            x, pivot = as_matrix(own, language), as_matrix(other, f"{language}'s pivot side")
            if len(x) != len(pivot):
                raise AlignmentError(
                    f"rows are not aligned: {language} {len(x)}, {self.pivot} {len(pivot)}; pass pairs of equal length."
                )
            pairs[language] = x, pivot
        if not pairs:
            raise AlignmentError(f"no language besides the pivot {self.pivot}; add one to map onto it.")
        return pairs
