"""Opens checkpoints whose files policy admits, and turns any library error that a checkpoint causes into one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from xalign_models.assets import Inspected, ResolvedModel
from xalign_models.backbones import policy
from xalign_models.errors import AssetError, XAlignError, one_line, without_panic
from xalign_models.parallel import TURN

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from xalign_models.backbones.transformer import LanguageTransformer

_UNREAD = frozenset(".bin .ckpt .data .gguf .h5 .msgpack .npz .onnx .onnx_data .ot .pb .pt .pth .tflite .xml".split())
"""Weights in formats that are refused, ignored or, like graphs, read from the directory itself."""


def open_config(resolved: ResolvedModel, *, trust: bool = False, **changes: Any) -> Any:
    """A checkpoint's transformers configuration, with changed fields; errors as in :func:`open_pretrained`."""
    from transformers import AutoConfig

    return open_pretrained(AutoConfig, resolved, trust=trust, **changes)


def is_decoder_only(config: Any) -> bool:
    """Whether a checkpoint is a language model with causal attention, not an encoder or an encoder-decoder."""
    from transformers.models.auto import modeling_auto as auto

    kind = config.model_type
    writes = kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return writes and not config.is_encoder_decoder and is_causal(config)


def is_causal(config: Any) -> bool:
    """Whether a decoder's configuration keeps causal attention."""
    both = getattr(config, "use_bidirectional_attention", None)  # EmbeddingGemma's
    return both in (None, False) and getattr(config, "is_causal", None) is not False


def open_pretrained(kind: Any, resolved: ResolvedModel, *, trust: bool = False, **options: Any) -> Any:
    """A configuration, tokenizer or model of a checkpoint; the weights of a model are complete.

    Raises:
        ModelError: The checkpoint names code, or its weights do not match the model.
        AssetError: It cannot be loaded.
    """
    from xalign_models.backbones import borrowed, weights

    policy.check(resolved.files, trust=trust)
    options |= _hub(resolved, trust)
    with _placed(resolved, trust) as path:
        if not borrowed.has_weights(kind):
            made = kind.from_pretrained(path, **options)
            if hasattr(made, "all_special_ids"):
                weights.require_vocabulary(made, resolved.path_or_id)
        else:
            if resolved.source != "hub":
                weights.require_types(resolved.files)
                weights.require_size(options.get("config") or open_config(resolved, trust=trust), resolved.files)
            made, info = kind.from_pretrained(
                path, output_loading_info=True, ignore_mismatched_sizes=True, use_safetensors=True, **options
            )
            weights.require_fit(info, resolved.path_or_id)
            made.config.name_or_path = resolved.path_or_id
        made.name_or_path = resolved.path_or_id
        return made


def open_transformer(
    kind: type[LanguageTransformer], resolved: ResolvedModel, dtype: str, *, trust: bool = False, **arguments: Any
) -> LanguageTransformer:
    """A checkpoint as the first module of a model; errors as in :func:`open_pretrained`."""
    hub = _hub(resolved, trust)
    config = {**hub, **arguments.pop("config_kwargs", {})}
    policy.check(resolved.files, trust=trust)
    with _placed(resolved, trust) as path:
        weights = {**hub, "torch_dtype": dtype}
        return kind(path, model_kwargs=weights, processor_kwargs=dict(hub), config_kwargs=config, **arguments)


def open_pipeline(resolved: ResolvedModel, device: str, *, trust: bool = False, **options: Any) -> SentenceTransformer:
    """A sentence-transformers model, published or saved by xalign, without running code from its files.

    Raises:
        ModelError: It has unknown modules or code, or its weights do not match the model.
        AssetError: It cannot be loaded.
    """
    from xalign_models.backbones import borrowed, weights

    policy.check(resolved.files, trust=trust)
    classes = policy.module_classes(resolved.files)
    for folder in policy.folders_of_maps(resolved.files):
        weights.require_types(resolved.files, folder)
    options |= {"device": device, "trust_remote_code": trust, "revision": resolved.revision}
    with _placed(resolved, trust) as path:
        model: SentenceTransformer = borrowed.load_sentence_transformer(path, classes, **options)
        return model


def open_directory(files: Inspected, device: str, **options: Any) -> SentenceTransformer:
    """The model in a directory that ``save`` wrote; see :func:`open_pipeline`."""
    return open_pipeline(ResolvedModel(str(files.directory), None, "", "local", files), device, **options)


@contextmanager
def _placed(resolved: ResolvedModel, trust: bool) -> Iterator[str]:
    """The path or hub id of a checked model, for libraries.

    Libraries open files themselves. For a directory, they get a temporary copy made from the checked files. Code that
    the user trusts is imported from the directory itself. At the end, the files must still match the fingerprint.
    """
    model: AbstractContextManager[Any] = nullcontext(resolved.path_or_id)
    if resolved.source != "hub" and not trust:
        model = resolved.files.copied(lambda name: PurePosixPath(name).suffix in _UNREAD)
    with model as place:
        try:
            with TURN, opened(resolved.path_or_id), quiet():
                yield str(place)
        except XAlignError as error:
            raise type(error)(str(error).replace(str(place), resolved.path_or_id)) from error.__cause__
    resolved.confirm()


@contextmanager
def opened(model: str) -> Iterator[None]:
    """Turn any error of a loader into one line: anybody may have written the files.

    Raises:
        AssetError: In place of other libraries' errors.
    """
    try:
        with without_panic():
            yield
    except XAlignError:
        raise
    except Exception as error:
        reason = one_line(error)
        # users cannot understand these messages
        if isinstance(error, ArithmeticError | AttributeError | LookupError | TypeError):
            reason += ". Perhaps its config.json, or another of its JSON files, is damaged: get the files again."
        raise AssetError(f"{model!r} cannot be loaded: {reason}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the libraries' reports and progress bars; xalign checks what they report."""
    from transformers.utils import logging as transformers_logging

    sentences = logging.getLogger("sentence_transformers")  # it warns of every default prompt
    level, own_level = transformers_logging.get_verbosity(), sentences.level
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    sentences.setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        sentences.setLevel(own_level)
        if bars:
            transformers_logging.enable_progress_bar()


def _hub(resolved: ResolvedModel, trust: bool) -> dict[str, Any]:
    return {"trust_remote_code": trust, **({"revision": resolved.revision} if resolved.revision else {})}
