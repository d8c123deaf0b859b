"""Translates many texts in batches, each text once; translations in the journal are reused."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from xalign_models.errors import DataError, ModelError
from xalign_models.generation.journal import Journal, batched, default_folder
from xalign_models.generation.served import raise_first
from xalign_models.generation.translators.base import Cleaned, Kind, Translator, TranslatorSpec, clean
from xalign_models.generation.translators.lookup import CorruptedTranslator, FileTranslator, ReferenceTranslator
from xalign_models.generation.translators.models import CausalTranslator, Seq2SeqTranslator
from xalign_models.languages import LanguageText
from xalign_models.progress import live
from xalign_models.specs import Dtype

logger = logging.getLogger(__name__)

CHUNK = 8192
"""Number of texts to read and to sort by language and length at a time."""
KEY = ("lang", "text")
UNKNOWN = "in an unsupported language"
"""The problem of a text that is not passed to the translator."""
_TRANSLATORS: dict[Kind, type[Translator]] = {
    Kind.LLM: CausalTranslator,
    Kind.MT: Seq2SeqTranslator,
    Kind.REFERENCE: ReferenceTranslator,
    Kind.CORRUPTED: CorruptedTranslator,
    Kind.FILE: FileTranslator,
}


def make_translator(spec: TranslatorSpec | str, device: str | None = None, dtype: Dtype | None = None) -> Translator:
    """The translator of a spec; its weights are loaded when first needed.

    Raises:
        ModelError: The spec cannot be read.
        DataError: A file is missing.
    """
    spec = TranslatorSpec.parse(spec) if isinstance(spec, str) else spec
    return _TRANSLATORS[spec.kind](spec, device, dtype)


@dataclass
class Summary:
    """Counts of the texts by outcome.

    Attributes:
        known: Texts that are already in the journal.
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

    def _known(self, text: str, lang: str | None) -> Cleaned | None:
        """The existing translation of a text; None if it can be made."""
        if self.translator.instant:
            (found,) = self.translator.translate([text], lang)
            raise_first([found])
            return clean(found.text, text, lang)  # type: ignore[union-attr]
        if record := self._journal.get(lang, text):
            return Cleaned(record["translation"], record["problem"])
        return None if self.translator.knows(lang) else Cleaned("", UNKNOWN)

    def fill(
        self, texts: Sequence[LanguageText], summary: Summary | None = None, bar: Any = None, *, alone: bool = False
    ) -> None:
        """Make the missing translations, in batches of one language and of similar length.

        ``alone`` waits for other such processes; otherwise both would make, and pay for, the same translations.
        """
        if self.translator.instant:
            return
        if alone:
            with self._journal.turn((lang, text) for text, lang in texts):
                self.fill(texts, summary, bar)
            return
        journal, summary, bar = self._journal, summary or Summary(), live(disable=True) if bar is None else bar
        journal.refresh()
        missing = [item for item in dict.fromkeys(texts) if (item[1], item[0]) not in journal]
        summary.known += len(texts) - len(missing)
        known = {lang for lang in {lang for _, lang in missing} if self.translator.knows(lang)}
        possible = [item for item in missing if item[1] in known]
        possible.sort(key=lambda item: (item[1] or "", -len(item[0])))
        summary.problems.update([UNKNOWN] * (len(missing) - len(possible)))
        bar.update(len(texts) - len(possible))
        for lang, group in groupby(possible, key=lambda item: item[1]):
            for batch in batched((text for text, _ in group), self.batch_size):
                records, outputs = [], self.translator.translate(batch, lang)
                for text, output in zip(batch, outputs, strict=True):
                    if isinstance(output, ModelError):
                        continue
                    translation, problem = clean(output.text, text, lang, finished=output.finished)
                    records.append({"lang": lang, "text": text, "translation": translation, "problem": problem})
                journal.append(records)
                summary.translated += len(records)
                raise_first(outputs)  # after storing the answered texts
                summary.problems.update(record["problem"] for record in records if record["problem"])
                bar.update(len(batch))

    def get(self, texts: Sequence[LanguageText], *, online: bool) -> list[Cleaned]:
        """A translation of each text; missing ones are made only if ``online``.

        Raises:
            DataError: Translations are missing, and ``online`` is false.
        """
        if online:
            self.fill(texts)
        elif not self.translator.instant:
            self._journal.refresh()
        translations = [self._known(text, lang) for text, lang in texts]
        if missing := [text for (text, _), translation in zip(texts, translations, strict=True) if not translation]:
            spec = self.translator.spec
            raise DataError(
                f"Texts without a translation by {spec}: {len(missing)}, the first {missing[0][:60]!r}. Translate them "
                f"with `xalign translate --translators '{spec}'`, or use an online variant of the model."
            )
        return list(filter(None, translations))


def translate_all(texts: Iterable[LanguageText], translators: Sequence[Translations]) -> dict[str, Summary]:
    """Translate texts with each translator, one after the other; texts in the journals are skipped.

    Returns:
        Counts of the texts by outcome, for each translator.
    """
    summaries = {str(translator.translator.spec): Summary() for translator in translators}
    texts = texts if len(translators) == 1 else list(texts)
    with live(desc="translate", unit=" texts") as bar:
        for translator in translators:
            for chunk in distinct(texts):
                translator.fill(chunk, summaries[str(translator.translator.spec)], bar, alone=True)
            translator.translator.release()
    return summaries


def distinct(texts: Iterable[LanguageText]) -> Iterator[tuple[LanguageText, ...]]:
    """The texts in chunks without empty or repeated texts."""
    for chunk in batched(texts, CHUNK):
        if unique := tuple(dict.fromkeys(item for item in chunk if item[0].strip())):
            yield unique
