"""The names of the registered models: their grammar, and that each says what it is."""

from __future__ import annotations

import dataclasses
import re

import pytest

from xalign_models import alignments, corpora, plugins
from xalign_models.corpora.publishers import PUBLISHERS
from xalign_models.errors import ModelError
from xalign_models.models import catalogue
from xalign_models.plugins import BACKBONES
from xalign_models.specs import BackboneSpec

PART = r"[\w.-]+?"
NAME = re.compile(rf"xalign/(?P<alignment>{PART})__(?P<backbone>{PART})(__(?P<data>{PART}))?")


def test_names_follow_the_grammar_and_say_what_the_spec_says():
    specs = {name: spec for name, spec in catalogue.specs().items() if not spec.backbone.llm}
    assert len(specs) == len(BACKBONES) * (1 + sum(map(len, catalogue.fits().values())))
    for name, spec in specs.items():
        parts = NAME.fullmatch(name)
        assert parts, name
        assert spec.name == name
        assert parts["backbone"] == spec.backbone.name in BACKBONES
        assert parts["alignment"] == (spec.alignment.label if spec.alignment else "plain")
        assert (parts["data"] or "") == spec.data
        assert spec.baseline == f"xalign/plain__{spec.backbone.name}" in specs


def test_specs_are_made_once_until_something_is_registered(apart):
    specs = catalogue.specs()
    assert all(spec is specs[name] for name, spec in catalogue.specs().items())
    plugins.register.backbone(BackboneSpec("later", "org/later"))
    assert catalogue.specs().keys() - specs.keys() >= {"xalign/plain__later", "xalign/lsar__later"}


def test_lusifer_models_name_both_their_parts():
    found = {name: spec for name, spec in catalogue.specs().items() if spec.backbone.llm}
    assert {name: (spec.backbone.model, spec.backbone.llm, spec.baseline) for name, spec in found.items()} == {
        "xalign/lusifer__xlm-roberta-large__mistral-7b": (
            "FacebookAI/xlm-roberta-large",
            "mistralai/Mistral-7B-v0.1",
            "xalign/plain__xlm-roberta-large",
        ),
        "xalign/lusifer__multilingual-e5-small-q4__smollm2-135m-q4": (
            "multilingual-e5-small-q4",
            "smollm2-135m-q4",
            "xalign/plain__multilingual-e5-small-q4",
        ),
    }


def test_every_alignment_can_be_made_and_its_corpora_exist():
    for methods in catalogue.fits().values():
        for label, spec in methods.items():
            assert label == spec.label
            made = alignments.make(spec.method, **dict(spec.params))
            kinds = {PUBLISHERS[one].kind for one in spec.corpora if one in PUBLISHERS}
            assert not (made.parallel and "monolingual" in kinds)
            assert {one.partition(":")[0] for one in spec.corpora} <= set(corpora.CORPORA)


def test_specs_survive_json():
    import json

    from xalign_models.specs import ModelSpec

    for spec in catalogue.specs().values():
        assert ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_get_spec():
    name = "lsar__multilingual-e5-small-q4"
    assert catalogue.get_spec(name) == catalogue.get_spec(f"xalign/{name}")
    with pytest.raises(
        ModelError, match=r"'lzar__multilingual-e5-small-q4'.*Did you mean xalign/lsar__multilingual-e5-small-q4"
    ):
        catalogue.get_spec("lzar__multilingual-e5-small-q4")
    with pytest.raises(ModelError, match=r"Unknown model '@@@'.*`xalign models` lists them"):
        catalogue.get_spec("@@@")


def test_registered_alignments_are_joined_by_plus():
    affine = catalogue.get_spec("affine__use-multilingual-v3")
    joined = catalogue.get_spec("centered+affine__use-multilingual-v3")
    assert (joined.name, joined.baseline) == ("xalign/centered+affine__use-multilingual-v3", affine.baseline)
    assert joined.alignment == dataclasses.replace(affine.alignment, label="centered+affine", method="centered+affine")
    shrunk = catalogue.get_spec("lir-1+procrustes-shrunk__use-multilingual-v3__gettext").alignment
    assert (shrunk.method, shrunk.params) == ("lir+procrustes", (("k", 1), ("shrink", 1.0)))
    assert shrunk.corpora == ("gettext:fit",)
    assert catalogue.get_spec("centered+lir-1__use-multilingual-v3").alignment.corpora == catalogue.UNPAIRED


@pytest.mark.parametrize("labels", ["lir-1+lir-15", "plain+affine", "affine+", "+", "affine+nosuch"])
def test_what_cannot_be_joined_is_unknown(labels):
    with pytest.raises(ModelError, match="Unknown model"):
        catalogue.get_spec(f"{labels}__use-multilingual-v3")
