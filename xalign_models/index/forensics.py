"""Detects rows of another model, prompt or version by encoding texts again."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from xalign_models.errors import ModelError
from xalign_models.index.base import Rows
from xalign_models.linalg.arrays import Float32
from xalign_models.models.recipe import ROLES, Recipe
from xalign_models.ranking.ranks import normalise
from xalign_models.vectors.transfer import SAME

logger = logging.getLogger(__name__)
AGAIN = 64
"""Maximum number of texts that are encoded again."""


def encode(recipe: Recipe, texts: Sequence[str], codes: Sequence[str], prompt: str) -> Float32:
    """Vectors (n, d) of texts in languages (n,) under a prompt."""
    rows: dict[str, list[int]] = {}
    for place, code in enumerate(codes):
        rows.setdefault(code, []).append(place)
    parts = [recipe.encode([texts[p] for p in places], code, prompt=prompt) for code, places in rows.items()]
    return np.concatenate(parts)[np.argsort([place for places in rows.values() for place in places])]


def cosines_again(recipe: Recipe, rows: Rows, codes: Any) -> Float32:
    """Cosines (k, m) between stored vectors of at most 64 texts and the model's vectors under its k prompts.

    Raises:
        ModelError: The model has another dimension.
    """
    texts = rows.texts or ()
    some = np.random.default_rng(0).permutation([place for place, text in enumerate(texts) if text])[:AGAIN].astype(int)
    listed, stored = [str(texts[place]) for place in some], normalise(rows.vectors[some])
    found = []
    for prompt in prompts_of(recipe) if listed else ():
        again = encode(recipe, listed, codes[some].tolist(), prompt)
        if again.shape[1] != stored.shape[1]:
            raise ModelError(f"The index has dimension {stored.shape[1]}, and {recipe.spec.name} {again.shape[1]}.")
        found.append((normalise(again) * stored).sum(axis=1))
    return np.array(found)


def prompts_of(recipe: Recipe) -> dict[str, str]:
    """The roles by the text of their prompts."""
    return {recipe.backbone.prompts.get(name, ""): name for name in reversed(ROLES)}


def require_made_by(recipe: Recipe, rows: Rows, codes: Any, least: float = SAME) -> None:
    """Refuse rows with texts if the median cosine between stored vectors and the model's is below ``least``.

    A warning says how many of the texts that were encoded again have a lower cosine.

    Raises:
        ModelError: The vectors are another model's.
    """
    found = cosines_again(recipe, rows, codes)
    best = found.max(axis=0) if found.size else np.ones(1)
    if np.median(best) < least:
        raise ModelError(f"The vectors are not from {recipe.spec.name}; `xalign index audit` shows whose they are.")
    if few := int((best < least).sum()):
        logger.warning(
            "%d of %d texts have vectors of another model or version: encode such rows again.", few, len(best)
        )


def encoded_again(recipe: Recipe, cosines: Float32) -> list[dict[str, Any]]:
    """Number of rows by the model's prompt that gives the stored vector, or by no prompt, with their cosines."""
    names = prompts_of(recipe)
    best, listed = cosines.max(axis=0), [*names.values(), "none: another model or version"]
    which = np.where(best < SAME, len(names), cosines.argmax(axis=0))
    return [
        {"prompt": listed[place], "rows": int((which == place).sum()),
         "median cosine": round(float(np.median(best[which == place])), 4)}
        for place in np.unique(which)
    ]  # fmt: skip
