"""Scores as a data frame: ``xalign run`` in Python."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from mteb.abstasks import AbsTask
from sentence_transformers import SentenceTransformer

from xalign_models.evaluation.run import Outcome, run
from xalign_models.languages import canonical_codes
from xalign_models.models.api import as_mteb
from xalign_models.models.mteb import register_with_mteb
from xalign_models.store import open_store


def evaluate(
    models: str | Path | SentenceTransformer | Iterable[str | Path | SentenceTransformer],
    tasks: str | AbsTask | Iterable[str | AbsTask],
    *,
    languages: Collection[str] | None = None,
    output: str | Path = ".",
    device: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Score models on tasks; existing results are reused.

    Args:
        models: Names, directories, hub ids, SentenceTransformers or encoders from ``as_mteb``.
        tasks: Names that mteb or a plug-in knows, or tasks.
        languages: Codes, as a list or separated by commas; a subset is scored if all its languages are among them.
            None for all.
        output: Root of the results, which go into its folder ``results``.
        device: cpu, cuda or mps; by default the best available.
        overrides: Fields of the backbones' specs.

    Returns:
        A row per model, task, split and subset: ``model, revision, task, split, subset, languages, score`` (the task's
        main score, a fraction) and ``error``, the reason if a model could not be scored on a task.

    Raises:
        ModelError: A model or the device does not exist.
        DataError: A task does not exist.

    Examples:
        >>> import os
        >>> from xalign_models import evaluate
        >>> os.environ["XALIGN_OWN"] = "parallel"  # a folder with deu.txt, eng.txt and fra.txt
        >>> scores = evaluate("all-MiniLM-L6-v2", "OwnParallel")
        >>> scores.shape  # a row for each ordered pair of the three languages
        (6, 8)
    """
    register_with_mteb()

    def listed(values: Any) -> list[Any]:
        single = isinstance(values, str | SentenceTransformer) or not isinstance(values, Iterable)
        return [values] if single else list(values)

    codes = None if languages is None else canonical_codes(languages)
    ready = [
        os.fspath(model) if isinstance(model, str | Path) else as_mteb(model, device=device) for model in listed(models)
    ]
    outcomes = run(
        ready,
        listed(tasks),
        Path(output),
        languages=codes,
        device=device,
        store=open_store(),
        overrides=dict(overrides or {}),
    )
    rows = [row for outcome in outcomes for row in _rows(outcome)]
    return pd.DataFrame(rows, columns=["model", "revision", "task", "split", "subset", "languages", "score", "error"])


def _rows(outcome: Outcome) -> Iterator[dict[str, Any]]:
    row = {"model": outcome.model, "revision": outcome.revision, "task": outcome.task, "error": outcome.error}
    if outcome.result is None:
        yield {**row, "split": None, "subset": None, "languages": (), "score": None}
        return
    for split, subsets in outcome.result.scores.items():
        for scores in subsets:
            languages = tuple(scores.get("languages", ()))
            score = scores["main_score"]
            yield {**row, "split": split, "subset": scores["hf_subset"], "languages": languages, "score": score}
