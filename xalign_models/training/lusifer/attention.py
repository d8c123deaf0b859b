"""Causal or bidirectional attention of a decoder-only language model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel


@contextmanager
def attention(model: PreTrainedModel, *, causal: bool) -> Iterator[dict[str, bool]]:
    """Make a model's attention causal or bidirectional; sliding windows stay windows, to both sides then.

    transformers builds its masks by ``config.is_causal``. If there is nothing to mask, it builds none, and its fused
    attention kernels follow a keyword of the call, which is therefore set as well.

    Args:
        model: A decoder-only model, without its head.
        causal: Whether a position sees only those before it.

    Yields:
        Keywords for the model's call.
    """
    config = model.config
    before = config.__dict__.get("is_causal")
    config.is_causal = causal
    try:
        yield {} if causal else {"is_causal": False}
    finally:
        if before is None:
            del config.is_causal
        else:
            config.is_causal = before
