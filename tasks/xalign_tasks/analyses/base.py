"""Shared code of the analyses: findings gathered model by model, sentences, results of a task."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import mteb
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.types import PromptType

from xalign_models import assets, corpora
from xalign_models.analysis import Findings, Request
from xalign_models.boards.leaderboard import choose_models
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError, LanguageError, ResultsError
from xalign_models.evaluation.run import make_task
from xalign_models.languages import canonical
from xalign_models.linalg.arrays import Float32, Float64
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.published import published_table
from xalign_models.ranking.ranks import normalise
from xalign_models.results.reading import TaskScores, read_results
from xalign_tasks.sts17 import STS17CrossLingual

LANGUAGES = tuple(canonical(code) for code in "de fr es ru ar zh ja hi tr vi sw te".split())
"""Default languages of analyses on FLORES-200: nine of the largest, and three that models handle less well."""
PUBLISHED = "STS22 sentence1"
"""The text of LiRA's analyses of its theory."""


class Study:
    """Gathers :class:`xalign_models.analysis.Findings`, whose tables may come in several parts."""

    def __init__(self, data: Mapping[str, str] | None = None) -> None:
        self.tables: dict[str, pd.DataFrame] = {}
        self.figures: dict[str, Figure] = {}
        self.notes: list[str] = []
        self.data = dict(data or {})
        self.models: tuple[str, ...] = ()

    def add(self, table: str, rows: pd.DataFrame | Iterable[Mapping[str, Any]], **labels: object) -> pd.DataFrame:
        """Append rows to a table, with constant columns added before their own; returns the labelled rows."""
        own = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows)
        frame = own.assign(**labels)[[*labels, *own.columns]]
        self.tables[table] = pd.concat([self.tables.get(table), frame], ignore_index=True)
        return frame

    def record_task(self, task: str, languages: Collection[str] | None = None) -> None:
        """Note the revision of a task's text. Raises DataError if the task is unknown."""
        self.data[task] = str(make_task(task, languages).metadata.dataset["revision"])

    def record_corpora(self, names: Iterable[str]) -> None:
        """Note the fingerprints of whole corpora used for a fit. Raises DataError if one is missing."""
        self.data |= {name: corpora.load(name).fingerprint() for name in names if name not in self.data}

    def findings(self, *notes: str) -> Findings:
        """Everything gathered; ``notes`` come after the models' notes."""
        return Findings(self.tables, self.figures, (*self.notes, *notes), self.data, self.models)


def encoders(request: Request) -> Iterator[tuple[str, XAlignEncoder]]:
    """Name and encoder of each requested model, one at a time.

    Raises:
        XAlignError: No model is named, or one is unknown or lacks weights or fit text.
    """
    for name in request.named():
        encoder = request.load(name)
        yield str(encoder.mteb_model_meta.name), encoder


def slug(model: str) -> str:
    """A model's name as part of a file name."""
    return model.removeprefix("xalign/").replace("/", "__")


def embed(encoder: XAlignEncoder, texts: Sequence[str], language: str, prompt: str | None = None) -> Float32:
    """Unit rows (n, d), float32, of texts in one language, under the model's default prompt unless one is given."""
    return normalise(encoder.encode_texts(texts, [language] * len(texts), prompt, language))


def encode_side(
    encoder: XAlignEncoder, texts: Sequence[str], languages: Sequence[str], task: TaskMetadata, kind: PromptType
) -> Float32:
    """Vectors (n, d), float32, of a task's queries or documents, as the model encodes them in ``xalign run``."""
    return encoder.encode_texts(texts, languages, encoder.prompt_for(task, kind), task.name, kind.value)


def published_rows(table: str, index: str) -> pd.DataFrame:
    """A paper's table with a row for each value of a column, and a column for each metric."""
    values = published_table(table).pivot_table(index=index, columns="metric", values="value")
    return values.rename_axis(columns=None).reset_index()


def statistics(values: Float64, columns: Sequence[str]) -> dict[str, float]:
    """Statistics of values (n,) by name; NaN, and a count of 0, if there are no values.

    Columns can be ``max``, ``min``, ``mean``, ``std``, ``median``, ``count`` and percentiles such as ``p95``.
    """
    row: dict[str, float] = {}
    for column in columns:
        if column == "count" or not len(values):
            row[column] = len(values) if column == "count" else float("nan")
        elif column in ("max", "min", "mean", "std"):
            row[column] = float(getattr(values, column)())
        else:
            row[column] = float(np.quantile(values, 0.5 if column == "median" else int(column[1:]) / 100))
    return row


def flores(request: Request, languages: tuple[str, ...], rows: int) -> tuple[dict[str, list[str]], Study]:
    """The first sentences of FLORES-200's devtest in English and other languages, by default these languages and rows.

    Returns:
        Language to sentences, row by row, English first; and a study with the text's fingerprint.

    Raises:
        DataError: The text is missing.
        LanguageError: The request names no language besides English.
    """
    others = tuple(code for code in request.languages or languages if code != ENGLISH)
    if not others:
        raise LanguageError("--languages: name at least one besides English, the pivot.")
    corpus = corpora.load("flores")
    sides = corpus.parallel((ENGLISH, *others)).items()
    texts = {code: sentences[: request.rows or rows] for code, sentences in sides}
    return texts, Study({"flores": corpus.fingerprint(tuple(texts))})


@dataclass(frozen=True)
class Sentences:
    """Texts with the canonical codes of their languages, their origin and its revision."""

    name: str
    texts: list[str]
    languages: list[str]
    revision: str


def load_sentences(request: Request, rows: int) -> tuple[Sentences, Study]:
    """STS22's first sentences, as in the paper, if the hub is available, else STS17's; by default at most ``rows``.

    The study has the text's revision and, for STS17, a note on the choice.

    Raises:
        DataError: Neither is available, or it lacks a requested language.
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
    if missing := sorted({*(request.languages or ())} - {*sentences.languages}):
        there = ", ".join(sorted({*sentences.languages}))
        problem = f"{sentences.name} has no {', '.join(missing)}; choose among {there} with --languages."
        raise DataError(" ".join([*notes, problem]))
    texts, languages = zip(*spread(pairs, request.rows or rows), strict=True)
    study = Study({sentences.name: sentences.revision})
    study.notes += notes
    return replace(sentences, texts=list(texts), languages=list(languages)), study


def spread(rows: Sequence[Any], count: int) -> list[Any]:
    """At most ``count`` evenly spaced rows, because rows are sorted by origin."""
    count = min(count, len(rows))
    return [rows[i * len(rows) // count] for i in range(count)]


def sts22_sentences() -> Sentences:
    """The first sentences of STS22, from the hub."""
    task = mteb.get_task("STS22")
    with assets.hub_or_cache(task.metadata.dataset["path"]):
        return _first_sentences(PUBLISHED, task)


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


def scored(request: Request, task: str) -> dict[str, TaskScores]:
    """Scores of a task by model: the requested models, or all that ``xalign run`` has scored.

    Raises:
        ResultsError: A model has no such result; the message has the command for it.
    """
    try:
        tables = read_results(request.results, tasks=(task,)).tables
        if names := choose_models([model for model, _ in tables], request.models or None, task):
            return {name: tables[name, task] for name in names}
    except ResultsError as error:
        reason = str(error)
    else:
        reason = f"There are no results of {task} under {request.results}."
    models = " ".join(f"-m {name}" for name in request.models or ("MODEL",))
    raise ResultsError(f"{reason} Make them with `xalign run {models} -t {task} -o {request.results}`.")
