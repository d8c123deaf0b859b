"""Searches the index of an English model in many languages, by a map that comes with xalign.

English queries are encoded by the index's own model. Queries in other languages are encoded by a multilingual model,
and a map takes their vectors to the index's space: ``y = (x - mu_l + mu_en) W + b``, of unit length. The index stays
as it is.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.input_module import InputModule

from xalign_models.backbones.inputs import split_inputs
from xalign_models.errors import ModelError
from xalign_models.identification import Unidentified, identify
from xalign_models.portable.loading import SavedMap


class Bridge(InputModule):
    """Both models and the map, as one module, for texts with a language.

    A text without a language gets ``default_lang``; ``auto`` finds it among the map's languages. Texts in other
    languages, and doubtful ones, get the mean of the maps.

    Args:
        queries: The multilingual model.
        index: The model of the index.
        maps: The maps from unit vectors of ``queries`` to those of ``index``; its settings name the ``pivot``, the
            language that ``index`` encodes.
    """

    forward_kwargs = {"lang"}

    def __init__(self, queries: SentenceTransformer, index: SentenceTransformer, maps: SavedMap) -> None:
        super().__init__()
        self.queries, self.index, self.maps = queries, index, maps
        self.default_lang: str | None = "auto"

    @classmethod
    def of(cls, queries: SentenceTransformer, index: SentenceTransformer, maps: SavedMap) -> SentenceTransformer:
        """The module as a model; the arguments are those of the class."""
        return SentenceTransformer(
            modules=[cls(queries, index, maps)], device=str(index.device), similarity_fn_name="cosine"
        )

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """The texts and their languages; prompts are the models' own.

        Raises:
            LanguageError: A code is unknown, or py3langid is missing.
        """
        texts, codes = split_inputs(inputs, kwargs.get("lang") or self.default_lang)
        auto = [code.text for code in codes if isinstance(code, Unidentified)]
        found = iter(identify(auto, tuple(self.maps.settings["languages"])) if auto else ())
        return {
            "texts": texts,
            "lang": [next(found).language if isinstance(code, Unidentified) else code for code in codes],
        }

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """``features["sentence_embedding"]`` (n, d), float32, of unit length."""
        texts, codes = features.pop("texts"), features["lang"]
        own = np.array([code == self.maps.settings["pivot"] for code in codes], dtype=bool)
        vectors = np.empty((len(texts), self.maps.settings["dim"]), np.float32)
        for rows, model in ((np.flatnonzero(own), self.index), (np.flatnonzero(~own), self.queries)):
            if len(rows):
                name = "query" if "query" in model.prompts else None
                part = model.encode([texts[row] for row in rows], prompt_name=name, normalize_embeddings=True)
                if model is self.queries:  # one direction is stretched by thousands and cancelled by a shift
                    part = self.maps.transform(part.astype(np.float64), [codes[row] for row in rows])
                vectors[rows] = part
        features["sentence_embedding"] = torch.from_numpy(vectors).to(self.index.device)
        return features

    def get_config_dict(self) -> dict[str, Any]:
        """The map, for the identity of a model in memory."""
        arrays = {name: hashlib.sha256(stack.tobytes()).hexdigest() for name, stack in self.maps.arrays.items()}
        return {"settings": self.maps.settings, "arrays": arrays, "default_lang": self.default_lang}

    def get_embedding_dimension(self) -> int:
        """The dimension of the index."""
        return int(self.maps.settings["dim"])

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Refuse to save, as the two models and the map have names.

        Raises:
            ModelError: Always.
        """
        raise ModelError("A ready map is not saved; load it by its name.")

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> Self:
        """Refuse to load a directory; the error is that of :meth:`save`."""
        raise ModelError(f"{model_name_or_path}: a ready map is loaded by its name.")
