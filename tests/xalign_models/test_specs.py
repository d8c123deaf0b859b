"""Specs: plain data that goes through JSON and back, names that follow the grammar, limits that name the flag."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xalign_models.errors import ModelError
from xalign_models.specs import AlignmentSpec, BackboneSpec, Dtype, ModelSpec, Pooling, digest

names = st.text(st.characters(categories=["Ll", "Nd"]), min_size=1)
backbones = st.builds(
    BackboneSpec,
    name=names,
    model=names,
    revision=st.none() | names,
    layer=st.none() | st.integers(0, 48),
    pooling=st.sampled_from(Pooling),
    special_tokens=st.booleans(),
    max_tokens=st.none() | st.integers(2, 8192),
    dtype=st.sampled_from(Dtype),
    prompts=st.lists(st.tuples(names, st.text())).map(tuple),
)
alignments = st.builds(
    AlignmentSpec,
    label=names,
    method=names,
    params=st.lists(st.tuples(names, st.integers() | st.booleans() | names)).map(tuple),
    corpora=st.lists(names).map(tuple),
    limit=st.none() | st.integers(1),
    languages=st.none() | st.lists(names, min_size=1).map(tuple),
)


@given(st.builds(ModelSpec, backbones, st.none() | alignments, st.just("") | names))
def test_a_spec_survives_json(spec: ModelSpec) -> None:
    again = ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert hash(again) == hash(spec)
    assert (again.name, again.baseline) == (spec.name, spec.baseline)


def test_names_follow_the_grammar() -> None:
    backbone = BackboneSpec("e5", "multilingual-e5-small-q4")
    aligned = ModelSpec(backbone, AlignmentSpec("lir-15", "lir", (("k", 15),)))
    assert aligned.name == "xalign/lir-15__e5"
    assert ModelSpec(backbone, aligned.alignment, "ntrex").name == "xalign/lir-15__e5__ntrex"
    assert ModelSpec(backbone).name == aligned.baseline == "xalign/plain__e5"


def test_strings_become_choices_and_unknown_ones_are_refused() -> None:
    spec = BackboneSpec("a", "b", pooling="cls", dtype="bfloat16")
    assert (spec.pooling, spec.dtype) == (Pooling.CLS, Dtype.BFLOAT16)
    with pytest.raises(ModelError, match="--pooling max.*published, mean, cls, last"):
        BackboneSpec("a", "b", pooling="max")
    with pytest.raises(ModelError, match="--dtype int8.*float32"):
        BackboneSpec("a", "b", dtype="int8")


@pytest.mark.parametrize(("field", "value", "flag"), [("layer", -1, "--layer -1"), ("max_tokens", 1, "--max-tokens 1")])
def test_limits_name_the_flag(field: str, value: int, flag: str) -> None:
    with pytest.raises(ModelError, match=flag):
        BackboneSpec("a", "b", **{field: value})


def test_what_determines_a_vector_changes_the_encoding_fields_and_nothing_else_does() -> None:
    base = BackboneSpec("a", "m")
    same = [BackboneSpec("b", "m"), BackboneSpec("a", "m", prompts=(("query", "query: "),)), BackboneSpec("a", "other")]
    different = [
        BackboneSpec("a", "m", layer=3),
        BackboneSpec("a", "m", pooling=Pooling.CLS),
        BackboneSpec("a", "m", special_tokens=False),
        BackboneSpec("a", "m", max_tokens=64),
        BackboneSpec("a", "m", dtype=Dtype.FLOAT16),
    ]
    assert all(spec.encoding_fields() == base.encoding_fields() for spec in same)
    assert len({digest(spec.encoding_fields()) for spec in [base, *different]}) == 1 + len(different)


@given(st.dictionaries(names, st.integers() | st.none() | names, min_size=2))
def test_digests_ignore_the_order_of_keys_but_not_of_parts(fields: dict[str, object]) -> None:
    assert digest(fields) == digest(dict(reversed(fields.items())))
    assert digest("a", fields) != digest(fields, "a")
    assert len(digest(fields)) == 64
