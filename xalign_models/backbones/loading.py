"""From a BackboneSpec to the modules of a sentence-transformers model that gives raw vectors."""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models import assets
from xalign_models.backbones import policy
from xalign_models.backbones.checkpoint import open_config, open_pipeline, open_transformer, opened, quiet
from xalign_models.backbones.policy import has_own_modules
from xalign_models.backbones.sources import check_fields, find_source
from xalign_models.backbones.templates import surrounds
from xalign_models.device import pick_device
from xalign_models.errors import LanguageError, ModelError
from xalign_models.files import read_json
from xalign_models.languages import is_canonical
from xalign_models.specs import COMPILED, BackboneSpec, Dtype, Pooling, Precision, digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentence_transformers import SentenceTransformer
    from torch import nn

    from xalign_models.backbones.transformer import LanguageTransformer

logger = logging.getLogger(__name__)

__all__ = ["fingerprint", "has_own_modules", "load_modules", "open_directory", "pick_device", "prompt_in",
           "prompt_languages", "prompts", "quiet", "shared_modules"]  # fmt: skip


def fingerprint(spec: BackboneSpec) -> str:
    """Sha256 (hex) of everything that determines the raw vector of a prompted text: weights, tokenizer, spec.

    Raises:
        ModelError: It is a LUSIFER model that is not trained.
        AssetError: The weights are not there.
    """
    if source := find_source(spec.model):
        check_fields(source, spec)
        return digest(source.fingerprint(), spec.encoding_fields())
    _require_trained(spec)
    fields = spec.encoding_fields()
    if is_upcast(spec):
        fields["computed_in"] = "float32"
    return digest(assets.resolve(spec.model, spec.revision).fingerprint, fields)


def is_upcast(spec: BackboneSpec) -> bool:
    """Whether half-precision weights are computed with in float32: there is only a CPU, which is slow at halves."""
    if spec.dtype is Dtype.FLOAT32 or pick_device() != "cpu":
        return False
    from xalign_models.linalg import onednn

    return onednn.is_slow(
        str(spec.dtype),
        "Weights keep their values and are computed with in float32. Models have another revision then.",
    )


def _require_trained(spec: BackboneSpec) -> None:
    if spec.llm and not has_own_modules(Path(spec.model)):
        raise ModelError(
            f"xalign/{spec.tuned}__{spec.name} is not trained here: `xalign train lusifer` does that, with --config "
            "small or paper. A directory that it wrote is a model by itself."
        )


