"""Packs the texts of a batch into one row without padding, and computes attention within each text."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from xalign_models.backbones.borrowed import attention_of, efficient_attention, flash_attention

ATTENTION = "xalign_packed"
"""Name under which the attention is registered with transformers; without a mask function, so no mask is built."""
Kernel = Literal["flash", "efficient"]
"""Torch's kernel for packs: FlashAttention in half precision, memory-efficient attention in float32."""
MIN_SHARED = 3
"""Minimum length of a common prefix of a batch that is computed once instead of once per text."""
_NO_MASK, _LAST_QUERY_SEES_LAST_KEY = 0, 2
"""Mask types of memory-efficient attention, as torch numbers them."""


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    cu_seq_lens_q: Tensor,
    cu_seq_lens_k: Tensor,
    max_length_q: int,
    max_length_k: int,
    keys: Tensor | None = None,
    kernel: Kernel | None = None,
    runs: Sequence[tuple[int, int, int]] = (),
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention within each text of a pack, as transformers calls it.

    ``query`` is (1, heads, tokens, dim), ``key`` and ``value`` are (1, groups of heads, tokens, dim). The mask follows
    from ``cu_seq_lens_q`` and ``cu_seq_lens_k``, (texts + 1,) int32, the starts of each text's queries and keys.
    ``keys`` has the indices of each text's keys among the tokens, if they are not the text's own tokens. ``runs`` lists
    texts of equal length, (texts, queries, keys), which attend together if no kernel handles the whole pack.

    Returns:
        (1, tokens, heads, dim), and None in place of attention weights.

    Raises:
        ValueError: The model needs a soft cap, a position bias or attention sinks.
    """
    if softcap is not None or position_bias is not None or s_aux is not None:
        raise ValueError("packed attention supports no soft cap, no position bias and no attention sinks")
    causal = is_causal if is_causal is not None else bool(getattr(module, "is_causal", True))
    if keys is not None:
        key, value = key[:, :, keys], value[:, :, keys]
    q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
    window = sliding_window if sliding_window is not None and sliding_window < max_length_k else None
    lengths = (cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
    if kernel == "flash":
        back = -1 if window is None else window - 1
        windows = {"window_size_left": back, "window_size_right": 0 if causal else back}
        return flash_attention(q, k, v, *lengths, 0.0, causal, False, scale=scaling, **windows)[None], None
    if kernel == "efficient" and (causal or window is None):  # its windows only reach back
        if (groups := q.shape[1] // k.shape[1]) > 1:
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        batch, kind = (q[None], k[None], v[None], None), _LAST_QUERY_SEES_LAST_KEY if causal else _NO_MASK
        return efficient_attention(*batch, *lengths, 0.0, kind, scale=scaling, window_size=window), None
    parts: list[Tensor] = []
    grouped = q.shape[1] != k.shape[1]
    tokens_q, tokens_k = [texts * n for texts, n, _ in runs], [texts * n for texts, _, n in runs]
    sides = zip(torch.split(q, tokens_q), torch.split(k, tokens_k), torch.split(v, tokens_k), strict=True)
    for (texts, length_q, length_k), of_run in zip(runs, sides, strict=True):
        mask = _mask(length_q, length_k, causal, window, query.device)
        q, k, v = (side.reshape(texts, -1, *side.shape[1:]).transpose(1, 2) for side in of_run)
        plain = causal and mask is None
        part = scaled_dot_product_attention(q, k, v, mask, is_causal=plain, scale=scaling, enable_gqa=grouped)
        parts.append(part.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)[None], None


def _mask(queries: int, keys: int, causal: bool, window: int | None, device: torch.device) -> Tensor | None:
    """Mask (queries, keys) of the last tokens of a text; None if the flag ``is_causal`` suffices."""
    window = window if window is not None and window < keys else None
    if window is None and (not causal or queries == keys):
        return None
    distance = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return seen if window is None else seen & (distance.abs() < window)


AttentionInterface.register(ATTENTION, attention)


@contextmanager
def packed_attention(model: Any) -> Iterator[None]:
    """Switch a transformers model to attention within packs."""
    before = attention_of(model)
    model.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def pack(
    rows: Sequence[npt.NDArray[np.int64]], shared: int = 0, kernel: Kernel | None = None, first: int = 0
) -> dict[str, Any]:
    """One row with all texts' tokens, and the arguments of :func:`attention`.

    Args:
        rows: Token ids of each text, none empty; texts of equal length must be adjacent.
        shared: Length of the token prefix shared by all texts and packed once, less than the shortest text.
        kernel: The kernel for the pack, see :func:`find_kernel`.
        first: The position of a text's first token, see :func:`first_position`.

    Returns:
        Features for a transformers model; and ``seq_idx``, the text of each token after
        :func:`unshare`, for pooling.
    """
    lengths = np.array([len(row) for row in rows])
    tails = [rows[0][:shared], *(row[shared:] for row in rows)] if shared else rows
    ids = np.concatenate(tails)
    places = [np.arange(first, first + n) for n in lengths]
    if first and (ids == first - 1).any():  # a text has the padding token, which such models do not count
        reals = [row != first - 1 for row in rows]
        places = [np.cumsum(real) * real + first - 1 for real in reals]
    if shared:
        places = [places[0][:shared], *(row[shared:] for row in places)]
        lengths = np.concatenate([[shared], lengths])
    queries = np.array([len(tail) for tail in tails])
    features: dict[str, Any] = {
        "input_ids": torch.from_numpy(ids)[None],
        "position_ids": torch.from_numpy(np.concatenate(places))[None],
        "cu_seq_lens_q": _starts(queries),
        "cu_seq_lens_k": _starts(lengths),
        "max_length_q": int(queries.max()),
        "max_length_k": int(lengths.max()),
        "kernel": kernel,
        "seq_idx": torch.from_numpy(np.repeat(np.arange(len(rows)), [len(row) for row in rows]))[None],
    }
    if shared:
        starts = np.cumsum(queries)[:-1]
        own = [
            np.concatenate([np.arange(shared), np.arange(at, at + n)])
            for at, n in zip(starts, queries[1:], strict=True)
        ]
        features["keys"] = torch.from_numpy(np.concatenate([np.arange(shared), *own]))
        features["shared"] = shared
    if kernel != "flash":
        pairs = zip(queries.tolist(), lengths.tolist(), strict=True)
        features["runs"] = [(len(list(run)), *pair) for pair, run in groupby(pairs)]
    return features


def unshare(features: dict[str, Any], *names: str) -> None:
    """Repeat the shared prefix for each text: its ids, and its states (1, tokens, d) under the names, in place."""
    shared = features.pop("shared", 0)
    features.pop("runs", None)
    features.pop("kernel", None)
    if not shared:
        return
    own = features.pop("keys")[shared:]
    _take(features, own, "input_ids", "position_ids", *names)
    features["cu_seq_lens_q"] = features["cu_seq_lens_k"] = features["cu_seq_lens_k"][1:] - shared
    features["max_length_q"] = features["max_length_k"]


def keep_content(features: dict[str, Any], special: Sequence[int], *names: str) -> None:
    """Remove special tokens' states, under the names, from a pack, in place, except from texts without other tokens."""
    ids, text = features["input_ids"][0], features["seq_idx"][0]
    content = ~torch.isin(ids, torch.tensor(special, device=ids.device))
    counts = features["cu_seq_lens_q"].new_zeros(len(features["cu_seq_lens_q"]) - 1)
    counts = counts.index_add(0, text, content.to(counts.dtype))
    kept = (content | (counts == 0)[text]).nonzero()[:, 0]
    _take(features, kept, "seq_idx", *names)
    lengths = torch.bincount(text[kept], minlength=len(counts))
    features["cu_seq_lens_q"] = nn.functional.pad(lengths.cumsum(0), (1, 0)).int()


