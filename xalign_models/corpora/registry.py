"""Corpora by name."""

from __future__ import annotations

from pathlib import Path

from xalign_models.corpora.base import Corpus, from_files
from xalign_models.corpora.embedded import gettext, kolibri
from xalign_models.corpora.own_text import PARTS, own, split_part
from xalign_models.corpora.publishers import PUBLISHERS, from_hub
from xalign_models.errors import DataError
from xalign_models.paths import data_dir

CORPORA = (*PUBLISHERS, "gettext", "kolibri", "own")
"""Names that :func:`load` takes; ``own`` needs a path."""


def load(name: str, path: Path | None = None, *, local: bool = False) -> Corpus:
    """A corpus by name.

    Args:
        name: One of :data:`CORPORA`, e.g. ``ntrex``; ``gettext`` and ``gettext:fit`` / ``gettext:test`` are the
            embedded one and its two halves; ``own:DIR`` is short for ``own`` with a path, ``own:fit:DIR`` and
            ``own:test:DIR`` are its two halves.
        path: Where it lies; by default its folder under ``$XALIGN_DATA``.
        local: Do not ask the hub for it.

    Raises:
        DataError: Unknown name, or its files are not there; the message names the variable and the publisher.
    """
    name, _, part = name.partition(":")
    if name == "own":
        if not part or (part in PARTS and path is not None):
            return own(_require_path(path), part)
        half, where = split_part(part)
        return own(where, half)
    if name == "gettext":
        return gettext(part)
    if name == "kolibri" and not part:
        return kolibri()
    if name not in PUBLISHERS or part:
        raise DataError(f"Unknown corpus {f'{name}:{part}' if part else name!r}; known ones are {', '.join(CORPORA)}.")
    publisher = PUBLISHERS[name]
    root = path or _local(publisher.folder)
    files = publisher.layout(root) if root is not None and root.is_dir() else {}
    if files:
        return from_files(name, publisher.kind, publisher.trains, files, publisher.reader)
    missing = (
        f"Corpus {name!r} is missing: set XALIGN_DATA to a folder that has {publisher.folder}/ in the layout of "
        f"{publisher.where}"
    )
    if local or path is not None or publisher.hub is None:
        raise DataError(f"{missing}.")
    return from_hub(name, publisher, missing)


def trained_tasks(name: str) -> tuple[str, ...]:
    """Mteb's names of the data sets and tasks that hold a corpus' text; nothing is opened.

    Raises:
        DataError: No corpus has this name.
    """
    name, _, part = name.partition(":")
    if name == "own":
        return ("OwnParallel",)
    if name == "gettext":
        return () if part == "fit" else ("GettextPrecision",)
    if name not in PUBLISHERS:
        raise DataError(f"Unknown corpus {name!r}; known ones are {', '.join(CORPORA)}.")
    return PUBLISHERS[name].trains


def _local(folder: str) -> Path | None:
    root = data_dir()
    return root / folder if root else None


def _require_path(path: Path | None) -> Path:
    if path is None:
        raise DataError("Corpus 'own' needs a directory or file: use --data own=DIR (or own:DIR for a fit corpus).")
    return path
