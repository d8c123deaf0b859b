"""Saves models as sentence-transformers directories with a card: whole, maps only, or independent of xalign."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models.backbones.checkpoint import quiet
from xalign_models.errors import ModelError
from xalign_models.models.provenance import split, write_card
from xalign_models.paths import CARD, atomic_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentence_transformers import SentenceTransformer
    from torch import Tensor
    from torch.nn import Module

logger = logging.getLogger(__name__)


def save(
    model: SentenceTransformer,
    directory: str | Path,
    training: dict[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
    *,
    adapter: bool = False,
    standalone: bool = False,
    lang: str | None = None,
    prompt: str | None = None,
) -> None:
    """Write a model as an ordinary sentence-transformers directory with a card.

    An existing model in the directory is replaced once the new one is complete.

    Args:
        model: A model from ``fit`` or ``load``.
        directory: Directory to write.
        training: Record of the training, for the card; ``datasets`` names mteb's tasks.
        files: Additional files, by name, such as a training log.
        adapter: Write the maps and a reference to the backbone, without its weights.
        standalone: Write stock modules only, so that sentence-transformers loads the model without xalign.
        lang: With ``standalone``: the language of all texts, if the alignment depends on it.
        prompt: With ``standalone``: name of the one prompt that the model keeps, if its maps differ between prompts;
            by default the default prompt.

    Raises:
        ModelError: The model has no spec, it lacks the prompt, its maps cannot be written in this form, or the
            directory contains something other than a model.

    Examples:
        >>> import xalign_models
        >>> model = xalign_models.load("all-MiniLM-L6-v2", device="cpu")
        >>> xalign_models.save(model, "saved")
        >>> xalign_models.load("saved", device="cpu").encode(["Good morning"]).shape[0]
        1
    """
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    from xalign_models.models.sentence_transformer import whole

    directory = Path(directory)
    if getattr(model, "xalign_spec", None) is None:
        raise ModelError("Only models from xalign can be saved with a card; use save_pretrained for others.")
    if model.xalign_spec.backbone.trust_remote_code:
        raise ModelError(f"{model.xalign_spec.name} runs its own code, which cannot be saved.")
    if adapter and standalone:
        raise ModelError("--adapter and --standalone exclude each other: one needs xalign to load, the other does not.")
    chosen = _with_pointer(model) if adapter else _without_xalign(model, lang, prompt) if standalone else whole(model)
    try:
        with atomic_directory(directory, CARD) as temporary:
            with quiet():
                SentenceTransformer.save(chosen, str(temporary), create_model_card=False)
            for name, content in (files or {}).items():
                (temporary / name).write_text(content, encoding="utf-8")
            write_card(chosen, temporary, training=training, called=directory.resolve().name)
            for path in temporary.rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o644)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"Cannot write {directory}: {reason}; make room or choose another directory.") from None


def _with_pointer(model: SentenceTransformer) -> SentenceTransformer:
    """The model with its backbone replaced by a reference."""
    from xalign_models.backbones.pointer import Pointer
    from xalign_models.models.sentence_transformer import copied

    modules, start, _ = split(model)
    spec = model.xalign_spec.backbone
    if model.tuned:
        raise ModelError(
            "The backbone's weights have changed since they were loaded, and --adapter would lose them. Save the model "
            "without it."
        )
    if isinstance(modules[0], Pointer):
        return model
    if Path(spec.model).is_dir():
        raise ModelError(
            f"--adapter needs a backbone that others can download; {spec.model} is a directory on this machine."
        )
    return copied(model, [Pointer(spec.whole, modules[:start]), *modules[start:]])


def _without_xalign(model: SentenceTransformer, lang: str | None, prompt: str | None) -> SentenceTransformer:
    """The model in stock modules, with the map as a dense layer; if maps depend on the prompt, it keeps one prompt."""
    from sentence_transformers.base.modules.router import Router
    from sentence_transformers.sentence_transformer.modules import Transformer

    from xalign_models.models.sentence_transformer import copied

    modules, start, aligned = split(model)
    first = modules[0]
    has_option = any(getattr(first, option, None) for option in ("prompts", "int8", "tf32", "compiled", "graph"))
    has_option |= not getattr(first, "pool_special_tokens", True)
    has_routes = any(isinstance(module, Router) for module in modules)
    spec = model.xalign_spec.backbone
    if not isinstance(first, Transformer) or has_option or has_routes or spec.whole != spec:
        raise ModelError(
            f"--standalone: no stock module replaces {type(first).__name__} with these options; use --adapter instead."
        )
    stock = Transformer.__new__(Transformer)
    stock.__dict__ = {**first.__dict__}
    tail = modules[start:]
    prompts = model.prompts
    if aligned is not None:
        name = prompt or model.default_prompt_name or ""
        if name and name not in prompts:
            raise ModelError(f"--prompt {name}: the model has {', '.join(sorted(prompts)) or 'no prompts'}.")
        if aligned.stride:
            text = prompts.get(name, "")  # queries and documents would otherwise have no prompt
            prompts = dict.fromkeys((name or "default", "query", "document"), text)
            logger.warning("The model holds the maps of one prompt only: %r.", text)
        dense = dense_layer(*aligned.folded(lang, prompts.get(name, "") if aligned.prompts else None))
        tail = [dense if module is aligned else module for module in tail]
    chosen = copied(model, [stock, *modules[1:start], *tail], prompts)  # counts the map among the backbone's weights
    return chosen if model.tuned else chosen.adopt(chosen, model.xalign_spec, model.xalign_claims)


def dense_layer(weight: Tensor, shift: Tensor, relu: bool = False) -> Module:
    """The map ``x W + b``, W (d, m) and b (m,), as a stock module, with a ReLU after it or without an activation."""
    import torch
    from sentence_transformers.base.modules.dense import Dense

    layer = Dense(*weight.shape, bias=True, activation_function=torch.nn.ReLU() if relu else torch.nn.Identity())
    layer.linear.weight.data, layer.linear.bias.data = weight.T.contiguous().float(), shift.float()
    return layer  # type: ignore[no-any-return]
