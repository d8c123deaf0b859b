"""Turns texts into batches: tokenises them once, then sorts and packs them, ahead of the device."""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers.sentence_transformer import modules as published
from torch.nn.utils.rnn import pad_sequence

from xalign_models.backbones import packing
from xalign_models.backbones.batching import packed_batches, token_budget_batches
from xalign_models.backbones.checkpoint import is_causal
from xalign_models.backbones.inputs import SLOT, prompted
from xalign_models.backbones.prompt_eol import PromptEOL
from xalign_models.backbones.transformer import LanguageTransformer

logger = logging.getLogger(__name__)

CHUNK = 16_384
"""Maximum number of texts that are tokenised and sorted together."""
FIRST_CHUNK = 1_024
"""Texts in the first chunk, for which the device waits; later chunks double in size up to CHUNK."""
SLICE = 512
"""Texts per call of the tokenizer."""
SAMPLE = 16
"""Texts of a chunk that are tokenised both ways for comparison."""
PROBE = "Ça coûte 12,50 €! ½ ﬁn 東京に行く नमस्ते ไทย مرحبا İstanbul e\u0301 😀\tx"
"""A text whose tokens distinguish most tokenizers, and most versions of a tokenizer."""
_TAKE_PACKS = {
    *(published.Dense, published.Dropout, published.LayerNorm),
    *(published.Normalize, published.Pooling, published.WeightedLayerPooling),
}
"""Modules that treat each token or text separately; other such modules set the attribute ``takes_packs``."""
AHEAD = 4
"""Batches that are prepared ahead of the device."""

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Texts that go through a backbone together.

    Attributes:
        rows: Indices of the texts, (b,).
        features: Input of the first module.
        real_tokens: Tokens of the texts.
        computed_tokens: Tokens that go through the model: padding counts, a shared prefix counts once.
        full: Texts with the model's maximum number of tokens, including longer ones that were truncated.
    """

    rows: npt.NDArray[np.int64]
    features: dict[str, Any]
    real_tokens: int
    computed_tokens: int
    full: int = 0


def token_budget(first: Any, device: str) -> int:
    """Tokens of a batch: few on a CPU, to keep activations in its cache; on a GPU enough for 64 million activations.

    A model of width 4,096 gets 16,384 tokens. A narrower one gets more, because its kernels are short, and a batch must
    take longer than its launches.
    """
    if device == "cpu":
        return 1_024
    width = first.get_embedding_dimension() if device.startswith("cuda") else 4_096
    return int(2**26 // width)


def batches(
    first: Any, texts: Sequence[str], prompt: str, budget: int, device: str, later: Sequence[Any] = ()
) -> Iterator[Batch]:
    """Batches of all texts, the longest of each chunk first; packed if possible, and prepared ahead in a thread.

    The budget is the number of tokens of a batch. Batches for a GPU are in pinned memory. ``later`` modules process the
    first one's output; if one is unknown, it might mix the texts of a pack, so texts are padded.
    """
    apart = all(type(module) in _TAKE_PACKS or getattr(module, "takes_packs", False) for module in later)
    make = _packed if apart and can_pack(first) else _padded_rows if getattr(first, "graph", None) else _padded

    def by_chunk() -> Iterator[Batch]:
        start, size = 0, FIRST_CHUNK
        while start < len(texts):
            for batch in make(first, texts[start : start + size], prompt, budget):
                features = batch.features
                if device.startswith("cuda"):
                    features = {k: v.pin_memory() if torch.is_tensor(v) else v for k, v in features.items()}
                yield replace(batch, rows=start + batch.rows, features=features)
            start, size = start + size, min(2 * size, CHUNK)

    return ahead(by_chunk())


def _packed(first: Any, texts: Sequence[str], prompt: str, budget: int) -> Iterator[Batch]:
    rows, others = tokenise(first, texts, prompt)
    position, kernel = packing.first_position(first.model), packing.find_kernel(first.model)
    causal = isinstance(first, PromptEOL) and is_causal(first.model.config.get_text_config())
    for group in packed_batches([len(row) for row in rows], budget):
        chosen = [rows[i] for i in group]
        shared = packing.shared_tokens(chosen) if causal else 0
        features = packing.pack(chosen, shared, kernel, position)
        own = [len(row) for row in chosen]
        yield Batch(group, {**others, **features}, sum(own), features["input_ids"].shape[1], _full(first, own))


def _padded(first: Any, texts: Sequence[str], prompt: str, budget: int) -> Iterator[Batch]:
    lengths = token_counts(first, texts, prompt)
    for group in token_budget_batches(lengths, budget):
        features = first.preprocess([texts[i] for i in group], prompt=prompt or None)
        own = [lengths[i] for i in group]
        yield Batch(group, features, sum(own), len(own) * max(own), _full(first, own))


def _full(first: Any, lengths: Sequence[int]) -> int:
    limit = getattr(first, "max_seq_length", None) if callable(getattr(first, "tokenizer", None)) else None
    return sum(length >= limit for length in lengths) if limit else 0


def _padded_rows(first: Any, texts: Sequence[str], prompt: str, budget: int) -> Iterator[Batch]:
    """Padded batches, from tokens computed once."""
    rows, others = tokenise(first, texts, prompt)
    for group in token_budget_batches([len(row) for row in rows], budget):
        chosen = [torch.from_numpy(rows[i]) for i in group]
        ids = pad_sequence(chosen, batch_first=True, padding_value=first.tokenizer.pad_token_id or 0)
        mask = pad_sequence([torch.ones_like(row) for row in chosen], batch_first=True)
        features = {**others, "input_ids": ids, "attention_mask": mask}
        yield Batch(group, features, int(mask.sum()), mask.numel(), _full(first, [len(row) for row in chosen]))


def tokenise(first: Any, texts: Sequence[str], prompt: str) -> tuple[list[npt.NDArray[np.int64]], dict[str, Any]]:
    """Token ids of each text, as the first module computes them, and features that are equal for all texts.

    The tokenizer alone is faster than the module's ``preprocess``; it is used if both agree on a sample of the texts.

    A text without tokens, i.e. an empty one without special tokens, gets a padding token.
    """
    if len(texts) > SAMPLE:
        sample = [*range(SAMPLE), max(range(len(texts)), key=lambda i: len(texts[i]))]
        known, others = _tokenise_padded(first, [texts[i] for i in sample], prompt)
        rows = tokenise_fast(first, texts, prompt)
        if rows and all(np.array_equal(rows[i], row) for i, row in zip(sample, known, strict=True)):
            return rows, others
    return _tokenise_padded(first, texts, prompt)


def tokenise_fast(first: Any, texts: Sequence[str], prompt: str) -> list[npt.NDArray[np.int64]]:
    """Ids from the tokenizer alone, with its last settings; empty if a prompt does more than precede texts."""
    backend: Any = getattr(first.tokenizer, "backend_tokenizer", None)
    if SLOT in prompt or first.prompts or not hasattr(backend, "encode_batch_fast"):
        return []
    backend.no_padding()  # transformers turns it on again when needed
    encodings = backend.encode_batch_fast([prompt + text for text in texts])
    pad = [first.tokenizer.pad_token_id or 0]
    return [np.array(encoding.ids or pad, dtype=np.int64) for encoding in encodings]


def _tokenise_padded(
    first: Any, texts: Sequence[str], prompt: str
) -> tuple[list[npt.NDArray[np.int64]], dict[str, Any]]:
    """Ids by the module's ``preprocess``, which pads them, slice by slice."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # little padding per slice
    rows: list[Any] = [None] * len(texts)
    others: dict[str, Any] = {}
    for start in range(0, len(order), SLICE):
        chosen = order[start : start + SLICE]
        features = first.preprocess([texts[i] for i in chosen], prompt=prompt or None)
        mask = features["attention_mask"].bool()
        ends = mask.sum(dim=1).cumsum(dim=0).numpy()[:-1]
        for i, row in zip(chosen, np.split(features["input_ids"][mask].numpy(), ends), strict=True):
            rows[i] = row if len(row) else np.array([first.tokenizer.pad_token_id or 0])
        others = {name: value for name, value in features.items() if not torch.is_tensor(value)}
    return rows, others


