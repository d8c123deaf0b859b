"""Existing translations: references of a parallel corpus, or a file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from xalign_models import corpora
from xalign_models.corpora import file_digest, read_lines
from xalign_models.errors import DataError, FileError, LanguageError
from xalign_models.files import parse_json
from xalign_models.generation.language_model import Completion
from xalign_models.generation.translators.base import Translator, TranslatorSpec
from xalign_models.languages import canonical
from xalign_models.specs import digest
from xalign_models.training.lira.edits import Corruption, corrupt

MISSING = Completion("", finished=True)
_FAULTS = (Corruption.DROP, Corruption.SHUFFLE, Corruption.OTHER)


class ReferenceTranslator(Translator):
    """The English side of parallel corpora; a text outside all of them has no translation.

    Args:
        spec: Kind ``reference``; its model is the names of corpora, with ``+`` between.
    """

    instant = True

    def __init__(self, spec: TranslatorSpec) -> None:
        self.spec = spec
        self._tables: dict[str, dict[str, str]] = {}

    @cached_property
    def _corpora(self) -> list[corpora.Corpus]:
        return [corpora.load(name) for name in self.spec.model.split("+")]

    @cached_property
    def identity(self) -> str:
        """Digest of corpora and options."""
        return digest(self.spec.kind, [corpus.fingerprint() for corpus in self._corpora], self.spec.options)[:16]

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """References of the texts; the first one of a text that the corpus has twice."""
        table = self._table(language) if language else {}
        return [Completion(table[text], finished=True) if text in table else MISSING for text in texts]

    def _table(self, language: str) -> dict[str, str]:
        if language not in self._tables:
            table: dict[str, str] = {}
            for corpus in self._corpora:
                with suppress(LanguageError):
                    table = dict(zip(*map(reversed, corpus.pair(language)), strict=True)) | table
            self._tables[language] = table
        return self._tables[language]


class CorruptedTranslator(ReferenceTranslator):
    """References with missing words, shuffled words, or of another text; the fault depends on the text.

    Meta text is not among the faults: no translation keeps it through the cleaning.

    Args:
        spec: Kind ``corrupted``; its model is the names of corpora, with ``+`` between.
    """

    def _table(self, language: str) -> dict[str, str]:
        if language not in self._tables:
            table = super()._table(language)
            others = dict(zip(table, [*list(table.values())[1:], *list(table.values())[:1]], strict=True))
            corrupted = {}
            for text, english in table.items():
                draw = random.Random(f"{dict(self.spec.options).get('seed', 0)} {language} {text}")
                worse = corrupt(english, draw.choice(_FAULTS), others[text], draw)
                corrupted[text] = others[text] if worse == english else worse  # a single word cannot be shuffled
            self._tables[language] = corrupted
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
        """Digest of the file's content."""
        return digest("file", file_digest(self._path))[:16]

    @cached_property
    def _table(self) -> dict[tuple[str | None, str], str]:
        table: dict[tuple[str | None, str], str] = {}
        for number, line in enumerate(read_lines(self._path), 1):
            if not line.strip():
                continue
            try:
                record = parse_json(line.encode(), str(self._path))
                text, translation, language = record["text"], record["translation"], record.get("lang")
                if not (isinstance(text, str) and isinstance(translation, str) and isinstance(language, str | None)):
                    raise TypeError
                key = (language and canonical(language), text)
            except (FileError, KeyError, TypeError):
                raise DataError(
                    f"{self._path}, line {number}: not a JSON object with text, translation and perhaps lang."
                ) from None
            except LanguageError as error:
                raise DataError(f"{self._path}, line {number}: {error}") from None
            table.setdefault(key, translation)
        return table

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """Translations of the file: the line with the text's language, else one without a language.

        Raises:
            DataError: A line is malformed.
        """
        english = (self._table.get((language, text), self._table.get((None, text))) for text in texts)
        return [MISSING if text is None else Completion(text, finished=True) for text in english]
