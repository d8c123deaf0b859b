"""The isomorphism paper's matrices: P@k of every pair before and after a rotation, next to the published values."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import permutations, product
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.errors import LanguageError, ResultsError
from xalign_models.languages import canonical, display_name, to_iso639_1
from xalign_models.models.names import locate
from xalign_models.published import published_table
from xalign_models.results.reading import TaskScores, read_results
from xalign_tasks.analyses.base import Study, slug
from xalign_tasks.isomorphism import STAGES
from xalign_tasks.precision import pair_name

TASK, RAW = "IsomorphismStudy", "IsomorphismStudyRaw"
SEVEN = tuple(canonical(code) for code in "en ar zh ja ru de es".split())
"""The paper's languages, in its order."""
KS = (5, 1, 10)
MODES = ("self-prompts", "en-prompts", "last-token")
PAPER_TABLES = (1, 2, 4, 5, 6, 7, 8, 9, 10)
PAPER_SENTENCES = 2009
ALL = "*"

Scores = dict[tuple[str, str, str], float]
"""Scores by query language, searched language and metric; ``*`` is the mean over a side's languages."""


def analyse(request: Request) -> Findings:
    """Matrices, means and heat maps of models that ``xalign run`` has scored on IsomorphismStudy in the languages.

    The default is all such models.

    Raises:
        LanguageError: Fewer than two languages.
        ResultsError: A model lacks results in the languages; the message has the command for them.
        ModelError: A model is unknown.
    """
    languages = request.languages or SEVEN
    if len(languages) < 2:
        raise LanguageError(f"--languages {languages[0]}: the study compares pairs of languages; name at least two.")
    results: Mapping[tuple[str, str], TaskScores] = {}
    with suppress(ResultsError):  # no results at all: the message below has the command for them
        results = read_results(request.results, tasks=(TASK, RAW)).tables
    scored = sorted({model for model, task in results if task == TASK})
    having = [model for model in scored if _has(results, (model, TASK), languages)]
    names = {_name(model, scored): model for model in request.models or having}
    lacking = [model for name, model in names.items() if name not in having]
    if lacking or not names:
        models = " ".join(f"-m {model}" for model in lacking or ["MODEL"])
        raise ResultsError(
            f"There are no results of {TASK} for {', '.join(lacking) or 'any model'} under {request.results}; make "
            f"them with `xalign run {models} -t {TASK} --languages {','.join(languages)} -o {request.results}`."
        )
    tables = {name.removeprefix("xalign/"): results[name, TASK] for name in names}
    measured = {label: _scores(table, languages) for label, table in tables.items()}
    printed = _published() if set(languages) == set(SEVEN) else {}
    both = [name for name in names if _has(results, (name, RAW), languages)]
    raw = {name.removeprefix("xalign/"): _scores(results[name, RAW], languages) for name in both}
    modes = set(map(_mode, names))
    shown = measured | {label: scores for label, scores in printed.items() if _mode(label) in modes}
    study = Study({f"{TASK} {label}": str(table.dataset_revision) for label, table in tables.items()})
    for length, models_of in (("unit length", measured), ("own length", raw), ("", printed)):
        for label, scores in models_of.items():
            study.add("summary", _gains(scores), model=label, **{"rows of the fit": length})
    for (label, scores), k in product(shown.items(), KS):
        if (ALL, ALL, _metric("after", k)) in scores:
            study.add(f"precision-at-{k}", _matrix(scores, k, languages), model=label)
    study.add("directions", _directions(shown, languages))
    study.figures = {slug(label): _heat_maps(label, scores, languages) for label, scores in measured.items()}
    left_out = [] if request.models else [name for name in scored if name not in names]
    return study.findings(*_notes(tables, raw, printed, left_out))


def _name(model: str, scored: Sequence[str]) -> str:
    return next((name for name in (model, f"xalign/{model}") if name in scored), "") or locate(model).name


def _has(results: Mapping[tuple[str, str], TaskScores], key: tuple[str, str], languages: Sequence[str]) -> bool:
    return key in results and {pair_name(*pair) for pair in permutations(languages, 2)} <= set(results[key].values())


def _metric(stage: str, k: int) -> str:
    return f"{stage}_precision_at_{k}"


def _scores(table: TaskScores, languages: Sequence[str]) -> Scores:
    cells: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for metric in (_metric(stage, k) for k in KS for stage in STAGES):
        values = table.values(metric)
        for query, searched in permutations(languages, 2):
            for key in product((query, ALL), (searched, ALL)):
                cells[*key, metric].append(values[pair_name(query, searched)])
    return {key: fmean(of_key) for key, of_key in cells.items()}


