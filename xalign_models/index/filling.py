"""Fills the second column of an index: resumable, checked by count and sample."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from xalign_models.errors import FileError, LanguageError
from xalign_models.identification import identifiable, identify
from xalign_models.index.base import Index, Rows
from xalign_models.languages import canonical
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.progress import live
from xalign_models.ranking.ranks import normalise
from xalign_models.vectors.applying import in_turn

Convert = Callable[[Rows], AnyFloats]
"""Turns the vectors (n, d) of rows into those of the second column (n, m)."""
CHECKED = 16
"""Number of rows per batch whose second vectors are computed again once all are written."""
SAME = 0.999
"""Minimum cosine between a stored vector, which a store may round or normalise, and the recomputed one."""
LETTERS = 300
"""Number of a text's characters used to identify its language."""


def languages_of(rows: Rows, lang: str | None = None) -> list[str]:
    """The canonical language of each row: its own, else ``lang``, else the one identified in its text, or ``und``.

    Raises:
        LanguageError: A row has no language and no text, or no language identifier is installed.
    """
    codes, texts = rows.langs or [None] * len(rows.ids), rows.texts or [None] * len(rows.ids)
    if not all(code or lang or text for code, text in zip(codes, texts, strict=True)):
        raise LanguageError("Some rows have neither a language nor a text; give --lang-column or --lang.")
    other = canonical(lang) if lang else None
    try:
        given = [canonical(str(code)) if code else other for code in codes]
    except LanguageError as error:
        raise LanguageError(f"{error} A row has this language; correct it, or name the right --lang-column.") from None
    unknown = [str(text)[:LETTERS] for code, text in zip(given, texts, strict=True) if code is None]
    found = iter(identify(unknown, identifiable()) if unknown else ())
    return [code or next(found).language for code in given]


def _converted(convert: Convert, rows: Rows) -> tuple[Rows, int, AnyFloats | None]:
    """The usable rows, the number of all rows, and the vectors (n, m) of the second column, if any."""
    chosen = rows.take(np.flatnonzero(rows.usable))
    return chosen, len(rows.ids), np.asarray(convert(chosen), np.float32) if len(chosen.ids) else None


def _in_step(first: Iterator[Rows], second: Iterator[Rows]) -> Iterator[tuple[Rows, Rows]]:
    """Both iterators in batches of equal lengths, which files may not have; surplus rows get an empty partner."""
    one, two = next(first, None), next(second, None)
    while one and two:
        count = min(len(one.ids), len(two.ids))
        yield one.take(np.arange(count)), two.take(np.arange(count))
        one, two = (
            rows.take(np.arange(count, len(rows.ids))) if len(rows.ids) > count else next(side, None)
            for rows, side in ((one, first), (two, second))
        )
    if rest := one or two:
        yield rest, rest.take(np.arange(0))


def fill(index: Index, convert: Convert, each: Callable[..., Iterable[Any]] = in_turn) -> tuple[int, int]:
    """Write the second column; after an interruption, only the missing rows.

    Args:
        index: The index.
        convert: Turns rows into vectors.
        each: As for :func:`xalign_models.vectors.applying.apply`.

    Returns:
        Number of rows, and the number of rows without a vector that can be mapped.

    Raises:
        FileError: The second column has other rows than the first, or vectors from other maps.
    """
    with live(total=index.count(), initial=index.written() or 0, desc="write", unit=" rows") as bar:
        for chosen, count, vectors in each(_converted, convert, index.rows(missing=index.written() is not None)):
            if vectors is not None:
                if index.written() is None:
                    index.add(vectors.shape[1])
                index.write(chosen.ids, vectors)
            bar.update(count)
    total = skipped = 0
    wrong = f"{index.source}: {index.second} differs from the expected vectors; undo, and try again."
    for first, second in _in_step(index.rows(), index.rows(second=True)):
        total, skipped = total + len(first.ids), skipped + int((~first.usable).sum())
        if list(first.ids) != list(second.ids) or not np.array_equal(first.usable, second.usable):
            raise FileError(wrong)
        places = np.flatnonzero(first.usable)[:: max(1, len(first.ids) // CHECKED)]
        again = normalise(convert(first.take(places))) if places.size else second.vectors[places]
        if ((again * normalise(second.vectors[places])).sum(axis=1) < SAME).any():
            raise FileError(wrong)
    if total != index.count():
        raise FileError(f"{index.source}: rows that were read: {total} of {index.count()}; another program is writing.")
    index.finish()
    return total, skipped
