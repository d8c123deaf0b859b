"""Weights and corpora from the Hugging Face hub, a local directory, or files inside Python packages."""

from xalign_models.assets.catalogue import list_assets
from xalign_models.assets.digests import directory_fingerprint, file_fingerprint
from xalign_models.assets.inspection import Inspected
from xalign_models.assets.installation import as_installed, fingerprint, install, verify, where
from xalign_models.assets.resolution import (
    PACKAGED,
    ResolvedModel,
    hub_is_away,
    hub_or_cache,
    packaged,
    place,
    resolve,
    resolve_base,
)
from xalign_models.paths import CARD

__all__ = [
    "CARD",
    "PACKAGED",
    "Inspected",
    "ResolvedModel",
    "as_installed",
    "directory_fingerprint",
    "file_fingerprint",
    "fingerprint",
    "hub_is_away",
    "hub_or_cache",
    "install",
    "list_assets",
    "packaged",
    "place",
    "resolve",
    "resolve_base",
    "verify",
    "where",
]
