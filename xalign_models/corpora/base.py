"""The class of corpora: text by language, with a fingerprint."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from xalign_models.corpora.checks import check_pair
from xalign_models.errors import DataError, FileError, LanguageError, plural
from xalign_models.files import file_digest, noting, read_bytes

ENGLISH = "eng-Latn"


MOST = 512 << 20
"""Maximum size of a file of text in bytes."""
PARTS = ("fit", "test")
"""Halves of the user's text, for fitting and for scoring."""
LONGEST = 1_000_000
"""Maximum length of a line in characters: tokenizing one of 200 MB takes gigabytes of memory."""


def read_lines(path: Path) -> list[str]:
    r"""The lines of a UTF-8 file, without line ends and a final empty line; \r, U+2028 and \x85 do not end a line.

    Raises:
        DataError: The file is not UTF-8, has NUL bytes, or ends its lines with carriage returns alone.
    """
    try:
        text = read_bytes(path, MOST).decode("utf-8-sig")  # text mode would end a line at a lone carriage return
    except FileError as error:
        raise DataError(str(error)) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 (byte {error.start}); convert it, e.g. with iconv.") from None
    if (zero := text.find("\0")) >= 0:
        raise DataError(f"{path}, line {text.count(chr(10), 0, zero) + 1} has a NUL byte; it is not a text file.")
    if "\r" in text and "\n" not in text:
        raise DataError(f"{path} ends its lines with carriage returns alone; convert it, e.g. with `mac2unix`.")
    lines = text.replace("\r\n", "\n").split("\n")
    if long := next((number for number, line in enumerate(lines, 1) if len(line) > LONGEST), 0):
        raise DataError(f"{path}, line {long} has more than {LONGEST:,} characters; it is not a text per line.")
    return lines[:-1] if lines[-1] == "" else lines


def join_lines(files: tuple[Path, ...]) -> list[str]:
    """The lines of all files, one file after another."""
    return [line for file in files for line in read_lines(file)]


def half(text: str) -> str:
    """The half, ``fit`` or ``test``, that a text belongs to."""
    return PARTS[hashlib.sha256(f"0 {text}".encode()).digest()[0] % 2]


def refuse_part(name: str, part: str) -> None:
    """Refuse a part of a corpus that has no parts.

    Raises:
        DataError: A part is given.
    """
    if part:
        raise DataError(f"Unknown part {part!r}: the corpus {name!r} has no parts.")


@dataclass(frozen=True)
class Corpus:
    """Text by language.

    Attributes:
        name: Name for users, e.g. ``ntrex``.
        kind: ``monolingual``, ``parallel`` or ``pairs``.
        trains: Names of the mteb data sets and tasks that contain this text, which become the ``training_datasets`` of
            models fitted on it.
        languages: Canonical codes, sorted.
        rows: Reads a language: a list of texts, or (texts, English texts) for pairs.
        identity: Digest of a language's rows or of their source.
        least: Minimum number of rows of parallel text.
    """

    name: str
    kind: str
    trains: tuple[str, ...]
    languages: tuple[str, ...]
    rows: Callable[[str], Any]
    identity: Callable[[str], str]
    least: int = 1

    def _read(self, language: str) -> Any:
        if language not in self.languages:
            raise LanguageError(f"Corpus {self.name!r} has no {language}; it has {', '.join(self.languages)}.")
        return self.rows(language)

    def texts(self, language: str) -> list[str]:
        """The sentences of a language, in file order.

        English of pairs has the distinct sides of all languages, in turn, up to the length of the longest one.

        Raises:
            LanguageError: The corpus does not have the language.
            DataError: The file cannot be read.
        """
        if self.kind == "pairs" and language == ENGLISH:
            sides = [self._read(other)[1] for other in self.languages]
            distinct = dict.fromkeys(text for row in zip_longest(*sides) for text in row if text is not None)
            return list(distinct)[: max(map(len, sides), default=0)]
        rows = self._read(language)
        return list(rows[0]) if self.kind == "pairs" else list(rows)

    def pair(self, language: str, pivot: str = ENGLISH) -> tuple[list[str], list[str]]:
        """The sentences of a language and their translations into the pivot, row by row.

        Raises:
            LanguageError: The corpus does not have the language.
            DataError: It has no translations into the pivot, the sides differ in length, or there are too few rows.
        """
        if self.kind == "monolingual":
            raise DataError(f"Corpus {self.name!r} has no translations; use ntrex, flores or tatoeba_pairs.")
        if self.kind == "parallel":
            side, english = self.texts(language), self.texts(pivot)
        elif pivot != ENGLISH:
            raise DataError(f"Corpus {self.name!r} pairs every language with English, so {pivot} cannot be its pivot.")
        else:
            side, english = self._read(language)
        if len(side) != len(english):
            raise DataError(
                f"{self.name}: {language} has {plural(len(side), 'row')} and {pivot} {len(english)}; they must align."
            )
        self._check_count(len(side), language)
        if language != pivot:
            check_pair(self.name, language, side, english)
        return list(side), list(english)

    def parallel(self, languages: Iterable[str]) -> dict[str, list[str]]:
        """Parallel rows in all ``languages``.

        Raises:
            DataError: Not a parallel corpus, too few rows, or the row counts differ; the message names them.
        """
        if self.kind != "parallel":
            raise DataError(f"Corpus {self.name!r} is not parallel across languages.")
        columns = {language: self.texts(language) for language in languages}
        if len({len(rows) for rows in columns.values()}) > 1:
            listed = ", ".join(f"{language} {len(rows)}" for language, rows in columns.items())
            raise DataError(f"Rows of {self.name!r} are not aligned: {listed}. Every language needs the same rows.")
        self._check_count(min(map(len, columns.values()), default=0), ", ".join(columns))
        for language in columns.keys() - {ENGLISH} if ENGLISH in columns else ():
            check_pair(self.name, language, columns[language], columns[ENGLISH])
        return columns

    def _check_count(self, rows: int, languages: str) -> None:
        if rows < self.least:
            raise DataError(f"{self.name}: too few rows of {languages} ({rows}); give at least {self.least}.")

    def fingerprint(self, languages: Iterable[str] | None = None) -> str:
        """Sha256 (hex) of the name and the identities of ``languages`` (all by default)."""
        chosen = sorted(self.languages if languages is None else set(languages) & set(self.languages))
        parts = [self.name, *(f"{language}={self.identity(language)}" for language in chosen)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def from_files(
    name: str,
    kind: str,
    trains: tuple[str, ...],
    files: Mapping[str, tuple[Path, ...]],
    read: Callable[[tuple[Path, ...]], Any],
    reading: str = "",
) -> Corpus:
    """A corpus with separate files per language; ``reading`` is added to the identity of each language."""
    digests: dict[Path, str] = {}

    def identity(language: str) -> str:
        with noting(digests):
            return " ".join(map(file_digest, files[language])) + reading

    def rows(language: str) -> Any:
        if language not in files:
            raise DataError(f"{name} has no files of {language}; it has {', '.join(files)}.")
        with noting(digests):
            return read(files[language])

    return Corpus(name, kind, trains, tuple(sorted(files)), rows, identity)


def from_columns(name: str, trains: tuple[str, ...], columns: Mapping[str, list[str]], identity: str) -> Corpus:
    """A parallel corpus with one column per language."""
    languages = tuple(sorted(columns))
    return Corpus(name, "parallel", trains, languages, lambda language: columns[language], lambda _: identity)
