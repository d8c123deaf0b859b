"""The candidates that the actor chooses among: translations, and what the critic says of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from xalign_models.corpora import ENGLISH
from xalign_models.errors import ModelError
from xalign_models.generation.critics import Judged, Scores
from xalign_models.generation.translators import Translations, TranslatorSpec
from xalign_models.generation.translators.running import distinct


@dataclass(frozen=True)
class Candidates:
    """K translations for each of n texts.

    Attributes:
        texts: n lists of K.
        mask: (n, K), whether it is a translation at all and the critic could judge it.
        scores: (n, K, 3), the critic's; zeros without one.
    """

    texts: list[list[str]]
    mask: Tensor
    scores: Tensor

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self, chosen: Sequence[int]) -> Candidates:
        """Those of some texts."""
        index = torch.as_tensor(chosen, dtype=torch.long)
        return Candidates([self.texts[i] for i in chosen], self.mask[index], self.scores[index])


def at_k(translators: Sequence[TranslatorSpec], slots: int | None, k: int | None) -> tuple[TranslatorSpec, ...]:
    """The translators of pass@k: the first ``k`` language models, then others, in their order, up to ``slots``.

    Args:
        translators: All of them, the best of each sort first.
        slots: How many candidates a text gets; None is as many as there are.
        k: How many of them are by language models; None takes all translators as they come.

    Raises:
        ModelError: There are fewer language models, or more than slots are asked for.
    """
    slots = len(translators) if slots is None else slots
    if k is None:
        return tuple(translators[:slots])
    models = [one for one in translators if one.is_llm]
    if not 0 <= k <= min(len(models), slots):
        raise ModelError(
            f"pass@{k}: there are {len(models)} language models among the translators and {slots} candidates per text."
        )
    return (*models[:k], *[one for one in translators if not one.is_llm][: slots - k])


def judge_all(texts: Iterable[tuple[str, str | None]], translations: Sequence[Translations], scores: Scores) -> None:
    """Score the translations of a stream of texts that are there, wherever there is more than one to choose from.

    Raises:
        DataError: A text has not been translated.
    """
    source = CandidateSource(translations, scores, online=False)
    for chunk in distinct(texts):
        source(*zip(*chunk, strict=True))


class CandidateSource:
    """Gives every text its candidates.

    An English text is its own translation. A candidate that is empty, endless, untranslated or not English is masked;
    so is one whose scores cannot be read. Where none is left, or there are no translators, the text itself stands at
    the first place, masked.

    Args:
        translations: Translators with their journals.
        scores: The critic with its journal; None is no critic.
        online: Whether texts are translated that the journals do not have.
    """

    def __init__(self, translations: Sequence[Translations], scores: Scores | None = None, *, online: bool) -> None:
        self.translations = tuple(translations)
        self.scores = scores
        self.online = online

    @property
    def width(self) -> int:
        """K, at least 1."""
        return max(1, len(self.translations))

    def __call__(self, texts: Sequence[str], languages: Sequence[str | None]) -> Candidates:
        """Candidates of texts in canonical languages (None: not known).

        Raises:
            DataError: A translation is missing, and it is not online.
        """
        rows = [[text, *[""] * (self.width - 1)] for text in texts]
        mask = torch.zeros(len(texts), self.width, dtype=torch.bool)
        english = torch.tensor([language == ENGLISH for language in languages]).bool()
        mask[english, 0] = True
        foreign = [i for i, one in enumerate(languages) if one != ENGLISH and texts[i].strip()]
        for column, one in enumerate(self.translations):
            asked = [(texts[i], languages[i]) for i in foreign]
            for row, cleaned in zip(foreign, one.get(asked, online=self.online), strict=True):
                if not cleaned.problem:
                    rows[row][column], mask[row, column] = cleaned.text, True
        scores = torch.zeros(len(texts), self.width, 3)
        contested = mask & (mask.sum(dim=1, keepdim=True) > 1)  # the only candidate is chosen whatever its scores
        if self.scores is not None and bool(contested.any()):
            places = contested.nonzero().tolist()
            found, readable = self.scores.get([Judged(languages[i], texts[i], rows[i][k]) for i, k in places])
            scores[contested], mask[contested] = found, readable
        for row in (~mask.any(dim=1)).nonzero()[:, 0].tolist():
            rows[row][0] = texts[row]
        return Candidates(rows, mask, scores)
