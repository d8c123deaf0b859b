"""Labelled tasks as judges of alignments, in place of proxies."""

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models.errors import DataError, LanguageError
from xalign_models.models.mteb import check_task, get_task
from xalign_models.plugins import CORPORA, TASKS, Part
from xalign_models.recommend.candidates import Candidate
from xalign_models.recommend.judging import Labelled
from xalign_models.recommend.proxies import CLASSIFICATION, RETRIEVAL, SIMILARITY, Scored
from xalign_models.results.items import load_items, outcomes_of

USES = {
    "BitextMining": RETRIEVAL, "Retrieval": RETRIEVAL, "Reranking": RETRIEVAL, "STS": SIMILARITY,
    "Classification": CLASSIFICATION, "PairClassification": CLASSIFICATION,
}  # fmt: skip
"""Kind of use by mteb's type of task."""


def is_task(name: str) -> bool:
    """Whether a name given to ``--judge`` is a task rather than a corpus.

    Raises:
        DataError: The task is mteb's own, so it keeps no outcomes of single items.
    """
    try:
        check_task(name)
    except DataError:
        return False
    if name not in {*CORPORA, *TASKS}:
        raise DataError(
            f"--judge {name}: mteb's own tasks keep no outcomes to test; `xalign tasks` lists those that do."
        )
    return name not in CORPORA


def _opened(name: str) -> Any:
    task: Any = get_task(Part(name))
    getattr(task, "identify", lambda: None)()  # own text has subsets once it is open
    return task


def crosses(name: str) -> bool:
    """Whether a task has a subset that lists more than one language.

    Raises:
        DataError: The task is unknown, or its text is missing.
    """
    return any(len({*codes}) > 1 for codes in _opened(name).metadata.hf_subsets_to_langscripts.values())


def labelled(name: str, languages: Collection[str], encoder: Callable[[Candidate], Any]) -> Labelled:
    """A task's subsets in some languages, scored item by item with the encoder of each candidate.

    A subset is across languages if it lists more than one. A subset that lists a single language also counts if it
    needs text in another language.

    Raises:
        DataError: The task is unknown, of another type, or keeps no outcomes of single items.
        LanguageError: No subset is across the languages.
    """
    task = _opened(name)
    if task.metadata.type not in USES:
        raise DataError(f"--judge {name}: tasks of type {task.metadata.type} cannot judge; use {', '.join(USES)}.")
    spoken = {
        subset: {*getattr(task, "needs", ()), *codes}
        for subset, codes in task.metadata.hf_subsets_to_langscripts.items()
    }
    subsets = [subset for subset in task.hf_subsets if spoken[subset] <= {*languages}]
    listed = {subset: [*codes] for subset, codes in task.metadata.eval_langs.items()} if subsets else {}
    within = {
        subset for subset in subsets if len({*(listed[subset] if len(listed[subset]) > 1 else spoken[subset])}) == 1
    }
    if not set(subsets) - within:
        needed = ", ".join(sorted(set.union(*spoken.values())))
        spoken_here = ", ".join(sorted(languages))
        raise LanguageError(f"--judge {name} has no part across {spoken_here}; its languages are {needed}.")

    def score(candidate: Candidate) -> tuple[Scored, Scored]:
        import mteb

        task.hf_subsets = list(subsets)
        with tempfile.TemporaryDirectory() as folder:
            quiet = {"show_progress_bar": False, "co2_tracker": False}
            result = mteb.evaluate(encoder(candidate), task, cache=None, prediction_folder=folder, **quiet)
            items = load_items(Path(folder) / f"{name}.npz")
        parts: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        for row in (row for rows in result.task_results[0].scores.values() for row in rows):
            subset = row["hf_subset"]
            outcomes = outcomes_of(items[subset], row["main_score"]) if subset in items else None
            if outcomes is None:
                raise DataError(f"--judge {name}: the task keeps no outcomes of single items, so no test is possible.")
            parts[subset in within][subset] = np.arange(len(outcomes), dtype=np.uint32), outcomes.astype(float)
        return parts

    return Labelled(USES[task.metadata.type], name, score)
