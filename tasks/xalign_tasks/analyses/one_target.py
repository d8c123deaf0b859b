"""LAReQA's limit-to-one-target heat map: mAP by language of the question and of the one answer left in the pool."""

from statistics import fmean

import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.languages import display_name
from xalign_models.published import published_table
from xalign_models.results.reading import TaskScores
from xalign_tasks.analyses.base import Study, scored, slug

TASK = "XQuAD-R"
MEANS = {
    "map": "mAP, all answers in",
    "one_target_same": "mAP, one answer, same language",
    "one_target_other": "mAP, one answer, other language",
}


def analyse(request: Request) -> Findings:
    """Heat maps and their means of models that ``xalign run`` has scored on XQuAD-R; all by default.

    Raises:
        ResultsError: A model has no such result; the message has the command for it.
    """
    study = Study()
    for full_name, table in scored(request, TASK).items():
        name, frame = full_name.removeprefix("xalign/"), heat_map(table)
        means = {label: 100 * fmean(table.values(metric).values()) for metric, label in MEANS.items()}
        study.add("summary", [{"model": name, **means}])
        study.add("heat-map", frame.rename_axis("question language").reset_index().assign(model=name))
        study.figures[slug(name)] = draw(frame, name)
        study.data[f"{TASK} {full_name}"] = str(table.dataset_revision)
    paper = published_table("lsar-figure-3.csv").groupby(["model", "method"], sort=False)
    for (model, method), part in paper:  # means over the diagonal and off it
        means = {MEANS[row.metric]: row.value for row in part.itertuples()}
        study.add("summary", [{"model": f"{model} {method} (paper)", **means}])
    return study.findings(
        "In percent. The pool has the sentences of all languages, less a question's answers in all but the one "
        "language of the column; a row is the language of the questions."
    )


def heat_map(table: TaskScores) -> pd.DataFrame:
    """Percent by language of the questions (rows) and of the answer (columns), as canonical codes."""
    languages = sorted(table.values())
    columns = {answer: table.values(f"one_target_{answer}") for answer in languages}
    return 100 * pd.DataFrame(columns).reindex(languages)


def draw(frame: pd.DataFrame, name: str) -> Figure:
    """The heat map with its numbers."""
    side = 1.8 + 0.48 * len(frame)
    labels = "language of the one answer in the pool", "language of the questions"
    figure, axis = figures.plot(f"{name}: {TASK}", *labels, width=side + 1.2, height=side)
    names = [display_name(code) for code in frame.index]
    image = figures.draw_heat_map(axis, frame.to_numpy(), names, names, (0, 100))
    figure.colorbar(image, ax=axis, label="mAP in %", shrink=0.85)
    return figure
