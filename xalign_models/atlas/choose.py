"""Ranks models for languages and a kind of task, from the table of :mod:`scores <xalign_models.atlas.scores>`.

A model's score is its mean over the languages, and over the kinds if none is asked for. Models are ranked by the
mean of ``cautious``: a fully measured score counts unchanged, and one with little evidence is lowered.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from string import ascii_lowercase

import numpy as np
from langcodes import Language

from xalign_models.atlas.scores import Scores, scores_of
from xalign_models.atlas.table import TASKS, Atlas, PublishedModel
from xalign_models.errors import LanguageError, ModelError
from xalign_models.languages import FLORES_200, canonical, display_name

PERMISSIVE = frozenset("apache-2.0 mit bsd-2-clause bsd-3-clause isc cc0-1.0 unlicense cc-by-4.0".split())
"""Licences that require attribution at most."""
CLOSE = 0.02
"""Models this near to the best count as good as it: two points."""
NEXT = 3
"""Number of measurements that are named as worth making."""


def named(licence: str | None) -> str:
    """A licence's name in the registry's form: ``apache-2.0`` for Apache License 2.0; empty if it is unknown.

    The page does the same.
    """
    words = re.split(r"[\s_,-]+", (licence or "").strip().lower())
    name = "-".join(word for word in words if word not in {"the", "license", "licence", "version"})
    return re.sub(r"^apache-?v?2(\.0)?$", "apache-2.0", "" if name == "not-specified" else name)


@dataclass(frozen=True)
class Wish:
    """Requirements on a model.

    Attributes:
        languages: Canonical codes.
        task: One of ``TASKS``, or ``similarity`` for ``sts``; None for all.
        max_parameters: Upper limit; excludes models of unknown size.
        licence: ``permissive``, or a licence as the registry names it, in any case; None for any.
        max_dimension: Upper limit; excludes models of unknown dimension.
        adjusted: Whether to take the mean effect of training off the scores on tasks that a model was trained on.
    """

    languages: tuple[str, ...]
    task: str | None = None
    max_parameters: int | None = None
    licence: str | None = None
    max_dimension: int | None = None
    adjusted: bool = False

    def __post_init__(self) -> None:
        if not self.languages:
            raise LanguageError("--languages: name at least one language, e.g. sw,te,yo.")
        task = self.task and self.task.lower()
        object.__setattr__(self, "task", "sts" if task == "similarity" else task)
        if self.task is not None and self.task not in TASKS:
            raise ModelError(f"--task {self.task}: choose one of {', '.join(TASKS)}.")
        if self.licence is not None and not named(self.licence):
            raise ModelError(f"--license {self.licence!r} names no licence; give one such as MIT, or permissive.")

    def admits(self, model: PublishedModel) -> bool:
        """Whether the model's size, licence and dimension are known to fit."""
        licence = named(self.licence)
        licences = PERMISSIVE if licence == "permissive" else {licence}
        return (
            (self.max_parameters is None or (model.parameters or np.inf) <= self.max_parameters)
            and (self.max_dimension is None or (model.dimension or np.inf) <= self.max_dimension)
            and (self.licence is None or named(model.licence) in licences)
        )


@dataclass(frozen=True)
class RankedModel:
    """A ranked model.

    Attributes:
        model: Name of the model.
        score: Mean score for these languages.
        low: Lower end of the 90% interval of ``score``.
        high: Upper end.
        cautious: The score less its doubt, by which models are ranked.
        worst: The language with the lowest score, and that score.
        measured: Number of its scores, over tasks and languages, that are measured; the others are predicted.
        trained: Number of those on tasks that it was trained on, as its authors declare.
        about: The model's entry in the registry.
    """

    model: str
    score: float
    low: float
    high: float
    cautious: float
    worst: tuple[str, float]
    measured: int
    trained: int
    about: PublishedModel

    @property
    def memory(self) -> int | None:
        """Bytes of the weights at two bytes a parameter."""
        return self.about.parameters and 2 * self.about.parameters

    @property
    def index(self) -> int | None:
        """Bytes of a million vectors in float32."""
        return self.about.dimension and 4_000_000 * self.about.dimension


