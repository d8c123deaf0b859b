"""Which texts there are to translate: of files, of corpora, of what a task encodes, of what a training reads."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from xalign_models import corpora
from xalign_models.corpora import CORPORA, ENGLISH, read_lines
from xalign_models.errors import DataError, LanguageError
from xalign_models.evaluation import recording
from xalign_models.evaluation.recording import LanguageText
from xalign_models.languages import canonical
from xalign_models.training.lira.config import LiraConfig
from xalign_models.training.lira.data import foreign_texts, rated, searches
from xalign_models.training.lira.module import language_prompts


def task_texts(name: str, languages: Collection[str] | None) -> list[LanguageText]:
    """What a model is given by a task, in the languages of which a LiRA is told; None beside the other texts.

    Args:
        name: As mteb knows it, once ours are registered there.
        languages: Canonical codes; None is all.

    Raises:
        DataError: No such task, or its data are missing.
        LanguageError: The task has nothing in these languages.
    """
    told = dict(language_prompts())
    return [(text, code if code in told else None) for text, code in recording.task_texts(name, languages)]


def file_texts(path: Path, languages: Sequence[str]) -> Iterator[LanguageText]:
    """The lines of a text file in the one language that is named, or the ``text`` and ``lang`` of JSON lines.

    Of JSON lines those in the named languages, all if none are.

    Raises:
        DataError: A line has neither, or it is not one language.
    """
    if path.suffix != ".jsonl":
        if len(languages) != 1:
            raise DataError(f"--texts {path}: say with --languages which one language its lines are in.")
        yield from ((line, languages[0]) for line in read_lines(path))
        return
    for number, line in enumerate(read_lines(path), 1):
        try:
            record = json.loads(line) if line.strip() else {"text": ""}
            text, language = str(record["text"]), record.get("lang")
            language = language and canonical(language)
        except (ValueError, KeyError, TypeError, AttributeError, LanguageError) as error:
            raise DataError(f"{path}, line {number}: an object with text and lang was expected ({error}).") from None
        if not languages or language in languages:
            yield text, language


def corpus_texts(name: str, languages: Collection[str], rows: int | None) -> Iterator[LanguageText]:
    """The texts of a corpus in the chosen languages but English, all of them if none are chosen.

    Raises:
        DataError: The corpus is missing.
    """
    corpus = corpora.load(name)
    for language in corpus.languages:
        if language != ENGLISH and (not languages or language in languages):
            yield from ((text, language) for text in corpus.texts(language)[:rows])


def is_corpus(name: str) -> bool:
    """Whether :func:`corpus_texts` takes the name."""
    return name.partition(":")[0] in CORPORA


def training_texts(config: LiraConfig) -> list[LanguageText]:
    """What both stages of a training translate.

    Raises:
        DataError: A source is missing.
    """
    arca, lasr = config.arca, config.lasr
    first = foreign_texts(arca.text, arca.languages, arca.samples, arca.held_out)
    ranking = rated(lasr.ranking, lasr.languages, lasr.ranking_samples, lasr.held_out, lasr.seed)
    found = searches(lasr.retrieval, lasr.languages, lasr.samples, lasr.held_out, lasr.seed)
    texts = [
        *first.train,
        *first.held_out,
        *(one for row in (*ranking.train, *ranking.held_out) for one in (row.first, row.second)),
        *(one for row in (*found.train, *found.held_out) for one in row),
    ]
    return [(one.text, one.language) for one in texts if one.language != ENGLISH]
