"""Checks vectors, installed assets, saved models, fits and results for damage, and finds leftovers of killed runs."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from xalign_models import alignments, assets
from xalign_models.backbones import policy
from xalign_models.errors import FileError, NeedsPluginError, XAlignError, one_line
from xalign_models.files import read_log, read_npz, set_aside
from xalign_models.models.card import read_card
from xalign_models.paths import cache_dir, final_of, restore
from xalign_models.results.items import MOST
from xalign_models.results.layout import META, SETTINGS
from xalign_models.results.reading import check_main_scores, read_meta, read_result
from xalign_models.store import default_path, open_store

Thing = TypeVar("Thing")

OLD = 3600
"""Seconds without a change after which an unfinished file counts as a leftover of a killed run."""
_LEFTOVERS = (".*.part", ".staged-*")


@dataclass
class Check:
    """The checks of one kind.

    Attributes:
        kind: E.g. ``store``.
        checked: Number of items.
        problems: Problems, one line each.
        mended: Problems that were mended, one line each.
        unchecked: Reasons why items were not checked, one line each; these items stay unchanged.
    """

    kind: str
    checked: int = 0
    problems: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

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
    """Check the store, the assets, saved models, fits and results, and find leftovers of killed runs.

    Args:
        output: Root of the results.
        directories: Saved models besides those in the cache; leftovers are next to them.
        clean: Restore models that a kill left under a temporary name, drop damaged vectors and fits, rename damaged
            results, and remove leftovers.

    Yields:
        One check of each kind.
    """
    leftovers = _leftovers([cache_dir(), output / "results"], directories, clean)  # restores models, so it comes first
    models = sorted((cache_dir() / "models").glob("[!.]*/"))
    fits = sorted((cache_dir() / "alignments").glob("[!.]*/"))
    installed = [asset.name for asset in assets.list_assets() if assets.where(asset.name)]
    yield _store(clean)
    yield _each("assets", installed, assets.verify)
    yield _each("models", [*models, *directories], _check_model)
    yield _each("fits", fits, alignments.load, (lambda directory, _: shutil.rmtree(directory)) if clean else None)
    yield _results(output / "results", clean)
    yield leftovers


def _each(
    kind: str,
    things: Iterable[Thing],
    look: Callable[[Thing], object],
    mend: Callable[[Thing, str], object] | None = None,
) -> Check:
    """Check items one by one: ``look`` raises an error for a damaged item, and ``mend`` gets it with the problem."""
    check = Check(kind)
    for thing in things:
        check.checked += 1
        try:
            look(thing)
        except NeedsPluginError as error:
            check.unchecked.append(one_line(error))
        except (XAlignError, OSError) as error:
            problem = one_line(error)
            check.note(problem, partial(mend, thing, problem) if mend else None)
    return check


def _store(clean: bool) -> Check:
    check = Check("store")
    if not (default_path() / "data.mdb").is_file():
        return check
    for namespace, total, damaged in open_store().verify(clean):
        check.checked += total
        if damaged:
            problem = f"damaged vectors of {namespace[:16]}: {damaged} of {total}"
            (check.mended if clean else check.problems).append(problem)
    return check


def _check_model(directory: Path) -> None:
    if not directory.is_dir():
        raise FileError(f"{directory} is not a directory")
    policy.check(assets.Inspected(directory))
    if (directory / assets.CARD).is_file() and not read_card(directory).claims:
        raise FileError(f"{directory}: {assets.CARD} does not match the model's files")


def _results(root: Path, clean: bool) -> Check:
    folders = sorted(path for path in root.glob("*/*/") if not path.name.startswith("."))
    inside = [folder for folder in folders if folder.resolve().is_relative_to(root.resolve())]
    files = [
        path
        for folder in inside
        for path in sorted([*folder.glob("*.json"), *folder.glob("*.jsonl"), *folder.glob("items/**/*.npz")])
    ]
    check = _each("results", files, _check_result, _set_aside if clean else None)
    for folder in folders:
        if folder not in inside:
            check.note(f"{folder} is a link out of the results; it is skipped")
        elif any(path.name != META for path in folder.glob("*.json")) and not (folder / META).is_file():
            check.note(f"{folder} has scores but no {META}; the next run of the model writes it")
    return check


def _set_aside(path: Path, reason: str) -> None:
    if set_aside(path, reason) is None:
        raise OSError("the file cannot be renamed")


def _check_result(path: Path) -> None:
    if path.suffix == ".npz":
        read_npz(path, most=MOST)
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
        if (path / "old").exists() and not (final := final_of(path)).exists():
            check.checked += 1
            problem = f"{final} was left under a temporary name by a killed process"
            check.note(problem, partial(restore, path) if clean else None)
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
