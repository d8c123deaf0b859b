"""Training sets by name, and the rows of them that are trained on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from xalign_models.errors import DataError, ModelError
from xalign_models.training.lusifer.data.base import Row, Source, draw
from xalign_models.training.lusifer.data.contamination import EvaluationText
from xalign_models.training.lusifer.data.hub import HUB
from xalign_models.training.lusifer.data.local import LOCAL

if TYPE_CHECKING:
    from xalign_models.training.lusifer.config import Data

logger = logging.getLogger(__name__)

SOURCES = {source.name: source for source in (*LOCAL, *HUB)}
"""Training sets by name."""
SPARE = 1.1
"""Share of the rows that are read, so that enough are left when those that evaluation sets hold are taken out."""


def source(name: str) -> Source:
    """A training set by name.

    Raises:
        ModelError: There is none of that name.
    """
    if name not in SOURCES:
        raise ModelError(f"data: there is no training set {name!r}; there are {', '.join(SOURCES)}.")
    return SOURCES[name]


def rows_of(data: Data, evaluated: EvaluationText, seed: int) -> list[Row]:
    """Rows to train on: drawn, not empty, and without any that an evaluation set holds.

    Args:
        data: Which set, and how many rows of it.
        evaluated: What is not trained on.
        seed: Of the draw.

    Raises:
        DataError: The set is not there, or no row is left.
    """
    samples = data.samples
    read = source(data.source).read(None if samples is None else int(SPARE * samples) + 1, seed)
    full = [row for row in read if all(text.strip() for text in row)]
    clean = evaluated.without(full)
    if dropped := len(full) - len(clean):
        logger.info("%s: %d of %d rows are left out, evaluation sets hold them.", data.source, dropped, len(full))
    if not clean:
        raise DataError(
            f"Training set {data.source!r} has no row left: it has {len(read)}, of which {len(read) - len(full)} are "
            f"empty and {dropped} held by evaluation sets. Leave it out of the configuration."
        )
    if samples is not None and len(clean) < samples:
        logger.warning("%s has %d rows, %d were asked for.", data.source, len(clean), samples)
    return draw(clean, samples, seed)
