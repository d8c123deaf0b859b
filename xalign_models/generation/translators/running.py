"""Translates many texts in batches, each text once; translations in the journal are reused."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_models.errors import DataError
from xalign_models.generation.journal import Journal, batched, default_folder
from xalign_models.generation.translators.base import Kind, Translator, TranslatorSpec
from xalign_models.generation.translators.cleaning import Cleaned, clean
from xalign_models.languages import LanguageText
from xalign_models.progress import live
from xalign_models.specs import Dtype

if TYPE_CHECKING:
    from tqdm.auto import tqdm

logger = logging.getLogger(__name__)

CHUNK = 8192
"""Number of texts to read and sort by language and length at a time."""
KEY = ("lang", "text")
UNKNOWN = "in a language that it does not know"
"""The problem of a text that is not given to the translator."""


def make_translator(spec: TranslatorSpec | str, device: str | None = None, dtype: Dtype | None = None) -> Translator:
    """The translator of a spec; its weights are loaded when they are first needed.

    Raises:
        ModelError: The spec cannot be read.
        DataError: A file is missing.
    """
    from xalign_models.generation.translators.lookup import CorruptedTranslator, FileTranslator, ReferenceTranslator
    from xalign_models.generation.translators.models import CausalTranslator, Seq2SeqTranslator

    spec = TranslatorSpec.parse(spec) if isinstance(spec, str) else spec
    if spec.kind is Kind.LLM:
        return CausalTranslator(spec, device, dtype)
    if spec.kind is Kind.MT:
        return Seq2SeqTranslator(spec, device, dtype)
    known = {Kind.REFERENCE: ReferenceTranslator, Kind.CORRUPTED: CorruptedTranslator, Kind.FILE: FileTranslator}
    return known[spec.kind](spec)


@dataclass
class Summary:
    """Counts of the texts by outcome.

    Attributes:
        known: Texts that the journal has already.
        translated: Texts translated now.
        problems: Number of new translations that are empty, endless, untranslated or not English, and number of texts
            in languages that the translator does not know.
    """

    known: int = 0
    translated: int = 0
    problems: Counter[str] = field(default_factory=Counter)


class Translations:
    """A translator with the journal of its translations.

    Args:
        translator: Translates texts that are not in the journal.
        folder: Folder of journals, one file per translator and identity; by default in the cache.
        batch_size: Texts translated together; a crash loses at most one batch.
    """

    def __init__(self, translator: Translator, folder: Path | None = None, batch_size: int = 16) -> None:
        self.translator, self.batch_size = translator, batch_size
        self._folder = folder or default_folder()

    @property
    def path(self) -> Path:
        """The journal's file."""
        return self._folder / f"{self.translator.spec.label}-{self.translator.identity}.jsonl"

    @cached_property
    def _journal(self) -> Journal:
        return Journal(self.path, KEY)

    def known(self, texts: Sequence[LanguageText]) -> list[Cleaned | None]:
        """The existing translations, and None where a translation can be made."""
        return [
            self._look_up(text, lang) if self.translator.instant else self._known(text, lang) for text, lang in texts
        ]

    def _known(self, text: str, lang: str | None) -> Cleaned | None:
        record = self._journal.get(lang, text)
        if record is not None:
            return Cleaned(record["translation"], record["problem"])
        return None if self.translator.knows(lang) else Cleaned("", UNKNOWN)

    def _look_up(self, text: str, lang: str | None) -> Cleaned:
        (written,) = self.translator.translate([text], lang)
        return clean(written.text, text, lang)

    def fill(
        self, texts: Sequence[LanguageText], summary: Summary | None = None, bar: tqdm[None] | None = None
    ) -> None:
        """Make the missing translations, in batches of one language and of similar length."""
        if self.translator.instant:
            return
        journal, summary = self._journal, summary or Summary()
        journal.refresh()
        missing = [item for item in dict.fromkeys(texts) if (item[1], item[0]) not in journal]
        summary.known += len(texts) - len(missing)
        unknown = {lang for lang in {lang for _, lang in missing} if not self.translator.knows(lang)}
        if refused := sum(lang in unknown for _, lang in missing):
            summary.problems[UNKNOWN] += refused
            missing = [item for item in missing if item[1] not in unknown]
            if bar is not None:
                bar.update(refused)
        missing.sort(key=lambda item: (item[1] or "", -len(item[0])))
        for lang, group in groupby(missing, key=lambda translation: translation[1]):
            for batch in batched((text for text, _ in group), self.batch_size):
                written = self.translator.translate(batch, lang)
                cleaned = [
                    clean(output.text, text, lang, finished=output.finished)
                    for output, text in zip(written, batch, strict=True)
                ]
                journal.append(
                    [
                        {"lang": lang, "text": text, "translation": translation.text, "problem": translation.problem}
                        for text, translation in zip(batch, cleaned, strict=True)
                    ]
                )
                summary.translated += len(batch)
                summary.problems.update(translation.problem for translation in cleaned if translation.problem)
                if bar is not None:
                    bar.update(len(batch))

    def get(self, texts: Sequence[LanguageText], *, online: bool) -> list[Cleaned]:
        """A translation of each text.

        Args:
            texts: The texts and their languages.
            online: Whether to make missing translations.

        Raises:
            DataError: Translations are missing, and ``online`` is false.
        """
        if online:
            self.fill(texts)
        elif not self.translator.instant:
            self._journal.refresh()
        translations = self.known(texts)
        if missing := [text for text, translation in zip(texts, translations, strict=True) if translation is None]:
            raise DataError(
                f"{len(missing)} texts have no translation by {self.translator.spec}, the first is "
                f"{missing[0][0][:60]!r}. Translate them with `xalign translate --translators "
                f"'{self.translator.spec}'`, or use an online variant of the model."
            )
        return [translation for translation in translations if translation is not None]


def translate_all(
    texts: Iterable[LanguageText], translators: Sequence[Translations], total: int | None = None
) -> dict[str, Summary]:
    """Translate a stream of texts with each translator; texts in the journals are skipped.

    Args:
        texts: Any number of texts; memory grows by 24 bytes per translated text.
        translators: Translators with their journals.
        total: Number of texts, for the progress bar.

    Returns:
        Counts of the texts by outcome, for each translator.
    """
    summaries = {str(translator.translator.spec): Summary() for translator in translators}
    expected = None if total is None else total * len(translators)
    with live(total=expected, desc="translate", unit=" texts") as bar:
        for chunk in distinct(texts):
            for translator in translators:
                summary = summaries[str(translator.translator.spec)]
                known = summary.known
                translator.fill(chunk, summary, bar)
                bar.update(summary.known - known)
    return summaries


def distinct(texts: Iterable[LanguageText]) -> Iterator[tuple[LanguageText, ...]]:
    """The texts in chunks, each without empty and repeated texts."""
    for chunk in batched(texts, CHUNK):
        if unique := tuple(dict.fromkeys(item for item in chunk if item[0].strip())):
            yield unique