def _take(features: dict[str, Any], tokens: Tensor, *names: str) -> None:
    """Select tokens of arrays (1, tokens, ...), or of tuples of them, in place."""
    for name in names:
        value = features[name]
        features[name] = tuple(part[:, tokens] for part in value) if isinstance(value, tuple) else value[:, tokens]


def shared_tokens(rows: Sequence[npt.NDArray[np.int64]]) -> int:
    """Length of the prefix shared by all rows, capped at the shortest length minus one; 0 below :data:`MIN_SHARED`."""
    most = min(len(row) for row in rows) - 1
    if len(rows) == 1 or most < MIN_SHARED:
        return 0
    same = (np.stack([row[:most] for row in rows]) == rows[0][:most]).all(axis=0)
    shared = most if same.all() else int(same.argmin())
    return shared if shared >= MIN_SHARED else 0


def find_kernel(model: Any) -> Kernel | None:
    """The kernel for packs of a model; None if texts of equal length must attend together instead.

    FlashAttention requires half precision, a head dimension that is a multiple of 8 and at most 256, and compute
    capability 8.0. Memory-efficient attention is used for float32, whose precision it keeps, and requires a head
    dimension that is a multiple of 4. AMD's version of it is untested and not used.
    """
    if model.device.type != "cuda":
        return None
    config = model.config.get_text_config()
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if model.dtype == torch.float32:
        return "efficient" if dim % 4 == 0 and torch.version.hip is None else None
    modern = torch.cuda.get_device_capability(model.device) >= (8, 0)
    half = model.dtype in (torch.float16, torch.bfloat16)
    return "flash" if half and modern and dim % 8 == 0 and dim <= 256 else None


def first_position(model: nn.Module) -> int:
    """The position of a text's first token: one more than the padding index in RoBERTa-like models, else 0."""
    for module in model.modules():
        index = getattr(module, "padding_idx", None)
        if isinstance(index, int) and isinstance(getattr(module, "position_embeddings", None), nn.Embedding):
            return index + 1
    return 0


def find_limit(model: Any) -> int | None:
    """The maximum number of tokens in a model's table of positions; None without such a table."""
    names = ("position_embeddings", "embed_positions", "wpe")
    tables = (getattr(module, name, None) for module in model.modules() for name in names)
    if not any(isinstance(table, nn.Embedding | Tensor) for table in tables):
        return None
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return most and most - first_position(model)


def _starts(lengths: npt.NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
