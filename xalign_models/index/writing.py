"""Fills the second column of an index: resumable, checked by count and sample."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xalign_models.errors import FileError, LanguageError
from xalign_models.index.base import Index, Rows
from xalign_models.languages import canonical
from xalign_models.linalg.arrays import AnyFloats, Mask
from xalign_models.models.maps import Maps
from xalign_models.progress import live
from xalign_models.ranking.ranks import normalise

Convert = Callable[[Rows], AnyFloats]
"""Turns the vectors (n, d) of rows into those of the second column (n, m)."""
CHECKED = 16
"""Number of rows of each batch whose second vectors are computed again after the last one is written."""
SAME = 0.999
"""Minimum cosine between a stored vector, which a store may round or normalise, and the one computed again."""
LETTERS = 300
"""Number of characters of a text that its language is found by."""


def usable(vectors: AnyFloats) -> Mask:
    """(n,) whether a vector is finite and not zero; others are never mapped."""
    return np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)


def languages_of(rows: Rows, lang: str | None = None) -> list[str]:
    """The canonical language of each row: its own, else ``lang``, else the one found in its text.

    Raises:
        LanguageError: A row has no language and no text, or no language identifier is installed.
    """
    from xalign_models.backbones.inputs import identify

    codes, texts = rows.langs or [None] * len(rows.ids), rows.texts or [None] * len(rows.ids)
    found = []
    for key, code, text in zip(rows.ids, codes, texts, strict=True):
        if not (code or lang or text):
            raise LanguageError(f"Row {key} has neither a language nor a text; give --lang-column or --lang.")
        found.append(canonical(code or lang or "") if code or lang else identify(str(text)[:LETTERS]))
    return found


def aligner(maps: Maps, lang: str | None = None, prompt: str | None = None) -> Convert:
    """Maps rows by their languages, as vectors of a prompt (None for the maps' default one)."""

    def convert(rows: Rows) -> AnyFloats:
        codes = languages_of(rows, lang) if maps.aligned.languages is not None else [None] * len(rows.ids)
        numbers = maps.index({*codes}, prompt)
        places = [-1 if (number := numbers[code]) is None else number for code in codes]
        return maps.apply(np.asarray(rows.vectors, np.float32), np.array(places))

    return convert


def fill(index: Index, convert: Convert) -> tuple[int, int]:
    """Write the second column; after an interruption, the rows that it lacks.

    Returns:
        Number of rows, and how many of them have no vector that could be mapped.

    Raises:
        FileError: The second column differs from the first in its rows, or has vectors of other maps.
    """
    with live(total=index.count(), initial=index.written() or 0, desc="write", unit=" rows") as bar:
        for rows in index.read(missing=index.written() is not None):
            chosen = rows.take(np.flatnonzero(usable(rows.vectors)))
            if len(chosen.ids):
                vectors = np.asarray(convert(chosen), np.float32)
                if index.written() is None:
                    index.add(vectors.shape[1])
                index.write(chosen.ids, vectors)
            bar.update(len(rows.ids))
    total, skipped = _check(index, convert)
    index.finish()
    return total, skipped


def _check(index: Index, convert: Convert) -> tuple[int, int]:
    total = skipped = 0
    for first, second in zip(index.read(), index.read(second=True), strict=True):
        have, given = usable(second.vectors), usable(first.vectors)
        total, skipped = total + len(have), skipped + int((~given).sum())
        if list(first.ids) != list(second.ids) or not np.array_equal(have, given):
            raise FileError(
                f"{index.source}: the rows of {index.second} differ from {index.column}'s; undo, and retry."
            )
        places = np.flatnonzero(have)[:: max(1, int(have.sum()) // CHECKED)]
        if places.size:
            again = normalise(convert(first.take(places)))
            least = float((again * normalise(second.vectors[places])).sum(axis=1).min())
            if least < SAME:
                raise FileError(
                    f"{index.source}: {index.second} has vectors of other maps (cosine {least:.3f}); undo, and retry."
                )
    if total != index.count():
        raise FileError(f"{index.source}: {total} of {index.count()} rows were read; another program is writing.")
    return total, skipped
