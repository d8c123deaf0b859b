"""A trial as a page: the answer first, then the scores, what it costs, and what to do next."""

from pathlib import Path
from shlex import quote

from xalign_models.boards.trial import ACROSS, SCORED, Score, Trial
from xalign_models.languages import display_name, is_canonical
from xalign_models.page.writing import filled, table
from xalign_models.paths import atomic_write_text
from xalign_models.plugins import TASKS
from xalign_models.recommend.card import COLUMNS
from xalign_models.tables.escaping import escape

NAMES = {"precision_at_1": "P@1", "ndcg_at_10": "nDCG@10"}


def answer(trial: Trial) -> str:
    """The trial's result in a sentence."""
    across, name, label = trial.across, _metric(trial), trial.recommendation.chosen.label
    where = ACROSS if across.name == ACROSS else "within a language"
    if trial.model is None:
        return f"No alignment helps here: the model keeps its {name} of {100 * across.before:.1f} {where}."
    change = f"{name} {where} from {100 * across.before:.1f} to {100 * across.after:.1f}"
    if trial.helps and trial.cost:
        price = f"{100 * trial.cost:.1f} points within a language"
        return f"Alignment helps at a price: {label} raises {change}, and loses {price}."
    opening = f"Alignment helps: {label} raises" if trial.helps else f"The gain may be chance: {label} moves"
    return f"{opening} {change}, on text that it was not fitted on."


def _metric(trial: Trial) -> str:
    metric = str(TASKS.facts(trial.task)["score"])
    return NAMES.get(metric, metric)


def write_trial(trial: Trial, path: Path) -> None:
    """Write a trial as a single page that opens from a file and loads nothing."""
    chosen, languages = trial.recommendation, sorted({overlap.language or "" for overlap in trial.overlap})
    verdicts = [
        [one.candidate.label, f"{one.score:.3f}", f"{one.p_gain:.1g}", one.error or ", ".join(one.losses)]
        for one in chosen.verdicts
    ]
    shared, texts = sum(each.exact + each.near for each in trial.overlap), sum(each.texts for each in trial.overlap)
    model, again = str(trial.model or trial.backbone), f"{SCORED}=test:{trial.text}"
    words = {
        "title": f"{trial.backbone} on {trial.text.resolve().name}",
        "answer": answer(trial),
        "metric": _metric(trial),
        "reason": chosen.reason,
        "overlap": f"{shared} of {texts}",
        "model": repr(model),
        "facts": f"{trial.task}: {', '.join(map(display_name, languages))}",
        "command": f"xalign try {quote(trial.backbone)} {quote(str(trial.text))} -o {quote(str(path.parent))}",
        "run": f"xalign run -m {quote(model)} -t {trial.task} --data {quote(again)} -o new",
        "gate": f"xalign gate -o new --against {quote(str(path.parent / 'results' / 'baseline.json'))}",
    }
    parts = {name: escape(text, "html") for name, text in words.items()}
    parts["chart"] = "".join(map(_bar, trial.scores))
    card = [[*row.cells().values()] for row in chosen.card]
    parts["card"] = table(COLUMNS, card, "wide") if card else "<p>None.</p>"
    parts["verdicts"] = table(["method", chosen.measure, "p", "worse in"], verdicts, "wide")
    atomic_write_text(path, filled("trial.html", parts))


def _bar(score: Score) -> str:
    """A line of the chart: the name, a track from the score before to the score after, and the numbers."""
    low, high = sorted(100 * max(0.0, value) for value in (score.before, score.after))
    kind = "up" if score.interval[0] > 0 else "down" if score.interval[1] < 0 else "chance"
    name = display_name(score.name) if is_canonical(score.name) else score.name
    change = f"{100 * (score.after - score.before):+z.1f}"
    interval = f"[{100 * score.interval[0]:+z.1f}, {100 * score.interval[1]:+z.1f}]"
    return (
        f'<tr class="{kind}"><th scope="row">{escape(name, "html")}</th><td class="track"><i style="left:{low:.1f}%;'
        f'width:{max(0.6, high - low):.1f}%"></i><b style="left:{100 * score.after:.1f}%"></b></td><td>'
        f"{100 * score.before:.1f}</td><td><strong>{100 * score.after:.1f}</strong></td>"
        f"<td>{change} <small>{interval}</small></td></tr>"
    )
