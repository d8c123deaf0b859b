"""Accuracy of generative models on MGSM and X-CSQA, next to LiRA's Tables 3 and 4."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import file_digest
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import display_name
from xalign_models.published import published_table
from xalign_tasks.analyses.base import Study
from xalign_tasks.reasoning import mgsm, xcsqa
from xalign_tasks.reasoning.solvers import Solver


def analyse_mgsm(request: Request) -> Findings:
    """Share of problems whose answer ends with the right number, by language."""
    return _analyse(request, "MGSM", mgsm, Solver.solve, "lira-table-03.csv")


def analyse_xcsqa(request: Request) -> Findings:
    """Share of questions whose likeliest letter is the right one, by language."""
    return _analyse(request, "X-CSQA", xcsqa, Solver.choose, "lira-table-04.csv")


def _analyse(
    request: Request, task: str, data: Any, answer: Callable[[Solver, list[Any], str], list[bool]], published: str
) -> Findings:
    files: dict[str, Path] = data.languages()
    chosen = {code: path for code, path in files.items() if code in (request.languages or files)}
    if len(chosen) < len({*(request.languages or chosen)}):
        raise LanguageError(f"{task} has {', '.join(files)}; choose among these with --languages.")
    asked = {language: data.read(path)[: request.rows] for language, path in chosen.items()}
    if empty := [str(chosen[language]) for language, rows in asked.items() if not rows]:
        raise DataError(f"{empty[0]} has no questions; fill or remove it.")
    study = Study({f"{task} {language}": f"local-{file_digest(path)[:12]}" for language, path in chosen.items()})
    for name in request.titled().values():
        solver = Solver(name, request.device)
        for language, rows in tqdm(asked.items(), desc=task, unit=" languages", disable=None):
            right = answer(solver, rows, language)
            score = {"accuracy": 100 * sum(right) / len(right), "questions": len(right)}
            study.add("accuracy", [{"language": language, **score}], model=solver.name)
    scored = study.tables["accuracy"]
    study.figures["accuracy"] = draw(scored, task)
    means = scored.groupby("model", sort=False).agg(accuracy=("accuracy", "mean"), questions=("questions", "sum"))
    average = study.add("accuracy", means.reset_index().assign(language="average")[[*scored.columns]])
    paper = published_table(published).rename(columns={"subset": "language", "value": "accuracy"})
    table = pd.concat([scored, average, paper.assign(model=paper["model"] + " [paper]")], ignore_index=True)
    study.add("beside the paper", table.pivot_table("accuracy", "language", "model", sort=False).reset_index())
    return study.findings(
        "A LiRA answers with its English model, which reads the translation that the actor chooses under the question.",
        "The papers' averages are as printed, over their own languages.",
    )


def draw(table: pd.DataFrame, task: str) -> Any:
    """A line of dots per model, over the languages."""
    width = max(6.0, 0.8 * table["language"].nunique() + 2)
    figure, axis = figures.plot(f"{task}: accuracy by language", "", "right answers in %", width=width)
    points = {
        model: (part["language"].map(display_name), part["accuracy"])
        for model, part in table.groupby("model", sort=False)
    }
    figures.draw_lines(axis, points, linestyle="")
    axis.set_ylim(bottom=0)
    axis.tick_params(axis="x", rotation=45)
    axis.legend()
    return figure
