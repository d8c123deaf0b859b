"""Static models, which average token vectors, for inputs that carry their language."""

from collections.abc import Sequence
from typing import Any, Self

from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from xalign_models.backbones.inputs import described, split_inputs


class LanguageStatic(StaticEmbedding):
    """sentence-transformers' StaticEmbedding, for texts or ``{"text": ..., "lang": "deu-Latn"}``.

    Its import path is a file format: do not move it.
    """

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Tokenise; sets ``features["prompt"]``, and ``features["lang"]`` if an input names its language."""
        texts, languages = split_inputs(inputs, kwargs.get("lang"))
        features: dict[str, Any] = super().preprocess(texts, prompt=prompt)
        return {**features, **described(languages, prompt)}

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> Self:
        """Load a StaticEmbedding as a LanguageStatic."""
        module = super().load(*args, **kwargs)
        module.__class__ = cls
        return module  # type: ignore[no-any-return]
