"""Columns of made-up models on tasks of one language alone."""

from __future__ import annotations

import numpy as np

from xalign_models.atlas.table import Atlas, Column, PublishedModel

LANGUAGES = ("deu-Latn", "rus-Cyrl", "swh-Latn")


def column(task: str, quality, *, models: int = 0, kind="retrieval", noise=0.0, seed=0) -> Column:
    """Scores of models m00, m01, ..., of a quality (models,) on the logit scale, with noise by language."""
    rng = np.random.default_rng(seed)
    quality = np.asarray(quality)[: models or None]
    names = tuple(f"org/m{number:02}" for number in range(len(quality)))
    counts = np.zeros((len(LANGUAGES), 5), dtype=np.int16)
    counts[:, 0] = 1
    scores = np.full((len(names), len(LANGUAGES), 5), np.nan)
    scores[:, :, 0] = 1 / (1 + np.exp(-quality[:, None] - rng.normal(0, noise, (len(names), len(LANGUAGES)))))
    same = ("r",) * len(names)
    return Column(
        task, kind, f"text of {task}", "test", "f1", names, same, ("1.0",) * len(names), LANGUAGES, counts, scores
    )


def atlas(*columns: Column, about=()) -> Atlas:
    names = {model for table in columns for model in table.models}
    models = {name: PublishedModel(name) for name in sorted(names)} | {model.name: model for model in about}
    return Atlas(models, columns, {}, 0, {})
