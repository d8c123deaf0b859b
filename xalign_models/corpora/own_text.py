"""The user's own text: parallel, or queries and documents."""

import csv
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress
from pathlib import Path
from typing import Any

from xalign_models.corpora.base import LONGEST, PARTS, Corpus, from_columns, from_files, half, join_lines, read_lines
from xalign_models.corpora.checks import check_rows
from xalign_models.corpora.collection import is_collection, read_collection, read_records
from xalign_models.errors import DataError, FileError, LanguageError, plural
from xalign_models.files import file_digest, noting, read_parquet
from xalign_models.languages import canonical
from xalign_models.paths import expanded
from xalign_models.plugins import CORPORA

LEAST = 2
"""Minimum number of rows: choosing among a single translation is trivial."""
VARIABLE = "XALIGN_OWN"
TASK, RETRIEVAL = "OwnParallel", "OwnRetrieval"
TABLES = (".tsv", ".csv", ".jsonl", ".parquet")


def split_part(text: str) -> tuple[str, Path]:
    """``test:DIR`` as ("test", DIR) and ``DIR`` as ("", DIR)."""
    part, colon, path = text.partition(":")
    return (part, expanded(path)) if colon and part in PARTS else ("", expanded(text))


def own_paths(value: str | None = None) -> dict[str, tuple[str, Path]]:
    """Part and path of each of the user's own texts, by name.

    Args:
        value: Comma-separated ``NAME=PATH`` or ``NAME=test:PATH``; a path without a name is called ``own``. By default
            ``$XALIGN_OWN``, which ``--data`` sets.

    Raises:
        DataError: A name is invalid, repeated or the name of another corpus, or a path does not exist.
    """
    places: dict[str, tuple[str, Path]] = {}
    for text in filter(None, (os.environ.get(VARIABLE, "") if value is None else value).split(",")):
        match = re.fullmatch(r"([^=/]*)=(.*)", text)
        name, place = match.groups() if match else ("own", text)
        if not re.fullmatch(r"(?!.*__)[A-Za-z]\w*", name) or (name in CORPORA and name != "own"):
            reason = "is the name of another corpus" if name in CORPORA else "is not a valid name"
            raise DataError(f"--data {text!r}: {name!r} {reason}; write --data own=DIR, or choose another name.")
        if name in places:
            raise DataError(f"--data {text!r}: the name {name!r} is used twice; choose another.")
        places[name] = split_part(place)
        if not places[name][1].exists():
            raise DataError(f"--data {text}: the file or directory does not exist.")
    return places


def own_task(name: str, path: Path) -> str:
    """The name of the task on one of the user's own texts."""
    kind = RETRIEVAL if is_collection(path) else TASK
    return kind if name == "own" else f"{kind}-{name}"


def own(path: Path, part: str = "", *, name: str = "own") -> Corpus:
    """The user's corpus: a text file per language, a table with a column per language, or a retrieval collection.

    A directory contains either files such as ``deu.txt``, ``deu_Latn.txt`` or ``de.txt``, with one sentence per line
    and aligned lines, or one table. A table is a ``.tsv`` or ``.csv`` with a header, a ``.jsonl`` or a ``.parquet``.
    Its columns are named by language codes. A collection has queries, documents and judgements in BEIR's layout; its
    text is not parallel.

    Args:
        path: The directory or table.
        part: "" for all rows; ``fit`` and ``test`` are disjoint halves, and rows with an equal text in any language
            are in the same half. A collection's halves are of its queries.
        name: Name of the corpus.

    Raises:
        DataError: There is no text or text in several forms, or the names of files or columns are not distinct
            languages.
    """
    if is_collection(path):
        return read_collection(path, part).corpus(name)
    corpus = replace(_whole(path, name), least=LEAST)
    if not part:
        return corpus
    columns = corpus.parallel(corpus.languages)
    plain = [*map(half, columns[corpus.languages[0]])]
    distinct = all(len({*filter(str.strip, side)}) == len(side) for side in columns.values())
    halves = plain if distinct else _halves([*columns.values()])
    chosen = [one == part for one in halves]
    rows = {language: list(compress(side, chosen)) for language, side in columns.items()}
    if not any(chosen):
        tied = ", as rows that share a text in a language stay together" if part in plain else ""
        raise DataError(f"{path}: the {part} half has no rows{tied}; give more different rows, or use separate texts.")
    # "0" means halves by the first language's text alone, which older results are of
    identity = f"{corpus.fingerprint()} {part} {int(halves != plain)}"
    return replace(corpus, rows=rows.__getitem__, identity=lambda _: identity)


def _halves(sides: Sequence[Sequence[str]]) -> list[str]:
    """The half of each row, by its first text; rows that a chain of equal texts connects follow the first of them."""
    before = [*range(len(sides[0]))]

    def first(row: int) -> int:
        while before[row] != row:
            before[row] = row = before[before[row]]
        return row

    for side in sides:
        seen: dict[str, int] = {}
        for row, text in enumerate(side):
            if text.strip():
                one, other = first(seen.setdefault(text, row)), first(row)
                before[max(one, other)] = min(one, other)
    firsts = ([side[first(row)] for side in sides] for row in before)
    return [half(next(filter(str.strip, texts), "")) for texts in firsts]


