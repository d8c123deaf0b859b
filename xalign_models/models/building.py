"""Builds models from a name, a directory or a spec: SentenceTransformers and mteb encoders."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from xalign_models.assets import Inspected
from xalign_models.backbones import compiled, loading, tf32
from xalign_models.backbones.checkpoint import open_directory, quiet
from xalign_models.backbones.loading import Backbone, named_prompts, open_backbone, prompts_by_language
from xalign_models.backbones.raw import RawEncoder
from xalign_models.device import each, pick_device
from xalign_models.errors import ModelError
from xalign_models.models.metadata import meta_of
from xalign_models.models.names import Located, locate
from xalign_models.models.recipe import Recipe
from xalign_models.portable.loading import load_map
from xalign_models.specs import COMPILED, BackboneSpec, ModelSpec, Precision
from xalign_models.store import EmbeddingStore, open_store

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from xalign_models.models.encoder import XAlignEncoder


def load(model: str | Path, *, device: str | None = None, **overrides: Any) -> SentenceTransformer:
    """A model as an ordinary SentenceTransformer.

    Inputs are texts, or ``{"text": ..., "lang": "de"}`` if the alignment depends on the language. Only modules from
    sentence-transformers and xalign are loaded from a directory; its own code is not run.

    Args:
        model: A registered name, a directory, or a hub id; or a map that comes with xalign, such as
            ``map:multilingual-e5-small->all-MiniLM-L6-v2``; see :mod:`~xalign_models.models.ready`.
        device: cpu, cuda or mps; by default the best available.
        **overrides: Fields of the backbone's spec, e.g. ``layer=6``.

    Raises:
        ModelError: The model is unknown or a directory with custom modules, or a ready map got overrides.
        XAlignError: Weights or fit text are missing.

    Examples:
        >>> import xalign_models
        >>> model = xalign_models.load("all-MiniLM-L6-v2", device="cpu")
        >>> vectors = model.encode(["Good morning", "Guten Morgen"])
        >>> vectors.shape == (2, model.get_embedding_dimension())
        True
    """
    from xalign_models.models.ready import Bridge
    from xalign_models.models.sentence_transformer import AlignedSentenceTransformer

    if isinstance(model, str) and model.startswith("map:"):
        if overrides:
            raise ModelError(f"{model} is a ready map: its {', '.join(overrides)} cannot be changed.")
        maps = load_map(model)
        queries, index = (load(maps.settings[side], device=device) for side in ("queries", "index"))
        return AlignedSentenceTransformer.adopt(Bridge.of(queries, index, maps), None)
    located = locate(model, **overrides)
    if card := located.saved:
        saved = open_directory(card.files, pick_device(device))
        return AlignedSentenceTransformer.adopt(saved, located.spec, dict(card.claims))
    assert located.spec is not None
    return build(located.spec, device=device, files=located.files)


def build(
    spec: ModelSpec,
    *,
    device: str | None = None,
    files: Inspected | None = None,
    prompts: str | Sequence[str] | None = None,
    tail: Sequence[nn.Module] | None = None,
) -> SentenceTransformer:
    """The SentenceTransformer of a spec; its alignment is fitted now unless an earlier fit is in the cache.

    It is fitted under each of the backbone's prompts, or under the named ones. If several devices are given, all
    encode the fit text. ``files`` are those of the backbone, if they were read before, and a ``tail`` replaces the
    spec's modules after it.

    Raises:
        XAlignError: Weights or fit text are missing.
    """
    backbone = Backbone(spec.backbone, files)
    _ = backbone.fingerprint  # fails before seconds of imports if the weights are missing
    from sentence_transformers import SentenceTransformer

    from xalign_models.backbones.pointer import Pointer
    from xalign_models.models.sentence_transformer import AlignedSentenceTransformer

    device = pick_device(device, several=True)
    if tail is None:
        raw = raw_encoder(backbone, device, open_store())
        tail = Recipe(spec, raw, backbone, prompts).tail()
    home = each(device)[0]
    modules: list[Any] = list(backbone.modules(home))  # new ones: the caller may change them
    named = backbone.prompts
    default = None if prompts_by_language(named) else named.get("default")  # the first module chooses by language
    if not backbone.source.has_weights:
        modules = [Pointer(spec.backbone.whole, modules)]
    with quiet():
        model = SentenceTransformer(
            modules=[*modules, *tail],
            device=home,
            prompts={"query": default or "", "document": named.get("passage", default or ""), **named},
            default_prompt_name=None if default is None else "default",
            similarity_fn_name="cosine",
        )
    return AlignedSentenceTransformer.adopt(model, spec)


def load_encoder(
    model: str | Path | ModelSpec, *, device: str | None = None, store: EmbeddingStore | None = None, **overrides: Any
) -> XAlignEncoder:
    """A model as an mteb encoder.

    Args:
        model: A name, a directory (of any sentence-transformers model or of a saved aligned one), a hub id, or a spec.
        device: cpu, cuda or mps, by default the best available; or several, separated by commas, one process each.
        store: Store of raw vectors; None always encodes.
        **overrides: Fields of the backbone's spec; a saved model's are fixed.

    Raises:
        ModelError: The model is unknown, or a saved one got overrides.
        XAlignError: Weights or fit text are missing.
    """
    from xalign_models.models.encoder import XAlignEncoder

    device = pick_device(device, several=True)
    located = Located(model) if isinstance(model, ModelSpec) else locate(model, **overrides)
    if card := located.saved:
        home = device if len(each(device)) == 1 else "cpu"  # from there, modules are sent to other processes
        namespace = located.namespace  # before the weights are opened
        saved = open_directory(card.files, home)
        return encoder_of(saved, namespace, meta_of(located), device, store, card.files.confirm)
    assert located.spec is not None
    backbone = located.open_backbone()
    recipe = Recipe(located.spec, raw_encoder(backbone, device, store), backbone)
    meta = meta_of(located, recipe)
    if recipe.languages is not None:
        meta = meta.model_copy(update={"languages": sorted(recipe.languages)})
    tail = partial(recipe.tail, for_encoder=True)
    return XAlignEncoder(
        recipe.raw, tail, backbone.prompts, recipe.languages, meta, backbone.source.context, backbone.source.sides()
    )


def encoder_of(
    model: SentenceTransformer,
    raw_namespace: str,
    meta: Any,
    device: str,
    store: EmbeddingStore | None = None,
    confirm: Callable[[], None] = lambda: None,
) -> XAlignEncoder:
    """A SentenceTransformer, with its own modules, as an mteb encoder.

    Raises:
        ModelError: The model refers to a backbone that has changed since.
    """
    from sentence_transformers.sentence_transformer.modules import Normalize

    from xalign_models.backbones.pointer import Pointer
    from xalign_models.backbones.processes import moved
    from xalign_models.backbones.reduced import Reduced
    from xalign_models.backbones.router import sides_of
    from xalign_models.models.encoder import OpenEncoder, XAlignEncoder
    from xalign_models.models.provenance import split
    from xalign_models.models.ready import Bridge

    modules, start, aligned = split(model)
    tail = [copy.deepcopy(module).to("cpu") for module in modules[start:]]  # the model keeps its own
    if model.truncate_dim:
        tail.append(Reduced(model.truncate_dim))
    if not any(isinstance(module, Normalize) for module in tail[-1:]):
        tail.append(Normalize())
    backbone: list[Any] = modules[:start]
    if isinstance(pointer := backbone[0], Pointer):
        backbone[:1] = pointer.inner
        if pointer.backbone is not None:
            raw_namespace, confirm = pointer.backbone.fingerprint, pointer.backbone.confirm
    devices = each(device)
    opened = partial(moved, backbone)
    load = partial(_processes, opened, devices) if len(devices) > 1 else partial(opened, device)
    raw = RawEncoder(raw_namespace, load, device, store, confirm=confirm, name=str(meta.name))
    if isinstance(modules[0], Bridge):
        return OpenEncoder(model, raw, meta)
    languages = None if aligned is None or aligned.unknown != "error" else aligned.languages
    prompts = named_prompts(model.prompts, model.default_prompt_name, aligned and aligned.prompts)
    if "default" in model.prompts:
        prompts.setdefault("default", "")  # for languages without a prompt
    needs = aligned is not None and aligned.languages is not None
    return XAlignEncoder(raw, tail, prompts, languages, meta, sides=sides_of(backbone), needs_language=needs)


def open_recipe(spec: ModelSpec, device: str | None, prompts: str | Sequence[str] | None = None) -> Recipe:
    """The parts of a model. Its raw vectors are encoded on one device or several and kept in the store.

    Raises:
        XAlignError: Weights are missing.
    """
    backbone = open_backbone(spec.backbone)
    raw = raw_encoder(backbone, pick_device(device, several=True), open_store())
    return Recipe(spec, raw, backbone, prompts)


def raw_encoder(spec: BackboneSpec | Backbone, device: str, store: EmbeddingStore | None = None) -> RawEncoder:
    """The encoder of a backbone's raw vectors on one device or several; without a store, it always encodes.

    Raises:
        ModelError: The device does not support the precision or compiled layers.
    """
    backbone, devices = open_backbone(spec), each(device)
    spec = backbone.spec
    for name in devices:
        if spec.precision is Precision.TF32:
            tf32.require(name)
        if spec.backend == COMPILED:
            compiled.require(name)
    load: Callable[[], Any]
    if len(devices) == 1 or not backbone.source.has_weights:
        device, load = devices[0], partial(loading.shared_modules, backbone, devices[0])
    else:
        same = partial(loading.shared_modules, spec.whole, fingerprint=backbone.fingerprint)
        load = partial(_processes, same, devices)
    return RawEncoder(backbone.fingerprint, load, device, store, confirm=backbone.confirm, name=spec.model)


def _processes(load: Callable[[str], Sequence[nn.Module]], devices: Sequence[str]) -> list[nn.Module]:
    from xalign_models.backbones.processes import Processes

    return [Processes(load, devices)]
