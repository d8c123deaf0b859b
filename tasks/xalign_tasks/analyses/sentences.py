"""Sentences for the analyses of LiRA's theory."""

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import mteb

from xalign_models.analysis import Request
from xalign_models.errors import DataError
from xalign_models.languages import canonical
from xalign_tasks.analyses.base import Study
from xalign_tasks.sts17 import STS17CrossLingual

PUBLISHED = "STS22 sentence1"
"""The text of the paper."""


@dataclass(frozen=True)
class Sentences:
    """Texts with the canonical codes of their languages, their origin and its revision."""

    name: str
    texts: list[str]
    languages: list[str]
    revision: str


def load_sentences(request: Request, rows: int) -> tuple[Sentences, Study]:
    """STS22's first sentences, as in the paper, if the hub is available, else STS17's; ``rows`` at most by default.

    They come with a study that has the text's revision, and a note on the choice if it is STS17.

    Raises:
        DataError: Neither is available, or nothing in these languages.
    """
    notes = []
    try:
        sentences = sts22_sentences()
    except (OSError, ValueError, DataError):
        sentences = sts17_sentences()
        notes = [f"{PUBLISHED}, the paper's text, is unavailable here; {sentences.name} replaces it, so norms differ."]
    pairs = [
        (text, language)
        for text, language in dict.fromkeys(zip(sentences.texts, sentences.languages, strict=True))
        if text.strip() and (request.languages is None or language in request.languages)
    ]
    if not pairs:
        raise DataError(f"{sentences.name} has nothing in these languages; choose others with --languages.")
    count = request.rows or rows
    step = max(1, len(pairs) // count)
    texts, languages = zip(*pairs[::step][:count], strict=True)
    study = Study({sentences.name: sentences.revision})
    study.notes += notes
    return replace(sentences, texts=list(texts), languages=list(languages)), study


def sts22_sentences() -> Sentences:
    """The first sentences of STS22, from the hub."""
    return _first_sentences(PUBLISHED, mteb.get_task("STS22"))


def sts17_sentences() -> Sentences:
    """The first sentences of STS17, from XALIGN_DATA."""
    task = STS17CrossLingual()
    task.local_corpus()
    return _first_sentences("STS17 sentence1", task)


def _first_sentences(name: str, task: Any) -> Sentences:
    task.load_data()
    tables = {subset: task.dataset[subset]["test"]["sentence1"] for subset in task.hf_subsets}
    codes = [canonical(task.metadata.eval_langs[subset][0]) for subset, texts in tables.items() for _ in texts]
    return Sentences(name, list(chain.from_iterable(tables.values())), codes, task.metadata.dataset["revision"])
