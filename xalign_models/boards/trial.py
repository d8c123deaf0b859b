"""A trial: whether alignment helps a model on the user's own text, judged on a half that nothing was fitted on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models import alignments, corpora
from xalign_models.boards.baseline import make_baseline, write_baseline
from xalign_models.corpora.collection import is_collection, read_collection
from xalign_models.corpora.own_text import own_task
from xalign_models.errors import DataError
from xalign_models.evaluation.audit import Overlap, overlaps
from xalign_models.evaluation.run import run
from xalign_models.models import api
from xalign_models.models.labelled import crosses
from xalign_models.models.saving import save
from xalign_models.recommend.judging import LEAST, Recommendation
from xalign_models.recommend.proxies import RETRIEVAL
from xalign_models.results.intervals import over_items
from xalign_models.results.items import Items
from xalign_models.results.languages import language_weights
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import TaskScores, read_results
from xalign_models.store import open_store

SCORED, JUDGING = "own", "judging"
"""Names of the text's halves: the test half, and the half whose judgements choose the method."""
ACROSS, SAME = "across languages", "same language"


def trial_data(folder: Path) -> list[str]:
    """Values of ``--data`` under which :func:`try_text` runs."""
    return [f"{SCORED}=test:{folder}", f"{JUDGING}=fit:{folder}"]


@dataclass(frozen=True)
class Score:
    """Scores on the test half before and after alignment, as fractions, with a 95% interval of the change over items.

    The name is ``across languages``, ``same language`` or a language.
    """

    name: str
    before: float
    after: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Trial:
    """The result of a trial.

    Attributes:
        backbone: The model as the user named it.
        text: The user's folder.
        task: Name of the task that scored it.
        recommendation: The chosen method, with the verdicts on the others.
        scores: Scores across languages, within them, and by language.
        overlap: Overlap of the test half with the half that was fitted on, by language.
        model: The saved model; None if no alignment was chosen.
    """

    backbone: str
    text: Path
    task: str
    recommendation: Recommendation
    scores: tuple[Score, ...]
    overlap: tuple[Overlap, ...]
    model: Path | None

    @property
    def across(self) -> Score:
        """The scores across languages, or the first ones if the test half has none."""
        return next((score for score in self.scores if score.name == ACROSS), self.scores[0])

    @property
    def cost(self) -> float:
        """Fall of retrieval within a language, as a fraction; 0 if it is unknown or may be chance."""
        changes = [(score.after - score.before, score.interval[1]) for score in self.scores if score.name == SAME]
        rows = [row for row in self.recommendation.card if row.kind == RETRIEVAL]
        changes += [(row.price or 0.0, (row.price_interval or (0, 0))[1]) for row in rows]
        return next((-change for change, high in changes[:1] if high < 0), 0.0)

    @property
    def helps(self) -> bool:
        """Whether the chosen alignment raises the score across languages beyond chance."""
        return self.model is not None and self.across.interval[0] > 0


def try_text(
    backbone: str, text: Path, output: Path, *, device: str | None = None, tell: Callable[[str], None] = print
) -> Trial:
    """Choose, fit and score an alignment on own text; ``--data`` is set as :func:`trial_data` says.

    Parallel text chooses by folds of the fit half. A collection chooses by the judgements of the fit half, with maps
    fitted on the documents and the other half's queries; the saved model is fitted on the documents and the fit half's
    queries.

    ``output`` gets the folders ``model`` and ``results``, and the gate's baseline in it; ``tell`` gets a line per step.

    Raises:
        XAlignError: The text is malformed, in one language or too short, or the model is unknown.
    """
    folder, judged = text.resolve(), is_collection(text)
    fit, test = (corpora.load(f"own:{part}:{folder}") for part in ("fit", "test"))
    if len(test.languages) < 2:
        raise DataError(f"{text} has text in {', '.join(test.languages)} only; a trial needs two languages or more.")
    if short := [code for code in fit.languages if len(fit.texts(code)) < LEAST and not judged]:
        raise DataError(
            f"{text}: fewer than {LEAST} rows are too few to judge, and half of these rows have fewer in "
            f"{', '.join(short)}. Give some {2 * LEAST + 15} different rows of each language, or leave it out."
        )
    rows = [(row, code) for code in test.languages for row in test.texts(code)]
    rows = [*read_collection(folder, "test").queries.values()] if judged else rows
    task = own_task(SCORED, folder)
    overlap = tuple(overlaps(task, rows, {code: fit.texts(code) for code in fit.languages}))
    judge = own_task(JUDGING, folder) if judged else None
    if judge and not crosses(judge):
        tell("No query has a relevant document in another language, so the judgements cannot choose a method.")
        judge = None
    tell(f"{folder.name}: {', '.join(test.languages)}; choosing an alignment ...")
    pivot = corpora.ENGLISH if corpora.ENGLISH in fit.languages else fit.languages[0]
    recommendation = api.recommend(
        backbone=backbone,
        corpus=f"own:{'test' if judged else 'fit'}:{folder}",
        pivot=pivot,
        device=device,
        judge=judge,
    )
    tell(recommendation.reason)
    chosen, saved = recommendation.chosen, None
    if chosen.method:
        params: dict[str, Any] = dict(chosen.params)
        if pivot != corpora.ENGLISH and hasattr(alignments.make(chosen.method, **params), "pivot"):
            params["pivot"] = pivot
        model = api.fit(chosen.method, backbone=backbone, corpus=f"own:fit:{folder}", device=device, **params)
        model.xalign_claims = {"card": [row.cells() for row in recommendation.card]}
        saved = output / "model"
        save(model, saved)
    tell(f"scoring on the test half with {task} ...")
    names = [backbone, str(saved)] if saved else [backbone]
    outcomes = list(run(names, [task], output, languages=None, device=device, store=open_store()))
    if failed := [outcome.error for outcome in outcomes if outcome.error]:
        raise DataError(failed[0])
    tables = [read_results(output, tasks=[task]).tables[outcome.model, task] for outcome in outcomes]
    baseline = make_baseline(read_results(output), [outcomes[-1].model], [task])
    write_baseline(output / "results" / "baseline.json", baseline, {})
    return Trial(backbone, text, task, recommendation, _scores(tables[0], tables[-1]), overlap, saved)


def _scores(plain: TaskScores, aligned: TaskScores) -> tuple[Score, ...]:
    """Means across languages, within them and by language, with intervals over items."""
    before, after, items = plain.values(), aligned.values(), Items(MAIN)
    spoken = {subset: len({*codes}) for subset, codes in plain.frame.languages.items()}
    parts = {ACROSS: [s for s in before if spoken[s] > 1], SAME: [s for s in before if spoken[s] == 1]}
    rows: dict[str, Mapping[str, float]] = {
        name: dict.fromkeys(subsets, 1 / len(subsets)) for name, subsets in parts.items() if subsets
    }
    rows |= {name: weights for name, weights in language_weights(before).items() if name != "mean"}
    scores, falls = [], items.falls(aligned, plain, rows)
    for name, weights in rows.items():
        means = [sum(values[subset] * share for subset, share in weights.items()) for values in (before, after)]
        interval = -np.inf, np.inf
        if name in falls:
            total, squares, _, share = map(float, falls[name])
            interval = over_items(-total, squares - total**2 * share, share)
        scores.append(Score(name, means[0], means[1], interval))
    return tuple(scores)
