"""The translations that LiRA's actor picks: whether they are better, and which translator made them."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from xalign_models import corpora, figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.device import pick_device
from xalign_models.errors import DataError
from xalign_models.evaluation.recording import task_texts
from xalign_models.generation.journal import batched
from xalign_models.generation.translators.lookup import Corruption, corrupt
from xalign_models.languages import LanguageText, display_name
from xalign_models.training.lira.candidates import Candidates, CandidateSource
from xalign_models.training.lira.data import with_prompts
from xalign_models.training.lira.module import LiRA
from xalign_models.training.lira.run import open_lira
from xalign_tasks.analyses.base import Study

CORPUS, ROWS, SEED = "flores", 100, 0
LANGUAGES = ("deu-Latn", "spa-Latn", "arb-Arab", "tha-Thai", "ind-Latn", "tur-Latn")
TASKS, BATCH = ("STS17CrossLingual",), 512


def models(request: Request) -> Iterator[tuple[str, str, LiRA]]:
    """Name, title and module of each requested LiRA, one at a time, on the requested device.

    Raises:
        ModelError: No model is named, two have the same title, a model is not a LiRA, or there is no such device.
    """
    device = pick_device(request.device)
    for title, name in request.titled().items():
        yield name, title, open_lira(Path(name)).to(device)


def analyse(request: Request) -> Findings:
    """How often the embedding critic alone picks a FLORES reference, and how its choice correlates with chrF."""
    corpus = corpora.load(CORPUS)
    languages = request.languages or tuple(language for language in LANGUAGES if language in corpus.languages)
    rows = request.rows or ROWS
    study = Study()
    for _, title, module in models(request):
        pairs = {code: corpus.pair(code) for code in languages}
        sides = {code: (texts[:rows], english[:rows]) for code, (texts, english) in pairs.items()}
        for code, (texts, english) in sides.items():
            study.add("corrupted", against_corruptions(module, texts, english), model=title, language=code)
        try:
            graded = {code: against_each_other(module, *side, code) for code, side in sides.items()}
        except DataError as error:
            study.notes.append(f"{title}: its translators are not compared. {error}")
            continue
        for code, frame in graded.items():
            if len(frame):
                study.add("graded", frame, model=title, language=code)
    study.figures["corrupted"] = draw(study.tables["corrupted"])
    study.data[CORPUS] = f"local-{corpus.fingerprint([*languages, ENGLISH])[:12]}"
    return study.findings(
        "Corrupted references: a third of the words dropped, words shuffled, another sentence, an assistant's words "
        "around it. `all` is all of them at once (chance: 20 %), any other row that one alone (chance: 50 %).",
        "The critic is left out: the actor sees the cosine of the two paths alone.",
    )


def against_corruptions(module: LiRA, texts: list[str], english: list[str]) -> pd.DataFrame:
    """Share of texts whose reference has the highest probability, among all corruptions and against each."""
    draw_ = random.Random(SEED)
    others = zip(english, [*english[1:], english[0]], strict=True)
    rows = [[text, *(corrupt(text, how, other, draw_) for how in Corruption)] for text, other in others]
    shape = len(rows), 1 + len(Corruption)
    candidates = Candidates(texts, rows, torch.ones(shape, dtype=torch.bool), torch.zeros(*shape, 3))
    odds = module.actor_choice(candidates).log_probabilities
    shares = {"all": (odds[:, 0] > odds[:, 1:].amax(dim=1)).double().mean()}
    shares |= {str(how): (odds[:, 0] > odds[:, 1 + i]).double().mean() for i, how in enumerate(Corruption)}
    return pd.DataFrame(
        {"against": name, "reference picked": 100 * float(share), "texts": len(rows)} for name, share in shares.items()
    )


def against_each_other(module: LiRA, texts: list[str], english: list[str], language: str) -> pd.DataFrame:
    """The model's own translators: chrF of the chosen translation, the mean and the best; rank correlation.

    Texts with fewer than two translations are left empty.

    Raises:
        DataError: Translations are missing.
    """
    source = CandidateSource(module.source.translations, online=False)
    if source.width < 2:
        return pd.DataFrame()
    candidates = source(texts, [language] * len(texts))
    log_probabilities = module.actor_choice(candidates).log_probabilities
    try:
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise DataError("chrF needs sacrebleu: pip install 'xalign[train]'.") from None
    chrf = CHRF()
    rows = []
    for row in (candidates.mask.sum(dim=1) > 1).nonzero()[:, 0].tolist():
        places = candidates.mask[row].nonzero()[:, 0].tolist()
        quality = np.array([chrf.sentence_score(candidates.texts[row][k], [english[row]]).score for k in places])
        preference = log_probabilities[row, places].numpy()
        varies = np.ptp(quality) > 0 and np.ptp(preference) > 0
        correlation = spearmanr(preference, quality).statistic if varies else np.nan
        rows.append((quality[preference.argmax()], quality.mean(), quality.max(), correlation))
    if not rows:
        return pd.DataFrame()
    means = pd.DataFrame(rows, columns=["chrF chosen", "chrF mean", "chrF best", "rank correlation"]).mean()
    return pd.DataFrame([means]).assign(texts=len(rows), translators=source.width)


def draw(table: pd.DataFrame) -> Figure:
    """Bars: how often the reference is picked, by corruption, a bar per model; means over languages."""
    means = table.pivot_table(index="against", columns="model", values="reference picked", sort=False)
    names = [display_name(language) for language in dict.fromkeys(table["language"])]
    of = f", mean of {len(names)} languages\n" if len(names) > 1 else ": "
    title = f"The reference against corruptions of it{of}{fill(', '.join(names), 90)}"
    figure, axis = figures.plot(title, "corruption", "reference picked, in % of texts", width=8.0)
    width = 0.8 / len(means.columns)
    places = np.arange(len(means))
    for index, model in enumerate(means.columns):
        shift = (index - (len(means.columns) - 1) / 2) * width
        axis.bar(places + shift, means[model], width, label=model, color=figures.look(index)["color"])
    axis.set_xticks(places, means.index)
    chance = np.where(means.index == "all", 100 / (1 + len(Corruption)), 50)
    axis.hlines(chance, places - 0.4, places + 0.4, color="black", linestyle=":", label="chance")
    axis.set_ylim(0, 100)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def analyse_translators(request: Request) -> Findings:
    """Shares of the actor's choices among the texts that have at least two candidates, by translator: LiRA's Figure 10.

    Raises:
        ModelError: No model is named, or a model is not a LiRA.
        DataError: A task's data or translations are missing, or no text has two candidates.
    """
    study = Study()
    for task in request.tasks or TASKS:
        texts = with_prompts(task_texts(task, request.languages))
        texts = [(text, code) for text, code in texts if code not in (ENGLISH, None)]
        study.record_task(task, request.languages)
        for name, title, module in models(request):
            rows = pd.DataFrame(choices(module, texts))
            if rows.empty:
                raise DataError(f"{name}: no text of {task} has two candidates; translate it with two translators.")
            study.add("shares", shares(rows), model=title, task=task)
    study.figures["shares"] = draw_shares(study.tables["shares"])
    return study.findings(
        "Texts with fewer than two different translations are left out: the actor has no choice there.",
        "Among equal translations, the first translator's counts.",
    )


def choices(module: LiRA, texts: Sequence[LanguageText]) -> Iterator[dict[str, object]]:
    """Language and chosen translator of each text that has at least two different candidates."""
    names = [str(one.translator.spec) for one in module.source.translations]
    source = CandidateSource(module.source.translations, module.source.scores, online=False)
    for part in batched(texts, BATCH):
        batch, languages = zip(*part, strict=True)
        candidates = source(batch, languages)
        best = module.actor_choice(candidates).log_probabilities.argmax(dim=1)
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


def draw_shares(table: pd.DataFrame) -> Figure:
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
