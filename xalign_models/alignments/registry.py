"""The alignments by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xalign_models.alignments.affine import AffineMap
from xalign_models.alignments.base import Alignment, read_header
from xalign_models.alignments.centered import Centered
from xalign_models.alignments.lir import LIR
from xalign_models.alignments.lsar import LSAR
from xalign_models.alignments.procrustes import Procrustes
from xalign_models.errors import AlignmentError

METHODS: dict[str, type[Alignment]] = {one.method: one for one in (Centered, LIR, LSAR, Procrustes, AffineMap)}


def make(method: str, **params: Any) -> Alignment:
    """A new, unfitted alignment.

    Raises:
        AlignmentError: Unknown method or parameter, or a parameter out of range.
    """
    cls = _method(method)
    allowed = cls().get_params()
    if unknown := params.keys() - allowed.keys():
        raise AlignmentError(
            f"{method} has no {', '.join(sorted(unknown))}; it has {', '.join(allowed) or 'no parameters'}."
        )
    for name, value in params.items():
        kind = type(allowed[name] if allowed[name] is not None else 0)
        if value is not allowed[name] and not (isinstance(value, kind) or (kind is float and isinstance(value, int))):
            raise AlignmentError(f"{method}: {name}={value!r} is not of type {kind.__name__}.")
    return cls(**params)


def load(directory: str | Path) -> Alignment:
    """The alignment saved in ``directory``, whatever its method.

    Raises:
        AlignmentError: Nothing saved there, an unknown method or format version, or damaged files.
    """
    return _method(read_header(directory)["method"]).load(directory)


def _method(name: str) -> type[Alignment]:
    if name not in METHODS:
        raise AlignmentError(f"unknown alignment {name!r}; choose one of {', '.join(METHODS)}.")
    return METHODS[name]