def tokens_digest(first: Any) -> str:
    """12 hex digits of the tokens of :data:`PROBE`; empty if the module has no tokenizer."""
    tokenizer = getattr(first, "tokenizer", None)
    return sha256(str(tokenizer(PROBE)["input_ids"]).encode()).hexdigest()[:12] if callable(tokenizer) else ""


def token_counts(first: Any, texts: Sequence[str], prompt: str = "") -> list[int]:
    """Tokens of each prompted text after truncation; characters if the module has no tokenizer."""
    tokenizer = getattr(first, "tokenizer", None)
    if not callable(tokenizer):
        return [len(text) + 1 for text in texts]
    limit = getattr(first, "max_seq_length", None)
    ids = tokenizer([prompted(prompt, text) for text in texts], truncation=limit is not None, max_length=limit)
    return [max(1, len(tokens)) for tokens in ids["input_ids"]]


def can_pack(first: Any) -> bool:
    """Whether texts can be packed for a module: a LanguageTransformer in which packed texts do not interact."""
    if not isinstance(first, LanguageTransformer):
        return False
    known = getattr(first, "_packs", None)
    if known is None:
        reason = ""
        try:
            known = _apart(first)
        except Exception as error:  # a model may fail in any way on unknown arguments
            known, reason = False, f": {error}"
        if not known:
            logger.debug("%s cannot be packed and is padded%s", type(first.model).__name__, reason)
        first._packs = known
    return known


@torch.inference_mode()
def _apart(first: Any) -> bool:
    """Whether a text's states are the same after two different texts, and close to its states alone."""
    config = first.model.config.get_text_config()
    if first.model.training or not first.model.is_backend_compatible():
        return False
    ids = (np.arange(3 * 7) * 7919 + 11) % (config.vocab_size - 1)
    ids[ids == config.pad_token_id] = config.vocab_size - 1
    before, other, text = ids.reshape(3, 7)
    text = text[:5]

    def states(*rows: npt.NDArray[np.int64]) -> torch.Tensor:
        features = packing.pack(rows, 0, packing.find_kernel(first.model), packing.first_position(first.model))
        del features["seq_idx"]
        features = {k: v.to(first.model.device) if torch.is_tensor(v) else v for k, v in features.items()}
        with packing.packed_attention(first.model), first.attending() as keywords:
            packed: torch.Tensor = first.model(**features, **keywords).last_hidden_state[0, 7:12].float()
        return packed

    alone = torch.from_numpy(text)[None].to(first.model.device)
    with first.attending() as keywords:
        output = first.model(input_ids=alone, attention_mask=torch.ones_like(alone), **keywords)
    wanted = output.last_hidden_state[0].float()
    states_alone, states_beside = states(before, text, before), states(other, text, other)
    scale = wanted.abs().max()
    is_apart = (states_alone - states_beside).abs().max() < 1e-4 * scale
    return bool(is_apart and (states_alone - wanted).abs().max() < 0.05 * scale)


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, prepared in a thread while earlier ones are used."""
    done: Any = object()
    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = deque(pool.submit(next, items, done) for _ in range(AHEAD))
            while (item := waiting.popleft().result()) is not done:
                waiting.append(pool.submit(next, items, done))
                yield item
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
