"""A reference to a backbone instead of its weights, as in PEFT: a saved model then contains only its maps."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from sentence_transformers.base.modules.input_module import InputModule
from torch import nn

from xalign_models.assets import Inspected
from xalign_models.assets.inspection import inspected
from xalign_models.backbones.loading import Backbone, open_backbone
from xalign_models.errors import ModelError
from xalign_models.specs import BackboneSpec, ModelSpec

CONFIG = "xalign_base.json"


class Pointer(InputModule):
    """The modules of a backbone, saved only as its spec and fingerprint.

    Its import path is a file format: do not move it.
    """

    save_in_root = True

    def __init__(self, spec: BackboneSpec, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.spec = spec
        self.inner = nn.ModuleList(modules)
        self.backbone: Backbone | None = None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the first module."""
        return getattr(self.inner[0], "tokenizer", None)

    @property
    def max_seq_length(self) -> int | None:
        """Maximum number of tokens of a text; a new one becomes part of the reference. None without tokens."""
        return getattr(self.inner[0], "max_seq_length", None)

    @max_seq_length.setter
    def max_seq_length(self, limit: int) -> None:
        if self.max_seq_length is None:
            raise ModelError(f"{self.spec.model} has no maximum number of tokens that could be set.")
        first: Any = self.inner[0]
        first.max_seq_length = limit
        self.spec, self.backbone = dataclasses.replace(self.spec, max_tokens=limit), None

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Tokenise with the first module."""
        first: Any = self.inner[0]
        features: dict[str, Any] = first.preprocess(inputs, prompt=prompt, **kwargs)
        return {**features, **({"task": kwargs["task"]} if "task" in kwargs else {})}  # routes are chosen by it

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The raw vectors, ``features["sentence_embedding"]`` (n, d)."""
        for module in self.inner:
            features = module(features)
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the reference: the spec and the fingerprint of the backbone."""
        spec = ModelSpec(self.spec).to_dict()["backbone"]
        pointer = {"spec": spec, "fingerprint": open_backbone(self.spec).fingerprint}
        text = json.dumps(pointer, indent=2, ensure_ascii=False) + "\n"
        (Path(output_path) / CONFIG).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> Self:
        """Load the backbone that a directory refers to.

        Raises:
            AssetError: The backbone is unavailable.
            ModelError: There is no reference, or the backbone has changed since.
        """
        files = inspected(model_name_or_path)
        spec = pointed(files)
        if spec is None:
            raise ModelError(f"{files.directory / CONFIG} is missing or damaged; fit the model again.")
        backbone = open_backbone(spec)
        if backbone.fingerprint != files.json(CONFIG, dict).get("fingerprint"):
            raise ModelError(f"{files.directory} was fitted on {spec.model}, which has changed since; fit it again.")
        pointer = cls(spec, backbone.modules("cpu"))
        pointer.backbone = backbone
        return pointer


def pointed(files: Inspected) -> BackboneSpec | None:
    """The backbone that a saved model refers to; None if the directory has its own weights.

    Raises:
        ModelError: The spec of the backbone is malformed.
    """
    try:
        fields = files.settings(CONFIG).get("spec")
    except ModelError:
        return None
    return ModelSpec.from_dict({"backbone": fields}).backbone if isinstance(fields, dict) else None