@dataclass(frozen=True)
class ModelRanking:
    """Candidates, the best first, and gaps of the evidence.

    Attributes:
        candidates: Ranked models.
        cheapest: The model with fewest parameters within ``CLOSE`` of the first, both less their doubt, or None.
        scores: Number of scores, over tasks and languages, that a model measured whole has.
        coverage: Number of tasks of the kind with scores for each language; 0 is a language predicted from relatives.
        next: Measurements that would tell most about the choice, a sentence each.
        notes: Caveats, a sentence each.
    """

    candidates: tuple[RankedModel, ...]
    cheapest: str | None
    scores: int
    coverage: dict[str, int]
    next: tuple[str, ...]
    notes: tuple[str, ...] = ()


def choose(atlas: Atlas, wish: Wish) -> ModelRanking:
    """Rank the models that meet the requirements.

    Raises:
        LanguageError: The table lacks a language.
        ModelError: No model fits the wish.
    """
    scores = scores_of(atlas)
    if unknown := [code for code in wish.languages if code not in scores.place]:
        raise LanguageError(
            f"The atlas has no {', '.join(map(display_name, unknown))} ({', '.join(unknown)}); leave it out."
        )
    kinds = [wish.task] if wish.task else [*TASKS]
    tasks = np.array([[scores.count(kind, code) for code in wish.languages] for kind in kinds])
    kinds = [kind for kind, count in zip(kinds, tasks.sum(axis=1), strict=True) if count] or kinds
    rows = [[scores.row(kind, code, adjusted=wish.adjusted) for code in wish.languages] for kind in kinds]
    *means, measured, trained = np.moveaxis(np.array(rows), 2, 0)  # each (kinds, languages, models)
    score, low, high, cautious = (part.mean(axis=0) for part in means)
    measured, trained = measured.sum(axis=(0, 1)), trained.sum(axis=(0, 1))
    about = [atlas.models.get(model, PublishedModel(model)) for model in scores.models]
    # To a hundredth of a point, so that the page, which computes the same, ranks alike.
    order = np.argsort(-np.rint(10_000 * cautious.mean(axis=0)), kind="stable").tolist()
    chosen = [row for row in order if wish.admits(about[row])]
    if not chosen:
        licences = Counter(filter(None, (named(model.licence) for model in about)))
        if wish.licence and named(wish.licence) not in {*licences, "permissive"}:
            most = ", ".join(name for name, _ in licences.most_common(8))
            raise ModelError(f"--license {wish.licence}: no model has it; the most common are {most}.")
        raise ModelError("No model with scores for these languages fits; relax --max-params, --license or --dim.")
    candidates = tuple(
        RankedModel(
            scores.models[row],
            float(score[:, row].mean()),
            float(low[:, row].mean()),
            float(high[:, row].mean()),
            float(cautious[:, row].mean()),
            (wish.languages[worst := int(score[:, row].argmin())], float(score[worst, row])),
            int(measured[row]),
            int(trained[row]),
            about[row],
        )
        for row in chosen
    )
    near = [one for one in candidates if one.cautious >= candidates[0].cautious - CLOSE and one.about.parameters]
    coverage = dict(zip(wish.languages, tasks.sum(axis=0).tolist(), strict=True))
    return ModelRanking(
        candidates,
        min(near, key=lambda one: one.about.parameters or 0).model if near else None,
        int(tasks.sum()),
        coverage,
        tuple(_next(scores, wish, kinds, candidates)),
        tuple(_notes(wish, about, coverage)),
    )


