"""Causal language models as encoders: PromptEOL, or the hidden state of the text's last token."""

from collections.abc import Sequence
from typing import Any

import torch

from xalign_models.backbones.inputs import SLOT
from xalign_models.backbones.transformer import LanguageTransformer


class PromptEOL(LanguageTransformer):
    """A decoder-only language model without its head.

    With a prompt such as ``This sentence : "[TEXT]" means in one word:"`` the last token is the prompt's closing quote,
    and last-token pooling uses the state from which the model would predict the next word. An end-of-text token that
    the tokenizer adds is masked. Without a prompt, the last token is the text's own, or the added end token.

    Vectors do not depend on the batch or on the padding side. In a pack, the prefix that all texts share (the template
    up to the text) is computed once; see :mod:`~xalign_models.backbones.packing`.
    """

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Tokenise; see :class:`LanguageTransformer`."""
        features = super().preprocess(inputs, prompt=prompt, **kwargs)
        if self.prompts or (prompt and SLOT in prompt):
            ids, mask = features["input_ids"], features["attention_mask"]
            last = ids.shape[1] - 1 - mask.flip(1).argmax(dim=1)
            rows = torch.arange(len(ids))
            mask[rows, last] *= ids[rows, last] != (self.tokenizer.eos_token_id or -1)
        return features

    def embed_tokens(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Token embeddings (b, s, d) after the model's last layer and final norm, or after the requested layer."""
        mask = features["attention_mask"]
        if not bool(mask[:, 0].all()):  # padded on the left: positions count from the first real token
            features["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
        return super().embed_tokens(features, **kwargs)