def shared_modules(spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
    """:func:`load_modules`, shared by the models of one backbone, which are run one after another."""
    return _shared_modules(spec, device, fingerprint(spec))


@lru_cache(maxsize=1)
def _shared_modules(spec: BackboneSpec, device: str, _: str) -> tuple[nn.Module, ...]:
    return load_modules(spec, device)  # the fingerprint keys the cache: a checkpoint may change under its path


def load_modules(spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
    """The modules up to, not including, any normalisation: together they give the raw vector, whole and in float32.

    A sentence-transformers directory keeps its own modules (pooling, dense layers) unless the spec asks for a layer or
    a pooling; any other checkpoint is pooled as the spec says. The first module is a LanguageTransformer.

    Raises:
        AssetError: The checkpoint cannot be had.
        ModelError: It is no text encoder, is aligned already, has no such layer, or was trained here and its layer or
            pooling is to change.
    """
    if source := find_source(spec.model):
        check_fields(source, spec)
        return source.modules(spec, device)
    _require_trained(spec)
    with opened(spec.model):
        return _load_modules(spec, device)


def _load_modules(spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    from xalign_models.backbones.router import first_modules

    resolved = _with_graph(assets.resolve(spec.model, spec.revision), spec)
    as_published = spec.layer is None and spec.pooling is Pooling.PUBLISHED
    published = _file(resolved, "modules.json")
    if not as_published and published and policy.routers(published):
        raise ModelError(f"{spec.model} has routes for queries and documents; leave out --layer and --pooling.")
    if "universal_learner_name_or_path" in _config(resolved):
        raise ModelError(f"{spec.model} is a LUSIFER in its authors' own files; write lusifer:{spec.model}.")
    if as_published and published:
        modules = _published(spec, resolved, device)
    elif as_published and _config(resolved).get("model_type") == "model2vec":  # in its own layout
        from xalign_models.backbones.static import LanguageStatic

        policy.check(resolved)
        modules = [LanguageStatic.load(resolved.path_or_id, revision=resolved.revision)]
    elif spec.tuned:
        raise ModelError(f"{spec.model} was trained with its layer and pooling; they cannot be changed.")
    else:
        first = _transformer(spec, resolved)
        mode = {Pooling.PUBLISHED: "mean", Pooling.LAST: "lasttoken"}.get(spec.pooling, str(spec.pooling))
        modules = [first, PoolingModule(first.get_embedding_dimension(), pooling_mode=mode)]
    for first in first_modules(modules):
        _set(first, spec, resolved)
    if is_upcast(spec):
        modules = [module.float() for module in modules]
    return tuple(module.to(device).eval() for module in modules)


def _set(first: Any, spec: BackboneSpec, resolved: assets.ResolvedModel) -> None:
    """Let a first module do what the spec says."""
    from xalign_models.backbones.transformer import LanguageTransformer

    if spec.graph and getattr(first, "graph", None) != spec.graph:
        raise ModelError(f"--backend {spec.backend} is for transformers; {spec.model} is none.")
    ways = {"precision": spec.precision is not Precision.NATIVE, "backend": spec.backend == COMPILED}
    if not spec.llm:  # a LUSIFER keeps what it was built with, and cuts its texts
        ways |= {"max-tokens": spec.max_tokens is not None, "dtype": spec.dtype is not Dtype.FLOAT32}
    if not isinstance(first, LanguageTransformer) and any(ways.values()):
        option = next(option for option, chosen in ways.items() if chosen)
        value = getattr(spec, option.replace("-", "_"))
        raise ModelError(f"--{option} {value} is for transformers; {spec.model} is none.")
    if spec.precision is Precision.INT8:
        first.to_int8()
    if isinstance(first, LanguageTransformer):
        first.tf32 |= spec.precision is Precision.TF32
        first.compiled |= spec.backend == COMPILED
    if spec.llm:
        first.max_seq_length = min(filter(None, (spec.max_tokens, first.max_seq_length)), default=512)
    elif isinstance(first, LanguageTransformer):
        first.prompts = {key: text for key, text in spec.prompts if is_canonical(key)}
        below = _below(resolved)
        first.base = first.base or {
            "model": spec.model if below is resolved else below.path_or_id,
            "revision": below.revision,
            "fingerprint": below.fingerprint,
            "dtype": str(spec.dtype),
        }
        first.pool_special_tokens = spec.special_tokens
        first.max_seq_length = min(filter(None, (spec.max_tokens, first.max_seq_length)), default=512)
        if first.tokenizer.pad_token is None:  # as in many decoder-only checkpoints; masked out, so any token will do
            first.tokenizer.pad_token = first.tokenizer.eos_token or first.tokenizer.unk_token


def _published(spec: BackboneSpec, resolved: assets.ResolvedModel, device: str) -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Normalize

    from xalign_models.alignments.module import Aligned
    from xalign_models.backbones.router import first_modules
    from xalign_models.backbones.transformer import CheckedTransformer

    options = {"torch_dtype": str(spec.dtype), **({"graph": spec.graph} if spec.graph else {})}
    pipeline = open_pipeline(resolved, device, trust=spec.trust_remote_code, model_kwargs=options)
    modules = [module for module in pipeline if not isinstance(module, Normalize)]
    if any(isinstance(module, Aligned) for module in modules):
        raise ModelError(f"{spec.model} is aligned already; give its backbone.")
    for first in first_modules(modules):
        if type(first) is CheckedTransformer:
            _kind(first.config).adopt(first)
    return modules


def open_directory(directory: Path, device: str, *, trust: bool = False, **options: Any) -> SentenceTransformer:
    """A saved model whose modules are ours or sentence-transformers'; code that it brings along is not run.

    Args:
        directory: What ``save`` wrote.
        device: cpu, cuda or mps.
        trust: Whether the model may run its own code.
        **options: For SentenceTransformer.

    Raises:
        ModelError: It has modules of others, or code, or its weights are not the model's.
        AssetError: It cannot be loaded.
    """
    resolved = assets.ResolvedModel(str(directory), None, "", "local")
    return open_pipeline(resolved, device, trust=trust, **options)


def _transformer(spec: BackboneSpec, resolved: assets.ResolvedModel) -> Any:
    config = open_config(_below(resolved), trust=spec.trust_remote_code)
    arguments: dict[str, Any] = {"graph": spec.graph} if spec.graph else {}
    if spec.layer is not None:
        layers = config.num_hidden_layers
        if spec.layer > layers:
            raise ModelError(f"--layer {spec.layer}: {spec.model} has {layers} layers, so 0 to {layers}.")
        # One layer more than asked for, where there is one: some models put a final norm on their last hidden state.
        arguments["config_kwargs"] = {"num_hidden_layers": min(spec.layer + 1, layers)}
        output = {"method": "forward", "method_output_name": ["hidden_states", spec.layer]}
        arguments |= {"modality_config": {"text": output}, "module_output_name": "token_embeddings"}
    return open_transformer(
        _kind(config),
        resolved,
        str(spec.dtype),
        trust=spec.trust_remote_code,
        pool_special_tokens=spec.special_tokens,
        **arguments,
    )


def _kind(config: Any) -> type[LanguageTransformer]:
    """The module for a checkpoint: PromptEOL for a decoder-only language model."""
    from xalign_models.backbones.prompt_eol import PromptEOL
    from xalign_models.backbones.transformer import LanguageTransformer

    causal = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in config.architectures or ())
    return PromptEOL if causal and not config.is_encoder_decoder else LanguageTransformer


def _with_graph(resolved: assets.ResolvedModel, spec: BackboneSpec) -> assets.ResolvedModel:
    """The same model; of one on the hub, its directory in the hub's cache, with the graph and without weights."""
    if resolved.source != "hub" or not spec.graph:
        return resolved
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.jinja", "*.model", "*.txt", "[0-9]_*/*", f"{spec.graph.rpartition('.')[0]}.*"]
    away = assets.hub_is_away()
    folder = snapshot_download(
        resolved.path_or_id, revision=resolved.revision, allow_patterns=wanted, local_files_only=away
    )
    return assets.ResolvedModel(folder, None, resolved.fingerprint, "local")


def _file(resolved: assets.ResolvedModel, name: str) -> Path | None:
    """A file of a checkpoint, local or on the hub (or in its cache, without a network); None if it has no such file."""
    if resolved.source != "hub":
        return local if (local := Path(resolved.path_or_id) / name).is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        away = assets.hub_is_away()
        return Path(hf_hub_download(resolved.path_or_id, name, revision=resolved.revision, local_files_only=away))
    except EntryNotFoundError:  # also if it is neither reachable nor cached: loading the weights will say so
        return None


def _below(resolved: assets.ResolvedModel) -> assets.ResolvedModel:
    """The checkpoint that an adapter's directory is for; any other model itself."""
    adapter = _file(resolved, "adapter_config.json")
    if adapter is None or _file(resolved, "config.json"):
        return resolved
    return assets.resolve(str(read_json(adapter).get("base_model_name_or_path")))


def _config(resolved: assets.ResolvedModel) -> dict[str, Any]:
    """A checkpoint's ``config.json``; empty if it has none."""
    config = _file(resolved, "config.json")
    return read_json(config) if config else {}


def prompts(spec: BackboneSpec) -> dict[str, str]:
    """Prompts of the checkpoint's own sentence-transformers configuration, those of the spec on top of them.

    Prompts of the spec that surround a text stand alone: the checkpoint's instructions would mix two ways of reading.
    """
    if surrounds(text for _, text in spec.prompts):
        return dict(spec.prompts)
    if source := find_source(spec.model):
        return {**source.prompts(), **dict(spec.prompts)}
    resolved = assets.resolve(spec.model, spec.revision)
    file = _file(resolved, "config_sentence_transformers.json")
    published = (read_json(file).get("prompts") or {}) if file else {}
    if not isinstance(published, dict) or not all(isinstance(text, str | None) for text in published.values()):
        raise ModelError(f"{spec.model}: the prompts of {file} are damaged: names and texts were expected.")
    return {**{key: text for key, text in published.items() if text}, **dict(spec.prompts)}


def sides(spec: BackboneSpec) -> frozenset[str]:
    """Those of ``query`` and ``document`` that the backbone encodes in another way than texts that are neither."""
    if find_source(spec.model):
        return frozenset()
    resolved = assets.resolve(spec.model, spec.revision)
    modules = _file(resolved, "modules.json")
    if modules is None or not policy.routers(modules):
        return frozenset()
    from xalign_models.backbones.router import read_routes, sides_of

    hub = {} if resolved.source != "hub" else {"revision": resolved.revision, "local_files_only": assets.hub_is_away()}
    with opened(spec.model):
        policy.check(resolved, trust=spec.trust_remote_code)  # the hub's configurations are all here now
        routers = policy.routers(modules).items()
        return sides_of(read_routes(resolved.path_or_id, folder, types, **hub) for folder, types in routers)


def prompt_in(prompts: Mapping[str, str], language: str) -> str:
    """The prompt of a text that is for no task in particular, such as an alignment's fit text.

    Raises:
        LanguageError: The prompts are by language, and there is none in this one.
    """
    languages = prompt_languages(prompts)
    if languages is not None and language not in languages:
        raise LanguageError(
            f"There is no prompt in {language}; there is one in {', '.join(sorted(languages))}. "
            "The English one (en-prompts) does for every language."
        )
    return prompts.get(language, prompts.get("default", ""))


def prompt_languages(prompts: Mapping[str, str]) -> frozenset[str] | None:
    """The languages that prompts by language serve; None when a text's language does not matter or any will do."""
    codes = frozenset(key for key in prompts if is_canonical(key))
    return codes if codes and "default" not in prompts else None
