"""Private names of other packages are still there; a failure names the function of ``borrowed.py`` to rewrite."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from mteb.models.model_meta import ModelMeta
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.router import Router
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig, PretrainedConfig

from xalign_models.backbones import borrowed
from xalign_models.models import borrowed as of_mteb

NAMES = {
    borrowed.load_sentence_transformer: (SentenceTransformer, "_load_with_module_classes"),
    borrowed.load_encoder_only: (Transformer, "_load_encoder_only_model"),
    borrowed.is_built_in: (AutoModel, "_model_mapping"),
    borrowed.missing_requirement: (ModelMeta, "_check_requirements"),
    borrowed.resolve_route: (Router, "_resolve_route"),
    borrowed.flash_attention: (torch.ops.aten, "_flash_attention_forward"),
    borrowed.efficient_attention: (torch.ops.aten, "_efficient_attention_forward"),
    "CheckedTransformer": (Transformer, "_load_model"),
}


@pytest.mark.parametrize(("user", "place"), NAMES.items(), ids=lambda part: getattr(part, "__name__", str(part)))
def test_a_private_name_is_still_there(user: Any, place: tuple[Any, str]) -> None:
    owner, name = place
    assert hasattr(owner, name), f"{owner} has no {name} any more: rewrite {user}"


def test_names_of_mteb_are_still_there() -> None:
    for module, names in of_mteb.NAMES.items():
        for name in names:
            assert hasattr(import_module(module), name), f"mteb has no {name} any more: rewrite models/borrowed.py"


def test_what_is_borrowed_says_what_it_is_asked_for(checkpoint: Path, transformer: Callable[..., Any]) -> None:
    assert borrowed.is_built_in(BertConfig())
    assert not borrowed.is_built_in(PretrainedConfig())
    assert borrowed.has_weights(AutoModel)
    assert not any(map(borrowed.has_weights, (AutoConfig, AutoTokenizer)))
    model = transformer().model
    assert borrowed.attention_of(model) == "sdpa"
    assert not borrowed.has_adapter(model)
    from peft import LoraConfig

    model.add_adapter(LoraConfig(r=2, target_modules="all-linear"))
    assert borrowed.has_adapter(model)
    layer = nn.Linear(2, 2)
    assert not borrowed.is_compiled(layer)
    layer.compile(backend="eager")
    assert borrowed.is_compiled(layer)
    router = Router.for_query_document([Transformer(str(checkpoint)), Pooling(16)], [Transformer(str(checkpoint))])
    assert borrowed.resolve_route(router, "query") == "query"
    assert borrowed.load_encoder_only(Transformer(str(checkpoint)), BertConfig(), state_dict={}) is None
