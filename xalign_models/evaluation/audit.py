"""Contamination: how much of a task's text is also in a model's fit text, language by language."""

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from xalign_models import corpora
from xalign_models.errors import DataError
from xalign_models.models import fitting, metadata
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.specs import AlignmentSpec

SHORTEST = 10
"""Minimum number of letters and digits; shorter texts ("Thank you.") are in every corpus and show nothing."""
GRAM, GRAM_OF_SIGNS = 30, 12
"""Letters and digits of an n-gram; the second number is for scripts whose signs are syllables or words."""
SIGNS = frozenset({"Hans", "Hant", "Jpan", "Hang", "Yiii"})
SHARE = 0.7
"""A text is a near copy if at least this share of its n-grams is in the fit text (the rule of the PaLM report)."""


class _Letters(dict[int, int | None]):
    """A table for ``str.translate`` that keeps letters, their marks and digits; decides once per character."""

    def __missing__(self, code: int) -> int | None:
        return self.setdefault(code, code if unicodedata.category(chr(code))[0] in "LMN" else None)


_LETTERS = _Letters()


@dataclass(frozen=True)
class Overlap:
    """Overlap of a task's text with a fit text in one language.

    Attributes:
        task: Name.
        language: Canonical code; None if unknown: the fit text of all languages is then compared.
        texts: Number of different texts of the task.
        exact: Number of texts that are in the fit text, apart from case, spaces and punctuation.
        near: Number of other texts with at least :data:`SHARE` of their n-grams in the fit text.
    """

    task: str
    language: str | None
    texts: int
    exact: int
    near: int

    @property
    def share(self) -> float:
        """Share of the texts that are in the fit text, exactly or nearly."""
        return (self.exact + self.near) / self.texts if self.texts else 0.0


def normal(text: str) -> str:
    """The letters, marks and digits of a text, case folded (NFKC)."""
    return unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS)


def grams(text: str, language: str | None) -> set[int]:
    """Hashes of the n-grams of a :func:`normal` text; empty if it is too short for one."""
    n = GRAM_OF_SIGNS if language and language.rpartition("-")[2] in SIGNS else GRAM
    return {hash(text[start : start + n]) for start in range(len(text) - n + 1)}


def overlaps(
    task: str, texts: Iterable[tuple[str, str | None]], fit_text: Mapping[str, Collection[str]]
) -> Iterator[Overlap]:
    """Compare a task's text, from :func:`~xalign_models.evaluation.recording.task_texts`, with fit text."""
    by_language: dict[str | None, set[str]] = defaultdict(set)
    for text, language in texts:
        if len(short := normal(text)) >= SHORTEST:
            by_language[language].add(short)
    for language, task_texts in sorted(by_language.items(), key=lambda item: str(item[0])):
        rows = [fit_text.get(language, ())] if language else list(fit_text.values())
        fitted = {normal(text) for side in rows for text in side}
        unmatched = task_texts - fitted
        fit_grams = {gram for text in fitted for gram in grams(text, language)} if unmatched and fitted else set()
        near = sum(
            bool(ngrams := grams(text, language)) and len(ngrams & fit_grams) >= SHARE * len(ngrams)
            for text in unmatched
        )
        yield Overlap(task, language, len(task_texts), len(task_texts) - len(unmatched), near)


def fit_text(spec: AlignmentSpec) -> dict[str, list[str]]:
    """The sentences that an alignment is fitted on, by language, pivot included. Raises DataError without text."""
    text: dict[str, list[str]] = defaultdict(list)
    for language, sides in fitting.fit_texts(spec):
        for code, side in zip((language, fitting.pivot_of(spec))[: len(sides)], sides, strict=True):
            text[code] += side
    return text


def model_text(model: str) -> tuple[dict[str, list[str]], set[str]]:
    """The fit text of a model by language, and the tasks and data sets that it declares as training data.

    Raises:
        ModelError: The model is unknown.
        DataError: The fit text is missing, or its corpora are unknown.
    """
    spec = find_spec(model)
    if spec.alignment is None:
        raise DataError(f"{model} has no fit text; name the text that it was trained on with --corpus.")
    alignment = Recipe(spec).alignment
    assert alignment is not None
    return fit_text(alignment), metadata.trained_on(spec)


def corpus_text(name: str, limit: int | None = None) -> tuple[dict[str, list[str]], set[str]]:
    """A corpus's text by language, with English, and the tasks that contain it. Raises DataError if it is missing."""
    corpus = corpora.load(name)
    text = {language: corpus.texts(language)[:limit] for language in corpus.languages}
    if corpus.kind == "pairs":
        text[corpora.ENGLISH] = sorted({row for code in corpus.languages for row in corpus.pair(code)[1][:limit]})
    return text, set(corpora.trained_tasks(name))
