"""A SentenceTransformer with a spec, which every way of saving writes beside the weights."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from sentence_transformers import SentenceTransformer

from xalign_models.backbones.inputs import code_of
from xalign_models.errors import LanguageError
from xalign_models.models.provenance import write_card
from xalign_models.specs import ModelSpec


class AlignedSentenceTransformer(SentenceTransformer):
    """sentence-transformers' own class with provenance: ``save_pretrained`` and ``push_to_hub`` keep the card.

    Attributes:
        xalign_spec: The backbone and the alignment; None for a directory without a card.
        xalign_claims: The card's other claims, e.g. the record of the training.
    """

    xalign_spec: ModelSpec | None
    xalign_claims: Mapping[str, Any]

    @classmethod
    def adopt(cls, model: SentenceTransformer, spec: ModelSpec | None, claims: Mapping[str, Any] | None = None) -> Self:
        """Turn a model into this class, in place, without loading anything."""
        model.__class__ = cls
        model.xalign_spec, model.xalign_claims = spec, dict(claims or {})
        return cast(Self, model)

    def encode(self, inputs: Any, *args: Any, lang: str | Sequence[str | None] | None = None, **kwargs: Any) -> Any:
        """Encode as sentence-transformers does; ``lang`` is the language of all texts, or a list of one per text.

        Raises:
            LanguageError: The list has another length than the texts, or a language is missing or was not fitted.
        """
        if hasattr(inputs, "to_list") or isinstance(inputs, Iterator):  # a column of a table, a generator
            inputs = list(inputs)
        if lang is None or isinstance(lang, str):
            return super().encode(inputs, *args, **({"lang": lang} if lang else {}), **kwargs)
        if isinstance(inputs, str) or len(inputs) != len(lang):
            raise LanguageError(f"{len(lang)} languages; lang= takes one code, or one for each text of a list.")
        rows = [
            {"text": text, **({"lang": code} if code else {})} if isinstance(text, str) else text
            for text, code in zip(inputs, map(code_of, lang), strict=True)
        ]
        return super().encode(rows, *args, **kwargs)

    def save_pretrained(self, path: str, *args: Any, create_model_card: bool = True, **kwargs: Any) -> None:
        """Write the directory as sentence-transformers does, with xalign's README and ``xalign.json``."""
        super().save_pretrained(path, *args, create_model_card=False, **kwargs)
        write_card(self, Path(path), readme=create_model_card)
