"""How often LiRA's actor takes which translator, by task and language: LiRA's Figure 10."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_models.evaluation.recording import task_texts
from xalign_models.evaluation.run import make_task
from xalign_models.languages import LanguageText, display_name
from xalign_models.training.lira.candidates import CandidateSource
from xalign_models.training.lira.data import with_prompts
from xalign_models.training.lira.module import LiRA
from xalign_models.training.lira.run import open_lira
from xalign_tasks.analyses.base import Study

TASKS = ("STS17CrossLingual",)
BATCH = 512


def analyse(request: Request) -> Findings:
    """Shares of the actor's choices among the texts that have at least two candidates.

    Raises:
        ModelError: No model is named, or a model is not a LiRA.
        DataError: A task's data or translations are missing, or no text has two candidates.
    """
    study = Study()
    for task in request.tasks or TASKS:
        texts = with_prompts(task_texts(task, request.languages))
        texts = [(text, code) for text, code in texts if code not in (ENGLISH, None)]
        study.data[task] = str(make_task(task, request.languages).metadata.dataset["revision"])
        for name in request.named():
            module = open_lira(Path(name))
            if request.device:
                module.to(request.device)
            rows = pd.DataFrame(choices(module, texts))
            if rows.empty:
                raise DataError(f"{name}: no text of {task} has two candidates; translate it by two translators.")
            study.add("shares", shares(rows), model=Path(name).resolve().name, task=task)
    study.figures["shares"] = draw(pd.concat(study.tables["shares"], ignore_index=True))
    return study.findings(
        "Texts with fewer than two different translations are left out: the actor has no choice there.",
        "Among equal translations, the first translator's counts.",
    )


def choices(module: LiRA, texts: Sequence[LanguageText]) -> Iterator[dict[str, object]]:
    """Language and chosen translator of each text that has at least two different candidates."""
    names = [str(one.translator.spec) for one in module.source.translations]
    source = CandidateSource(module.source.translations, module.source.scores, online=False)
    for start in range(0, len(texts), BATCH):
        batch, languages = zip(*texts[start : start + BATCH], strict=True)
        candidates = source(batch, languages)
        best = module.actor_choice(batch, candidates).log_probabilities.argmax(dim=1)
        for row, language in enumerate(languages):
            places = candidates.mask[row].nonzero()[:, 0].tolist()
            written = [candidates.texts[row][place] for place in places]
            if len(set(written)) > 1:
                first = places[written.index(candidates.texts[row][int(best[row])])]
                yield {"language": language, "translator": names[first]}


def shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Percentages by translator, a row per language, and the mean of several."""
    counts = pd.crosstab(rows["language"], rows["translator"])
    percent = 100 * counts.div(counts.sum(axis=1), axis=0)
    if len(percent) > 1:
        percent.loc["mean"] = percent.mean()
    tidy = percent.reset_index().melt(id_vars="language", var_name="translator", value_name="taken")
    totals = counts.sum(axis=1).to_dict()
    return tidy.assign(texts=[totals.get(language, len(rows)) for language in tidy["language"]])


@figures.styled()
def draw(table: pd.DataFrame) -> Figure:
    """Stacked bars, one for each model, task and language."""
    keys = ["model", "task", "language"]
    wide = table.pivot_table(index=keys, columns="translator", values="taken", sort=False, fill_value=0.0)
    figure, axis = figures.plot("The translators that the actor takes", "texts, in %", "", width=9.0)
    left, places = np.zeros(len(wide)), range(len(wide))
    for index, translator in enumerate(wide.columns):
        axis.barh(places, wide[translator], left=left, color=figures.look(index)["color"], label=translator)
        left = left + wide[translator].to_numpy()
    names = [(*others, "mean" if code == "mean" else display_name(code)) for *others, code in wide.index]
    axis.set_yticks(places, map(", ".join, names))
    axis.invert_yaxis()
    axis.set_xlim(0, 100)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=1)
    return figure
