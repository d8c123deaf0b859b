"""Language models behind a server with OpenAI's chat protocol, such as vLLM or SGLang, instead of local weights."""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from xalign_models.backbones.endpoints.openai import OpenAIEndpoint, tokens_of
from xalign_models.backbones.endpoints.settings import METER, Settings, estimated_tokens
from xalign_models.errors import ModelError
from xalign_models.generation.language_model import Completion, LanguageModel
from xalign_models.specs import Dtype


class ServedModel:
    """``openai:MODEL@http://host:8000/v1``; key, budget, timeout and concurrency are set as for endpoints.

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
        """The prompt itself, which the server turns into a user's message."""
        return prompt

    def length(self, text: str) -> int:
        """Estimated number of tokens of a text."""
        return estimated_tokens(text)

    def release(self) -> None:
        """Do nothing: the server has the weights."""

    def write(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int,
        stop: tuple[str, ...] = (),
        temperature: float = 0.0,
        seed: int = 0,
    ) -> list[Completion | ModelError]:
        """Completions of prompts, or an error for each unanswered prompt; several requests run at a time.

        A request that would exceed the budget is not sent. See
        :meth:`~xalign_models.generation.language_model.LanguageModel.write` for the arguments.
        """
        settings = Settings.from_environment()
        options: dict[str, Any] = {"max_tokens": max_new_tokens, "temperature": temperature, "seed": seed}
        options |= {"stop": list(stop)} if stop else {}

        def ask(prompt: str) -> Completion | ModelError:
            expected, paid = estimated_tokens(prompt) + max_new_tokens, False
            message = {"role": "user", "content": prompt}
            try:
                METER.reserve(self._endpoint.model, expected, settings)
            except ModelError as error:
                return error
            answer: Any = None
            try:
                body = {"model": self._endpoint.served, "messages": [message], **options}
                answer, paid = self._endpoint.client.post("/chat/completions", body, "a completion"), True
                choice = answer["choices"][0]
                return Completion("" + choice["message"]["content"], choice.get("finish_reason") == "stop")
            except ModelError as error:
                return error
            except (KeyError, IndexError, TypeError, AttributeError):
                return ModelError(f"{self._endpoint.model}: a completion failed: the answer has no text.")
            finally:
                METER.settle(expected, tokens_of(answer), int(paid))

        with ThreadPoolExecutor(settings.concurrency, thread_name_prefix="served") as pool:
            return list(pool.map(ask, prompts))


def open_writer(model: str, device: str | None = None, dtype: Dtype | None = None) -> LanguageModel | ServedModel:
    """The language model with a name: a served model or a causal checkpoint."""
    return ServedModel(model) if model.startswith("openai:") else LanguageModel(model, device=device, dtype=dtype)


def short_name(model: str) -> str:
    """A model's name in file names: the last part of its path, or a served model's name without the scheme."""
    served = model.removeprefix("openai:")
    return re.sub(r"[^\w.-]+", "-", served if served != model else model.rstrip("/").rsplit("/", 1)[-1])


def raise_first(outputs: Iterable[object]) -> None:
    """Raise the first error among outputs, if there is one."""
    for output in outputs:
        if isinstance(output, ModelError):
            raise output
