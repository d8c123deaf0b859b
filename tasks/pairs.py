"""What tasks over all pairs of languages share: languages encoded once, pairs in turn, going on after a stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_models.progress import live
from xalign_models.ranking.neighbours import NAMES, Measures
from xalign_models.ranking.pairs import BUDGET, Sides, Vectors, all_pairs
from xalign_models.ranking.ranks import AnyRanks
from xalign_models.ranking.resume import RankLog

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

    from tasks.base import CorpusTask


RankedSubset = tuple[str, AnyRanks, Measures]
"""A subset, ranks of its queries' counterparts, and the measures of its neighbourhoods."""


def log_path(folder: Path | None, task: str, remove: bool = False) -> Path | None:
    """The file of the ranks of an unfinished run, beside the items; None where no items are kept."""
    path = None if folder is None else Path(folder) / f".{task}.ranks"
    if remove and path is not None:
        for name in (path, path.with_name(f"{path.name}.lock")):
            name.unlink(missing_ok=True)
    return path


def scored_pairs(
    task: CorpusTask,
    model: EncoderProtocol,
    subsets: set[str],
    sides: Callable[[str], Sides],
    shape: tuple[int, int],
    log: Path | None,
    budget: int = BUDGET,
) -> Iterator[RankedSubset]:
    """Ranks of ordered pairs ``a-b``: a score matrix serves both directions, on the GPU if the model is on one.

    Args:
        task: For its name and the revision of its text.
        model: For its revision and its device.
        subsets: Ordered pairs, ``deu_Latn-eng_Latn``.
        sides: Encodes a language; asked once for each that is needed.
        shape: (s, n) of the ranks of a direction.
        log: Where ranks are kept until all are there; those that are there are not computed again. None keeps none.
        budget: Bytes of vectors in memory; what is beyond it lies in a temporary file.

    Yields:
        Subset, ranks (s, n) where 1 is best, and the measures of its neighbourhoods (6,) where s = 1.
    """
    pairs = sorted({(min(pair), max(pair)) for pair in (subset.split("-") for subset in subsets)})
    meta: Any = getattr(model, "mteb_model_meta", None)
    identity = f"{task.metadata.dataset} {getattr(meta, 'name', '')} {getattr(meta, 'revision', '')}"
    kept = RankLog(log, identity, shape, len(NAMES) if shape[0] == 1 else 0)
    done = kept.read()
    left = [pair for pair in pairs if pair not in done]
    vectors = Vectors(budget)
    name = task.metadata.name
    for code in live(sorted({code for pair in left for code in pair}), desc=f"{name}: encode"):
        vectors[code] = sides(code)
    device = str(getattr(getattr(model, "raw", None), "device", "cpu"))
    ranked = all_pairs(vectors.__getitem__, left, device=device if device.startswith("cuda") else "cpu")
    small = np.min_scalar_type(shape[1])
    for pair, (forward, backward, measures) in done.items():
        yield from directions(pair, (forward, backward), measures, subsets)
    for pair, forward, backward, measures in live(ranked, desc=f"{name}: score", total=len(left)):
        both = forward.astype(small), backward.astype(small)
        kept.append(pair, *both, measures)
        yield from directions(pair, both, measures, subsets)


def directions(
    pair: tuple[str, str], both: tuple[AnyRanks, AnyRanks], measures: Measures, subsets: set[str]
) -> Iterator[RankedSubset]:
    """Those of a pair's two directions that are among the subsets."""
    for subset, ranks, found in zip(("-".join(pair), "-".join(reversed(pair))), both, measures, strict=True):
        if subset in subsets:
            yield subset, ranks, found
