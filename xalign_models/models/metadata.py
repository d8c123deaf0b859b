"""A model's metadata for mteb: its ModelMeta, without a loader."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from xalign_models import assets, corpora
from xalign_models.backbones.loading import open_backbone
from xalign_models.errors import XAlignError
from xalign_models.models import catalogue
from xalign_models.models.card import Card, read_card
from xalign_models.models.names import Located, find_spec, locate
from xalign_models.models.recipe import Recipe
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


def meta_of(located: Located, recipe: Recipe | None = None) -> ModelMeta:
    """:func:`model_meta` of a located model."""
    spec, card = located.spec, located.card
    if saved := located.saved:
        arguments = {"spec": spec.to_dict()} if spec else {}
        return describe(located.name, saved.with_code(saved.content)[:40], saved.training_datasets, spec, arguments)
    assert spec is not None
    fixed = None
    try:
        fixed = (recipe or Recipe(spec)).revision
    except XAlignError as error:
        logger.debug("%s has no revision yet: %s", spec.name, error)
    arguments = {"spec": spec.to_dict()}
    if spec.backbone.tuned:
        card = card or _trained_card(spec)  # a spec alone, as mteb's loader passes it
        training = card.claims.get("training") if card else None
        arguments["training"] = training if isinstance(training, dict) else {}
    return describe(spec.name, fixed, trained_on(spec, card), spec, arguments)


def trained_on(spec: ModelSpec, card: Card | None = None) -> set[str]:
    """Mteb's names of the data that a model was trained or fitted on here, beyond its published weights."""
    card = card or (_trained_card(spec) if spec.backbone.tuned else None)
    datasets = (card and card.training_datasets) or set()
    if spec.alignment:
        datasets |= {task for corpus in spec.alignment.corpora for task in corpora.trained_tasks(corpus)}
    return datasets


def _trained_card(spec: ModelSpec) -> Card | None:
    directory = assets.place(spec.backbone.model)
    return read_card(directory) if directory.is_dir() else None


def published_datasets(*names: str | None) -> set[str]:
    """Data sets that the published backbones were trained on, as far as mteb knows them."""
    import mteb

    known = [find_spec(name).backbone.mteb_name for name in names if name]
    return {task for name in known if name for task in mteb.get_model_meta(name).training_datasets or ()}


def describe(
    name: str, fixed: str | None, trained: set[str] | None, spec: ModelSpec | None, arguments: dict[str, Any]
) -> ModelMeta:
    """Metadata of a model, based on its backbone's if mteb knows the backbone."""
    import mteb
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    like = spec.backbone.mteb_name if spec else None
    backbone_facts: dict[str, Any] = {}
    with suppress(KeyError):  # a card may name any model
        backbone_facts = mteb.get_model_meta(like).model_dump() if like else {}
    inherited = {key: backbone_facts.get(key) for key in _INHERITED}
    inherited |= {"framework": ["Sentence Transformers", "PyTorch"], "similarity_fn_name": ScoringFunction.COSINE}
    of_backbone = backbone_facts.get("training_datasets")
    if spec is not None and spec.backbone.tuned and like is None and trained:
        of_backbone = set()  # trained here from several checkpoints; the record includes their data sets
    if spec is not None:
        backbone, alignment = open_backbone(spec.backbone), spec.alignment
        inherited["max_tokens"] = spec.backbone.max_tokens or inherited["max_tokens"]
        if like is None or not backbone.source.has_weights:
            inherited |= backbone.source.facts()
        inherited["embed_dim"] = spec.backbone.truncate_dim or inherited["embed_dim"]
        if alignment:
            inherited["similarity_fn_name"] = ScoringFunction.COSINE
            inherited["languages"] = sorted(alignment.languages or ()) or inherited["languages"]
            inherited["citation"] = catalogue.CITATIONS.get(alignment.method) or inherited["citation"]
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
