"""Alignments by name."""

from pathlib import Path
from typing import Any

from xalign_models.alignments.base import Alignment, read_header
from xalign_models.alignments.composed import composed
from xalign_models.errors import AlignmentError, NeedsPluginError
from xalign_models.plugins import ALIGNMENTS, Registry, code_digest

METHODS: Registry[type[Alignment]] = ALIGNMENTS
"""The registered alignments."""


def make(method: str, **params: Any) -> Alignment:
    """A new, unfitted alignment.

    Raises:
        AlignmentError: The method or a parameter is unknown, or a parameter is missing, of another type, or too large
            or small.
    """
    cls = find_method(method)
    cls.check(params, strict=True)
    try:
        return cls(**params)
    except TypeError as error:  # a parameter of a plug-in that has no default
        raise AlignmentError(f"{method}: {error}") from None


def load(directory: str | Path) -> Alignment:
    """The alignment saved in a directory, of any method.

    Raises:
        AlignmentError: The directory has no saved alignment, an unknown format version, or damaged files.
        NeedsPluginError: Its method belongs to a plug-in that is not loaded.
    """
    method = str(read_header(directory)["method"])
    if unknown := [stage for stage in method.split("+") if stage not in METHODS]:
        raise NeedsPluginError(
            f"{directory} uses the method {unknown[0]!r} of a plug-in that is not loaded; name its file with --plugin."
        )
    return find_method(method).load(directory)


def find_method(name: str) -> type[Alignment]:
    """The class of a method or of a sequence of methods: ``procrustes``, ``centered+procrustes``.

    Raises:
        AlignmentError: The method is unknown.
    """
    stages = tuple(METHODS[stage] for stage in name.split("+"))
    if len(stages) == 1:
        return stages[0]
    if other := [stage.method for stage in stages if stage.module is not Alignment.module]:
        raise AlignmentError(f"{name}: {other[0]} is not affine, and only affine maps are joined by '+'.")
    return composed(stages)


def version_of(name: str) -> int | str:
    """Identity of a known method's code: its version, and for a plug-in also the digest of its file."""
    version = find_method(name).version
    code = " ".join(filter(None, (code_digest(METHODS[stage]) for stage in name.split("+"))))
    return f"{version} {code}" if code else version
