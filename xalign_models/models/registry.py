"""From a name, a directory or a hub id to a model: a SentenceTransformer, an mteb encoder, mteb's registry."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models import assets
from xalign_models.backbones import loading
from xalign_models.errors import AssetError, LicenceError, ModelError, XAlignError
from xalign_models.models import catalogue, fitting
from xalign_models.paths import atomic_directory, cache_dir
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec, Pooling, digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    from mteb.models.model_meta import ModelMeta
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from xalign_models.alignments import Alignment
    from xalign_models.backbones.raw import RawEncoder
    from xalign_models.models.encoder import XAlignEncoder
    from xalign_models.store import EmbeddingStore

logger = logging.getLogger(__name__)


def list_models() -> list[str]:
    """Names of the registered models, sorted."""
    return sorted(catalogue.specs())


def find_spec(model: str, **overrides: Any) -> ModelSpec:
    """The spec of a registered name, of a directory that :func:`save` wrote, or of any other backbone, unaligned.

    Args:
        model: ``xalign/lsar__multilingual-e5-small``, the name of a backbone, a directory, or ``org/name``.
        **overrides: Fields of the backbone's spec that replace its own, e.g. ``layer=6``; None leaves a field alone.

    Raises:
        ModelError: No such model.
    """
    if model in catalogue.BACKBONES:
        spec = ModelSpec(catalogue.BACKBONES[model])
    elif Path(model).is_dir():
        spec = _saved_spec(model) or ModelSpec(
            BackboneSpec(_slug(Path(model).resolve().name), str(Path(model).resolve()))
        )
    elif ("/" in model and not model.startswith("xalign/") and "__" not in model) or model in {
        asset.name for asset in assets.list_assets()
    }:
        spec = ModelSpec(BackboneSpec(_slug(model), model))
    else:
        spec = _trained_spec(str(directory_of(model))) or catalogue.get_spec(model)
    given = {field: value for field, value in overrides.items() if value is not None}
    if not given:
        return spec
    parts = {field: digest(value)[:6] if field == "prompts" else value for field, value in sorted(given.items())}
    suffix = _slug("-".join(f"{field}{value}".replace("_", "") for field, value in parts.items()))
    backbone = dataclasses.replace(spec.backbone, name=f"{spec.backbone.name}-{suffix}", **given)
    return dataclasses.replace(spec, backbone=backbone)


def name_of(model: str) -> str:
    """The name that a model's results are kept under: a saved model's own, else its spec's.

    Args:
        model: As :func:`find_spec` takes it.

    Raises:
        ModelError: No such model.
    """
    return _saved_name(Path(model)) if _is_saved(Path(model), {}) else find_spec(model).name


def directory_of(name: str) -> Path:
    """Where a model of this name lies that was trained without saying where."""
    return cache_dir() / "models" / name.removeprefix("xalign/")


def trained_specs() -> dict[str, ModelSpec]:
    """The models that lie where :func:`directory_of` finds them, by name."""
    folders = sorted(directory_of("").glob("*"))
    found = {f"xalign/{one.name}": spec for one in folders if (spec := _trained_spec(str(one)))}
    return {name: spec for name, spec in found.items() if spec.name == name}


def _saved_spec(directory: str) -> ModelSpec | None:
    """The spec on a saved model's card, None without one; a trained model's weights are in the directory itself."""
    card = _card(Path(directory))
    if "spec" not in card:
        return None
    spec = ModelSpec.from_dict(card["spec"])
    if "training" not in card:
        return spec
    return dataclasses.replace(spec, backbone=dataclasses.replace(spec.backbone, model=directory))


def _trained_spec(directory: str) -> ModelSpec | None:
    """:func:`_saved_spec` of a model that was trained here; None of any other."""
    return _saved_spec(directory) if "training" in _card(Path(directory)) else None


def _slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-").replace("__", "_")


def revision(spec: ModelSpec) -> str:
    """16 hex digits of everything that determines the model's vectors.

    Raises:
        XAlignError: The weights or the fit text are not there.
    """
    parts: list[Any] = [loading.fingerprint(spec.backbone), loading.prompts(spec.backbone)]
    if spec.alignment:
        parts.append(fitting.fingerprint(_fit_spec(spec)))
    return digest(*parts)[:16]


def namespace(model: str, **overrides: Any) -> str:
    """Fingerprint of a model's raw vectors: models that have it in common share their vectors.

    Raises:
        XAlignError: No such model, or its weights are missing.
    """
    if _is_saved(Path(model), overrides):
        return str(_card(Path(model)).get("backbone") or assets.directory_fingerprint(Path(model)))
    return loading.fingerprint(find_spec(model, **overrides).backbone)


def raw_encoder(spec: BackboneSpec, device: str, store: EmbeddingStore | None = None) -> RawEncoder:
    """What gives the backbone's raw vectors."""
    from xalign_models.backbones.raw import RawEncoder

    return RawEncoder(loading.fingerprint(spec), partial(loading.shared_modules, spec, device), device, store)


