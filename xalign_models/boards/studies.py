"""Which rows are models and which are studies of one: ablations, seeds, controls, other settings or fit text."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping

from xalign_models.specs import BackboneSpec, ModelSpec

Settings = tuple[tuple[str, object], ...]
_NO_SETTINGS = {"name", "model", "revision", "prompts", "mteb_name", "tuned", "llm", "trust_remote_code"}


def studies(specs: Mapping[str, ModelSpec | None]) -> set[str]:
    """Names of the models that vary another one, by the specs of all models.

    A study has one of these: a label of training that extends another's by a hyphen (``lira-no-critic``); the name of
    a backbone that does (``e5-layer6``) with other settings than the prompt; or other fit text than the default, where
    the model fitted on the default text was scored, too.
    """
    known = {name: spec for name, spec in specs.items() if spec}
    trained = {spec.backbone.tuned for spec in known.values()} - {""} | {"plain"}
    backbones = defaultdict[str, set[tuple[str, Settings]]](set)  # a name has several where models were trained from it
    for spec in known.values():
        backbones[spec.backbone.name].add((spec.backbone.model, _settings(spec.backbone)))
    return {name for name, spec in known.items() if _is_study(spec, trained, backbones, specs)}


def models_alone(specs: Mapping[str, ModelSpec | None]) -> set[str]:
    """Names of the models that vary no other one; no model's backbone is a study where the model is none."""
    return specs.keys() - studies(specs)


def _is_study(
    spec: ModelSpec,
    trained: Collection[str],
    backbones: Mapping[str, Collection[tuple[str, Settings]]],
    names: Collection[str],
) -> bool:
    if any(spec.backbone.tuned.startswith(f"{label}-") for label in trained):
        return True
    if spec.data and dataclasses.replace(spec, data="").name in names:
        return True
    settings = _settings(spec.backbone)
    return any(
        settings != others and (spec.backbone.tuned or model == spec.backbone.model)
        for name, variants in backbones.items()
        if spec.backbone.name.startswith(f"{name}-")
        for model, others in variants
    )


def _settings(backbone: BackboneSpec) -> Settings:
    return tuple((name, value) for name, value in vars(backbone).items() if name not in _NO_SETTINGS)


def prompt_of(spec: ModelSpec | None) -> str:
    """The prompts of a model in a few words; empty if its spec sets none."""
    prompts = dict(spec.backbone.prompts) if spec else {}
    distinct = list(dict.fromkeys(text.strip() for text in prompts.values()))
    return "" if not prompts else "one per language" if len(distinct) > 3 else " / ".join(distinct) or "none"
