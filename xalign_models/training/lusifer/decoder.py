"""Decoder-only language models with causal or bidirectional attention."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from transformers import PreTrainedModel

from xalign_models.backbones.transformer import LanguageTransformer


@contextmanager
def attention(model: PreTrainedModel, *, causal: bool) -> Iterator[dict[str, bool]]:
    """Make a model's attention causal or bidirectional; sliding windows stay, and extend to both sides.

    transformers builds its masks from ``config.is_causal``. If there is nothing to mask, it builds no mask, and its
    fused attention kernels follow a keyword of the call, which is therefore set as well.

    Args:
        model: A decoder-only model, without its head.
        causal: Whether a position sees only earlier ones.

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


class Bidirectional(LanguageTransformer):
    """LUSIFER without its encoder, a baseline: a language model in which each position sees the whole text.

    The import path is part of the file format: do not move the class.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tokenizer = self.tokenizer
        tokenizer.padding_side = "right"  # positions count from the first token
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.unk_token

    def attending(self) -> AbstractContextManager[dict[str, Any]]:
        """Use bidirectional attention within the context."""
        return attention(self.model, causal=False)
