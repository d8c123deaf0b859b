"""Groups of fit data, one for each language and prompt, and their parts of alignments.

A prompt moves embeddings about as far as a language does, so each map belongs to one language and one prompt.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from xalign_models.alignments.base import Alignment

T = TypeVar("T")
_PROMPT = "\x1e"
"""Separates the prompt in the key of a group: a control character that does not occur in codes and prompts."""


def group(language: str, prompt: str) -> str:
    """The key of a language's embeddings under a prompt, for a method that is fitted on all prompts together."""
    return f"{language}{_PROMPT}{prompt}"


def grouped(by_prompt: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """The fit data of all prompts, by group, from the fit data of each prompt by language."""
    return {group(code, prompt): part for prompt, data in by_prompt.items() for code, part in data.items()}


def language_of(key: str) -> str:
    """The language of a group's key."""
    return key.partition(_PROMPT)[0]


def places_by_prompt(keys: Iterable[str]) -> list[list[int]]:
    """The positions of each prompt's groups among all groups, so that a method compares languages, not prompts."""
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key.partition(_PROMPT)[2], []).append(place)
    return [*places.values()]


def of_prompt(alignment: Alignment, prompt: str) -> Alignment:
    """The maps of one prompt, by language, from a fit on groups; a pivot without a group serves all prompts."""
    part, keys = copy.copy(alignment), alignment.languages_
    if part.language_dependent:
        chosen = [i for i, key in enumerate(keys) if key in {language_of(key), group(language_of(key), prompt)}]
        keys = tuple(keys[i] for i in chosen)
        for name in part.arrays:
            setattr(part, name, getattr(alignment, name)[chosen])
    part.languages_ = tuple(dict.fromkeys(map(language_of, keys)))
    return part


def unmoved(alignment: Alignment) -> Alignment:
    """An affine alignment whose maps are identities, for queries when only documents are mapped."""
    part = copy.copy(alignment)
    for name in part.arrays:
        array = np.zeros_like(getattr(alignment, name))
        setattr(part, name, array + np.eye(alignment.dim_) if name == "weights_" else array)
    return part


def merged(fits: Sequence[Alignment]) -> Alignment:
    """Merge fits of equal hyperparameters; each language's maps come from the first fit that has it.

    The first axis of every array follows the languages.
    """
    rows: dict[str, tuple[Alignment, int]] = {}
    for fit in fits:
        for index, language in enumerate(fit.languages_):
            rows.setdefault(language, (fit, index))
    combined = copy.copy(fits[0])
    for name in combined.arrays:
        setattr(combined, name, np.stack([getattr(fit, name)[index] for fit, index in rows.values()]))
    combined.languages_ = tuple(rows)
    seconds = [fit.seconds_ for fit in fits if fit.seconds_ is not None]
    combined.seconds_ = sum(seconds) if len(seconds) == len(fits) else None
    return combined
