"""Reads a product-search set, queries in seven locales and the item titles they look for, in any plausible layout.

The set's authors name three files, ``query``, ``item`` and ``pairs_info``, but show neither their folders nor their
fields. What is read here:

* **Files.** A list of records, a map from id to record (or to the bare text), or one record per line, in ``.json`` or
  ``.jsonl``; UTF-8 with or without a byte order mark, any line ends. A map of pairs may also go from a query's id to an
  item's id, to a list of them, or to a map from item id to grade.
* **Folders.** The three files lie together, in the root or below folders named by a locale (``bd id my pk th ph vn``),
  by a split (``train test``), or by both in either order. Without locale folders every query and item names its locale;
  a pair need not, unless its ids occur in several locales.
* **Fields.** Their names are in :mod:`tasks.product_search.fields`; the first present counts. ``lang`` names the row's
  language, and also its locale where neither a folder nor another field does. Retrieval is within a locale.
* **Splits.** A published split, by folder or by a ``split`` field, is final; a row without the field belongs to every
  split. Where nothing is published, everything is ``test``; or, with ``hash_split``, the queries whose text's SHA-256
  is divisible by five are (a fifth; a query asked twice is on one side), and the items belong to both sides.

Grades above zero are kept, the highest when a pair is named twice; a pair with any other grade is not relevant.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tasks.product_search import fields
from tasks.product_search.fields import LOCALES, SPLITS, Record, one_of
from tasks.product_search.rows import rows
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import from_lazada

FILES = ("query", "item", "pairs_info")
_SUFFIXES = (".json", ".jsonl")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Locale:
    """One locale of one split.

    Attributes:
        queries: Query id to text, without empty ones.
        items: Item id to title, without empty ones: the candidates of every query.
        relevant: Query id to item id to grade, an integer above zero. A query with no relevant item is absent.
        query_languages: Canonical code of those queries whose row names a language other than the locale's.
        item_languages: The same for items.
    """

    queries: dict[str, str] = field(default_factory=dict)
    items: dict[str, str] = field(default_factory=dict)
    relevant: dict[str, dict[str, int]] = field(default_factory=dict)
    query_languages: dict[str, str] = field(default_factory=dict)
    item_languages: dict[str, str] = field(default_factory=dict)

    def texts(self, kind: str) -> dict[str, str]:
        """The queries or the items, as ``kind`` is ``"query"`` or ``"item"``."""
        return self.queries if kind == "query" else self.items


def load(
    root: Path, split: str = "test", *, locales: Collection[str] | None = None, hash_split: bool = False
) -> dict[str, Locale]:
    """Read one split of a set; the module's docstring has the layouts.

    Args:
        root: The set's folder.
        split: ``"test"`` or ``"train"``.
        locales: The locales to read and hold; all that the set has when None.
        hash_split: Split by the query's hash where the set publishes no split.

    Returns:
        The locales, in the order of ``LOCALES``.

    Raises:
        DataError: A file, field, id, locale or split is missing, unknown or contradictory; the message says where.
    """
    one_of(split, SPLITS, "split", str(root))
    wanted = LOCALES if locales is None else tuple(one_of(name, LOCALES, "locale", "locales=") for name in locales)
    out = {name: Locale() for name in LOCALES if name in wanted}
    published = False
    for folder, (place, part) in sorted(_sets(root).items()):
        published |= part is not None
        if (place is None or place in wanted) and part in (None, split):
            published |= _Set(folder, place, split, out).read()
    if not published:
        for locale in out.values():
            _keep_hashed(locale, split, by_hash=hash_split)
    found = {name: locale for name, locale in out.items() if locale.relevant}
    lacking = [name for name, locale in out.items() if not locale.relevant and (locales is not None or locale.queries)]
    if lacking or not found:
        raise DataError(
            f"{root}: no query has a relevant item in split {split!r} of {', '.join(lacking) or 'any locale'}; "
            f"usable: {', '.join(found) or 'none'}. Add the files, or ask for the locales and the split that are there."
        )
    return found


def fingerprint(root: Path) -> str:
    """SHA-256, in hexadecimal, over the names and contents of the set's files (of no other file in ``root``).

    Raises:
        DataError: There is no complete set in ``root``.
    """
    paths = [path for folder in _sets(root) for path in _files(folder).values()]
    lines = sorted(f"{path.relative_to(root).as_posix()} {_digest(path, *_stamp(path))}\n" for path in paths)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=256)
def _digest(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sets(root: Path) -> dict[Path, tuple[str | None, str | None]]:
    """The folders that hold a set's files, with the locale and the split that their names say."""
    found: dict[Path, tuple[str | None, str | None]] = {}
    for folder in {path.parent for name in FILES for suffix in _SUFFIXES for path in root.rglob(name + suffix)}:
        names = [name.lower() for name in folder.relative_to(root).parts]
        for name in names:
            one_of(name, (*LOCALES, *SPLITS), "locale or split folder", str(folder))
        locale, split = ([name for name in names if name in kind] for kind in (LOCALES, SPLITS))
        if len(locale) > 1 or len(split) > 1:
            raise DataError(f"{folder}: two locale or two split folders inside each other; one of each is allowed.")
        found[folder] = (locale[0] if locale else None, split[0] if split else None)
    if not found:
        raise DataError(f"{root} has no files query, item, pairs_info (.json or .jsonl), nor folders with them.")
    return found


