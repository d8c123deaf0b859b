"""Translations that are there already: references of a parallel corpus, or a file made elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from xalign_models import corpora
from xalign_models.corpora import file_digest, read_lines
from xalign_models.errors import DataError, LanguageError
from xalign_models.generation import Completion
from xalign_models.languages import canonical
from xalign_models.lira.translators.base import Translator, TranslatorSpec
from xalign_models.specs import digest

MISSING = Completion("", finished=True)


class ReferenceTranslator(Translator):
    """The English side of a parallel corpus; a text that it does not have has no translation.

    Args:
        spec: Kind ``reference``; its model is a corpus' name.
    """

    instant = True

    def __init__(self, spec: TranslatorSpec) -> None:
        self.spec = spec
        self._tables: dict[str, dict[str, str]] = {}

    @cached_property
    def _corpus(self) -> corpora.Corpus:
        return corpora.load(self.spec.model)

    @cached_property
    def identity(self) -> str:
        """Of the corpus' text."""
        return digest("reference", self._corpus.fingerprint())[:16]

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """Looked up; the first translation of a text that the corpus has twice."""
        table = self._table(language) if language else {}
        return [Completion(table[text], finished=True) if text in table else MISSING for text in texts]

    def _table(self, language: str) -> dict[str, str]:
        if language not in self._tables:
            try:
                sides = self._corpus.pair(language)
            except LanguageError:
                sides = [], []
            self._tables[language] = dict(zip(*map(reversed, sides), strict=True))
        return self._tables[language]


class FileTranslator(Translator):
    """A file of JSON lines: ``{"text": ..., "translation": ..., "lang": ...}``, the last of them optional.

    Args:
        spec: Kind ``file``; its model is a path.

    Raises:
        DataError: There is no such file.
    """

    instant = True

    def __init__(self, spec: TranslatorSpec) -> None:
        self.spec = spec
        self._path = Path(spec.model).expanduser()
        if not self._path.is_file():
            raise DataError(f"--translators {spec}: there is no file {self._path}.")

    @cached_property
    def identity(self) -> str:
        """Of the file's content."""
        return digest("file", file_digest(self._path))[:16]

    @cached_property
    def _table(self) -> dict[tuple[str | None, str], str]:
        table: dict[tuple[str | None, str], str] = {}
        for number, line in enumerate(read_lines(self._path), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                text, translation, language = record["text"], record["translation"], record.get("lang")
                key = (language and canonical(language), str(text))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise DataError(
                    f"{self._path}, line {number}: not a JSON object with text, translation and perhaps lang."
                ) from None
            except LanguageError as error:
                raise DataError(f"{self._path}, line {number}: {error}") from None
            table.setdefault(key, str(translation))
        return table

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """Looked up: the line that names the language, else one that names none.

        Raises:
            DataError: A line is no such object.
        """
        found = (self._table.get((language, text), self._table.get((None, text))) for text in texts)
        return [MISSING if one is None else Completion(one, finished=True) for one in found]
