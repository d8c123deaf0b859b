"""From a BackboneSpec to the modules of a sentence-transformers model that gives raw vectors."""

from __future__ import annotations

import json
import logging
import re
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models import assets
from xalign_models.backbones.templates import surrounds
from xalign_models.errors import AssetError, LanguageError, ModelError
from xalign_models.languages import is_canonical
from xalign_models.specs import BackboneSpec, Pooling, digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sentence_transformers import SentenceTransformer
    from torch import nn

    from xalign_models.backbones.transformer import LanguageTransformer

logger = logging.getLogger(__name__)

_OWN_MODULES = ("xalign_models.", "sentence_transformers.")
_IMPORTERS = ("Router", "Asym", "WordEmbeddings")  # sentence-transformers' modules that import what their files name


def fingerprint(spec: BackboneSpec) -> str:
    """Sha256 (hex) of everything that determines the raw vector of a prompted text: weights, tokenizer, spec.

    Raises:
        ModelError: It is a LUSIFER model that is not trained.
        AssetError: The weights are not there.
    """
    _require_trained(spec)
    return digest(assets.resolve(spec.model, spec.revision).fingerprint, spec.encoding_fields())


def _require_trained(spec: BackboneSpec) -> None:
    if spec.llm and not has_own_modules(Path(spec.model)):
        raise ModelError(
            f"xalign/{spec.tuned}__{spec.name} is not trained here: `xalign train lusifer` does that, with --config "
            "small or paper. A directory that it wrote is a model by itself."
        )


def pick_device(device: str | None = None) -> str:
    """``cpu``, ``cuda`` or ``mps``: the one asked for, else the best there is.

    Raises:
        ModelError: The device asked for is not there.
    """
    import torch

    have = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device is None:
        return "cuda" if have["cuda"] else "mps" if have["mps"] else "cpu"
    kind = device.split(":")[0]
    if not have.get(kind, False):
        usable = ", ".join(name for name, there in have.items() if there)
        raise ModelError(f"--device {device} is not usable on this machine; usable: {usable}.")
    return device


