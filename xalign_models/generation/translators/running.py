"""Translating many texts, batch by batch, each text once: what is in the journal is not translated again."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_models.errors import DataError
from xalign_models.generation.journal import Journal, batched
from xalign_models.generation.translators.base import Kind, Translator, TranslatorSpec
from xalign_models.generation.translators.cleaning import Cleaned, clean
from xalign_models.paths import cache_dir
from xalign_models.progress import live
from xalign_models.specs import Dtype

if TYPE_CHECKING:
    from tqdm.auto import tqdm

logger = logging.getLogger(__name__)

CHUNK = 8192
"""Texts that are read and sorted by language and length together."""
KEY = ("lang", "text")
UNKNOWN = "of a language that it does not know"
"""The problem of a text that is not given to the translator at all."""

Text = tuple[str, str | None]
"""A text and its canonical language, None where it is not known."""


def make_translator(spec: TranslatorSpec | str, device: str | None = None, dtype: Dtype | None = None) -> Translator:
    """The translator of a spec; its weights are loaded when they are first needed.

    Raises:
        ModelError: The spec cannot be read.
        DataError: A file is not there.
    """
    from xalign_models.generation.translators.causal import CausalTranslator
    from xalign_models.generation.translators.lookup import CorruptedTranslator, FileTranslator, ReferenceTranslator
    from xalign_models.generation.translators.seq2seq import Seq2SeqTranslator

    spec = TranslatorSpec.parse(spec) if isinstance(spec, str) else spec
    if spec.kind is Kind.LLM:
        return CausalTranslator(spec, device, dtype)
    if spec.kind is Kind.MT:
        return Seq2SeqTranslator(spec, device, dtype)
    return {Kind.REFERENCE: ReferenceTranslator, Kind.CORRUPTED: CorruptedTranslator}.get(spec.kind, FileTranslator)(
        spec
    )


def default_folder() -> Path:
    """Where translations are kept unless a folder is named: in the cache."""
    return cache_dir() / "translations"


@dataclass
class Summary:
    """What became of the texts.

    Attributes:
        known: Texts whose translation was there.
        translated: Texts that were translated now.
        problems: How many of the latter came out empty, endless, untranslated or not English; and the texts of
            languages that the translator does not know.
    """

    known: int = 0
    translated: int = 0
    problems: Counter[str] = field(default_factory=Counter)


class Translations:
    """A translator with the journal of what it has translated.

    Args:
        translator: Translates what the journal does not have.
        folder: Of journals, one file per translator and identity; by default in the cache.
        batch_size: Texts that are translated together: the most that a crash loses.
    """

    def __init__(self, translator: Translator, folder: Path | None = None, batch_size: int = 16) -> None:
        self.translator, self.batch_size = translator, batch_size
        self._folder = folder or default_folder()
        self._opened: Journal | None = None

    @property
    def path(self) -> Path:
        """The journal's file."""
        return self._folder / f"{self.translator.spec.label}-{self.translator.identity}.jsonl"

    @property
    def _journal(self) -> Journal:
        if self._opened is None:
            self._opened = Journal(self.path, KEY)
        return self._opened

    def known(self, texts: Sequence[Text]) -> list[Cleaned | None]:
        """The translations that are there, and None for those that can be made."""
        if self.translator.instant:
            return self._look_up(texts)
        return [self._known(text, lang) for text, lang in texts]

    def _known(self, text: str, lang: str | None) -> Cleaned | None:
        record = self._journal.get(lang, text)
        if record is not None:
            return Cleaned(record["translation"], record["problem"])
        return None if self.translator.knows(lang) else Cleaned("", UNKNOWN)

    def _look_up(self, texts: Sequence[Text]) -> list[Cleaned | None]:
        found: list[Cleaned | None] = [None] * len(texts)
        by_language: dict[str | None, list[int]] = {}
        for row, (_, lang) in enumerate(texts):
            by_language.setdefault(lang, []).append(row)
        for lang, rows in by_language.items():
            written = self.translator.translate([texts[row][0] for row in rows], lang)
            for row, one in zip(rows, written, strict=True):
                found[row] = clean(one.text, texts[row][0], lang)
        return found

    def fill(self, texts: Sequence[Text], summary: Summary | None = None, bar: tqdm[None] | None = None) -> None:
        """Translate those that are not there, in batches of one language and similar length."""
        if self.translator.instant:
            return
        journal, summary = self._journal, summary or Summary()
        journal.refresh()
        missing = [one for one in dict.fromkeys(texts) if (one[1], one[0]) not in journal]
        summary.known += len(texts) - len(missing)
        unknown = {lang for lang in {lang for _, lang in missing} if not self.translator.knows(lang)}
        if refused := sum(lang in unknown for _, lang in missing):
            summary.problems[UNKNOWN] += refused
            missing = [one for one in missing if one[1] not in unknown]
            if bar is not None:
                bar.update(refused)
        missing.sort(key=lambda one: (one[1] or "", -len(one[0])))
        for lang, group in groupby(missing, key=lambda one: one[1]):
            for batch in batched((text for text, _ in group), self.batch_size):
                written = self.translator.translate(batch, lang)
                cleaned = [
                    clean(one.text, text, lang, finished=one.finished) for one, text in zip(written, batch, strict=True)
                ]
                journal.append(
                    [
                        {"lang": lang, "text": text, "translation": one.text, "problem": one.problem}
                        for text, one in zip(batch, cleaned, strict=True)
                    ]
                )
                summary.translated += len(batch)
                summary.problems.update(one.problem for one in cleaned if one.problem)
                if bar is not None:
                    bar.update(len(batch))

    def get(self, texts: Sequence[Text], *, online: bool) -> list[Cleaned]:
        """A translation of each text.

        Args:
            texts: The texts and their languages.
            online: Translate now what is not there.

        Raises:
            DataError: Some are not there, and it is not online; the message has the command that makes them.
        """
        if online:
            self.fill(texts)
        elif not self.translator.instant:
            self._journal.refresh()
        found = self.known(texts)
        if missing := [text for text, one in zip(texts, found, strict=True) if one is None]:
            raise DataError(
                f"{len(missing)} texts have no translation by {self.translator.spec}, the first: "
                f"{missing[0][0][:60]!r}. Make them with `xalign translate --translators "
                f"'{self.translator.spec}'`, or use an online variant of the model."
            )
        return [one for one in found if one is not None]


def translate_all(
    texts: Iterable[Text], translators: Sequence[Translations], total: int | None = None
) -> dict[str, Summary]:
    """Translate a stream of texts with each translator; an interrupted one resumes where it stopped.

    Args:
        texts: Any number; memory does not grow with them, except for 24 bytes each of those that are translated.
        translators: Each one's journal decides what is left to do.
        total: How many texts, for the progress bar.

    Returns:
        What became of the texts, by translator.
    """
    summaries = {str(one.translator.spec): Summary() for one in translators}
    expected = None if total is None else total * len(translators)
    with live(total=expected, desc="translate", unit=" texts") as bar:
        for chunk in distinct(texts):
            for one in translators:
                summary = summaries[str(one.translator.spec)]
                known = summary.known
                one.fill(chunk, summary, bar)
                bar.update(summary.known - known)
    return summaries


def distinct(texts: Iterable[Text]) -> Iterator[tuple[Text, ...]]:
    """The texts in chunks, in each of them every text once and none that is empty."""
    for chunk in batched(texts, CHUNK):
        if found := tuple(dict.fromkeys(one for one in chunk if one[0].strip())):
            yield found
