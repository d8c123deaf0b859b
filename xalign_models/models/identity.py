"""Identities of a model's vectors: revisions of results and namespaces of the store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from xalign_models import corpora
from xalign_models.backbones import loading
from xalign_models.models import fitting
from xalign_models.models.card import read_card
from xalign_models.models.names import Located, locate
from xalign_models.specs import AlignmentSpec, ModelSpec, Vectors, digest

CALIBRATION = AlignmentSpec("int8", "centered", corpora=("gettext:fit",), limit=100)
"""Text for the ranges of int8 vectors that are not aligned: 100 rows of each language, from the package index."""


def revision(spec: ModelSpec) -> str:
    """40 hex digits of everything that determines the model's vectors.

    Raises:
        XAlignError: Weights or fit text are missing.
    """
    parts: list[Any] = [loading.fingerprint(spec.backbone), loading.prompts(spec.backbone)]
    if spec.backbone.whole != spec.backbone:
        parts.append([spec.backbone.truncate_dim, spec.backbone.vectors])
    if spec.backbone.vectors is Vectors.INT8 and not spec.alignment:
        parts.append(fitting.fingerprint(calibration(spec)))
    if spec.alignment:
        parts.append(fitting.fingerprint(fit_spec(spec)))
    return digest(*parts)[:40]


def namespace(model: str | Located, **overrides: Any) -> str:
    """Fingerprint of a model's raw vectors; models with the same fingerprint share their vectors.

    It depends on the content of the files, not on the card.

    Args:
        model: As :func:`~xalign_models.models.names.locate` takes it, or what that gave.
        **overrides: Fields of the backbone's spec.

    Raises:
        XAlignError: The model is unknown, or its weights are missing.
    """
    from xalign_models.backbones.pointer import pointed  # imports torch, which names do not need

    located = locate(model, **overrides) if isinstance(model, str) else model
    if located.saved and located.card is not None:
        base = pointed(located.card.directory)
        return loading.fingerprint(base) if base else located.card.backbone
    assert located.spec is not None
    return loading.fingerprint(located.spec.backbone)


def fit_spec(spec: ModelSpec) -> AlignmentSpec:
    """The spec's alignment; if prompts are by language, restricted to languages with a prompt."""
    assert spec.alignment is not None
    languages = loading.prompt_languages(loading.prompts(spec.backbone))
    if languages is None:
        return spec.alignment
    have = fitting.fit_languages(spec.alignment, fitting.load_corpora(spec.alignment))
    return dataclasses.replace(spec.alignment, languages=tuple(code for code in have if code in languages))


def calibration(spec: ModelSpec) -> AlignmentSpec:
    """What the ranges of int8 vectors are measured on: the alignment's fit text, else :data:`CALIBRATION`."""
    return fit_spec(spec if spec.alignment else dataclasses.replace(spec, alignment=CALIBRATION))


def trained_on(spec: ModelSpec) -> set[str]:
    """Mteb's names of the data that a model was trained or fitted on, without those of its published weights."""
    datasets: set[str] = set()
    if spec.backbone.tuned and Path(spec.backbone.model).is_dir():
        datasets |= read_card(Path(spec.backbone.model)).training_datasets or set()
    if spec.alignment:
        datasets |= {task for corpus in spec.alignment.corpora for task in corpora.trained_tasks(corpus)}
    return datasets