def _next(scores: Scores, wish: Wish, kinds: Sequence[str], candidates: Sequence[RankedModel]) -> Iterator[str]:
    """The measurements of models that may be the best, the best first."""
    seen = dict(zip(scores.models, np.any([scores.seen(kind) for kind in kinds], axis=0), strict=True))
    rivals = [one for one in candidates if one.high > max(candidates[0].low, one.low + CLOSE) and seen[one.model]]
    for one in sorted(rivals, key=lambda one: -one.score)[:NEXT]:
        at = scores.models.index(one.model)
        pairs = product(kinds, wish.languages)
        cells = [(kind, code, scores.row(kind, code, adjusted=wish.adjusted)) for kind, code in pairs]
        kind, code, row = max(cells, key=lambda cell: cell[2].high[at] - cell[2].low[at])
        yield f"{one.model} on {kind} in {display_name(code)}, now {100 * row.low[at]:.0f} to {100 * row.high[at]:.0f}"


def _notes(wish: Wish, about: Sequence[PublishedModel], coverage: dict[str, int]) -> Iterator[str]:
    for code, count in coverage.items():
        if not count:
            name = f"{display_name(code)} ({code})"
            task = f"{wish.task} task" if wish.task else "task"
            yield f"A guess: no {task} has {name}; scores are predicted from languages like it."
    unknown = sum(
        (wish.max_parameters is not None and model.parameters is None)
        or (wish.max_dimension is not None and model.dimension is None)
        or (wish.licence is not None and not named(model.licence))
        for model in about
    )
    if unknown:
        yield f"Models left out because the registry does not say whether they fit: {unknown}."


@cache
def language_words(languages: tuple[str, ...]) -> dict[str, str]:
    """Words for languages: codes of two and three letters, with and without script, and names in English and their own.

    Words are as :func:`_folded` writes them. A word without a script means the language's usual one.
    """
    from language_data.names import load_trie
    from language_data.util import data_filename

    words: dict[str, str] = {}
    scripts = defaultdict[str, list[str]](list)
    for code in languages:
        scripts[code[:3]].append(code[3:])

    def add(code: str, *names: str) -> None:
        for name in names if code[3:] in scripts[code[:3]] else ():
            words.setdefault(_folded(name.removesuffix(" (individual language)")), code)

    for letters in product(ascii_lowercase, repeat=2):
        with suppress(LanguageError, LookupError):
            language = Language.get(short := "".join(letters))
            codes = language.to_alpha3(), language.to_alpha3("B")  # other letters end here
            code = canonical(short)
            add(code, short, *codes, language.display_name(), language.autonym())
            for script in scripts[code[:3]]:
                add(code[:3] + script, short + script)
    for code in sorted(languages, key=lambda code: (code not in FLORES_200, code)):
        language = Language.get(code[:3])
        usual = canonical(code[:3])
        add(usual if usual in languages else code, code[:3], language.display_name())
        add(code, code, display_name(code))
    for word in ("zh-tw", "zh-hk", "zh-mo", "sr-me", "cmn", "sh"):
        add(canonical(word), word)
    add(canonical("prs"), "dari")
    for name, code in load_trie(data_filename("trie/en/name_to_language.marisa")).items():
        if (tag := code.decode()).partition("-")[0] in words:
            with suppress(LanguageError):
                add(canonical(tag), name)
    return words


def _folded(text: str) -> str:
    """A word in lower case, without accents and brackets, with hyphens; the page does the same."""
    letters = unicodedata.normalize("NFD", re.sub(r"[()]", "", text).lower())
    word = "".join(letter for letter in letters if unicodedata.category(letter) != "Mn")
    return "-".join(re.split(r"[\s_-]+", word.strip()))


def understood(text: str, languages: Sequence[str]) -> str:
    """The language that a word means: a code or a name in any case; a region or a script that is not known is dropped.

    Raises:
        LanguageError: No language of the table has this code or name.
    """
    with suppress(LanguageError):
        if (code := canonical(text)) in languages:
            return code
    words, word = language_words(tuple(languages)), _folded(text)
    while word not in words and re.match("[a-z]{2,3}-", word):
        word = word.rpartition("-")[0]
    if word in words:
        return words[word]
    raise LanguageError(
        f"“{text.strip()}” is not a language that the atlas knows; name it in English or by its code, e.g. sw."
    )
