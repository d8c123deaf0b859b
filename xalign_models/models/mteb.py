"""Our models in mteb's registry. mteb's private names for models live here alone."""

from __future__ import annotations

from typing import Any

from xalign_models.models import catalogue
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.identity import trained_on
from xalign_models.models.metadata import describe
from xalign_models.models.names import trained_specs
from xalign_models.specs import ModelSpec


def register_models() -> None:
    """Make every registered model, and those trained where their names find them, known to ``mteb.get_model``.

    Nothing is opened: no weights, no text, no network. A revision is computed when a model is loaded.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    for name, spec in {**catalogue.specs(), **trained_specs()}.items():
        meta = describe(name, None, trained_on(spec), spec, {"spec": spec.to_dict()})
        MODEL_REGISTRY[name] = meta.model_copy(update={"loader": _load})


def _load(name: str, revision: str | None = None, device: str | None = None, **kwargs: Any) -> XAlignEncoder:
    """Mteb's way to a model."""
    from xalign_models.store import open_store

    spec = ModelSpec.from_dict(kwargs["spec"]) if "spec" in kwargs else name
    return load_encoder(spec, device=device, store=open_store())
