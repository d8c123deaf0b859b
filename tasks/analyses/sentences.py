"""The sentences that the diagnostics of LiRA's theory are measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mteb

from tasks.sts17 import STS17CrossLingual
from xalign_models.analysis import Request
from xalign_models.errors import DataError
from xalign_models.languages import canonical

PUBLISHED = "STS22 sentence1"
"""What the paper measures."""


@dataclass(frozen=True)
class Sentences:
    """Texts with their languages.

    Attributes:
        name: Where they are from.
        texts: One sentence each.
        languages: A canonical code each.
        revision: What identifies the text.
        note: What a reader must know of the choice.
    """

    name: str
    texts: list[str]
    languages: list[str]
    revision: str
    note: str = ""


def load_sentences(request: Request, rows: int) -> Sentences:
    """STS22's first sentences, as in the paper, where the hub gives them, else STS17's.

    Args:
        request: Its rows, if given, go before ``rows``; its languages choose.
        rows: Most sentences in all.

    Raises:
        DataError: There is neither, or nothing in these languages.
    """
    note = ""
    try:
        found = _sts22()
    except (OSError, ValueError, DataError):
        found = _sts17()
        note = f"{PUBLISHED}, the paper's text, cannot be had here; {found.name} is used, so that norms differ."
    kept = [
        (text, language)
        for text, language in dict.fromkeys(zip(found.texts, found.languages, strict=True))
        if text.strip() and (request.languages is None or language in request.languages)
    ]
    if not kept:
        raise DataError(f"{found.name} has nothing in these languages; choose others with --languages.")
    wanted = request.rows or rows
    step = max(1, len(kept) // wanted)
    texts, languages = zip(*kept[::step][:wanted], strict=True)
    return Sentences(found.name, list(texts), list(languages), found.revision, note)


def _sts22() -> Sentences:
    return _first_sentences(PUBLISHED, mteb.get_task("STS22"))


def _sts17() -> Sentences:
    task = STS17CrossLingual()
    task.local_corpus()
    return _first_sentences("STS17 sentence1", task)


def _first_sentences(name: str, task: Any) -> Sentences:
    task.load_data()
    tables = {subset: task.dataset[subset]["test"]["sentence1"] for subset in task.hf_subsets}
    return Sentences(
        name,
        [text for texts in tables.values() for text in texts],
        [canonical(task.metadata.eval_langs[subset][0]) for subset, texts in tables.items() for _ in texts],
        task.metadata.dataset["revision"],
    )
