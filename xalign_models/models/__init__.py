"""Models: their names and identities, and how they are built, saved and registered."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xalign_models.models.api import as_mteb, fit
    from xalign_models.models.building import build, load, load_encoder, raw_encoder
    from xalign_models.models.identity import namespace
    from xalign_models.models.metadata import model_meta
    from xalign_models.models.mteb import register_models
    from xalign_models.models.names import directory_of, find_spec, list_models, locate, name_of, trained_specs
    from xalign_models.models.saving import save

_PLACES = {
    "api": ("as_mteb", "fit"),
    "building": ("build", "load", "load_encoder", "raw_encoder"),
    "identity": ("namespace",),
    "metadata": ("model_meta",),
    "mteb": ("register_models",),
    "names": ("directory_of", "find_spec", "list_models", "locate", "name_of", "trained_specs"),
    "saving": ("save",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "as_mteb",
    "build",
    "directory_of",
    "find_spec",
    "fit",
    "list_models",
    "load",
    "load_encoder",
    "locate",
    "model_meta",
    "name_of",
    "namespace",
    "raw_encoder",
    "register_models",
    "save",
    "trained_specs",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # imported on demand: names alone need neither torch nor mteb
        return getattr(import_module(f"xalign_models.models.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
