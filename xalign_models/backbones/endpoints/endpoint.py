"""A model behind a server as a backbone: batches, concurrent requests, and checks of every answer."""

from __future__ import annotations

import base64
import re
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property
from itertools import cycle
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import nn

from xalign_models.backbones.endpoints import probe
from xalign_models.backbones.endpoints.settings import METER, Settings, checked_url, estimated_tokens
from xalign_models.backbones.inputs import prompted
from xalign_models.backbones.pipeline import Batch
from xalign_models.backbones.sources import Source
from xalign_models.backbones.streamed import Streamed
from xalign_models.errors import ModelError
from xalign_models.specs import BackboneSpec

if TYPE_CHECKING:
    from xalign_models.backbones.endpoints.client import Client

MOST_DIMENSIONS = 65_536
PROBE_TOKENS = max(map(estimated_tokens, probe.TEXTS))
"""Estimated tokens of the probe text at the end of each request."""


class Answer(NamedTuple):
    """A server's answer to a request.

    Attributes:
        vectors: The vectors, unchecked, in the order of the texts.
        tokens: The server's count of tokens; None if it gives none.
        model: The server's name for its model; empty if it gives none.
    """

    vectors: list[Any]
    tokens: int | None = None
    model: str = ""


class Endpoint(Source):
    """A served model, ``scheme:MODEL@http://host:port/path``.

    Args:
        model: Scheme, model and address; some schemes have a default address.

    Raises:
        ModelError: The address is malformed or contains a password.
    """

    scheme: ClassVar[str]
    default_url: ClassVar[str] = ""
    most_texts: int = 128
    """Maximum number of texts per request."""
    most_tokens: int = 16_384
    """Maximum number of estimated tokens per request; a longer text is sent alone."""

    def __init__(self, model: str) -> None:
        parts = re.fullmatch(r"[^:]+:(?P<served>\S*?)(?:@(?P<url>https?://\S+))?", model)
        if parts is None or not (parts["url"] or self.default_url) or "://" in parts["served"]:
            raise ModelError(
                f"{self.scheme}: write {self.scheme}:MODEL@http://host:port, where MODEL is the server's name for it."
            )
        self.served = parts["served"]
        self.url = checked_url(parts["url"] or self.default_url)
        self._turns = cycle(range(len(probe.TEXTS)))
        super().__init__(f"{self.scheme}:{self.served}@{self.url}")
        if not self.served:
            raise ModelError(f"{self.model} names no model; write {self.scheme}:MODEL@{self.url}.")

    @property
    def name(self) -> str:
        """Protocol, model and server."""
        return f"{self.scheme}-{self.served}-{self.url.partition('://')[2]}"

    def fingerprint(self) -> str:
        """Protocol, model, address, and a probe of the vectors.

        Raises:
            ModelError: The server cannot be reached, or its model has changed.
        """
        return f"{self.model} {self.probe.digest}"

    def modules(self, spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
        """A single module, which sends texts and receives vectors."""
        return (Streamed(self.model, self.stream, flush=1),)  # stores each answer: it was paid for

    def facts(self) -> Mapping[str, Any]:
        """Metadata that mteb uses for a model behind a server."""
        return {"framework": ["API"], "open_weights": None}

    @abstractmethod
    def ask(self, texts: Sequence[str], request: str) -> Answer:
        """The server's answer, with a vector for each text.

        Args:
            texts: Texts with their prompts.
            request: Name of the request in error messages.

        Raises:
            ModelError: The server does not answer with one vector for each text.
        """

    @cached_property
    def client(self) -> Client:
        """The connection to the server.

        Raises:
            ModelError: The client library is missing.
        """
        try:
            from xalign_models.backbones.endpoints.client import Client
        except ModuleNotFoundError as error:
            if error.name not in {"openai", "httpx2"}:
                raise
            raise ModelError(
                "Endpoints need openai, which is not installed; run: pip install 'xalign[endpoints]'."
            ) from None
        return Client(self.model, self.url, Settings.from_environment())

    @cached_property
    def probe(self) -> probe.Probe:
        """The model's identity, requested once per process."""
        request = f"the probe of {len(probe.TEXTS)} texts"
        answer = self.ask(probe.TEXTS, request)
        return probe.identify(self.model, self._checked(answer.vectors, request), answer.model)

    def vectors(self, texts: Sequence[str], request: str) -> tuple[npt.NDArray[np.float32], int | None]:
        """Vectors (n, d) of the texts of one request, and the server's token count.

        Raises:
            ModelError: The server does not answer with n finite vectors of the model's dimension, or its model has
                changed.
        """
        first, number = self.probe, next(self._turns)
        asked = [*texts, probe.TEXTS[number]]
        size = len(asked) if len(asked) <= self.most_texts else len(texts)  # a server may accept one text at a time
        answers = [self.ask(part, request) for part in (asked[:size], asked[size:]) if part]
        rows = [row for answer in answers for row in answer.vectors]
        vectors = self._checked(rows, request, first.dimension)
        for answer in answers:
            first.check(slice(number, number + 1), vectors[-1:], answer.model)
        counts = [answer.tokens for answer in answers if answer.tokens is not None]
        return vectors[:-1], sum(counts) if len(counts) == len(answers) else None

    def stream(self, texts: Sequence[str], prompt: str) -> Iterator[tuple[Batch, npt.NDArray[np.float32]]]:
        """Yield batches and their vectors as answers arrive, with several requests at a time.

        Raises:
            ModelError: A request failed, or the budget is spent.
        """
        settings = Settings.from_environment()
        full = [prompted(prompt, text) for text in texts]
        tokens = np.array([estimated_tokens(text) for text in full])
        waiting = deque(enumerate(self._batches(tokens), start=1))
        METER.announce(self.model, int(tokens.sum()), len(full), settings)
        running: dict[Future[tuple[npt.NDArray[np.float32], int | None]], npt.NDArray[np.int64]] = {}
        failure: ModelError | None = None
        start = perf_counter()
        with ThreadPoolExecutor(settings.concurrency, thread_name_prefix="endpoint") as pool:
            while running or (waiting and failure is None):
                while waiting and failure is None and len(running) < settings.concurrency:
                    number, rows = waiting.popleft()
                    try:
                        METER.reserve(self.model, int(tokens[rows].sum()), settings)
                    except ModelError as error:
                        failure = error
                        break
                    request = f"request {number} (texts {rows[0] + 1:,} to {rows[-1] + 1:,} of {len(full):,})"
                    running[pool.submit(self.vectors, [full[i] for i in rows], request)] = rows
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    rows = running.pop(future)
                    estimate = int(tokens[rows].sum())
                    try:
                        vectors, reported = future.result()
                    except ModelError as error:
                        METER.settle(estimate, None, 0)
                        failure = failure or error
                        continue
                    spent = reported or estimate + PROBE_TOKENS
                    METER.settle(estimate, spent, len(rows))
                    yield Batch(rows, {}, spent, spent), vectors
        METER.timed(start)
        if failure is not None:
            raise failure

    def _batches(self, tokens: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
        """Row numbers of consecutive texts that fit into one request."""
        start, held = 0, 0
        for i, count in enumerate(tokens.tolist()):
            if i > start and (i - start >= self.most_texts - 1 or held + count > self.most_tokens):
                yield np.arange(start, i)
                start, held = i, 0
            held += count
        yield np.arange(start, len(tokens))

    def _checked(self, rows: list[Any], request: str, dimension: int = 0) -> npt.NDArray[np.float32]:
        """The server's checked rows as an array (n, d); if ``dimension`` is 0, d is the first row's."""
        vectors: list[npt.NDArray[np.float32]] = []
        for position, row in enumerate(rows, start=1):
            answer = f"{self.model}: {request} failed: the answer to its text {position} has"
            vector = _vector(row)
            if vector is None:
                raise ModelError(f"{answer} no vector.")
            dimension = dimension or len(vector)
            if len(vector) != dimension:
                raise ModelError(f"{answer} {len(vector)} dimensions, not {dimension}.")
            if not np.isfinite(vector).all():
                raise ModelError(f"{answer} a value that is not finite.")
            if not vector.any():
                raise ModelError(f"{answer} a vector of zeros.")
            vectors.append(vector)
        return np.stack(vectors)


def _vector(row: Any) -> npt.NDArray[np.float32] | None:
    """A vector (d,) from a list of numbers or from base64 of little-endian float32; None for anything else."""
    if isinstance(row, str):
        try:
            content = base64.b64decode(row, validate=True)
        except ValueError:
            return None
        return np.frombuffer(content, "<f4") if content and len(content) % 4 == 0 else None
    if not isinstance(row, list) or not 0 < len(row) <= MOST_DIMENSIONS or {*map(type, row)} - {int, float}:
        return None
    try:
        with np.errstate(over="ignore"):
            return np.array(row, dtype=np.float64).astype(np.float32)
    except OverflowError:  # an integer of hundreds of digits
        return np.full(len(row), np.inf, dtype=np.float32)
