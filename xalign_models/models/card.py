"""Reads the card of a model directory, and checks its claims against the files."""

import dataclasses
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from xalign_models import assets
from xalign_models.assets import Inspected
from xalign_models.backbones import policy
from xalign_models.errors import ModelError
from xalign_models.specs import ModelSpec, digest

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Card:
    """A model directory and its card. Names and texts come from the card, identities from the files.

    Attributes:
        files: The directory's files.
        maps: The folder of its alignment; None if there is none.
        claims: The content of ``xalign.json``; empty if it is missing or the files have changed since.
    """

    files: Inspected = field(compare=False, repr=False)
    maps: str | None
    claims: Mapping[str, Any] = field(repr=False)

    @property
    def directory(self) -> Path:
        """The directory."""
        return self.files.directory

    @cached_property
    def content(self) -> str:
        """Sha256 (hex) of the files that determine the vectors."""
        return self.files.fingerprint()

    @cached_property
    def backbone(self) -> str:
        """Sha256 (hex) of the files that determine the raw vectors, equal for models that differ only in their maps."""
        return self.files.fingerprint(without=self.maps or "")

    def with_code(self, fingerprint: str) -> str:
        """A fingerprint of files, joined with that of any module code from plug-ins."""
        code = policy.plugin_code(self.files)
        return digest(fingerprint, code) if code else fingerprint

    @cached_property
    def spec(self) -> ModelSpec | None:
        """The spec on the card, or None. The backbone of a trained model is its directory, by name if it is packaged.

        Raises:
            ModelError: The spec is malformed.
        """
        if "spec" not in self.claims:
            return None
        spec = ModelSpec.from_dict(self.claims["spec"])
        if not self.trained:
            return spec
        model = self.directory.name if self.directory.parent == assets.PACKAGED else str(self.directory)
        return dataclasses.replace(spec, backbone=dataclasses.replace(spec.backbone, model=model))

    @property
    def trained(self) -> bool:
        """Whether xalign trained the weights: such a model is a backbone like any other."""
        return "training" in self.claims

    @cached_property
    def saved(self) -> bool:
        """Whether modules of xalign are used as they are: an aligned model, which takes no overrides."""
        return policy.has_own_modules(self.files) and not self.trained

    @property
    def training_datasets(self) -> set[str] | None:
        """Mteb's names of the training data; None if undeclared."""
        named = self.claims.get("training_datasets")
        return {str(name) for name in named} if isinstance(named, list) else None


def read_card(directory: Path) -> Card:
    """The card of any directory; if the card's fingerprint does not match the files, all its claims are ignored.

    Raises:
        ModelError: The maps have changed since the card was written, or the list of modules is missing.
    """
    files, claims = Inspected(directory), dict[str, Any]()
    maps = policy.folder_of_maps(files)
    with suppress(ModelError):
        claims = files.settings(assets.CARD) or (files.settings(f"{maps}/{assets.CARD}") if maps else {})
    card = Card(files, maps, claims)
    if not claims or claims.get("content") == card.content:
        return card
    listed = claims["files"] if isinstance(claims.get("files"), list) else []
    needed = [str(name) for name in listed if Path(str(name)).name not in {assets.CARD, "README.md"}]
    for name in ["modules.json", *needed]:
        if not files.has(name):
            raise ModelError(f"{directory}: {name[:200]} is missing, so the model in {assets.CARD} is incomplete.")
    if card.saved and claims.get("maps") not in (None, maps and files.fingerprint(folder=maps)):
        raise ModelError(
            f"{directory}: its maps do not match {assets.CARD}; fit the model again, or remove "
            f"{assets.CARD} to use the directory as it is."
        )
    logger.warning("%s: %s is ignored, as the files have changed since it was written.", directory, assets.CARD)
    return dataclasses.replace(card, claims={})
