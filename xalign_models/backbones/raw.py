"""Raw vectors of texts: read from the store, else encoded once, in batches without padding."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from xalign_models.backbones.inputs import SLOT, require_texts, require_whole, split_side, with_side
from xalign_models.errors import ModelError, one_line, without_panic
from xalign_models.parallel import TURN
from xalign_models.progress import live
from xalign_models.store import NAME, EmbeddingStore

if TYPE_CHECKING:
    from torch import nn

    from xalign_models.backbones.pipeline import Batch

logger = logging.getLogger(__name__)

ENOUGH = 5000
"""Minimum number of tokens before a speed is reported."""
FLUSH = 512
"""Vectors per write to the store; a killed process loses at most these and one batch."""


def key(prompt: str, text: str) -> bytes:
    """16 bytes that identify (prompt, text); a length prefix distinguishes ("a", "bc") from ("ab", "c")."""
    encoded = prompt.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(len(encoded).to_bytes(8, "little") + encoded, digest_size=16)
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.digest()


@dataclass
class Counts:
    """Counts of requested and encoded texts. They are exact, so that benchmarks can compare them instead of times.

    Attributes:
        requested: Requested texts.
        encoded: Texts that the backbone encoded.
        batches: Batches of encoded texts.
        real_tokens: Tokens of encoded texts.
        computed_tokens: Tokens that went through the model: padding counts, a prefix shared by a batch counts once.
        full: Encoded texts with the model's maximum number of tokens, including longer ones that were truncated.
        tokens: Digest of the tokens of a probe text, once the backbone is loaded.
        seconds: Time from the first batch to the last vector, including tokenisation and storage.
    """

    requested: int = 0
    encoded: int = 0
    batches: int = 0
    real_tokens: int = 0
    computed_tokens: int = 0
    full: int = 0
    tokens: str = field(default="", compare=False)
    seconds: float = field(default=0.0, compare=False)

    @property
    def tokens_per_second(self) -> float | None:
        """Measured speed; None after fewer than :data:`ENOUGH` tokens."""
        return self.real_tokens / self.seconds if self.real_tokens >= ENOUGH and self.seconds else None


@contextmanager
def _fitting(name: str, texts: Sequence[str]) -> Iterator[None]:
    """Turn errors of a model's modules, which its files describe, into one line, except device and memory errors.

    Raises:
        DataError: The tokenizer failed on a text with half of a surrogate pair.
        ModelError: In place of any other such error.
    """
    try:
        yield
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, RuntimeError) and re.search("cuda|cudnn|hip|memory", str(error).lower()):
            raise
        require_whole(texts)
        raise ModelError(
            f"{name} cannot encode: {one_line(error)}. Its files may be damaged or mixed up: get "
            "them again, or choose another model."
        ) from error


class RawEncoder:
    """The raw vectors of one backbone.

    Args:
        namespace: Fingerprint of the backbone: the store's namespace.
        load: Returns the modules; called for the first text to encode, so never if the store has all vectors.
        device: Device of the modules; several, separated by commas, if the modules run on several.
        store: Store of vectors; None encodes every call's distinct texts again.
        token_budget: Tokens of a batch; by default :func:`~xalign_models.backbones.pipeline.token_budget`.
        confirm: Raises a ModelError if the modules no longer match the namespace; called before vectors are
            stored and returned.
        name: Name of the model in messages.
    """

    def __init__(
        self,
        namespace: str,
        load: Callable[[], Sequence[nn.Module]],
        device: str,
        store: EmbeddingStore | None = None,
        token_budget: int | None = None,
        confirm: Callable[[], None] = lambda: None,
        name: str = "the model",
    ) -> None:
        self.namespace = namespace
        self.device = device
        self.store = store
        self.token_budget = token_budget
        self.counts = Counts()
        self._load, self._confirm, self._name = load, confirm, name
        self._modules: Sequence[nn.Module] | None = None
        self._halved = False

    @property
    def modules(self) -> Sequence[nn.Module]:
        """The backbone's modules, loaded on first use."""
        if self._modules is None:
            from xalign_models.backbones.pipeline import tokens_digest

            self._modules = self._load()
            if self.store is not None:
                self.store.note(NAME + self.namespace, self._name)
            self.counts.tokens = tokens = tokens_digest(self._modules[0])  # empty if other processes tokenise
            if tokens and self.store is not None and self.store.note(self.namespace, tokens) not in {tokens, ""}:
                logger.warning(
                    "The installed version of the tokenizer's library gives other tokens than the one whose vectors "
                    "are stored for %s. Run `xalign store clear`, or install the earlier version.",
                    self.namespace,
                )
        return self._modules

    @without_panic()
    def encode(
        self, texts: Sequence[str], prompt: str | Sequence[str] = "", progress: str | None = None
    ) -> npt.NDArray[np.float32]:
        """Raw vectors (n, d), float32, in the order of ``texts``; equal texts are encoded once.

        Args:
            texts: Any strings, including empty ones; long ones are truncated at the backbone's limit.
            prompt: Prompt of all texts, or one per text; goes before a text, or around it if it contains ``[TEXT]``.
            progress: Label of a progress bar, shown on a terminal after two seconds.

        Raises:
            DataError: A text is None, a number or bytes.
            ModelError: There are no texts, or a vector is not finite; the message names the text.
        """
        if not len(texts):
            raise ModelError("There are no texts to encode.")
        require_texts(texts)
        if not isinstance(prompt, str):
            return self._encode_by_prompt(texts, prompt, progress)
        keys = [key(prompt, text) for text in texts]
        by_key = dict(zip(keys, texts, strict=True))
        known: dict[bytes, Any] = dict.fromkeys(by_key)
        if self.store is not None:
            known = dict(zip(by_key, self.store.get(self.namespace, list(by_key)), strict=True))
        missing = [digest for digest, vector in known.items() if vector is None]
        self.counts.requested += len(texts)
        self.counts.encoded += len(missing)
        if missing:
            self.encode_missing(missing, [by_key[digest] for digest in missing], prompt, known, progress)
        return np.stack([known[digest] for digest in keys])

    def _encode_by_prompt(
        self, texts: Sequence[str], prompts: Sequence[str], progress: str | None
    ) -> npt.NDArray[np.float32]:
        """Encode the texts of each prompt together: a batch has one prompt."""
        rows = {prompt: [i for i, other in enumerate(prompts) if other == prompt] for prompt in dict.fromkeys(prompts)}
        parts = [self.encode([texts[i] for i in chosen], prompt, progress) for prompt, chosen in rows.items()]
        vectors = np.empty((len(texts), parts[0].shape[1]), dtype=np.float32)
        for chosen, part in zip(rows.values(), parts, strict=True):
            vectors[chosen] = part
        return vectors

    def encode_missing(
        self, keys: list[bytes], texts: list[str], prompt: str, known: dict[bytes, Any], progress: str | None
    ) -> None:
        """Encode texts, store their vectors, and add them to ``known`` by key."""
        pending: list[int] = []
        full = 0
        written: list[Future[None]] = []
        first = self.modules[0]  # loading does not count towards the time below
        flush = getattr(first, "flush", FLUSH)
        start = perf_counter()
        quiet = None if progress else True
        elsewhere = hasattr(first, "stream")  # a server's answer may come from another thread of this process
        with (
            nullcontext() if elsewhere else TURN,
            ThreadPoolExecutor(1) as writer,  # encoding does not wait for the disk
            live(total=len(keys), desc=progress, unit=" texts", disable=quiet) as bar,
        ):
            for batch, vectors in self.vectors(texts, prompt):
                self.counts.batches += 1
                self.counts.real_tokens += batch.real_tokens
                self.counts.computed_tokens += batch.computed_tokens
                self.counts.full += batch.full
                full += batch.full
                bad = batch.rows[~np.isfinite(vectors).all(axis=1)]
                if len(bad):
                    raise ModelError(
                        f"The vector of {texts[bad[0]][:80]!r} is not finite. Use --dtype float32; if you do, the "
                        "weights are damaged: get them again."
                    )
                for i, vector in zip(batch.rows.tolist(), vectors, strict=True):
                    known[keys[i]] = vector
                    pending.append(i)
                if len(pending) >= flush:
                    written.append(writer.submit(self._write, keys, pending, known))
                    pending = []
                    if flush == 1:  # an endpoint's answers cost money: store each before the next request
                        written[-1].result()
                bar.update(len(batch.rows))
            written.append(writer.submit(self._write, keys, pending, known))
        for future in written:
            future.result()
        self.counts.seconds += perf_counter() - start
        label = progress or "texts"
        if full and full == self.counts.full:  # the first ones of this model
            from xalign_models.backbones.router import of_route

            limit = getattr(of_route(self.modules, split_side(prompt)[0])[0], "max_seq_length", None)
            most = f", {limit}" if limit else ""  # it is unknown here if other processes encode
            logger.warning(
                "%s: texts that reach the model's maximum number of tokens%s: %d of %d; longer ones are truncated.",
                label,
                most,
                full,
                len(keys),
            )
        if len(keys) > 1 and all(np.array_equal(known[digest], known[keys[0]]) for digest in keys):
            logger.warning(
                "%s: all %d texts have the same vector; they or their prompt are too long.", label, len(keys)
            )

    def vectors(self, texts: list[str], prompt: str) -> Iterator[tuple[Batch, npt.NDArray[np.float32]]]:
        """Batches of texts and their vectors (b, d), without the store."""
        from xalign_models.backbones.pipeline import batches, token_budget
        from xalign_models.backbones.router import of_route

        side, prompt = split_side(prompt)
        modules = of_route(self.modules, side)
        if modules != list(self.modules):  # the modules of one route of a Router
            encoder = RawEncoder("", lambda: modules, self.device, token_budget=self.token_budget, name=self._name)
            yield from encoder.vectors(texts, prompt)
            return
        first: Any = modules[0]
        if hasattr(first, "stream"):
            yield from first.stream(texts, with_side(side, prompt))
            return
        if not prompt and getattr(first, "prompts", None):
            prompt = SLOT  # the text alone: without a prompt, the module would add that of a language
        last: tuple[Batch, Callable[[], npt.NDArray[np.float32]]] | None = None
        with _fitting(self._name, texts):
            budget = self.token_budget or token_budget(first, self.device)
            for batch in batches(first, texts, prompt, budget, self.device, modules[1:]):
                fetch = self._forward_halving(batch.features, [texts[i] for i in batch.rows], prompt)
                if last is not None:
                    yield last[0], last[1]()
                last = batch, fetch
            if last is not None:
                yield last[0], last[1]()

    def _write(self, keys: list[bytes], pending: list[int], known: dict[bytes, Any]) -> None:
        self._confirm()
        if self.store is not None and pending:
            chosen = [keys[i] for i in pending]
            self.store.put(self.namespace, chosen, np.stack([known[digest] for digest in chosen]))

    def _forward_halving(
        self, features: dict[str, Any], texts: list[str], prompt: str
    ) -> Callable[[], npt.NDArray[np.float32]]:
        """:meth:`launch` a batch; if the accelerator runs out of memory, split it in halves."""
        import torch

        try:
            return self.launch(features)
        except torch.OutOfMemoryError:
            if len(texts) == 1:
                raise ModelError(
                    f"{self.device} is out of memory for a single text; use --max-tokens, --dtype or --device cpu."
                ) from None
        torch.cuda.empty_cache()
        if not self._halved:
            logger.warning(
                "%s is out of memory for %d texts; batches are halved until they fit.", self.device, len(texts)
            )
            self._halved = True
        halves = texts[: len(texts) // 2], texts[len(texts) // 2 :]
        parts = [self._forward_halving(self._preprocess(half, prompt), half, prompt)() for half in halves]
        return lambda: np.concatenate(parts)

    def forward(self, texts: Sequence[str], prompt: str = "") -> npt.NDArray[np.float32]:
        """Vectors (n, d), float32, of one padded batch: the reference for tests of packed batches."""
        return self.launch(self._preprocess(texts, prompt))()

    def _preprocess(self, texts: Sequence[str], prompt: str) -> dict[str, Any]:
        first: Any = self.modules[0]
        features: dict[str, Any] = first.preprocess(list(texts), prompt=prompt or None)
        return features

    def launch(self, features: dict[str, Any]) -> Callable[[], npt.NDArray[np.float32]]:
        """Start a batch on the device; the returned function waits for its vectors."""
        import torch

        from xalign_models.linalg import onednn

        cuda = self.device.startswith("cuda")
        with torch.inference_mode():
            features = {
                name: value.to(self.device, non_blocking=cuda) if hasattr(value, "to") else value
                for name, value in features.items()
            }
            with onednn.Linear() if self.device == "cpu" else nullcontext():
                for module in self.modules:
                    features = module(features)
            vectors: Any = features["sentence_embedding"].float().to("cpu", non_blocking=cuda)
        if not cuda:
            return vectors.numpy  # type: ignore[no-any-return]
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()

        def fetch() -> npt.NDArray[np.float32]:
            copied.synchronize()
            return vectors.numpy()  # type: ignore[no-any-return]

        return fetch
