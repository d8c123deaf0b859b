"""Critics: language models that judge translations, with a journal of their scores."""

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from xalign_models.errors import ModelError
from xalign_models.files import is_number
from xalign_models.generation.journal import Journal, batched, default_folder
from xalign_models.generation.language_model import LanguageModel
from xalign_models.generation.served import ServedModel, open_writer, raise_first, short_name
from xalign_models.languages import display_name
from xalign_models.specs import Dtype, digest

KEYS = ("semantic", "emotional", "pragmatic")
FIELDS = ("lang", "text", "translation")
LEAST, MOST = 1.0, 10.0
REQUEST = """Judge an English translation. Give three whole numbers from 1 (worst) to 10 (best):
"semantic": does it say what the original says, no more and no less?
"emotional": does it carry the feeling of the original?
"pragmatic": would its tone and style suit the situation of the original?
Answer with one JSON object with exactly these three keys and nothing else.

Original ({language}): {text}
Translation (English): {translation}
"""
ANSWER = "JSON:"
"""Prefix of the answer for a model without a chat template."""
MOST_TOKENS = 48
DIGITS = tuple("123456789")


class Judged(NamedTuple):
    """A translation to judge."""

    language: str | None
    text: str
    translation: str


class How(StrEnum):
    """How a language model gives its scores."""

    GENERATE = "generate"
    """The model writes JSON."""
    EXPECTED_SCORE = "expected_score"
    """The mean of the digits 1 to 9 by their probability at each key, for models too small to write JSON reliably.

    A 10 starts with a 1 and counts as 1, because a single token cannot tell them apart.
    """


def parse_critic(spec: str) -> tuple[How, str]:
    """How a critic gives its scores, and its model, from ``generate:MODEL`` or ``expected_score:MODEL``.

    Raises:
        ModelError: The spec has another form.
    """
    how, _, model = spec.partition(":")
    if not model or how not in tuple(How):
        raise ModelError(f"critic {spec!r}: write {' or '.join(f'{how}:MODEL' for how in How)}.")
    return How(how), model


class Critic:
    """Scores translations from 1 to 10 for meaning, mood and style; it is never trained.

    Args:
        spec: ``generate:MODEL`` or ``expected_score:MODEL``; MODEL is an asset, directory or hub id of a causal
            language model, or ``openai:MODEL@http://host:8000/v1`` for ``generate``.
        device: cpu, cuda or mps; by default the best available.
        dtype: Type of weights and activations; None is the device's default.

    Attributes:
        label: Name in file names.

    Raises:
        ModelError: The spec cannot be read.
    """

    def __init__(self, spec: str, device: str | None = None, dtype: Dtype | None = None) -> None:
        self.how, model = parse_critic(spec)
        self.label = f"{self.how}-{short_name(model)}"
        self.model = open_writer(model, device, dtype)
        if self.how is How.EXPECTED_SCORE and isinstance(self.model, ServedModel):
            raise ModelError(
                f"critic {spec}: a server does not give the digits' probabilities; write generate:{model}."
            )

    @cached_property
    def identity(self) -> str:
        """Hex digits that identify the weights and the prompt, on which scores depend; not the dtype."""
        return digest("critic", self.how, self.model.fingerprint, REQUEST, ANSWER)[:16]

    def prompt(self, item: Judged) -> str:
        """The prompt, up to the start of the JSON."""
        name = "unknown language" if item.language is None else display_name(item.language)
        request = REQUEST.format(language=name, text=item.text, translation=item.translation)
        return self.model.chat(request) if self.model.chats else request + ANSWER

    def judge(self, items: Sequence[Judged]) -> list[tuple[float, float, float] | ModelError | None]:
        """Semantic, emotional and pragmatic score of each translation.

        None if the written answer is unreadable or the probabilities of the digits are not finite; an error if a served
        model did not answer.
        """
        prompts = [self.prompt(item) for item in items]
        if self.how is How.GENERATE:
            written = self.model.write(prompts, max_new_tokens=MOST_TOKENS, stop=("}",))
            return [
                answer if isinstance(answer, ModelError) else parse_scores(answer.text + "}" * answer.finished)
                for answer in written
            ]
        assert isinstance(self.model, LanguageModel)
        probabilities = self.model.next_after(prompts, [f' {{"{key}": ' for key in KEYS], DIGITS)
        scores = torch.stack([row @ torch.arange(1.0, 10.0) for row in probabilities], dim=1)
        return [tuple(row.tolist()) if bool(row.isfinite().all()) else None for row in scores]


class Scores:
    """A critic with the journal of its scores; each translation is judged once.

    Args:
        critic: Judges translations that are not in the journal.
        folder: Folder of journals; by default in the cache.
        batch_size: Translations judged together; a crash loses at most one batch.
    """

    def __init__(self, critic: Critic, folder: Path | None = None, batch_size: int = 16) -> None:
        self.critic, self.batch_size = critic, batch_size
        self._folder = folder or default_folder()

    @cached_property
    def _journal(self) -> Journal:
        return Journal(self._folder / f"{self.critic.label}-{self.critic.identity}.jsonl", FIELDS)

    def get(self, items: Sequence[Judged], *, alone: bool = False) -> tuple[Tensor, Tensor]:
        """Scores (n, 3), float32, zero if the critic's answer is unreadable; and (n,) whether it is readable.

        ``alone`` waits for other judging processes, as for :meth:`Translations.fill`.
        """
        journal = self._journal
        if alone:
            with journal.turn(items):
                return self.get(items)
        journal.refresh()
        missing = [item for item in dict.fromkeys(items) if tuple(item) not in journal]
        missing.sort(key=lambda item: -len(item.text) - len(item.translation))
        for batch in batched(missing, self.batch_size):
            judged = self.critic.judge(batch)
            journal.append(
                [
                    {**dict(zip(FIELDS, item, strict=True)), "scores": scores and dict(zip(KEYS, scores, strict=True))}
                    for item, scores in zip(batch, judged, strict=True)
                    if not isinstance(scores, ModelError)
                ]
            )
            raise_first(judged)  # after storing the readable answers
        records = [(journal.get(*item) or {}).get("scores") for item in items]
        rows = [[float(scores[key]) for key in KEYS] if scores else [0.0] * len(KEYS) for scores in records]
        readable = torch.tensor([scores is not None for scores in records]).bool()
        return torch.tensor(rows).reshape(-1, len(KEYS)), readable


def parse_scores(written: str) -> tuple[float, float, float] | None:
    """Semantic, emotional and pragmatic scores from 1 to 10; None if any is missing or not a number.

    The first balanced JSON object counts, wherever it is. Numbers may be strings, or fractions such as "8/10"; values
    out of range are clipped; keys may be longer ("Semantic Fidelity").
    """
    fields = _object(written)
    scores = []
    for key in KEYS:
        value = next((value for name, value in fields.items() if str(name).strip().lower().startswith(key)), None)
        number = _number(value)
        if number is None:
            return None
        scores.append(min(MOST, max(LEAST, number)))
    return scores[0], scores[1], scores[2]


def _object(written: str) -> dict[str, Any]:
    """The first JSON object in a text; empty if there is none."""
    decoder = json.JSONDecoder()
    for opening in re.finditer(r"\{", written):
        try:
            value, _ = decoder.raw_decode(written, opening.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return {}


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        match = re.match(r"\s*([+-]?\d+(?:[.,]\d+)?)\s*(?:/\s*10\s*)?$", value)
        value = match and float(match[1].replace(",", "."))
    return float(value) if is_number(value) else None
