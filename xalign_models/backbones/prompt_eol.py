"""Any Hugging Face causal language model as an encoder: PromptEOL, or the hidden state of the text's own last token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xalign_models.backbones.templates import SLOT
from xalign_models.backbones.transformer import LanguageTransformer

MIN_SHARED = 3
"""Tokens that all texts of a batch begin with, from which on they are computed once instead of once per text."""


class PromptEOL(LanguageTransformer):
    """A decoder-only language model without its head.

    With a prompt such as ``This sentence : "[TEXT]" means in one word:"`` the last token is the prompt's closing quote,
    and last-token pooling reads there what the model would say next. An end-of-text token that a tokenizer adds behind
    it is masked. Without a prompt the last token is the text's own (or the end token, where the tokenizer adds one).

    Vectors do not depend on the batch or on the padding side. Without gradients, the tokens that all texts of a batch
    begin with (the template up to the text) are computed once and their keys and values are shared.
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
        """Token embeddings (b, s, d) after the model's last layer and final norm, or after the layer asked for."""
        ids, mask = features["input_ids"], features["attention_mask"]
        if not bool(mask[:, 0].all()):  # padded on the left: positions count from the first real token
            features["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
        shared = 0 if torch.is_grad_enabled() or self.training or len(ids) == 1 else _shared_tokens(ids, mask)
        if shared < MIN_SHARED:
            return super().embed_tokens(features, **kwargs)

        from transformers import DynamicCache

        cache = DynamicCache(config=self.model.config)
        name = self.module_output_name
        cached = {"past_key_values": cache, "use_cache": True}
        head = {"input_ids": ids[:1, :shared], "attention_mask": mask[:1, :shared]}
        first = super().embed_tokens({**head, **cached}, **kwargs)[name]
        cache.batch_repeat_interleave(len(ids))
        positions = torch.arange(shared, ids.shape[1], device=ids.device)[None]
        tail = {"input_ids": ids[:, shared:], "attention_mask": mask, "position_ids": positions}
        rest = super().embed_tokens({**tail, **cached}, **kwargs)[name]
        features[name] = torch.cat([first.expand(len(ids), -1, -1), rest], dim=1)
        return features


def _shared_tokens(ids: torch.Tensor, mask: torch.Tensor) -> int:
    """How many leading tokens all rows have in common, short of the last token of the shortest."""
    same = (ids == ids[:1]).all(dim=0) & mask.all(dim=0).bool()
    return min(int(same.long().cumprod(0).sum()), int(mask.sum(dim=1).min()) - 1)
