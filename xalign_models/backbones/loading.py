"""From a BackboneSpec to the modules of a sentence-transformers model that gives raw vectors."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models import assets
from xalign_models.errors import AssetError, ModelError
from xalign_models.specs import BackboneSpec, Pooling, digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

logger = logging.getLogger(__name__)


def fingerprint(spec: BackboneSpec) -> str:
    """Sha256 (hex) of everything that determines the raw vector of a prompted text: weights, tokenizer, spec."""
    return digest(assets.resolve(spec.model, spec.revision).fingerprint, spec.encoding_fields())


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
        ModelError: It is no text encoder, or has no such layer.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    from xalign_models.backbones.transformer import LanguageTransformer

    resolved = assets.resolve(spec.model, spec.revision)
    options = {"torch_dtype": str(spec.dtype)}
    try:
        with quiet():
            as_published = spec.layer is None and spec.pooling is Pooling.PUBLISHED
            if as_published and _is_pipeline(resolved.path_or_id, resolved.revision):
                model = SentenceTransformer(
                    resolved.path_or_id, revision=resolved.revision, device=device, model_kwargs=options,
                    trust_remote_code=resolved.source == "package",  # our own modules, written by our own installation
                )  # fmt: skip
                modules = [module for module in model if not isinstance(module, Normalize)]
                if type(modules[0]) is Transformer:
                    LanguageTransformer.adopt(modules[0])
            else:
                first = _transformer(spec, resolved.path_or_id, resolved.revision, options)
                mode = {Pooling.PUBLISHED: "mean", Pooling.LAST: "lasttoken"}.get(spec.pooling, str(spec.pooling))
                modules = [first, PoolingModule(first.get_embedding_dimension(), pooling_mode=mode)]
    except (OSError, ValueError) as error:
        raise AssetError(f"{spec.model!r} cannot be loaded as a text encoder: {_first_line(error)}") from None
    first = modules[0]
    if isinstance(first, LanguageTransformer):
        first.pool_special_tokens = spec.special_tokens
        first.max_seq_length = min(filter(None, (spec.max_tokens, first.max_seq_length)), default=512)
        if first.tokenizer.pad_token is None:  # as in many decoder-only checkpoints; masked out, so any token will do
            first.tokenizer.pad_token = first.tokenizer.eos_token or first.tokenizer.unk_token
    return tuple(module.to(device).eval() for module in modules)


def _transformer(spec: BackboneSpec, path: str, revision: str | None, options: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    from xalign_models.backbones.transformer import LanguageTransformer

    hub = {"revision": revision} if revision else {}
    arguments: dict[str, Any] = {"config_kwargs": hub}
    if spec.layer is not None:
        config = AutoConfig.from_pretrained(path, **hub)
        layers = config.num_hidden_layers
        if spec.layer > layers:
            raise ModelError(f"--layer {spec.layer}: {spec.model} has {layers} layers, so 0 to {layers}.")
        # One layer more than asked for, where there is one: some models put a final norm on their last hidden state.
        arguments["config_kwargs"] = {**hub, "num_hidden_layers": min(spec.layer + 1, layers)}
        output = {"method": "forward", "method_output_name": ["hidden_states", spec.layer]}
        arguments |= {"modality_config": {"text": output}, "module_output_name": "token_embeddings"}
    return LanguageTransformer(
        path,
        model_kwargs={**options, **hub},
        processor_kwargs=hub,
        pool_special_tokens=spec.special_tokens,
        **arguments,
    )


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


def published_prompts(spec: BackboneSpec) -> dict[str, str]:
    """Prompts of the checkpoint's own sentence-transformers configuration, those of the spec on top of them."""
    resolved = assets.resolve(spec.model, spec.revision)
    file = _file(resolved.path_or_id, "config_sentence_transformers.json", resolved.revision)
    published = json.loads(file.read_text(encoding="utf-8")).get("prompts", {}) if file else {}
    return {**{key: text for key, text in published.items() if text}, **dict(spec.prompts)}


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
