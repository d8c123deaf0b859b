"""Identities of a model's vectors: revisions of results and namespaces of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xalign_models import corpora
from xalign_models.backbones.loading import open_backbone
from xalign_models.models.card import Card, read_card
from xalign_models.models.names import Located, locate
from xalign_models.specs import ModelSpec


def namespace(model: str | Located, **overrides: Any) -> str:
    """Fingerprint of a model's raw vectors; models with the same fingerprint share their vectors.

    It depends on the content of the files, not on the card. The arguments are those of
    :func:`~xalign_models.models.names.locate`.

    Raises:
        XAlignError: The model is unknown, or its weights are missing.
    """
    from xalign_models.backbones.pointer import pointed  # imports torch, which names do not need

    located = locate(model, **overrides) if isinstance(model, str) else model
    if located.saved and located.card is not None:
        base = pointed(located.card.files)
        return open_backbone(base).fingerprint if base else located.card.backbone
    assert located.spec is not None
    return open_backbone(located.spec.backbone).fingerprint


def trained_on(spec: ModelSpec, card: Card | None = None) -> set[str]:
    """Mteb's names of the data that a model was trained or fitted on here, beyond its published weights."""
    datasets: set[str] = set()
    if spec.backbone.tuned and Path(spec.backbone.model).is_dir():
        datasets |= (card or read_card(Path(spec.backbone.model))).training_datasets or set()
    if spec.alignment:
        datasets |= {task for corpus in spec.alignment.corpora for task in corpora.trained_tasks(corpus)}
    return datasets