def _published() -> dict[str, Scores]:
    """The paper's matrices with their means as printed, by model and mode."""
    by_model: dict[str, Scores] = {}
    for number in PAPER_TABLES:
        for row in published_table(f"isomorphism-table-{number:02}.csv").to_dict("records"):
            scores = by_model.setdefault(f"{row['model']} {row['mode']} (paper)", {})
            query, searched = row["subset"].split("->")
            scores[query, searched, f"{row['projection']}_{row['metric']}"] = row["value"]
    return by_model


def _mode(name: str) -> str:
    return next((mode for mode in MODES if mode in name), "none")


def _gains(scores: Scores) -> pd.DataFrame:
    row: dict[str, float] = {}
    for k in sorted(KS):
        before, after = (scores.get((ALL, ALL, _metric(stage, k)), np.nan) for stage in STAGES)
        row |= {f"P@{k} before": before, f"P@{k} after": after, f"P@{k} gain": after - before}
    return pd.DataFrame([row]).round(4)


def _matrix(scores: Scores, k: int, languages: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows of a matrix in the paper's form."""
    head = {**_codes(languages), ALL: "Into X"}
    for query, name in {**head, ALL: "From X"}.items():
        yield {f"P@{k}": name} | {head[searched]: _cell(scores, query, searched, k) for searched in head}


def _cell(scores: Scores, query: str, searched: str, k: int) -> str:
    if query == searched != ALL:
        return "- / -"
    return " / ".join(f"{scores[query, searched, _metric(stage, k)]:.2f}" for stage in STAGES)


def _directions(models: Mapping[str, Scores], languages: Sequence[str]) -> pd.DataFrame:
    """P@5 of each direction, with models side by side."""
    pairs = list(permutations(languages, 2))
    table = pd.DataFrame([map(display_name, pair) for pair in pairs], columns=["from", "to"])
    for (label, scores), stage in product(models.items(), STAGES):
        table[f"{label} {stage}"] = [round(scores[*pair, _metric(stage, KS[0])], 4) for pair in pairs]
    return table


def _codes(languages: Sequence[str]) -> dict[str, str]:
    """Short codes such as ``DE``; canonical codes if a short code is missing or shared."""
    short = {code: (to_iso639_1(code) or "").upper() for code in languages}
    return short if len(set(short.values()) - {""}) == len(short) else {code: code for code in languages}


def _heat_maps(label: str, scores: Scores, languages: Sequence[str]) -> Figure:
    legible = len(languages) <= 12  # otherwise names and numbers do not fit
    names = [display_name(code) for code in languages] if legible else list(_codes(languages).values())
    side = max(4.0, 0.53 * len(languages)) if legible else max(6.0, 0.12 * len(languages))
    ticks: dict[str, Any] = {"fontsize": 9} if legible else {"fontsize": 5, "rotation": 90}
    figure, axes = figures.canvas(1, 2, width=2 * side + 1.2, height=side + 0.9, sharey=True)
    figure.suptitle(label)
    for axis, stage in zip(axes[0], STAGES, strict=True):
        metric = _metric(stage, KS[0])
        values = np.array([[scores.get((a, b, metric), np.nan) for b in languages] for a in languages])
        image = figures.draw_heat_map(axis, values, names, names, (0, 1), ".2f" if legible else "", **ticks)
        title = f"{stage} the rotation, mean {scores[ALL, ALL, metric]:.2f}"
        figures.describe(axis, title, "language searched", "language of the queries" if stage == "before" else "")
    figure.colorbar(image, ax=axes, label=f"precision at {KS[0]} (share of queries)", shrink=0.85)
    return figure


def _notes(
    tables: Mapping[str, TaskScores], raw: Mapping[str, Scores], printed: Mapping[str, Scores], left_out: Sequence[str]
) -> tuple[str, ...]:
    sentences = sorted({int(value) for table in tables.values() for value in table.values("sentences").values()})
    notes = [
        "A cell is before / after the rotation. Its row is the language of the queries, its column the one searched, "
        "as the paper's text reads its tables. The labels are as printed there: 'Into X' is the mean of a row, 'From "
        "X' of a column; the leaderboard means by Into X the pairs that end in X, here a column.",
        f"Ranked: {' or '.join(f'{n:,}' for n in sentences)} sentences; in the paper {PAPER_SENTENCES:,}.",
    ]
    if len({table.dataset_revision for table in tables.values()}) > 1:
        notes.append("The models were scored on different revisions of the text, so they do not compare.")
    if len(raw) < len(tables):
        notes.append(f"`xalign run -t {RAW}` fits on rows of their own lengths; the summary then has both.")
    if not printed:
        notes.append("The published matrices are of the paper's seven languages.")
    if left_out:
        names = ", ".join(name.removeprefix("xalign/") for name in left_out)
        notes.append(f"Left out, not scored in all of these languages: {names}.")
    return tuple(notes)
