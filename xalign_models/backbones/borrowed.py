"""Private or undocumented names of other packages without a public equivalent, each behind one function."""

from collections.abc import Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn


def load_sentence_transformer(path: str, classes: Mapping[str, type], **options: Any) -> Any:
    """A SentenceTransformer whose module types are given as classes."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer._load_with_module_classes(path, classes, **options)


def is_built_in(config: Any) -> bool:
    """Whether transformers itself has the encoder of a configuration; its public registry can only be added to."""
    from transformers import AutoModel

    return type(config) in AutoModel._model_mapping


def load_encoder_only(module: Any, config: Any, **options: Any) -> Any:
    """The encoder of an encoder-decoder, which a Transformer module loads alone; None for other architectures."""
    return module._load_encoder_only_model(None, config, **options)


def has_weights(kind: Any) -> bool:
    """Whether one of transformers' Auto classes loads models rather than configurations or tokenizers."""
    return hasattr(kind, "_model_mapping")


def has_adapter(model: Any) -> bool:
    """Whether LoRA was added to a transformers model; ``active_adapters`` raises an error otherwise."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def attention_of(model: Any) -> str:
    """The name of a transformers model's attention; ``set_attn_implementation`` can only set it."""
    return str(model.config._attn_implementation)


def is_compiled(module: nn.Module) -> bool:
    """Whether calls of a module are compiled."""
    return module._compiled_call_impl is not None


def compile_calls(modules: Iterable[nn.Module], **options: Any) -> None:
    """Compile calls of modules as ``Module.compile`` does, but separately from all other modules.

    Torch compiles a code object eight times, and then runs it uncompiled without an error. The layers of all
    transformers models share one code object, so a process would soon compile no further model.
    """
    code = _call.__code__.replace()  # an equal code object with a count of its own
    call = torch.compile(FunctionType(code, globals()), **options)
    for module in modules:
        module._compiled_call_impl = MethodType(call, module)


def _call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]


def missing_requirement(meta: Any) -> ImportError | None:
    """The error of mteb's own check of a model's packages; None if all are installed."""
    try:
        meta._check_requirements()
    except ImportError as error:
        return error
    return None


def resolve_route(router: Any, side: str | None) -> str:
    """The route that a Router uses for texts of a side; its public ``forward`` needs tokens first.

    Raises:
        ValueError: There is no such route.
    """
    return str(router._resolve_route(side, "text"))


def flash_attention(*args: Any, **options: Any) -> Tensor:
    """FlashAttention of texts of different lengths; its public wrapper has another signature in each torch release."""
    result: Tensor = torch.ops.aten._flash_attention_forward(*args, **options)[0]
    return result


def efficient_attention(*args: Any, **options: Any) -> Tensor:
    """Memory-efficient attention of texts of different lengths; torch has no public function for it."""
    result: Tensor = torch.ops.aten._efficient_attention_forward(*args, **options)[0]
    return result
