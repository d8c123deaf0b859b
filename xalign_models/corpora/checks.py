"""Checks of text that the user gives: what is likely a mistake is said once, in a line with counts."""

import html
import logging
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

from xalign_models.errors import DataError

logger = logging.getLogger(__name__)

warn_once = cache(logger.warning)
"""Log a warning unless this process did already: a corpus is read several times."""


def check_rows(name: str, rows: Sequence[str]) -> None:
    """Refuse text without a non-blank row, and warn of rows that are likely mistakes; ``name`` is for messages.

    Raises:
        DataError: Every row is blank.
    """
    blank = [number for number, row in enumerate(rows, 1) if not row.strip()]
    if len(blank) == len(rows):
        raise DataError(f"{name} has only blank rows.")
    first: dict[str, int] = {}
    repeated = [number for number, row in enumerate(rows, 1) if row.strip() and first.setdefault(row, number) != number]
    found = {"blank rows": blank, "repeated rows": repeated}
    found |= {
        kind: [number for number, row in enumerate(rows, 1) if is_wrong(row)] for kind, is_wrong in _MISTAKES.items()
    }
    for kind, numbers in found.items():
        if numbers:
            shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
            warn_once(f"{name}: {kind}: {len(numbers)} of {len(rows)} ({shown}).")


def check_pair(name: str, language: str, side: Sequence[str], pivot: Sequence[str]) -> None:
    """Warn if at least half of a language's rows are equal to their translations."""
    equal = sum(row == other for row, other in zip(side, pivot, strict=True))
    if 2 * equal >= len(side) > 0:
        warn_once(f"{name}: rows of {language} that are equal to their translations: {equal} of {len(side)}.")


def _is_mojibake(row: str) -> bool:
    """Whether the row has replacement characters, or is UTF-8 that was read in a Western encoding."""
    for encoding in () if row.isascii() else ("cp1252", "latin-1"):
        try:
            if row.encode(encoding).decode("utf-8") != row:
                return True
        except UnicodeError:
            continue
    return "\N{REPLACEMENT CHARACTER}" in row


def _has_entity(row: str) -> bool:
    return any(html.unescape(entity) != entity for entity in re.findall(r"&#?\w+;", row))


_MISTAKES: dict[str, Callable[[str], object]] = {
    "rows that are not in Unicode's composed form, NFC": lambda row: not unicodedata.is_normalized("NFC", row),
    "rows that were decoded wrongly": _is_mojibake,
    "rows with HTML entities, such as &amp;": _has_entity,
    "rows in the quotes of a CSV file, to be saved without them": re.compile(r'".*"".*"', re.DOTALL).fullmatch,
}
"""A phrase of a warning -> whether a row is meant."""
