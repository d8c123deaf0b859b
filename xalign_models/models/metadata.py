"""A model's metadata for mteb: its ModelMeta, without a loader."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models import assets
from xalign_models.backbones.sources import find_source
from xalign_models.errors import XAlignError
from xalign_models.models import catalogue
from xalign_models.models.card import Card, read_card
from xalign_models.models.identity import revision, trained_on
from xalign_models.models.names import Located, locate
from xalign_models.specs import ModelSpec

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

logger = logging.getLogger(__name__)

_INHERITED = (
    "release_date", "languages", "n_parameters", "n_embedding_parameters", "memory_usage_mb", "max_tokens", "embed_dim",
    "license", "open_weights", "public_training_code", "public_training_data", "reference", "citation",
)  # fmt: skip


def model_meta(model: str | ModelSpec) -> ModelMeta:
    """A model's metadata for mteb; ``revision`` is None if its weights or fit text are missing.

    Raises:
        ModelError: The model is unknown.
    """
    return meta_of(locate(model) if isinstance(model, str) else Located(model))


def meta_of(located: Located) -> ModelMeta:
    """:func:`model_meta` of a located model."""
    spec, card = located.spec, located.card
    if located.saved and card is not None:
        arguments = {"spec": spec.to_dict()} if spec else {}
        return describe(located.name, card.revision, card.training_datasets, spec, arguments)
    assert spec is not None
    try:
        fixed = revision(spec)
    except XAlignError as error:
        logger.debug("%s has no revision yet: %s", spec.name, error)
        fixed = None
    arguments = {"spec": spec.to_dict()}
    if spec.backbone.tuned:
        arguments["training"] = dict(_training(spec, card))
    return describe(spec.name, fixed, trained_on(spec), spec, arguments)


def _training(spec: ModelSpec, card: Card | None) -> dict[str, Any]:
    if card is None:  # a spec alone, as mteb's loader hands it over
        directory = Path(spec.backbone.model)
        card = read_card(directory) if directory.is_dir() else None
    return dict(card.claims.get("training", {})) if card else {}


def describe(
    name: str, fixed: str | None, trained: set[str] | None, spec: ModelSpec | None, arguments: dict[str, Any]
) -> ModelMeta:
    """Metadata of a model, based on those of its backbone if mteb knows it.

    ``training_datasets`` is None if the backbone's own training data are unknown, as in mteb; the data of the fit are
    in ``loader_kwargs["fitted_on"]``.
    """
    import mteb
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    like = spec.backbone.mteb_name if spec else None
    backbone_facts = mteb.get_model_meta(like).model_dump() if like else {}
    inherited = {key: backbone_facts.get(key) for key in _INHERITED} | {
        "framework": ["Sentence Transformers", "PyTorch"],
        "similarity_fn_name": ScoringFunction.COSINE,
    }
    of_backbone = backbone_facts.get("training_datasets")
    if spec is not None:
        inherited["max_tokens"] = spec.backbone.max_tokens or inherited["max_tokens"]
        if like is None:
            inherited |= _of_asset(spec.backbone.model)
        if source := find_source(spec.backbone.model):
            inherited |= source.facts()
            if spec.alignment:
                inherited["similarity_fn_name"] = ScoringFunction.COSINE
        inherited["embed_dim"] = spec.backbone.truncate_dim or inherited["embed_dim"]
        if spec.alignment and spec.alignment.languages:
            inherited["languages"] = sorted(spec.alignment.languages)
        if spec.alignment and (citation := catalogue.CITATIONS.get(spec.alignment.method)):
            inherited["citation"] = citation
    return ModelMeta(
        **{
            **inherited,
            "loader": None,
            "loader_kwargs": {**arguments, "fitted_on": sorted(trained)} if trained else arguments,
            "name": name,
            "revision": fixed,
            "use_instructions": False,
            "training_datasets": None if of_backbone is None or trained is None else trained | set(of_backbone),
            "adapted_from": like,
        }
    )


def _of_asset(name: str) -> dict[str, Any]:
    """Facts from the catalogue of assets on a model that mteb does not know; empty for other models."""
    asset = next((asset for asset in assets.list_assets() if asset.name == name), None)
    if asset is None:
        return {}
    licence = "gemma" if asset.licence.startswith("Gemma") else asset.licence.lower()
    facts = {"n_parameters": asset.parameters, "embed_dim": asset.dimension, "license": licence}
    return {**facts, "reference": asset.source}
