"""The card of a model directory: its claims, read once and checked against the content."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from xalign_models import assets
from xalign_models.backbones import loading
from xalign_models.errors import FileError, ModelError
from xalign_models.files import read_json
from xalign_models.specs import ModelSpec

MAPS = "*_Aligned"
"""Folder of the alignment in a saved model."""
_NAME = re.compile(r"[\w.+-]+/[\w.+-]+")


@dataclass(frozen=True)
class Card:
    """A model directory and its card. A card is a claim: name and text come from it, identity from the content.

    Attributes:
        directory: The directory.
        own_modules: Whether its ``modules.json`` names modules of ours.
        claims: The content of ``xalign.json``; empty if it is missing or the files have changed since.
    """

    directory: Path
    own_modules: bool
    claims: Mapping[str, Any] = field(repr=False)

    @cached_property
    def content(self) -> str:
        """Sha256 (hex) of the files that determine the vectors."""
        return assets.directory_fingerprint(self.directory)

    @cached_property
    def backbone(self) -> str:
        """Sha256 (hex) of the files that determine the raw vectors; models that differ only in their maps share it."""
        return assets.directory_fingerprint(self.directory, without=f"{MAPS}/*")

    @cached_property
    def spec(self) -> ModelSpec | None:
        """The spec on the card, None without one. A trained model's weights are in the directory itself.

        Raises:
            ModelError: The spec is malformed.
        """
        if "spec" not in self.claims:
            return None
        spec = ModelSpec.from_dict(self.claims["spec"])
        if not self.trained:
            return spec
        return dataclasses.replace(spec, backbone=dataclasses.replace(spec.backbone, model=str(self.directory)))

    @property
    def trained(self) -> bool:
        """Whether the weights were trained here: such a model is a backbone like any other."""
        return "training" in self.claims

    @property
    def saved(self) -> bool:
        """Whether the modules are used as they are: an aligned model, which takes no overrides."""
        return self.own_modules and not self.trained

    @property
    def revision(self) -> str:
        """40 hex digits of the content, whatever the card says."""
        return self.content[:40]

    @property
    def training_datasets(self) -> set[str] | None:
        """Mteb's names of the training data; None if undeclared."""
        named = self.claims.get("training_datasets")
        return {str(name) for name in named} if isinstance(named, list) else None


def read_card(directory: Path) -> Card:
    """The card of a model directory.

    If the card's fingerprint is not that of the files, all its claims are ignored.

    Args:
        directory: Any directory of a checkpoint.

    Raises:
        ModelError: The maps have changed since the card was written.
    """
    card = Card(directory, loading.has_own_modules(directory), _claims(directory / assets.CARD))
    if not card.claims or card.claims.get("content") == card.content:
        return card
    if card.own_modules and not card.trained and _maps_changed(directory, card.claims):
        raise ModelError(
            f"{directory}: its maps are not those that {assets.CARD} was written for; fit it again, or remove "
            f"{assets.CARD} to use the directory as it is."
        )
    return dataclasses.replace(card, claims={})


def is_name(text: str) -> bool:
    """Whether a text may be a model's name, ``org/model``: it becomes a path below the results."""
    return _NAME.fullmatch(text) is not None and not any(part in {".", ".."} for part in text.split("/"))


def _claims(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except FileError:
        return {}


def _maps_changed(directory: Path, claims: Mapping[str, Any]) -> bool:
    """Whether the alignment's files differ from those on the card."""
    maps = claims.get("maps")
    return maps is not None and maps != maps_fingerprint(directory)


def maps_fingerprint(directory: Path) -> str | None:
    """Sha256 (hex) of the files of the alignment module of a saved model; None if it has no such module."""
    folder = next((path.parent for path in directory.glob(f"{MAPS}/config.json")), None)
    return None if folder is None else assets.directory_fingerprint(folder)
