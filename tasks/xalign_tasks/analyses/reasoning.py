"""Accuracy of generative models on MGSM and X-CSQA, next to LiRA's Tables 3 and 4."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import file_digest
from xalign_models.errors import LanguageError
from xalign_models.languages import display_name
from xalign_models.published import published_table
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
    wanted = files if request.languages is None else request.languages
    chosen = {language: path for language, path in files.items() if language in wanted}
    if not chosen:
        raise LanguageError(f"{task} has {', '.join(files)}; choose among these with --languages.")
    rows = []
    for name in request.named():
        solver = Solver(name, request.device)
        for language, path in tqdm(chosen.items(), desc=task, unit=" languages", disable=None):
            right = answer(solver, data.read(path)[: request.rows], language)
            score = {"accuracy": 100 * sum(right) / len(right), "questions": len(right)}
            rows.append({"model": solver.name, "language": language, **score})
    scored = pd.DataFrame(rows)
    means = scored.groupby("model", sort=False).agg(accuracy=("accuracy", "mean"), questions=("questions", "sum"))
    scored = pd.concat([scored, means.reset_index().assign(language="average")], ignore_index=True)
    paper = published_table(published)
    paper = paper.assign(model=paper["model"] + " [paper]", language=paper["subset"], accuracy=paper["value"])
    table = pd.concat([scored, paper[["model", "language", "accuracy"]]], ignore_index=True)
    wide = table.pivot_table(index="language", columns="model", values="accuracy", sort=False).reset_index()
    notes = (
        "A LiRA answers with its English model, which reads the translation that the actor chooses under the question.",
        "The papers' averages are as printed, over their own languages.",
    )
    return Findings(
        {"accuracy": scored, "beside the paper": wide},
        {"accuracy": draw(scored, task)},
        notes,
        {f"{task} {language}": f"local-{file_digest(path)[:12]}" for language, path in chosen.items()},
    )


@figures.styled()
def draw(table: pd.DataFrame, task: str) -> Any:
    """A line of dots per model over the languages."""
    codes = [code for code in dict.fromkeys(table["language"]) if code != "average"]
    figure, ((axis,),) = figures.canvas(width=max(6.0, 0.8 * len(codes) + 2))
    points = {
        model: ([display_name(code) for code in part["language"]], part["accuracy"])
        for model, part in table[table["language"] != "average"].groupby("model", sort=False)
    }
    figures.draw_lines(axis, points, linestyle="")
    axis.set_ylim(bottom=0)
    axis.tick_params(axis="x", rotation=45)
    axis.legend()
    figures.describe(axis, f"{task}: accuracy by language", "", "right answers in %")
    return figure