def _files(folder: Path) -> dict[str, Path]:
    files = {}
    for name in FILES:
        paths = [path for suffix in _SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
        if len(paths) != 1:
            raise DataError(f"{folder} has {len(paths)} of {name}.json and {name}.jsonl; exactly one is needed.")
        files[name] = paths[0]
    return files


def _keep_hashed(locale: Locale, split: str, *, by_hash: bool) -> None:
    """Drop, in place, the queries that are not in ``split`` of a set that publishes none."""
    for query, text in list(locale.queries.items()):
        test = not by_hash or int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % 5 == 0
        if test != (split == "test"):
            for table in (locale.queries, locale.relevant, locale.query_languages):
                table.pop(query, None)


class _Set:
    """Three files of one folder, read into the locales that they speak of."""

    def __init__(self, folder: Path, locale: str | None, split: str, out: Mapping[str, Locale]) -> None:
        self.folder, self.files, self.locale, self.split, self.out = folder, _files(folder), locale, split, out
        self.has_split = False
        # Ids that exist and are not used, by locale and kind: a pair that points to one is lost, not dangling.
        self.empty: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self.elsewhere: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def read(self) -> bool:
        """Read the files; returns whether any row has a split field."""
        self._texts("query")
        self._texts("item")
        lost = self._pairs()
        empty = sum(map(len, self.empty.values()))
        if empty or lost:
            logger.warning(
                "%s: left out %d queries or items without text, and %d pairs with one or an item of another split.",
                *(self.folder, empty, lost),
            )
        return self.has_split

    def _here(self, record: Record, where: str) -> bool:
        part = record.get("split")
        self.has_split |= part is not None
        return part is None or one_of(part, SPLITS, "split", where) == self.split

    def _place(self, record: Record, where: str) -> tuple[str | None, str | None]:
        """The record's locale, from its folder or its fields, and its language where that is another one."""
        value, code = fields.first(record, fields.LOCALE_FIELDS), record.get("lang")
        value = code if value is None and self.locale is None else value
        locale = self.locale
        if value is not None:
            locale = fields.locale_of(str(value)) or one_of(str(value), LOCALES, "locale", where)
        if self.locale not in (None, locale):
            raise DataError(f"{where}: locale {value!r} in the folder {self.locale!r}; move the row or mend the field.")
        try:
            language = None if code is None else fields.language_of(str(code))
        except LanguageError as error:
            raise DataError(f"{where}: {error}") from error
        return locale, None if locale is not None and language == from_lazada(locale) else language

    def _texts(self, kind: str) -> None:
        query = kind == "query"
        ids, names = (fields.QUERY_IDS, fields.QUERY_TEXTS) if query else (fields.ITEM_IDS, fields.ITEM_TEXTS)
        for where, key, row in rows(self.files[kind], ids):
            record = row if isinstance(row, dict) else {names[0]: row}
            identifier = fields.identifier(record, ids, where, key)
            locale, language = self._place(record, where)
            if locale is None:
                raise DataError(f"{where}: no locale; name it by a folder or by a field locale, country or lang.")
            if not self._here(record, where) or locale not in self.out:
                self.elsewhere[locale, kind].add(identifier)
                continue
            text = fields.text(record, names, where)
            if not text:
                self.empty[locale, kind].add(identifier)
                continue
            if self.out[locale].texts(kind).setdefault(identifier, text) != text:
                raise DataError(f"{where}: {kind} id {identifier!r} has two different texts in locale {locale!r}.")
            if language is not None:
                (self.out[locale].query_languages if query else self.out[locale].item_languages)[identifier] = language

    def _pairs(self) -> int:
        """Read the pairs; returns how many name a query or an item that was left out."""
        lost, dangling, first = 0, 0, list[str]()
        for where, key, row in rows(self.files["pairs_info"], fields.PAIR_QUERY_IDS):
            for record in fields.pairs(key, row):
                query = fields.identifier(record, fields.PAIR_QUERY_IDS, where, key)
                item = fields.identifier(record, fields.PAIR_ITEM_IDS, where)
                grade = fields.grade(record, where)
                homes = self._homes(record, query, item, where)
                if not homes:
                    dangling += 1
                    first += [f"{query} -> {item}"] if dangling <= 3 else []
                elif self._here(record, where) and grade > 0:
                    ((name, states),) = homes.items()
                    if states == ("kept", "kept"):
                        grades = self.out[name].relevant.setdefault(query, {})
                        grades[item] = max(grade, grades.get(item, 0))
                    else:
                        lost += states[0] != "elsewhere"
        if dangling:
            raise DataError(
                f"{self.files['pairs_info']}: {dangling} pairs point to a query or an item that is not in the files, "
                f"the first: {'; '.join(first)}. Add the rows or remove the pairs."
            )
        return lost

    def _homes(self, record: Record, query: str, item: str, where: str) -> dict[str, tuple[str, str]]:
        """The locale that has both ids, if there is one, and what became of the query and of the item there."""
        locale, _ = self._place(record, where)
        homes = {}
        for name in [locale] if locale else LOCALES:
            if (asked := self._state(name, "query", query)) and (sought := self._state(name, "item", item)):
                homes[name] = asked, sought
        if len(homes) > 1:
            raise DataError(
                f"{where}: query {query!r} and item {item!r} occur in locales {', '.join(homes)}; name the pair's by a "
                "folder or by a field locale, country or lang."
            )
        return homes

    def _state(self, locale: str, kind: str, identifier: str) -> str:
        if locale in self.out and identifier in self.out[locale].texts(kind):
            return "kept"
        if identifier in self.empty[locale, kind]:
            return "empty"
        return "elsewhere" if identifier in self.elsewhere[locale, kind] else ""
