"""The texts that LiRA translates: of files, corpora and trainings."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from xalign_models import corpora
from xalign_models.corpora import ENGLISH, read_lines
from xalign_models.errors import DataError
from xalign_models.generation.journal import read_records
from xalign_models.languages import LanguageText, canonical
from xalign_models.training.lira.config import LiraConfig
from xalign_models.training.lira.data import foreign_texts, rated, searches
from xalign_models.training.lira.module import language_prompts


def with_prompts(texts: Iterable[LanguageText]) -> list[LanguageText]:
    """Texts with their language where LiRA has a prompt for it, else with None."""
    prompts = dict(language_prompts())
    return [(text, code if code in prompts else None) for text, code in texts]


def file_texts(path: Path, languages: Sequence[str]) -> Iterator[LanguageText]:
    """The lines of a text file in one language, or the ``text`` and ``lang`` of JSON lines.

    Args:
        path: The file; one that ends in ``.jsonl`` holds JSON lines.
        languages: Canonical codes: the language of a text file, or the languages to keep of JSON lines; empty for all.

    Raises:
        DataError: A line is malformed, or ``languages`` is not exactly one language of a text file.
    """
    if path.suffix != ".jsonl":
        if len(languages) != 1:
            raise DataError(f"--texts {path}: name the one language of its lines with --languages.")
        yield from ((line, languages[0]) for line in read_lines(path))
        return
    for text, language in read_records(path, "text and perhaps lang", _text):
        if not languages or language in languages:
            yield text, language


def _text(record: dict[str, Any]) -> LanguageText:
    language = record.get("lang")
    return str(record["text"]), language and canonical(language)


def corpus_texts(name: str, languages: Collection[str], rows: int | None) -> Iterator[LanguageText]:
    """The texts of a corpus in the chosen languages except English; all languages if none are chosen.

    Raises:
        DataError: The corpus is missing.
    """
    corpus = corpora.load(name)
    for language in corpus.languages:
        if language != ENGLISH and (not languages or language in languages):
            yield from ((text, language) for text in corpus.texts(language)[:rows])


def training_texts(config: LiraConfig) -> list[LanguageText]:
    """The texts that both stages of a training translate.

    Raises:
        DataError: A source is missing.
    """
    stages = foreign_texts(config.arca), rated(config.lasr), searches(config.lasr)
    texts, pairs, queries = ([*split.train, *split.held_out] for split in stages)
    texts += [text for row in pairs for text in (row.first, row.second)]
    texts += [text for row in queries for text in row]
    return [(text.text, text.lang) for text in texts if text.lang != ENGLISH]
