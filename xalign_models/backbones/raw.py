"""Raw vectors of texts: looked up in the store, else encoded once in batches of similar length."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tqdm.auto import tqdm

from xalign_models.backbones.batching import token_budget_batches
from xalign_models.backbones.templates import prompted
from xalign_models.errors import ModelError

if TYPE_CHECKING:
    from torch import nn

    from xalign_models.store import EmbeddingStore

logger = logging.getLogger(__name__)

CHUNK = 16_384
"""Texts that are tokenised and sorted together."""
FLUSH = 512
"""Vectors that are handed to the store at a time: the most that a killed process has to encode again."""


def key(prompt: str, text: str) -> bytes:
    """16 bytes that stand for (prompt, text); a length prefix keeps ("a", "bc") apart from ("ab", "c")."""
    encoded = prompt.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(len(encoded).to_bytes(8, "little") + encoded, digest_size=16)
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.digest()


@dataclass
class Counts:
    """What was asked for and what was done: exact, so that benchmarks need no clock."""

    requested: int = 0
    encoded: int = 0
    batches: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0


class RawEncoder:
    """The raw vectors of one backbone.

    Args:
        namespace: Fingerprint of the backbone: the store's namespace.
        load: Gives the modules; called when the first text has to be encoded, so never when the store has them all.
        device: Where the modules run.
        store: None encodes every call's distinct texts anew.
        token_budget: Padded tokens of a batch; by default 16,384 on an accelerator and 2,048 on a CPU, where
            activations that stay in the cache are worth more than large matrices.
    """

    def __init__(
        self,
        namespace: str,
        load: Callable[[], Sequence[nn.Module]],
        device: str,
        store: EmbeddingStore | None = None,
        token_budget: int | None = None,
    ) -> None:
        self.namespace = namespace
        self.device = device
        self.store = store
        self.token_budget = token_budget or (2_048 if device == "cpu" else 16_384)
        self.counts = Counts()
        self._load = load
        self._modules: Sequence[nn.Module] | None = None
        self._halved = False

    @property
    def modules(self) -> Sequence[nn.Module]:
        """The backbone's modules, loaded now if they were not."""
        if self._modules is None:
            self._modules = self._load()
        return self._modules

    def encode(
        self, texts: Sequence[str], prompt: str | Sequence[str] = "", progress: str | None = None
    ) -> npt.NDArray[np.float32]:
        """Raw vectors (n, d), float32, in the order of ``texts``; equal texts are encoded once.

        Args:
            texts: Any strings, empty ones too; long ones are cut at the backbone's limit.
            prompt: Of all texts, or one for each; put before a text, or around it where it has ``[TEXT]``.
            progress: Label of a progress bar, shown on a terminal when it takes over two seconds.

        Raises:
            ModelError: No texts, or a vector is not finite; the message names the text.
        """
        if not len(texts):
            raise ModelError("There are no texts to encode.")
        if not isinstance(prompt, str):
            return self._encode_by_prompt(texts, prompt, progress)
        keys = [key(prompt, text) for text in texts]
        first = dict(zip(reversed(keys), range(len(texts) - 1, -1, -1), strict=True))  # key -> its first text
        known: dict[bytes, Any] = dict.fromkeys(first)
        if self.store is not None:
            known = dict(zip(first, self.store.get(self.namespace, list(first)), strict=True))
        missing = [one for one, vector in known.items() if vector is None]
        self.counts.requested += len(texts)
        self.counts.encoded += len(missing)
        with tqdm(total=len(missing), desc=progress, unit=" texts", delay=2, disable=None if progress else True) as bar:
            for start in range(0, len(missing), CHUNK):
                chunk = missing[start : start + CHUNK]
                self._encode_chunk(chunk, [texts[first[one]] for one in chunk], prompt, known, bar)
        return np.stack([known[one] for one in keys])

    def _encode_by_prompt(
        self, texts: Sequence[str], prompts: Sequence[str], progress: str | None
    ) -> npt.NDArray[np.float32]:
        """Prompt by prompt: the texts of a batch have theirs in common."""
        rows = {one: [i for i, other in enumerate(prompts) if other == one] for one in dict.fromkeys(prompts)}
        parts = [self.encode([texts[i] for i in chosen], one, progress) for one, chosen in rows.items()]
        vectors = np.empty((len(texts), parts[0].shape[1]), dtype=np.float32)
        for chosen, part in zip(rows.values(), parts, strict=True):
            vectors[chosen] = part
        return vectors

    def _encode_chunk(
        self, keys: list[bytes], texts: list[str], prompt: str, known: dict[bytes, Any], bar: tqdm[Any]
    ) -> None:
        lengths = self.lengths(texts, prompt)
        pending: list[int] = []
        for batch in token_budget_batches(lengths, self.token_budget):
            vectors = self._forward_halving([texts[i] for i in batch], prompt)
            self.counts.batches += 1
            self.counts.real_tokens += sum(lengths[i] for i in batch)
            self.counts.padded_tokens += len(batch) * max(lengths[i] for i in batch)
            for i, vector in zip(batch, vectors, strict=True):
                if not np.isfinite(vector).all():
                    raise ModelError(f"The vector of {texts[i][:80]!r} is not finite; try --dtype float32.")
                known[keys[i]] = vector
            pending.extend(int(i) for i in batch)
            if len(pending) >= FLUSH:
                self._flush(keys, pending, known)
            bar.update(len(batch))
        self._flush(keys, pending, known)

    def _flush(self, keys: list[bytes], pending: list[int], known: dict[bytes, Any]) -> None:
        if self.store is not None and pending:
            chosen = [keys[i] for i in pending]
            self.store.put(self.namespace, chosen, np.stack([known[one] for one in chosen]))
        pending.clear()

    def lengths(self, texts: Sequence[str], prompt: str = "") -> list[int]:
        """Tokens of each prompted text after truncation; characters where the backbone has no such tokenizer."""
        tokenizer = getattr(self.modules[0], "tokenizer", None)
        if not callable(tokenizer):
            return [len(text) + 1 for text in texts]
        limit = getattr(self.modules[0], "max_seq_length", None)
        ids = tokenizer([prompted(prompt, text) for text in texts], truncation=limit is not None, max_length=limit)
        return [max(1, len(one)) for one in ids["input_ids"]]

    def _forward_halving(self, texts: list[str], prompt: str) -> npt.NDArray[np.float32]:
        """:meth:`forward`; a batch that the accelerator's memory cannot hold goes through it in halves."""
        import torch

        try:
            return self.forward(texts, prompt)
        except torch.OutOfMemoryError:
            if len(texts) == 1:
                raise ModelError(
                    f"{self.device} is out of memory at a single text; use --max-tokens, --dtype or --device cpu."
                ) from None
        torch.cuda.empty_cache()
        if not self._halved:
            logger.warning(
                "%s is out of memory at %d texts; batches are halved until they fit.", self.device, len(texts)
            )
            self._halved = True
        middle = len(texts) // 2
        return np.concatenate([self._forward_halving(half, prompt) for half in (texts[:middle], texts[middle:])])

    def forward(self, texts: Sequence[str], prompt: str = "") -> npt.NDArray[np.float32]:
        """One batch through the backbone, padded together: (n, d) float32."""
        import torch

        with torch.inference_mode():
            first: Any = self.modules[0]
            features: dict[str, Any] = first.preprocess(list(texts), prompt=prompt or None)
            for name, value in features.items():
                features[name] = value.to(self.device) if hasattr(value, "to") else value
            for module in self.modules:
                features = module(features)
            vectors: npt.NDArray[np.float32] = features["sentence_embedding"].float().cpu().numpy()
        return vectors
