"""Cross-lingually aligned text embeddings: backbones, alignments, and the models made of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xalign_models.models.registry import list_models, load

__version__ = "0.1.0"
__all__ = ["__version__", "list_models", "load"]


def __getattr__(name: str) -> Any:
    if name in {"list_models", "load"}:
        from xalign_models.models import registry

        return getattr(registry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
