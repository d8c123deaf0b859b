"""Checks vectors, installed assets, saved models, fits and results for damage, and finds leftovers of kills."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from xalign_models import alignments, assets
from xalign_models.backbones import policy
from xalign_models.errors import FileError, XAlignError, one_line
from xalign_models.files import read_log, read_npz, set_aside
from xalign_models.models.card import read_card
from xalign_models.paths import cache_dir
from xalign_models.results.layout import META, SETTINGS
from xalign_models.results.reading import check_main_scores, read_meta, read_result
from xalign_models.store import default_path, open_store

OLD = 3600
"""Seconds without a change after which an unfinished file is a leftover of a kill."""
_LEFTOVERS = (".*.part", ".staged-*")


@dataclass
class Check:
    """The checks of one kind.

    Attributes:
        kind: E.g. ``store``.
        checked: Number of items.
        problems: Problems, one line each.
        mended: Problems that were mended, one line each.
    """

    kind: str
    checked: int = 0
    problems: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)

    def note(self, problem: str, mend: Callable[[], object] | None = None) -> None:
        """Note a problem, as mended if ``mend`` succeeds."""
        if mend is None:
            self.problems.append(problem)
            return
        try:
            mend()
        except OSError as error:
            self.problems.append(f"{problem} ({one_line(error)})")
        else:
            self.mended.append(problem)


def verify(output: Path, directories: Sequence[Path] = (), *, clean: bool = False) -> Iterator[Check]:
    """Check the store, the assets, saved models, fits and results, and find leftovers of kills.

    Args:
        output: Root of the results.
        directories: Saved models besides those in the cache; leftovers lie beside them.
        clean: Drop damaged vectors and fits, rename damaged results, and remove leftovers.

    Yields:
        One check of each kind.
    """
    yield _store(clean)
    yield _assets()
    yield _models([*sorted((cache_dir() / "models").glob("*/")), *directories])
    yield _fits(clean)
    yield _results(output / "results", clean)
    yield _leftovers([cache_dir(), output / "results"], directories, clean)


def _store(clean: bool) -> Check:
    check = Check("store")
    if not (default_path() / "data.mdb").is_file():
        return check
    store = open_store()
    for namespace, total, damaged in store.verify(clean):
        check.checked += total
        if damaged:
            problem = f"{damaged} of {total} vectors of {namespace[:16]} are damaged"
            (check.mended if clean else check.problems).append(problem)
    return check


def _assets() -> Check:
    check = Check("assets")
    for asset in assets.list_assets():
        if assets.where(asset.name):
            check.checked += 1
            try:
                assets.verify(asset.name)
            except XAlignError as error:
                check.note(one_line(error))
    return check


def _models(directories: Sequence[Path]) -> Check:
    check = Check("models")
    for directory in directories:
        check.checked += 1
        if not directory.is_dir():
            check.note(f"{directory} is not a directory")
            continue
        try:
            policy.check(directory)
            if (directory / assets.CARD).is_file() and not read_card(directory).claims:
                check.note(f"{directory}: {assets.CARD} does not match the model's files")
        except (XAlignError, OSError) as error:
            check.note(one_line(error))
    return check


def _fits(clean: bool) -> Check:
    check = Check("fits")
    for directory in sorted((cache_dir() / "alignments").glob("[!.]*/")):
        check.checked += 1
        try:
            alignments.load(directory)
        except XAlignError as error:
            check.note(one_line(error), partial(shutil.rmtree, directory) if clean else None)
    return check


def _results(root: Path, clean: bool) -> Check:
    check = Check("results")
    inside = root.resolve()
    for folder in sorted(path for path in root.glob("*/*/") if not path.name.startswith(".")):
        if not folder.resolve().is_relative_to(inside):
            check.note(f"{folder} is a link that leads out of the results; it is skipped")
            continue
        files = [*folder.glob("*.json"), *folder.glob("*.jsonl"), *folder.glob("items/**/*.npz")]
        for path in sorted(files):
            check.checked += 1
            try:
                _check_result(path)
            except FileError as error:
                reason = one_line(error)
                check.note(reason, partial(set_aside, path, reason) if clean else None)
        if any(path.name != META for path in folder.glob("*.json")) and not (folder / META).is_file():
            check.note(f"{folder} has scores but no {META}; the next run of the model writes it")
    return check


def _check_result(path: Path) -> None:
    if path.suffix == ".npz":
        read_npz(path)
    elif path.name == SETTINGS:
        if damaged := read_log(path)[1]:
            raise FileError(f"{path} has {damaged} damaged lines.")
    elif path.name == META:
        read_meta(path.parent)
    elif path.suffix == ".json":
        try:
            check_main_scores(read_result(path))
        except FileError as error:
            raise FileError(f"{path} is damaged: {error}") from None


def _leftovers(roots: Sequence[Path], directories: Sequence[Path], clean: bool) -> Check:
    check = Check("leftovers")
    paths = {path for root in roots for pattern in _LEFTOVERS for path in root.rglob(pattern)}
    paths |= {path for folder in directories for path in folder.absolute().parent.glob(f".{folder.name}.*.part")}
    for path in sorted(paths):
        if path.exists() and time.time() - _last_change(path) > OLD:
            check.checked += 1
            problem = f"{path} was left behind by a killed process"
            check.note(problem, partial(_remove, path) if clean else None)
    return check


def _last_change(path: Path) -> float:
    try:
        return max(entry.lstat().st_mtime for entry in (path, *path.rglob("*")))
    except FileNotFoundError:  # another process is working there
        return time.time()


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
