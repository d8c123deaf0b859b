"""Any Hugging Face encoder as the first module of a sentence-transformers model that knows each text's language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from sentence_transformers.sentence_transformer.modules import Transformer


class LanguageTransformer(Transformer):
    """sentence-transformers' Transformer, for inputs that carry their language.

    An input is a text or ``{"text": ..., "lang": "deu-Latn"}``. The language is taken out before tokenisation and put
    into ``features["lang"]``, a list of one code (or None) per text, where an alignment finds it: it travels inside the
    input, so it is right however texts are sorted and batched.

    Args:
        pool_special_tokens: Whether a pooling module after this one sees [CLS], [SEP] and the like.
        **kwargs: Those of sentence-transformers' Transformer.
    """

    config_keys: list[str] = [*Transformer.config_keys, "pool_special_tokens"]

    def __init__(self, *args: Any, pool_special_tokens: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pool_special_tokens = pool_special_tokens

    @classmethod
    def adopt(cls, module: Transformer) -> Self:
        """The same module, weights and all, as a LanguageTransformer (in place: nothing is loaded again)."""
        module.__class__ = cls
        module.pool_special_tokens = True
        return module  # type: ignore[no-any-return]

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Tokenise; ``features["lang"]`` is there when any input names its language."""
        languages = [one.get("lang") if isinstance(one, dict) else None for one in inputs]
        texts = [one["text"] if isinstance(one, dict) and "text" in one else one for one in inputs]
        features: dict[str, Any] = super().preprocess(texts, prompt=prompt, **kwargs)
        if any(languages):
            features["lang"] = languages
        return features

    def _special_ids(self) -> list[int]:
        """Ids that stand for no content; [UNK] stands for some, unless it is the end token's second name."""
        tokenizer = self.tokenizer
        ends = (tokenizer.bos_token_id, tokenizer.eos_token_id)
        return [one for one in tokenizer.all_special_ids if one != tokenizer.unk_token_id or one in ends]

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Token embeddings; with ``pool_special_tokens=False`` the mask that pooling sees covers content only."""
        features = super().forward(features, **kwargs)
        if not self.pool_special_tokens:
            special = torch.tensor(self._special_ids(), device=features["input_ids"].device)
            content = features["attention_mask"] * ~torch.isin(features["input_ids"], special)
            empty = content.sum(dim=1, keepdim=True) == 0  # an empty text has special tokens only: keep those
            features["attention_mask"] = torch.where(empty, features["attention_mask"], content)
        return features
