"""Language models behind a server with OpenAI's chat protocol, such as vLLM or SGLang, in place of own weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from xalign_models.backbones.endpoints.openai import OpenAIEndpoint
from xalign_models.backbones.endpoints.settings import METER, Settings, estimated_tokens
from xalign_models.errors import ModelError
from xalign_models.generation.language_model import Completion, LanguageModel
from xalign_models.specs import Dtype


class ServedModel:
    """``openai:MODEL@http://host:8000/v1``; key, budget, timeout and concurrency are those of endpoints.

    Args:
        model: Scheme, model and address.

    Raises:
        ModelError: The address is malformed.
    """

    chats = True

    def __init__(self, model: str) -> None:
        self._endpoint = OpenAIEndpoint(model)
        self.fingerprint = f"served {self._endpoint.model}"

    def chat(self, prompt: str) -> str:
        """The prompt itself, which the server makes a user's turn of."""
        return prompt

    def length(self, text: str) -> int:
        """Estimated number of tokens of a text."""
        return estimated_tokens(text)

    def release(self) -> None:
        """Do nothing: the weights are the server's."""

    def write(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int,
        stop: tuple[str, ...] = (),
        temperature: float = 0.0,
        seed: int = 0,
    ) -> list[Completion | ModelError]:
        """Completions of prompts, or the error of each that the server did not answer; several requests at a time.

        No request is sent that would exceed the budget. See
        :meth:`~xalign_models.generation.language_model.LanguageModel.write` for the arguments.
        """
        settings = Settings.from_environment()
        options: dict[str, Any] = {"max_tokens": max_new_tokens, "temperature": temperature, "seed": seed}
        options |= {"stop": list(stop)} if stop else {}

        def ask(prompt: str) -> Completion | ModelError:
            expected = estimated_tokens(prompt) + max_new_tokens
            try:
                METER.reserve(self._endpoint.model, expected, settings)
            except ModelError as error:
                return error
            message = {"role": "user", "content": prompt}
            body = {"model": self._endpoint.served, "messages": [message], **options}
            try:
                answer = self._endpoint.client.post("/chat/completions", body, "a completion")
            except ModelError as error:
                METER.settle(expected, None, 0)
                return error
            METER.settle(expected, _tokens(answer), 1)
            return self._completion(answer)

        with ThreadPoolExecutor(settings.concurrency, thread_name_prefix="served") as pool:
            return list(pool.map(ask, prompts))

    def _completion(self, answer: Any) -> Completion | ModelError:
        """The completion in an answer."""
        try:
            choice = answer["choices"][0]
            text, reason = choice["message"]["content"], choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError):
            text = reason = None
        if not isinstance(text, str):
            return ModelError(f"{self._endpoint.model}: a completion failed: the answer has no text.")
        return Completion(text, reason == "stop")


def open_writer(model: str, device: str | None = None, dtype: Dtype | None = None) -> LanguageModel | ServedModel:
    """The language model of a name: a served one, or a causal checkpoint."""
    return ServedModel(model) if model.startswith("openai:") else LanguageModel(model, device=device, dtype=dtype)


def short_name(model: str) -> str:
    """A model's name in file names: the last part of its path, or of a served one all but the scheme."""
    served = model.removeprefix("openai:")
    return re.sub(r"[^\w.-]+", "-", served if served != model else model.rstrip("/").rsplit("/", 1)[-1])


def raise_first(outputs: Iterable[object]) -> None:
    """Raise the first error among outputs, if there is one."""
    for output in outputs:
        if isinstance(output, ModelError):
            raise output


def _tokens(answer: Any) -> int | None:
    """The server's count of tokens; None if it gives none."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return tokens if type(tokens) is int and 0 < tokens < 1 << 40 else None
