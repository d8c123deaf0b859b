"""Cross-lingually aligned text embeddings: backbones, alignments, and the models made of both."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xalign_models.alignments import LIR, LSAR, AffineMap, Centered, Procrustes
    from xalign_models.evaluation.frame import evaluate
    from xalign_models.models.api import as_mteb, fit
    from xalign_models.models.building import load
    from xalign_models.models.names import list_models
    from xalign_models.models.saving import save
    from xalign_models.plugins import register

try:
    __version__ = metadata.version("xalign")  # of the tag that it was built from, and of the commits since
except metadata.PackageNotFoundError:  # a clone that is not installed
    __version__ = "0+not-installed"
_PLACES = {
    "alignments": ("AffineMap", "Centered", "LIR", "LSAR", "Procrustes"),
    "evaluation.frame": ("evaluate",),
    "plugins": ("register",),
    "models": ("as_mteb", "fit", "list_models", "load", "save"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "LIR",
    "LSAR",
    "AffineMap",
    "Centered",
    "Procrustes",
    "__version__",
    "as_mteb",
    "evaluate",
    "fit",
    "list_models",
    "load",
    "register",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # imported when asked for, so that `import xalign_models` is cheap
        return getattr(import_module(f"xalign_models.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
