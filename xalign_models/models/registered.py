"""Metadata of registered models for mteb; the revision is computed on access."""

from __future__ import annotations

import logging
from typing import Any

from mteb.models.model_meta import ModelMeta
from pydantic import SerializerFunctionWrapHandler, model_serializer

from xalign_models import assets
from xalign_models.errors import ModelError, XAlignError
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.store import open_store

logger = logging.getLogger(__name__)

UNKNOWN = "not-installed"
"""Revision of a model whose weights or fit text are not on this machine. Results are never stored under it."""


class RegisteredMeta(ModelMeta):
    """A model's metadata; each access computes the revision from the current files.

    For a model whose ``revision`` is None, mteb uses the newest result of any revision, so this one is never None.
    Copies and pickles compute it too, unless ``model_copy(update={"revision": ...})`` fixes it.
    """

    @classmethod
    def of(cls, meta: ModelMeta) -> RegisteredMeta:
        """The same metadata, loaded by xalign."""
        registered: RegisteredMeta = cls.model_construct(**{**vars(meta), "loader": load, "revision": None})
        return registered

    def current(self) -> str:
        """The revision of the files as they are now, or :data:`UNKNOWN`; nothing is installed or downloaded."""
        try:
            with assets.as_installed():
                return Recipe(find_spec(str(self.name))).revision
        except XAlignError as error:
            logger.debug("%s has no revision yet: %s", self.name, error)
            return UNKNOWN

    @model_serializer(mode="wrap")
    def _with_revision(self, fields: SerializerFunctionWrapHandler) -> Any:
        return fields(ModelMeta.model_construct(**{**vars(self), "revision": self.revision}))


# after the class, because pydantic would treat a property inside it as the field's default
RegisteredMeta.revision = property(lambda self: vars(self)["revision"] or self.current())


def load(name: str, revision: str | None = None, device: str | None = None, **kwargs: Any) -> XAlignEncoder:
    """Load a registered model for ``mteb.get_model``.

    Raises:
        ModelError: There are unknown arguments, which mteb would put into an experiment's name.
        XAlignError: Weights or fit text are missing.
    """
    if unknown := sorted(kwargs.keys() - {"spec", "fitted_on", "training"}):
        raise ModelError(f"{name} takes no {', '.join(unknown)}; use `xalign_models.load` to change a model.")
    return load_encoder(name, device=device, store=open_store())
