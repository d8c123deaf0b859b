"""Builds models from a name, a directory or a spec: SentenceTransformers and mteb encoders."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

from xalign_models import alignments
from xalign_models.backbones import compiled, loading, tf32
from xalign_models.backbones.sources import find_source
from xalign_models.device import each
from xalign_models.models import fitting
from xalign_models.models.identity import calibration, fit_spec, namespace
from xalign_models.models.names import Located, locate
from xalign_models.specs import COMPILED, BackboneSpec, ModelSpec, Precision, Vectors, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from xalign_models.alignments import Alignment
    from xalign_models.backbones.raw import RawEncoder
    from xalign_models.backbones.reduced import Reduced
    from xalign_models.models.encoder import XAlignEncoder
    from xalign_models.store import EmbeddingStore


def load(model: str, *, device: str | None = None, **overrides: Any) -> SentenceTransformer:
    """A model as an ordinary SentenceTransformer.

    Its inputs are texts, or ``{"text": ..., "lang": "de"}`` if the alignment depends on the language. A directory's
    modules are loaded only if they are sentence-transformers' or ours: code in a directory is not run.

    Args:
        model: A registered name, a directory, or a hub id.
        device: cpu, cuda or mps; by default the best available.
        **overrides: Fields of the backbone's spec, e.g. ``layer=6``.

    Raises:
        ModelError: The model is unknown, or a directory with custom modules.
        XAlignError: Weights or fit text are missing.
    """
    from xalign_models.models.sentence_transformer import AlignedSentenceTransformer

    located = locate(model, **overrides)
    if not located.saved or located.card is None:
        assert located.spec is not None
        return build(located.spec, device=device)
    opened = loading.open_directory(located.card.directory, loading.pick_device(device))
    return AlignedSentenceTransformer.adopt(opened, located.spec, dict(located.card.claims))


def build(spec: ModelSpec, *, device: str | None = None) -> SentenceTransformer:
    """The SentenceTransformer of a spec; its alignment is fitted now unless an earlier fit is in the cache.

    Raises:
        XAlignError: Weights or fit text are missing.
    """
    loading.fingerprint(spec.backbone)  # checks that it exists before seconds of imports
    from xalign_models.store import open_store

    device = loading.pick_device(device, several=True)
    raw = raw_encoder(spec.backbone, device, open_store())
    reduced = reduction(spec, raw)
    return assemble(spec, [*reduced, *_tail(fitted(spec, raw, reduced))], each(device)[0])


def assemble(spec: ModelSpec, tail: Sequence[nn.Module], device: str) -> SentenceTransformer:
    """The modules of a spec's backbone and the given tail, as one model with the backbone's prompts.

    Raises:
        XAlignError: Weights are missing.
    """
    from sentence_transformers import SentenceTransformer

    from xalign_models.backbones.pointer import Pointer
    from xalign_models.models.sentence_transformer import AlignedSentenceTransformer

    modules: list[Any] = list(loading.load_modules(spec.backbone, device))  # the caller may change them
    if find_source(spec.backbone.model):  # no weights to save: its directory points to it
        modules = [Pointer(spec.backbone.whole, modules)]
    prompts = loading.prompts(spec.backbone)
    model = SentenceTransformer(
        modules=[*modules, *tail],
        device=device,
        prompts=prompts,
        default_prompt_name="default" if "default" in prompts else None,
        similarity_fn_name="cosine",
    )
    return AlignedSentenceTransformer.adopt(model, spec)


def load_encoder(
    model: str | ModelSpec, *, device: str | None = None, store: EmbeddingStore | None = None, **overrides: Any
) -> XAlignEncoder:
    """A model as an mteb encoder.

    Args:
        model: A name, a directory (of any sentence-transformers model or of a saved aligned one), a hub id, or a spec.
        device: cpu, cuda or mps, by default the best available; or several, with commas between, each in a process.
        store: Store of raw vectors; None always encodes.
        **overrides: Fields of the backbone's spec; a saved model's are fixed.

    Raises:
        ModelError: The model is unknown, or a saved one got overrides.
        XAlignError: Weights or fit text are missing.
    """
    from xalign_models.models.encoder import XAlignEncoder
    from xalign_models.models.metadata import meta_of

    device = loading.pick_device(device, several=True)
    located = locate(model, **overrides) if isinstance(model, str) else Located(model)
    if located.saved and located.card is not None:
        home = device if len(each(device)) == 1 else "cpu"  # whence modules go to other processes
        opened = loading.open_directory(located.card.directory, home)
        return encoder_of(opened, namespace(located), meta_of(located), device, store)
    spec = located.spec
    assert spec is not None
    raw = raw_encoder(spec.backbone, device, store)
    reduced = reduction(spec, raw)
    tail, languages = _fitted_tail(spec, raw, reduced)
    meta = meta_of(located)
    if languages is not None:
        meta = meta.model_copy(update={"languages": sorted(languages)})
    source = find_source(spec.backbone.model)
    if source and not source.normalises and spec.alignment is None:
        tail = list
    context = source.context if source else None
    prompts, sides = loading.prompts(spec.backbone), loading.sides(spec.backbone)
    return XAlignEncoder(raw, lambda: [*reduced, *tail()], prompts, languages, meta, context, sides)


def _fitted_tail(
    spec: ModelSpec, raw: RawEncoder, reduced: Sequence[Reduced]
) -> tuple[Callable[[], list[nn.Module]], Sequence[str] | None]:
    """What gives the modules after the raw vectors, and the languages they know; None for any language.

    Maps by language are fitted when their language is first used.
    """
    if spec.alignment is None or not alignments.find_method(spec.alignment.method).by_language:
        alignment = fitted(spec, raw, reduced)
        known = alignment.languages_ if alignment is not None and alignment.language_dependent else None
        return lambda: _tail(alignment), known
    chosen = fit_spec(spec)
    languages = fitting.fit_languages(chosen, fitting.load_corpora(chosen))
    complete = dataclasses.replace(chosen, languages=languages)

    def on_demand() -> list[nn.Module]:
        from sentence_transformers.sentence_transformer.modules import Normalize

        from xalign_models.models.on_demand import FittedOnDemand

        return [FittedOnDemand(complete, *encoding(spec, raw, reduced)), Normalize()]

    return on_demand, languages


def encoder_of(
    model: SentenceTransformer, raw_namespace: str, meta: Any, device: str, store: EmbeddingStore | None = None
) -> XAlignEncoder:
    """A SentenceTransformer as an mteb encoder; the modules before its alignment or normalisation give raw vectors.

    Args:
        model: Any model; its own modules are used.
        raw_namespace: Fingerprint of the raw vectors.
        meta: mteb's ModelMeta.
        device: Device of the backbone, or several.
        store: Store of raw vectors; None always encodes.
    """
    from sentence_transformers.sentence_transformer.modules import Normalize

    from xalign_models.alignments.module import Aligned
    from xalign_models.backbones.pointer import Pointer
    from xalign_models.backbones.processes import moved
    from xalign_models.backbones.raw import RawEncoder
    from xalign_models.backbones.reduced import Reduced
    from xalign_models.backbones.router import sides_of
    from xalign_models.models.encoder import XAlignEncoder

    modules: list[Any] = list(model)
    if isinstance(modules[0], Pointer):
        modules[:1] = modules[0].inner
    tail_starts = (i for i, module in enumerate(modules) if isinstance(module, Aligned | Normalize | Reduced))
    start = next(tail_starts, len(modules))
    tail = [module.to("cpu") for module in modules[start:]]
    if not any(isinstance(module, Normalize) for module in tail[-1:]):
        tail.append(Normalize())
    load: Callable[[], Any] = lambda: modules[:start]  # noqa: E731
    if len(devices := each(device)) > 1:
        load = partial(_processes, partial(moved, modules[:start]), devices)
    raw = RawEncoder(raw_namespace, load, device, store)
    aligned = next((module for module in tail if isinstance(module, Aligned)), None)
    languages = None if aligned is None or aligned.unknown == "unaligned" else aligned.languages
    prompts = {key: prompt for key, prompt in model.prompts.items() if prompt}
    return XAlignEncoder(raw, tail, prompts, languages, meta, sides=sides_of(modules[:start]))


def raw_encoder(spec: BackboneSpec, device: str, store: EmbeddingStore | None = None) -> RawEncoder:
    """The encoder of the backbone's raw vectors.

    Raises:
        ModelError: The device has no products in the precision that is asked for, or layers are not compiled for it.
    """
    from xalign_models.backbones.raw import RawEncoder

    whole, devices = spec.whole, each(device)
    for name in devices:
        if spec.precision is Precision.TF32:
            tf32.require(name)
        if spec.backend == COMPILED:
            compiled.require(name)
    if len(devices) == 1 or find_source(spec.model):
        load: Callable[[], Any] = partial(loading.shared_modules, whole, devices[0])
        return RawEncoder(loading.fingerprint(spec), load, devices[0], store)
    load = partial(_processes, partial(loading.shared_modules, whole), devices)
    return RawEncoder(loading.fingerprint(spec), load, device, store)


def _processes(load: Callable[[str], Sequence[nn.Module]], devices: Sequence[str]) -> list[nn.Module]:
    from xalign_models.backbones.processes import Processes

    return [Processes(load, devices)]


def reduction(spec: ModelSpec, raw: RawEncoder) -> tuple[Reduced, ...]:
    """The module that cuts raw vectors or keeps few bits of them; none where they are whole.

    For int8 the fit text is encoded, whose ranges are the scale.

    Raises:
        XAlignError: Weights or fit text are missing.
    """
    backbone = spec.backbone
    if backbone.whole == backbone:
        return ()
    from xalign_models.backbones.reduced import Reduced, ranges_of

    ranges = None
    if backbone.vectors is Vectors.INT8:
        stored_spec = ModelSpec(backbone.whole)
        vectors = fitting.fit_vectors(calibration(spec), encoding(stored_spec, raw, ())[1]).values()
        sides = (side for part in vectors for side in (part if isinstance(part, tuple) else (part,)))
        ranges = ranges_of(sides, backbone.truncate_dim)
    return (Reduced(backbone.truncate_dim, backbone.vectors, ranges),)


def fitted(spec: ModelSpec, raw: RawEncoder, reduced: Sequence[Reduced] | None = None) -> Alignment | None:
    """The alignment of a spec, fitted now or taken from the cache of fits; None for a plain backbone."""
    if spec.alignment is None:
        return None
    return fitting.fit_cached(fit_spec(spec), *encoding(spec, raw, reduced))


def encoding(spec: ModelSpec, raw: RawEncoder, reduced: Sequence[Reduced] | None = None) -> tuple[str, fitting.Encode]:
    """The fingerprint of encoded fit text, prompts included, and the function that encodes it.

    Args:
        spec: The model.
        raw: The encoder of its backbone.
        reduced: The modules of :func:`reduction`, if known.
    """
    import torch

    prompts = loading.prompts(spec.backbone)
    reduced = reduction(spec, raw) if reduced is None else reduced
    chosen = [prompts] if loading.prompt_languages(prompts) else [prompts.get("default", "")]
    chosen += [module.get_config_dict() for module in reduced]

    def encode(texts: Sequence[str], language: str, *, progress: str | None = None) -> npt.NDArray[np.float32]:
        vectors = raw.encode(texts, loading.prompt_in(prompts, language), progress)
        for module in reduced:
            vectors = module.reduce(torch.from_numpy(vectors)).numpy()
        return vectors

    return digest(raw.namespace, *chosen), encode


def _tail(alignment: Alignment | None) -> list[nn.Module]:
    """The modules after the raw vectors: the alignment, if any, and the normalisation."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    from xalign_models.alignments.module import Aligned

    if alignment is None:
        return [Normalize()]
    return [alignment.module() or Aligned.of(alignment), Normalize()]
