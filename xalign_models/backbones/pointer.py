"""A backbone that is named rather than copied: a saved model holds its maps and points to its base, as PEFT does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from sentence_transformers.base.modules.input_module import InputModule
from torch import nn

from xalign_models.backbones import loading
from xalign_models.backbones.reduced import Reduced
from xalign_models.errors import FileError, ModelError
from xalign_models.files import read_json
from xalign_models.specs import BackboneSpec, ModelSpec

CONFIG = "xalign_base.json"


class Pointer(InputModule):
    """The modules of a backbone, saved as its spec and fingerprint alone.

    Its import path is a file format: do not move it.

    Args:
        spec: The backbone.
        modules: Its modules, as :func:`~xalign_models.backbones.loading.load_modules` gives them.
    """

    save_in_root = True

    def __init__(self, spec: BackboneSpec, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.spec = spec
        self.inner = nn.ModuleList(modules)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the first module."""
        return getattr(self.inner[0], "tokenizer", None)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Tokenise by the first module."""
        first: Any = self.inner[0]
        features: dict[str, Any] = first.preprocess(inputs, prompt=prompt, **kwargs)
        return {**features, **({"task": kwargs["task"]} if "task" in kwargs else {})}  # which routes look for

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The raw vectors, ``features["sentence_embedding"]`` (n, d)."""
        for module in self.inner:
            features = module(features)
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the pointer."""
        pointer = {"spec": spec_fields(self.spec), "fingerprint": loading.fingerprint(self.spec)}
        text = json.dumps(pointer, indent=2, ensure_ascii=False) + "\n"
        (Path(output_path) / CONFIG).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> Self:
        """Load the base that a directory points to.

        Raises:
            AssetError: The base cannot be had.
            ModelError: There is no pointer, or the base has changed since.
        """
        directory = Path(model_name_or_path)
        spec = pointed(directory)
        if spec is None:
            raise ModelError(f"{directory / CONFIG} is missing or damaged; fit the model again.")
        claimed = _read(directory).get("fingerprint")
        if loading.fingerprint(spec) != claimed:
            raise ModelError(f"{directory} was fitted on another {spec.model} than the one that is here; fit it again.")
        modules = loading.load_modules(spec, "cpu")
        if spec.whole != spec:  # as earlier versions wrote it: now what cuts vectors is saved as a module of its own
            modules = (*modules, Reduced(spec.truncate_dim, spec.vectors))
        return cls(spec, modules)


def pointed(directory: Path) -> BackboneSpec | None:
    """The backbone that a saved model points to; None where the directory holds its own weights.

    Raises:
        ModelError: The pointer's fields are malformed.
    """
    fields = _read(directory).get("spec")
    if not isinstance(fields, dict):
        return None
    return ModelSpec.from_dict({"backbone": fields}).backbone


def spec_fields(spec: BackboneSpec) -> dict[str, Any]:
    """A backbone's spec as plain data."""
    fields: dict[str, Any] = ModelSpec(spec).to_dict()["backbone"]
    return fields


def _read(directory: Path) -> dict[str, Any]:
    try:
        return read_json(directory / CONFIG)
    except FileError:
        return {}
