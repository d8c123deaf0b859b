"""The actor's candidates: translations and their critic scores."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from xalign_models.corpora import ENGLISH
from xalign_models.errors import ModelError
from xalign_models.generation.critics import Judged, Scores
from xalign_models.generation.translators import Translations, TranslatorSpec
from xalign_models.generation.translators.running import distinct, translate_all
from xalign_models.languages import TaggedText

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidates:
    """K translations for each of n texts.

    Attributes:
        originals: The n texts.
        texts: n lists of K translations.
        mask: (n, K), whether the candidate is a valid translation with readable scores.
        scores: (n, K, 3), scores of the critic; zeros without a critic.
    """

    originals: Sequence[str]
    texts: list[list[str]]
    mask: Tensor
    scores: Tensor

    def rows(self, chosen: Sequence[int]) -> Candidates:
        """The candidates of the texts at the given positions."""
        index = torch.as_tensor(chosen, dtype=torch.long)
        originals, texts = [self.originals[i] for i in chosen], [self.texts[i] for i in chosen]
        return Candidates(originals, texts, self.mask[index], self.scores[index])


def at_k(translators: Sequence[TranslatorSpec], slots: int | None, k: int | None) -> tuple[TranslatorSpec, ...]:
    """The translators of pass@k: the first ``k`` language models, then other translators in order, up to ``slots``.

    Args:
        translators: All translators, the best of each kind first.
        slots: Candidates per text; None is one per translator.
        k: Number of candidates from language models; None uses the translators in order.

    Raises:
        ModelError: ``k`` exceeds the number of language models or of slots.
    """
    slots = len(translators) if slots is None else slots
    if k is None:
        return tuple(translators[:slots])
    models = [spec for spec in translators if spec.is_llm]
    if not 0 <= k <= min(len(models), slots):
        raise ModelError(
            f"pass@{k} needs {k} language models and {k} candidates per text; there are {len(models)} and {slots}."
        )
    return (*models[:k], *[spec for spec in translators if not spec.is_llm][: slots - k])


def translate(texts: Sequence[TaggedText], source: CandidateSource) -> None:
    """Make the missing translations of texts, then their scores, with one model's weights in memory at a time.

    Warns of a translator without a single translation of these texts, such as a file for other texts.
    """
    if source.online:
        pairs = [(text.text, text.lang) for text in texts]
        translate_all(pairs, source.translations)
        for translations in source.translations:
            if pairs and all(translations.get([pair], online=False)[0].problem for pair in pairs):
                name = translations.translator.spec
                logger.warning("%s has no translation for any of the %d texts; it adds no candidate.", name, len(pairs))
        if source.scores is not None:
            judge_all(pairs, source.translations, source.scores)
            source.scores.critic.model.release()


def judge_all(texts: Iterable[tuple[str, str | None]], translations: Sequence[Translations], scores: Scores) -> None:
    """Score the existing translations of a stream of texts; texts with a single translation are skipped.

    Raises:
        DataError: A translation is missing.
    """
    source = CandidateSource(translations, scores, online=False)
    for chunk in distinct(texts):
        source(*zip(*chunk, strict=True), alone=True)


class CandidateSource:
    """Looks up or makes the candidates of texts.

    An English text is its own translation. A candidate is masked if it is empty, endless, untranslated or not English,
    or if its scores are unreadable. A text without a candidate gets itself as the first candidate, which is masked.

    Args:
        translations: Translators with their journals.
        scores: The critic with its journal; None without a critic.
        online: Whether to translate texts that the journals lack.
    """

    def __init__(self, translations: Sequence[Translations], scores: Scores | None = None, *, online: bool) -> None:
        self.translations = tuple(translations)
        self.scores = scores
        self.online = online

    @property
    def width(self) -> int:
        """Candidates per text, at least 1."""
        return max(1, len(self.translations))

    def __call__(self, texts: Sequence[str], languages: Sequence[str | None], *, alone: bool = False) -> Candidates:
        """Candidates of texts in canonical languages (None: unknown); ``alone`` is for the critic's scores.

        Raises:
            DataError: A translation is missing, and the source is not online.
        """
        rows = [[text, *[""] * (self.width - 1)] for text in texts]
        mask = torch.zeros(len(texts), self.width, dtype=torch.bool)
        english = torch.tensor([language == ENGLISH for language in languages]).bool()
        mask[english, 0] = True
        foreign = [i for i, language in enumerate(languages) if language != ENGLISH and texts[i].strip()]
        for column, translator in enumerate(self.translations):
            untranslated = [(texts[i], languages[i]) for i in foreign]
            for row, cleaned in zip(foreign, translator.get(untranslated, online=self.online), strict=True):
                if not cleaned.problem:
                    rows[row][column], mask[row, column] = cleaned.text, True
        scores = torch.zeros(len(texts), self.width, 3)
        contested = mask & (mask.sum(dim=1, keepdim=True) > 1)  # a single candidate is chosen whatever its score
        if self.scores is not None and bool(contested.any()):
            places = contested.nonzero().tolist()
            items = [Judged(languages[i], texts[i], rows[i][k]) for i, k in places]
            judged, readable = self.scores.get(items, alone=alone)
            scores[contested], mask[contested] = judged, readable
        for row in (~mask.any(dim=1)).nonzero()[:, 0].tolist():
            rows[row][0] = texts[row]
        return Candidates(texts, rows, mask, scores)