def shared_modules(spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
    """:func:`load_modules`, shared by the models of one backbone, which are run one after another."""
    return _shared_modules(spec, device, fingerprint(spec))


@lru_cache(maxsize=1)
def _shared_modules(spec: BackboneSpec, device: str, _: str) -> tuple[nn.Module, ...]:
    return load_modules(spec, device)  # the fingerprint keys the cache: a checkpoint may change under its path


def load_modules(spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
    """The modules up to, not including, any normalisation: together they give the raw vector.

    A sentence-transformers directory keeps its own modules (pooling, dense layers) unless the spec asks for a layer or
    a pooling; any other checkpoint is pooled as the spec says. The first module is a LanguageTransformer.

    Raises:
        AssetError: The checkpoint cannot be had.
        ModelError: It is no text encoder, is aligned already, has no such layer, or was trained here and its layer or
            pooling is to change.
    """
    from sentence_transformers.sentence_transformer.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    from xalign_models.alignments.module import Aligned
    from xalign_models.backbones.transformer import LanguageTransformer

    _require_trained(spec)
    resolved = assets.resolve(spec.model, spec.revision)
    options = {"torch_dtype": str(spec.dtype)}
    try:
        with quiet():
            as_published = spec.layer is None and spec.pooling is Pooling.PUBLISHED
            if as_published and _is_pipeline(resolved.path_or_id, resolved.revision):
                pipeline = _open_pipeline(resolved, device, model_kwargs=options)
                modules = [module for module in pipeline if not isinstance(module, Normalize)]
                if any(isinstance(module, Aligned) for module in modules):
                    raise ModelError(f"{spec.model} is aligned already; give its backbone.")
                if type(modules[0]) is Transformer:
                    _kind(modules[0].config).adopt(modules[0])
            elif spec.tuned:
                raise ModelError(f"{spec.model} was trained with its layer and pooling; they cannot be changed.")
            else:
                first = _transformer(spec, resolved.path_or_id, resolved.revision, options)
                mode = {Pooling.PUBLISHED: "mean", Pooling.LAST: "lasttoken"}.get(spec.pooling, str(spec.pooling))
                modules = [first, PoolingModule(first.get_embedding_dimension(), pooling_mode=mode)]
    except (OSError, ValueError) as error:
        raise AssetError(f"{spec.model!r} cannot be loaded as a text encoder: {_first_line(error)}") from None
    first = modules[0]
    if spec.llm:
        first.max_seq_length = min(filter(None, (spec.max_tokens, first.max_seq_length)), default=512)
    elif isinstance(first, LanguageTransformer):
        first.prompts = {key: text for key, text in spec.prompts if is_canonical(key)}
        first.base = first.base or {
            "model": spec.model, "revision": resolved.revision, "fingerprint": resolved.fingerprint,
            "dtype": str(spec.dtype),
        }  # fmt: skip
        first.pool_special_tokens = spec.special_tokens
        first.max_seq_length = min(filter(None, (spec.max_tokens, first.max_seq_length)), default=512)
        if first.tokenizer.pad_token is None:  # as in many decoder-only checkpoints; masked out, so any token will do
            first.tokenizer.pad_token = first.tokenizer.eos_token or first.tokenizer.unk_token
    return tuple(module.to(device).eval() for module in modules)


def _open_pipeline(resolved: assets.ResolvedModel, device: str, **options: Any) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    if resolved.source == "local" and has_own_modules(Path(resolved.path_or_id)):
        return open_directory(Path(resolved.path_or_id), device, **options)
    return SentenceTransformer(
        resolved.path_or_id, revision=resolved.revision, device=device,
        trust_remote_code=resolved.source == "package",  # our own modules, written by our own installation
        **options,
    )  # fmt: skip


def has_own_modules(directory: Path) -> bool:
    """Whether it is a sentence-transformers directory with modules of ours, as ``registry.save`` writes it."""
    path = directory / "modules.json"
    return path.is_file() and "xalign_models." in path.read_text(encoding="utf-8")


def open_directory(directory: Path, device: str, **options: Any) -> SentenceTransformer:
    """A saved model whose modules are ours or sentence-transformers'; code that it brings along is not run.

    Args:
        directory: What ``registry.save`` wrote.
        device: cpu, cuda or mps.
        **options: For SentenceTransformer.

    Raises:
        ModelError: It has modules of others, or code.
        AssetError: It cannot be loaded.
    """
    from sentence_transformers import SentenceTransformer

    types = [entry["type"] for entry in json.loads((directory / "modules.json").read_text(encoding="utf-8"))]
    if foreign := [kind for kind in types if not kind.startswith(_OWN_MODULES) or kind.endswith(_IMPORTERS)]:
        raise ModelError(
            f"{directory} has modules of others ({', '.join(foreign)}); load it with sentence-transformers."
        )
    if code := [*directory.rglob("*.py"), *filter(_names_code, directory.rglob("*config*.json"))]:
        raise ModelError(f"{directory} brings code of its own ({code[0].name}); load it with sentence-transformers.")
    try:
        with quiet():
            return SentenceTransformer(str(directory), device=device, trust_remote_code=True, **options)
    except (OSError, ValueError) as error:
        raise AssetError(f"{directory} cannot be loaded: {str(error).splitlines()[0]}") from None


def _names_code(path: Path) -> bool:
    """Whether a configuration names code to import: transformers' ``auto_map``, or the activation of a Dense module."""
    text = path.read_text(encoding="utf-8")
    activation = re.search(r'"activation_function"\s*:\s*"([^"]*\.[^"]*)"', text)
    return '"auto_map"' in text or bool(activation and not activation[1].startswith("torch.nn."))


def _transformer(spec: BackboneSpec, path: str, revision: str | None, options: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    hub = {"revision": revision} if revision else {}
    arguments: dict[str, Any] = {"config_kwargs": hub}
    config = AutoConfig.from_pretrained(path, **hub)
    if spec.layer is not None:
        layers = config.num_hidden_layers
        if spec.layer > layers:
            raise ModelError(f"--layer {spec.layer}: {spec.model} has {layers} layers, so 0 to {layers}.")
        # One layer more than asked for, where there is one: some models put a final norm on their last hidden state.
        arguments["config_kwargs"] = {**hub, "num_hidden_layers": min(spec.layer + 1, layers)}
        output = {"method": "forward", "method_output_name": ["hidden_states", spec.layer]}
        arguments |= {"modality_config": {"text": output}, "module_output_name": "token_embeddings"}
    return _kind(config)(
        path,
        model_kwargs={**options, **hub},
        processor_kwargs=hub,
        pool_special_tokens=spec.special_tokens,
        **arguments,
    )


def _kind(config: Any) -> type[LanguageTransformer]:
    """The module for a checkpoint: PromptEOL for a decoder-only language model."""
    from xalign_models.backbones.prompt_eol import PromptEOL
    from xalign_models.backbones.transformer import LanguageTransformer

    causal = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in config.architectures or ())
    return PromptEOL if causal and not config.is_encoder_decoder else LanguageTransformer


def _is_pipeline(path: str, revision: str | None) -> bool:
    return _file(path, "modules.json", revision) is not None


def _file(path: str, name: str, revision: str | None) -> Path | None:
    """A file of a checkpoint, local or on the hub (or in its cache, without a network); None if it has no such file."""
    if Path(path).is_dir():
        return local if (local := Path(path) / name).is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(hf_hub_download(path, name, revision=revision))
    except EntryNotFoundError:  # also if it is neither reachable nor cached: loading the weights will say so
        return None


def prompts(spec: BackboneSpec) -> dict[str, str]:
    """Prompts of the checkpoint's own sentence-transformers configuration, those of the spec on top of them.

    Prompts of the spec that surround a text stand alone: the checkpoint's instructions would mix two ways of reading.
    """
    if surrounds(text for _, text in spec.prompts):
        return dict(spec.prompts)
    resolved = assets.resolve(spec.model, spec.revision)
    file = _file(resolved.path_or_id, "config_sentence_transformers.json", resolved.revision)
    published = json.loads(file.read_text(encoding="utf-8")).get("prompts", {}) if file else {}
    return {**{key: text for key, text in published.items() if text}, **dict(spec.prompts)}


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


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' reports and bars away; cutting a model at a layer leaves weights unused on purpose."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
