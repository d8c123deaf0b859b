"""The texts to translate: of files, corpora, tasks and trainings."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from xalign_models import corpora
from xalign_models.corpora import CORPORA, ENGLISH, read_lines
from xalign_models.errors import DataError, LanguageError
from xalign_models.evaluation import recording
from xalign_models.languages import LanguageText, canonical
from xalign_models.training.lira.config import LiraConfig
from xalign_models.training.lira.data import foreign_texts, rated, searches
from xalign_models.training.lira.module import language_prompts


def task_texts(name: str, languages: Collection[str] | None) -> list[LanguageText]:
    """The texts that a task encodes, each with its language where LiRA has a prompt for it, else None.

    Args:
        name: Name of a task in mteb, ours included once registered.
        languages: Canonical codes; None is all.

    Raises:
        DataError: No such task, or its data are missing.
        LanguageError: The task has nothing in these languages.
    """
    tagged = dict(language_prompts())
    return [(text, code if code in tagged else None) for text, code in recording.task_texts(name, languages)]


def file_texts(path: Path, languages: Sequence[str]) -> Iterator[LanguageText]:
    """The lines of a text file in the one named language, or the ``text`` and ``lang`` of JSON lines.

    JSON lines are filtered by the named languages, if there are any.

    Raises:
        DataError: A line is malformed, or a text file comes without exactly one language.
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
    """The texts of a corpus in the chosen languages but English, all languages if none are chosen.

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
    """The texts that both stages of a training translate.

    Raises:
        DataError: A source is missing.
    """
    arca, lasr = config.arca, config.lasr
    first = foreign_texts(arca.text, arca.languages, arca.samples, arca.held_out)
    ranking = rated(lasr.ranking, lasr.languages, lasr.ranking_samples, lasr.held_out, lasr.seed)
    retrieval = searches(lasr.retrieval, lasr.languages, lasr.samples, lasr.held_out, lasr.seed)
    texts = [
        *first.train,
        *first.held_out,
        *(text for row in (*ranking.train, *ranking.held_out) for text in (row.first, row.second)),
        *(text for row in (*retrieval.train, *retrieval.held_out) for text in row),
    ]
    return [(text.text, text.lang) for text in texts if text.lang != ENGLISH]