def fitted(spec: ModelSpec, raw: RawEncoder) -> Alignment | None:
    """The alignment of a spec, fitted now or taken from the cache of fits; None for a plain backbone."""
    if spec.alignment is None:
        return None
    prompts = loading.prompts(spec.backbone)
    chosen = [prompts] if loading.prompt_languages(prompts) else [prompts.get("default", "")]

    def encode(texts: Sequence[str], language: str, *, progress: str | None = None) -> npt.NDArray[np.float32]:
        return raw.encode(texts, loading.prompt_in(prompts, language), progress)

    return fitting.fit_cached(_fit_spec(spec), digest(raw.namespace, *chosen), encode)


def _fit_spec(spec: ModelSpec) -> AlignmentSpec:
    """The spec's alignment, of the languages alone that have a prompt where prompts are by language."""
    assert spec.alignment is not None
    languages = loading.prompt_languages(loading.prompts(spec.backbone))
    if languages is None:
        return spec.alignment
    have = fitting.fit_languages(spec.alignment, fitting.load_corpora(spec.alignment))
    return dataclasses.replace(spec.alignment, languages=tuple(one for one in have if one in languages))


def _tail(alignment: Alignment | None) -> list[nn.Module]:
    """What follows the raw vectors: the alignment, if any, and the normalisation."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    from xalign_models.alignments.module import Aligned

    return [Normalize()] if alignment is None else [Aligned.of(alignment), Normalize()]


def load_encoder(
    model: str | ModelSpec, *, device: str | None = None, store: EmbeddingStore | None = None, **overrides: Any
) -> XAlignEncoder:
    """A model as an mteb encoder.

    Args:
        model: A name, a directory (of any sentence-transformers model or of a saved aligned one), a hub id, or a spec.
        device: cpu, cuda or mps; by default the best there is.
        store: Where raw vectors are kept; None encodes anew.
        **overrides: Fields of the backbone's spec; a saved model's are fixed.

    Raises:
        ModelError: No such model, or overrides for a saved one.
        XAlignError: Weights or fit text are missing.
    """
    from xalign_models.models.encoder import XAlignEncoder

    device = loading.pick_device(device)
    if isinstance(model, str) and _is_saved(Path(model), overrides):
        return _directory_encoder(Path(model), device, store)
    spec = model if isinstance(model, ModelSpec) else find_spec(model, **overrides)
    raw = raw_encoder(spec.backbone, device, store)
    alignment = fitted(spec, raw)
    languages = alignment.languages_ if alignment is not None and alignment.language_dependent else None
    prompts = loading.prompts(spec.backbone)
    return XAlignEncoder(raw, _tail(alignment), prompts, languages, model_meta(spec))


def load(model: str, *, device: str | None = None, **overrides: Any) -> SentenceTransformer:
    """A model as an ordinary SentenceTransformer.

    Give it texts, or ``{"text": ..., "lang": "deu-Latn"}`` where the alignment depends on the language. A directory's
    modules are loaded only if they are sentence-transformers' or ours: code that a directory brings along is not run.

    Args:
        model: A registered name, a directory, or a hub id.
        device: cpu, cuda or mps; by default the best there is.
        **overrides: Fields of the backbone's spec, e.g. ``layer=6``.

    Raises:
        ModelError: No such model, or a directory with modules of others.
        XAlignError: Weights or fit text are missing.
    """
    if _is_saved(Path(model), overrides):
        return loading.open_directory(Path(model), loading.pick_device(device))
    return build(find_spec(model, **overrides), device=device)


def build(spec: ModelSpec, *, device: str | None = None) -> SentenceTransformer:
    """The SentenceTransformer of a spec; its alignment is fitted now unless an earlier fit is in the cache.

    Raises:
        XAlignError: Weights or fit text are missing.
    """
    from sentence_transformers import SentenceTransformer

    device = loading.pick_device(device)
    alignment = fitted(spec, raw_encoder(spec.backbone, device, _default_store()))
    modules = list(loading.load_modules(spec.backbone, device))  # its own copy: the caller may change it
    modules += _tail(alignment)
    prompts = loading.prompts(spec.backbone)
    result = SentenceTransformer(
        modules=modules,
        device=device,
        prompts=prompts,
        default_prompt_name="default" if "default" in prompts else None,
        similarity_fn_name="cosine",
    )
    result.xalign_spec = spec
    return result


def _default_store() -> EmbeddingStore:
    from xalign_models.store import open_store

    return open_store()


def save(
    model: SentenceTransformer,
    directory: Path,
    training: dict[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> None:
    """Write a model from :func:`build` as an ordinary sentence-transformers directory with our card in it.

    A directory that is there is replaced as a whole, at the end.

    Args:
        model: It, with its spec in ``xalign_spec``; for one that was trained ``spec.backbone.tuned`` says how.
        directory: Where to.
        training: What its weights were trained on and how, for the card; ``datasets`` names mteb's tasks.
        files: More files, by name, such as a training's log.

    Raises:
        ModelError: The model did not come from it.
    """
    from safetensors import SafetensorError

    spec = getattr(model, "xalign_spec", None)
    if spec is None:
        raise ModelError("Only models made by name or spec can be saved with their card; use save_pretrained.")
    try:
        with atomic_directory(directory) as temporary:
            with loading.quiet():
                model.save_pretrained(str(temporary), create_model_card=False)
            for name, content in (files or {}).items():
                (temporary / name).write_text(content, encoding="utf-8")
            card: dict[str, Any] = {"name": spec.name}
            if training is None:
                card["revision"], card["backbone"] = revision(spec), loading.fingerprint(spec.backbone)
                card["training_datasets"] = sorted(_trained_on(spec))
            else:  # its weights are these files
                own = dataclasses.replace(
                    spec.backbone, model=directory.resolve().name, layer=None, pooling=Pooling.PUBLISHED
                )
                spec = dataclasses.replace(spec, backbone=own)
                card["training"], card["training_datasets"] = training, sorted(training["datasets"])
            card |= {"spec": spec.to_dict(), "content": assets.directory_fingerprint(temporary)}
            text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
            (temporary / assets.CARD).write_text(text, encoding="utf-8")
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"Cannot write {directory}: {reason}; make room or choose another directory.") from None


def _is_saved(directory: Path, overrides: dict[str, Any]) -> bool:
    """Whether it is what :func:`save` wrote (or has modules of ours in some other way), which takes no overrides."""
    if not loading.has_own_modules(directory) or "training" in _card(directory):
        return False  # a trained model is a backbone like any other
    if given := [field for field, value in overrides.items() if value is not None]:
        raise ModelError(f"{directory} is a saved model: its {', '.join(given)} cannot be changed; fit it anew.")
    return True


def _card(directory: Path) -> dict[str, Any]:
    """What a directory says it is: nothing when it was edited since, as it is then known by its content."""
    try:
        card: dict[str, Any] = json.loads((directory / assets.CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return card if card.get("content") == assets.directory_fingerprint(directory) else {}


def _saved_name(directory: Path) -> str:
    return str(_card(directory).get("name", f"local/{_slug(directory.resolve().name)}"))


def _directory_encoder(directory: Path, device: str, store: EmbeddingStore | None) -> XAlignEncoder:
    from sentence_transformers.sentence_transformer.modules import Normalize

    from xalign_models.alignments.module import Aligned
    from xalign_models.backbones.raw import RawEncoder
    from xalign_models.models.encoder import XAlignEncoder

    model = loading.open_directory(directory, device)
    modules = list(model)
    at = next((i for i, module in enumerate(modules) if isinstance(module, Aligned | Normalize)), len(modules))
    tail = [module.to("cpu") for module in modules[at:]]
    if not any(isinstance(module, Normalize) for module in tail[-1:]):
        tail.append(Normalize())
    raw = RawEncoder(namespace(str(directory)), lambda: modules[:at], device, store)
    languages = next((module.languages for module in tail if isinstance(module, Aligned)), None)
    return XAlignEncoder(raw, tail, {k: v for k, v in model.prompts.items() if v}, languages, _saved_meta(directory))


def _saved_meta(directory: Path) -> ModelMeta:
    card = _card(directory)
    fixed = card.get("revision") or assets.directory_fingerprint(directory)[:16]
    spec = {"spec": card["spec"]} if "spec" in card else {}
    return _meta(_saved_name(directory), fixed, set(card.get("training_datasets", ())), None, None, spec)


def _trained_on(spec: ModelSpec) -> set[str]:
    trained = set(_card(Path(spec.backbone.model)).get("training_datasets", ())) if spec.backbone.tuned else set()
    if spec.alignment:
        trained |= {name for corpus in fitting.load_corpora(spec.alignment) for name in corpus.trains}
    return trained


def model_meta(model: str | ModelSpec) -> ModelMeta:
    """What mteb records of a model; ``revision`` is None as long as its weights or fit text are not at hand.

    Raises:
        ModelError: No such model.
    """
    if isinstance(model, str) and _is_saved(Path(model), {}):
        return _saved_meta(Path(model))
    spec = find_spec(model) if isinstance(model, str) else model
    try:
        fixed, trained = revision(spec), _trained_on(spec)
    except XAlignError as error:
        logger.debug("%s has no revision yet: %s", spec.name, error)
        fixed, trained = None, set()
    arguments = {"spec": spec.to_dict()}
    if spec.backbone.tuned:
        arguments["training"] = _card(Path(spec.backbone.model)).get("training", {})
    return _meta(spec.name, fixed, trained, spec.backbone.mteb_name, spec.backbone.max_tokens, arguments)


def _meta(
    name: str, fixed: str | None, trained: set[str], like: str | None, max_tokens: int | None, arguments: dict[str, Any]
) -> ModelMeta:
    import mteb
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    known = mteb.get_model_meta(like).model_dump() if like else {}
    inherited = {key: known.get(key) for key in (
        "release_date", "languages", "n_parameters", "n_embedding_parameters", "memory_usage_mb", "max_tokens",
        "embed_dim", "license", "open_weights", "public_training_code", "public_training_data", "reference", "citation",
    )}  # fmt: skip
    return ModelMeta(**{
        **inherited,
        "max_tokens": max_tokens or inherited["max_tokens"],
        "loader": _mteb_loader,
        "loader_kwargs": arguments,
        "name": name,
        "revision": fixed,
        "framework": ["Sentence Transformers", "PyTorch"],
        "similarity_fn_name": ScoringFunction.COSINE,
        "use_instructions": False,
        "training_datasets": trained | set(known.get("training_datasets") or ()),
        "adapted_from": like,
    })  # fmt: skip


def _mteb_loader(name: str, revision: str | None = None, device: str | None = None, **kwargs: Any) -> XAlignEncoder:
    spec = ModelSpec.from_dict(kwargs["spec"]) if "spec" in kwargs else name
    return load_encoder(spec, device=device, store=_default_store())


def register_models() -> None:
    """Make every registered model, and those trained where their names find them, known to ``mteb.get_model``.

    Those whose weights are here get their revision now.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    for name, spec in {**catalogue.specs(), **trained_specs()}.items():
        MODEL_REGISTRY[name] = model_meta(spec) if _at_hand(spec.backbone) else _meta(
            name, None, set(), spec.backbone.mteb_name, spec.backbone.max_tokens, {"spec": spec.to_dict()}
        )  # fmt: skip


def _at_hand(spec: BackboneSpec) -> bool:
    """Whether the weights are installed: looking must neither install an asset nor ask the hub."""
    try:
        return Path(spec.model).is_dir() or assets.where(spec.model) is not None
    except (AssetError, LicenceError):
        return False
