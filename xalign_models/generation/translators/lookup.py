"""Existing translations: references of a parallel corpus, corrupted references, or a file."""

import random
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from xalign_models import corpora
from xalign_models.corpora import file_digest
from xalign_models.errors import DataError, LanguageError
from xalign_models.files import noting
from xalign_models.generation.journal import read_records
from xalign_models.generation.language_model import Completion
from xalign_models.generation.translators.base import Translator
from xalign_models.languages import canonical
from xalign_models.paths import expanded
from xalign_models.specs import digest

MISSING = Completion("", finished=True)


class Corruption(StrEnum):
    """Faults of a translation."""

    DROP = "words dropped"
    """A random third of the words is missing."""
    SHUFFLE = "words shuffled"
    OTHER = "another sentence"
    WRAPPER = "meta text"
    """An assistant's words before and after the translation."""


_FAULTS = (Corruption.DROP, Corruption.SHUFFLE, Corruption.OTHER)


def corrupt(translation: str, how: Corruption, other: str, draw: random.Random) -> str:
    """Spoil a translation; ``other`` is another sentence of the same text."""
    if how is Corruption.OTHER:
        return other
    if how is Corruption.WRAPPER:
        return (
            f"Sure, here is the translated sentence: {translation} If you need any other help, I am glad to help you."
        )
    words = translation.split()
    if how is Corruption.DROP:
        dropped = set(draw.sample(range(len(words)), k=-(-len(words) // 3))) if len(words) > 1 else set()
        return " ".join(word for i, word in enumerate(words) if i not in dropped)
    draw.shuffle(words)
    return " ".join(words)


class ReferenceTranslator(Translator):
    """The English side of parallel corpora; a text outside all of them has no translation."""

    instant = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._table = cache(self._pairs)

    @cached_property
    def _corpora(self) -> list[corpora.Corpus]:
        return [corpora.load(name) for name in self.spec.model.split("+")]

    @cached_property
    def identity(self) -> str:
        """Digest of corpora and options."""
        return digest(self.spec.kind, [corpus.fingerprint() for corpus in self._corpora], self.spec.options)[:16]

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """References of the texts; if the corpus has a text twice, the first reference."""
        table = self._table(language) if language else {}
        return [Completion(table[text], finished=True) if text in table else MISSING for text in texts]

    def _pairs(self, language: str) -> dict[str, str]:
        table: dict[str, str] = {}
        for corpus in self._corpora:
            with suppress(LanguageError):
                table = dict(zip(*map(reversed, corpus.pair(language)), strict=True)) | table
        return table


class CorruptedTranslator(ReferenceTranslator):
    """References with missing or shuffled words, or of another text; the fault depends on the text."""

    def _pairs(self, language: str) -> dict[str, str]:
        table = super()._pairs(language)
        others = dict(zip(table, [*list(table.values())[1:], *list(table.values())[:1]], strict=True))
        corrupted = {}
        for text, english in table.items():
            draw = random.Random(f"{self.options.get('seed', 0)} {language} {text}")
            worse = corrupt(english, draw.choice(_FAULTS), others[text], draw)
            corrupted[text] = others[text] if worse == english else worse  # a single word cannot be shuffled
        return corrupted


class FileTranslator(Translator):
    """A file of JSON lines: ``{"text": ..., "translation": ..., "lang": ...}``, where ``lang`` is optional.

    Raises:
        DataError: There is no such file.
    """

    instant = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._path, self._digests = expanded(self.spec.model), dict[Path, str]()
        if not self._path.is_file():
            raise DataError(f"--translators {self.spec}: there is no file {self._path}.")

    @cached_property
    def identity(self) -> str:
        """Digest of the file's content."""
        with noting(self._digests):
            return digest("file", file_digest(self._path))[:16]

    @cached_property
    def _table(self) -> dict[tuple[str | None, str], str]:
        table: dict[tuple[str | None, str], str] = {}
        with noting(self._digests):
            for key, translation in read_records(self._path, "text, translation and perhaps lang", _translation):
                table.setdefault(key, translation)
        return table

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        """Translations from the file: the line with the text's language, else a line without a language.

        Raises:
            DataError: A line is malformed.
        """
        english = (self._table.get((language, text), self._table.get((None, text))) for text in texts)
        return [MISSING if text is None else Completion(text, finished=True) for text in english]


def _translation(record: dict[str, Any]) -> tuple[tuple[str | None, str], str]:
    text, translation, language = record["text"], record["translation"], record.get("lang")
    if not (isinstance(text, str) and isinstance(translation, str) and isinstance(language, str | None)):
        raise TypeError("a field is not a string")
    return (language and canonical(language), text), translation
