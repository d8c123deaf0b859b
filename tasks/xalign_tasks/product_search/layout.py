"""Reads a product-search set in mteb's layout: a folder per locale, with queries, the titles they look for, and qrels.

    <root>/<locale>/queries.jsonl         {"id": "q1", "text": "a query"}
    <root>/<locale>/corpus.jsonl          {"id": "i1", "text": "the title of an item"}
    <root>/<locale>/qrels/test.jsonl      {"query-id": "q1", "corpus-id": "i1", "score": 1}

Locales are ``bd id my pk th ph vn``; another split's qrels lie beside ``test.jsonl``. A query or item may name a
``lang`` that is not its locale's. Scores above zero are relevant. Retrieval is within a locale.
"""

import hashlib
import json
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_models.corpora import file_digest
from xalign_models.corpora.collection import id_of, read_records, texts_by_id
from xalign_models.errors import DataError, FileError
from xalign_models.files import read_bytes

LOCALES = ("bd", "id", "my", "pk", "th", "ph", "vn")
_STAND_IN = ("query.json", "item.json", "pairs_info.json")

logger = logging.getLogger(__name__)

LocatedRow = tuple[str, dict[str, Any]]
"""The location of a row, for messages, and the row."""


@dataclass(frozen=True)
class Locale:
    """One locale of one split.

    Attributes:
        queries: Query id to text.
        items: Item id to title: the candidates of every query.
        relevant: Query id to item id to grade, an integer above zero. Queries without a relevant item are absent.
        query_languages: Canonical code of each query whose row names a language.
        item_languages: Canonical code of each item whose row names a language.
    """

    queries: dict[str, str]
    items: dict[str, str]
    relevant: dict[str, dict[str, int]]
    query_languages: dict[str, str]
    item_languages: dict[str, str]


def load(root: Path, split: str = "test", locales: Collection[str] | None = None) -> dict[str, Locale]:
    """Read one split of a set, in some locales or in all.

    Raises:
        DataError: A file, field or locale is missing or contradictory; the message says where.
    """
    folders = _folders(root)
    if missing := [name for name in locales or () if name not in folders]:
        raise DataError(f"{root} has no locale {', '.join(missing)}; it has {', '.join(folders)}.")
    return {name: _locale(folder, split) for name, folder in folders.items() if locales is None or name in locales}


def fingerprint(root: Path) -> str:
    """Sha256 (hex) over the names and contents of the set's files, ignoring other files in ``root``.

    Raises:
        DataError: There is no set in ``root``.
    """
    names = (*_STAND_IN, "queries.jsonl", "corpus.jsonl", "qrels/*.jsonl")
    paths = [path for folder in _folders(root).values() for name in names for path in folder.glob(name)]
    lines = sorted(f"{path.relative_to(root).as_posix()} {file_digest(path)}\n" for path in paths)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _folders(root: Path) -> dict[str, Path]:
    folders = {name: root / name for name in LOCALES if (root / name).is_dir()}
    if not folders:
        raise DataError(f"{root} has no folder of a locale ({', '.join(LOCALES)}) with queries, corpus and qrels.")
    return folders


def _locale(folder: Path, split: str) -> Locale:
    queries, corpus, qrels = _tables(folder, split)
    query_texts, query_languages = _texts(queries)
    item_texts, item_languages = _texts(corpus)
    relevant: dict[str, dict[str, int]] = {}
    for source, row in qrels:
        query, item = id_of(row, "query-id", source), id_of(row, "corpus-id", source)
        for identifier, texts in ((query, query_texts), (item, item_texts)):
            if identifier not in texts:
                raise DataError(f"{source}: {identifier!r} is neither a query nor an item with text; correct the row.")
        score = row.get("score", 1)
        if not isinstance(score, int) or isinstance(score, bool):
            raise DataError(f"{source}: score {score!r} is not a whole number.")
        if score > 0:
            grades = relevant.setdefault(query, {})
            grades[item] = max(score, grades.get(item, 0))
    if not relevant:
        raise DataError(f"{folder}: no query has a relevant item in split {split!r}.")
    return Locale(query_texts, item_texts, relevant, query_languages, item_languages)


def _texts(rows: Iterable[LocatedRow]) -> tuple[dict[str, str], dict[str, str]]:
    """Texts and, where a row names one, languages, by id."""
    tagged = texts_by_id(rows)
    texts = {identifier: text for identifier, (text, _) in tagged.items()}
    return texts, {identifier: language for identifier, (_, language) in tagged.items() if language}


def _tables(folder: Path, split: str) -> Iterable[Iterable[LocatedRow]]:
    """The rows of queries, corpus and judgements; those of the stand-in, which has a layout of its own, in mteb's."""
    if not (folder / _STAND_IN[0]).is_file():
        paths = [folder / name for name in ("queries.jsonl", "corpus.jsonl", f"qrels/{split}.jsonl")]
        if missing := [path for path in paths if not path.is_file()]:
            raise DataError(
                f"{missing[0]} is missing; each locale needs queries.jsonl, corpus.jsonl and qrels/test.jsonl."
            )
        return map(read_records, paths)
    try:
        queries, items, pairs = (json.loads(read_bytes(folder / name)) for name in _STAND_IN)
        qrels = [{"query-id": row["query_id"], "corpus-id": row["item_id"], "score": row["label"]} for row in pairs]
        return (
            [(f"{folder}, query {key}", {"id": key, "text": row["query"]}) for key, row in queries.items()],
            [(f"{folder}, item {key}", {"id": key, "text": row["title"]}) for key, row in items.items()],
            [(f"{folder}, pair {number}", row) for number, row in enumerate(qrels, 1)],
        )
    except (FileError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder}: {', '.join(_STAND_IN)} are not in the stand-in's layout ({error!r}).") from None
