"""Cross-lingually aligned text embeddings: backbones, alignments, and the models made of both."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from xalign_models.builtin import PUBLIC

if TYPE_CHECKING:
    from xalign_models.alignments import LIR, LSAR, AffineMap, Centered, Procrustes
    from xalign_models.evaluation.frame import evaluate
    from xalign_models.models.api import as_mteb, fit
    from xalign_models.models.building import load
    from xalign_models.models.names import list_models
    from xalign_models.models.saving import save
    from xalign_models.plugins import register
    from xalign_models.portable.loading import load_map
    from xalign_models.thresholds import Thresholds

try:
    __version__ = metadata.version("xalign")  # from the git tag and the commits after it
except metadata.PackageNotFoundError:  # a clone that is not installed
    __version__ = "0+not-installed"
__all__ = [
    "LIR",
    "LSAR",
    "AffineMap",
    "Centered",
    "Procrustes",
    "Thresholds",
    "__version__",
    "as_mteb",
    "evaluate",
    "fit",
    "list_models",
    "load",
    "load_map",
    "register",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in PUBLIC:  # imported at first use, so that `import xalign_models` is cheap
        return getattr(import_module(PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
