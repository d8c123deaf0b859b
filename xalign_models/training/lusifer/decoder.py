"""A decoder-only language model with bidirectional attention: LUSIFER without its encoder, as a baseline."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.training.lusifer.attention import attention


class Bidirectional(LanguageTransformer):
    """A language model that reads its own tokens, each position seeing the whole text.

    The import path is part of the file format: do not move the class.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tokenizer = self.tokenizer
        tokenizer.padding_side = "right"  # positions count from the first token
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.unk_token

    def attending(self) -> AbstractContextManager[dict[str, Any]]:
        """Attention both ways."""
        return attention(self.model, causal=False)
