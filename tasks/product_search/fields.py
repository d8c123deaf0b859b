"""What the fields of a product-search record may be called and what they may hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import canonical, from_lazada

LOCALES = ("bd", "id", "my", "pk", "th", "ph", "vn")
SPLITS = ("train", "test")
QUERY_IDS = ("query_id", "qid", "id")
QUERY_TEXTS = ("query", "text", "title")
ITEM_IDS = ("item_id", "iid", "id")
ITEM_TEXTS = ("title", "item", "text", "name")
PAIR_QUERY_IDS = ("query_id", "qid")
PAIR_ITEM_IDS = ("item_id", "iid")
LOCALE_FIELDS = ("locale", "country")
GRADES = ("label", "relevance", "score")

Record = Mapping[str, Any]


def one_of(value: str, allowed: tuple[str, ...], what: str, where: str) -> str:
    """Return ``value``.

    Raises:
        DataError: It is not allowed.
    """
    if value not in allowed:
        raise DataError(f"{where}: unknown {what} {value!r}; allowed are {', '.join(allowed)}.")
    return value


def first(record: Record, names: tuple[str, ...]) -> Any:
    """The first of the named fields that is neither absent nor null, else None."""
    return next((record[name] for name in names if record.get(name) is not None), None)


@lru_cache(maxsize=1024)
def language_of(code: str) -> str:
    """The canonical form of a ``lang`` field, which may also hold a locale (``my`` is Malaysia's).

    Raises:
        LanguageError: Neither a locale nor a language.
    """
    return from_lazada(code) if code.lower() in LOCALES else canonical(code)


@lru_cache(maxsize=1024)
def locale_of(value: str) -> str | None:
    """The locale that a field means, by its own code or its language's (``vi`` for ``vn``), else None."""
    try:
        language = language_of(value)
    except LanguageError:
        return None
    return next((name for name in LOCALES if from_lazada(name) == language), None)


def identifier(record: Record, names: tuple[str, ...], where: str, key: str | None = None) -> str:
    """The record's id, as a string; ``key``, its key in a map, where no field names it.

    Raises:
        DataError: There is no id, or it is neither a string nor an integer.
    """
    value = first(record, names)
    value = key if value is None else value
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise DataError(f"{where}: no id in {', '.join(names)}; the record's fields are {', '.join(record) or 'none'}.")
    return str(value)


def text(record: Record, names: tuple[str, ...], where: str) -> str:
    """The record's text without outer white space; empty when it is null.

    Raises:
        DataError: No field holds a text, or it is a list or a map.
    """
    if not any(name in record for name in names):
        raise DataError(f"{where}: no text in {', '.join(names)}; the record's fields are {', '.join(record)}.")
    value = first(record, names)
    if not isinstance(value, str | int | float | None):
        raise DataError(f"{where}: the text is a {type(value).__name__}; it must be a string.")
    return "" if value is None else str(value).strip()


def grade(record: Record, where: str) -> int:
    """The pair's grade, 1 when it names none.

    Raises:
        DataError: The grade is not a whole number.
    """
    value = first(record, GRADES)
    try:
        number = 1.0 if value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number.is_integer():
        raise DataError(f"{where}: grade {value!r} is not a whole number; the metric takes integer grades.")
    return int(number)


def pairs(key: str | None, row: Any) -> Iterator[Record]:
    """The pairs of a row: itself; or, in a map from query ids, one for each item of the value."""
    if key is None or (isinstance(row, dict) and any(name in row for name in PAIR_ITEM_IDS)):
        yield row
    elif isinstance(row, dict):
        yield from ({"item_id": item, "label": label} for item, label in row.items())
    else:
        items = row if isinstance(row, list) else [row]
        yield from (item if isinstance(item, dict) else {"item_id": item} for item in items)
