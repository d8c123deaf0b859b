"""One forward pass gives what each layer's own gives, and leaves it in the store for it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from xalign_models.backbones import loading
from xalign_models.backbones.raw import RawEncoder
from xalign_models.errors import ModelError
from xalign_models.models.building import raw_encoder
from xalign_models.models.names import find_spec
from xalign_models.specs import BackboneSpec, Pooling
from xalign_models.store import open_store
from xalign_tasks.analyses.spaces import at_every_layer, fill

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10 w11", "", "w4"]


def specs(tiny_model):
    plain = find_spec(str(tiny_model)).backbone
    return {
        "mean": plain,
        "content only": dataclasses.replace(plain, special_tokens=False),
        "cls": dataclasses.replace(plain, pooling=Pooling.CLS),
    }


@pytest.mark.parametrize("kind", ["mean", "content only", "cls"])
def test_every_layer_is_as_if_it_had_been_encoded_alone(workdir, tiny_model, kind):
    layers = at_every_layer(specs(tiny_model)[kind])
    assert [one.layer for one in layers] == [0, 1, 2]
    store = open_store()
    assert fill(layers, TEXTS, "w0 ", "cpu", store, "") == 4  # "w4" comes twice
    for spec in layers:
        alone = RawEncoder("", lambda spec=spec: loading.open_backbone(spec).modules("cpu"), "cpu").encode(TEXTS, "w0 ")
        found = raw_encoder(spec, "cpu", store)
        np.testing.assert_allclose(found.encode(TEXTS, "w0 "), alone, atol=1e-5)
        assert found.counts.encoded == 0  # all of it was in the store


def test_what_all_layers_have_is_not_encoded_again(workdir, tiny_model):
    layers, store = at_every_layer(specs(tiny_model)["mean"]), open_store()
    raw_encoder(layers[1], "cpu", store).encode(TEXTS[:1])
    assert fill(layers, TEXTS[:2], "", "cpu", store, "") == 2  # the first is there at one layer only
    assert fill(layers, TEXTS, "", "cpu", store, "") == 2
    assert fill(layers, TEXTS, "", "cpu", store, "") == 0


def test_a_model_without_layers_is_refused(tmp_path):
    with pytest.raises(ModelError, match="flat has no layers to choose from"):
        at_every_layer(BackboneSpec("flat", str(tmp_path)))
