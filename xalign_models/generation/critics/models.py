"""Language models as critics, by the scores they write or expect to write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import torch

from xalign_models.errors import ModelError
from xalign_models.generation.critics.base import Critic, Judged
from xalign_models.generation.critics.parsing import KEYS, parse_scores
from xalign_models.generation.language_model import LanguageModel
from xalign_models.languages import display_name
from xalign_models.specs import Dtype, digest


class How(StrEnum):
    """How a language model gives its scores."""

    GENERATE = "generate"
    """It writes JSON."""
    EXPECTED_SCORE = "expected_score"
    """The mean of the digits 1 to 9 by their probability at each key: for models too small to write JSON reliably.

    A 10 starts with a 1 and counts as 1: a single token does not tell more.
    """


REQUEST = """Judge an English translation. Give three whole numbers from 1 (worst) to 10 (best):
"semantic": does it say what the original says, no more and no less?
"emotional": does it carry the feeling of the original?
"pragmatic": would its tone and style suit the situation of the original?
Answer with one JSON object with exactly these three keys and nothing else.

Original ({language}): {text}
Translation (English): {translation}
"""
ANSWER = "JSON:"
"""Prefix of the answer of a model that only continues texts."""
MOST_TOKENS = 48
DIGITS = tuple("123456789")


@dataclass(frozen=True)
class CriticSpec:
    """A critic as data, written ``generate:MODEL`` or ``expected_score:MODEL``.

    Attributes:
        how: How the model gives scores.
        model: Asset, directory or hub id of a causal language model.
    """

    how: How
    model: str

    @classmethod
    def parse(cls, text: str) -> CriticSpec:
        """The inverse of ``str``.

        Raises:
            ModelError: The text has another form.
        """
        how, separator, model = text.partition(":")
        if not separator or not model or how not in tuple(How):
            raise ModelError(f"critic {text!r}: write {' or '.join(f'{how}:MODEL' for how in How)}, or none.")
        return cls(How(how), model)

    def __str__(self) -> str:
        return f"{self.how}:{self.model}"


def make_critic(spec: CriticSpec | str, device: str | None = None, dtype: Dtype | None = None) -> Critic:
    """The critic of a spec; its weights are loaded when it first judges.

    Raises:
        ModelError: The spec cannot be read.
    """
    spec = CriticSpec.parse(spec) if isinstance(spec, str) else spec
    return (GeneratingCritic if spec.how is How.GENERATE else ExpectingCritic)(spec, device, dtype)


class _LanguageModelCritic(Critic):
    def __init__(self, spec: CriticSpec, device: str | None = None, dtype: Dtype | None = None) -> None:
        self.spec = spec
        self.label = f"{spec.how}-{spec.model.rstrip('/').rsplit('/', 1)[-1]}"
        self.model = LanguageModel(spec.model, device=device, dtype=dtype)

    @cached_property
    def identity(self) -> str:
        """Digest of weights and prompt."""
        return digest("critic", self.spec.how, self.model.resolved.fingerprint, REQUEST, ANSWER)[:16]

    def prompt(self, item: Judged) -> str:
        """The prompt, up to the start of the JSON."""
        name = "unknown language" if item.language is None else display_name(item.language)
        request = REQUEST.format(language=name, text=item.text, translation=item.translation)
        return self.model.chat(request) if self.model.tokenizer.chat_template else request + ANSWER


class GeneratingCritic(_LanguageModelCritic):
    """Reads the JSON that the model writes."""

    def judge(self, items: Sequence[Judged]) -> list[tuple[float, float, float] | None]:
        """Scores from one completion per translation."""
        written = self.model.write([self.prompt(item) for item in items], max_new_tokens=MOST_TOKENS, stop=("}",))
        return [parse_scores(answer.text + ("}" if answer.finished else "")) for answer in written]


class ExpectingCritic(_LanguageModelCritic):
    """Averages the digits that the model expects at each key, in one short forward pass per key."""

    def judge(self, items: Sequence[Judged]) -> list[tuple[float, float, float] | None]:
        """Means between 1 and 9; None where the probabilities are not finite."""
        endings = [f' {{"{key}": ' for key in KEYS]
        probabilities = self.model.next_after([self.prompt(item) for item in items], endings, DIGITS)
        scores = torch.stack([row @ torch.arange(1.0, 10.0) for row in probabilities], dim=1)
        return [tuple(row.tolist()) if bool(row.isfinite().all()) else None for row in scores]
