"""Training sets by name, and the rows to train on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from xalign_models.errors import DataError, ModelError
from xalign_models.training.lusifer.data.base import TrainingRow, TrainingSource, draw
from xalign_models.training.lusifer.data.contamination import EvaluationText
from xalign_models.training.lusifer.data.hub import HUB
from xalign_models.training.lusifer.data.local import LOCAL

if TYPE_CHECKING:
    from xalign_models.training.lusifer.config import DataConfig

logger = logging.getLogger(__name__)

SOURCES = {source.name: source for source in (*LOCAL, *HUB)}
"""Training sets by name."""
SPARE = 1.1
"""Ratio of rows to read to rows wanted, as rows of evaluation sets are removed."""


def source(name: str) -> TrainingSource:
    """A training set by name.

    Raises:
        ModelError: The name is unknown.
    """
    if name not in SOURCES:
        raise ModelError(f"data: there is no training set {name!r}; choose from {', '.join(SOURCES)}.")
    return SOURCES[name]


def rows_of(data: DataConfig, evaluated: EvaluationText, seed: int) -> list[TrainingRow]:
    """Random rows to train on, without empty rows and without rows of evaluation sets.

    Raises:
        DataError: The training set is missing, or no row is left.
    """
    samples = data.samples
    read = source(data.source).read(None if samples is None else int(SPARE * samples) + 1, seed)
    full = [row for row in read if all(text.strip() for text in row)]
    clean = evaluated.without(full)
    if dropped := len(full) - len(clean):
        logger.info("%s: removed %d of %d rows that evaluation sets contain.", data.source, dropped, len(full))
    if not clean:
        raise DataError(
            f"Training set {data.source!r} has no row left: of {len(read)} rows, {len(read) - len(full)} are empty and "
            f"{dropped} are in evaluation sets. Remove it from the configuration."
        )
    if samples is not None and len(clean) < samples:
        logger.warning("%s has only %d of the %d rows asked for.", data.source, len(clean), samples)
    return draw(clean, samples, seed)