def _whole(path: Path, name: str) -> Corpus:
    if path.is_dir():
        tables = sorted(file for file in path.iterdir() if file.suffix in TABLES)
        named = [file for file in sorted(path.glob("*.txt")) if file.is_file()]
        if len(forms := [*tables, *named[:1]]) > 1:
            raise DataError(
                f"{path} has text in more than one form ({', '.join(file.name for file in forms)}); name one "
                "table, or keep either one table or files called <language>.txt."
            )
        if tables:
            return _whole(tables[0], name)
        codes = {file.name: _own_code(file.stem, file) for file in named}
        _require_distinct(codes, path)
        files = {codes[file.name]: (file,) for file in named}
        if len(files) < 2:
            raise DataError(f"{path} needs at least two files named by language, such as deu.txt and eng.txt.")
        return from_files(name, "parallel", (own_task(name, path),), files, _lines)
    if not path.is_file():
        raise DataError(f"{path} does not exist; give a directory of <language>.txt or a table ({'/'.join(TABLES)}).")
    with noting({}):
        columns, identity = _table(path), file_digest(path)
    if len(columns) < 2:
        raise DataError(f"{path} needs at least two columns named by language, such as deu and eng.")
    codes = {column: _own_code(column, path) for column in columns}
    _require_distinct(codes, path)
    by_code = {codes[column]: rows for column, rows in columns.items()}
    for column, rows in columns.items():
        check_rows(f"{path}, column {column}", rows)
    return from_columns(name, (own_task(name, path),), by_code, identity)


def _lines(files: tuple[Path, ...]) -> list[str]:
    rows = join_lines(files)
    check_rows(", ".join(map(str, files)), rows)
    return rows


def _own_code(name: str, source: Path) -> str:
    try:
        return canonical(name)
    except LanguageError as error:
        raise DataError(f"{source}: {name!r} does not name a language ({error})") from None


def _require_distinct(codes: dict[str, str], path: Path) -> None:
    """Refuse names of one language; ``codes`` has the code of each name."""
    if twice := [name for name, code in codes.items() if [*codes.values()].count(code) > 1]:
        raise DataError(f"{path}: {', '.join(twice)} name the same language; keep one of each.")


def _table(path: Path) -> dict[str, list[str]]:
    rows: dict[str, list[Any]]
    if path.suffix == ".parquet":
        try:
            rows = read_parquet(path).to_pydict()
        except FileError as error:
            raise DataError(str(error)) from None
    elif path.suffix == ".jsonl":
        records = [record for _, record in read_records(path)]
        rows = {key: [record.get(key) for record in records] for key in dict.fromkeys(chain(*records))}
    elif path.suffix in {".tsv", ".csv"}:
        lines = read_lines(path)
        cut = ((number, line.split("\t")) for number, line in enumerate(lines, 1))
        (_, header), *body = (list(cut) if path.suffix == ".tsv" else _csv(lines, path)) or [(0, [])]
        if len(set(header)) < len(header):
            raise DataError(f"{path}: two of the columns {', '.join(header)} have the same name; keep one of each.")
        if bad := next((number for number, row in body if len(row) != len(header)), 0):
            raise DataError(f"{path}, line {bad}: expected {plural(len(header), 'column')}, as in the header.")
        rows = {key: [row[i] for _, row in body] for i, key in enumerate(header)}
    else:
        raise DataError(f"{path} is not a table; tables end in {', '.join(TABLES)}.")
    if not rows or not next(iter(rows.values())):
        raise DataError(f"{path} has no rows.")
    _check_columns(rows, path)
    return rows


def _check_columns(rows: Mapping[str, Sequence[Any]], path: Path) -> None:
    for key, values in rows.items():
        written = [str(value) for value in values if value is not None and str(value).strip()]
        if written and not any(letter.isalpha() for value in written for letter in value):
            raise DataError(f"{path}: column {key!r} has no words; remove it.")
        if bad := next((number for number, value in enumerate(values, 1) if not isinstance(value, str)), 0):
            raise DataError(f"{path}: row {bad} of column {key!r} is not text; every language needs every row.")
        if bad := next((number for number, value in enumerate(values, 1) if "\0" in value), 0):
            raise DataError(f"{path}: row {bad} of column {key!r} has a NUL byte; it is not text.")
        if bad := next((number for number, value in enumerate(values, 1) if len(value) > LONGEST), 0):
            raise DataError(f"{path}: row {bad} of column {key!r} has more than {LONGEST:,} characters.")


def _csv(lines: list[str], path: Path) -> list[tuple[int, list[str]]]:
    """Rows of fields, each with the number of its last line; quoted fields may contain line ends."""
    reader, limit = csv.reader((f"{line}\n" for line in lines), strict=True), csv.field_size_limit(LONGEST)
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise DataError(f"{path} is not a readable CSV file (line {reader.line_num}: {error}).") from None
    finally:
        csv.field_size_limit(limit)
