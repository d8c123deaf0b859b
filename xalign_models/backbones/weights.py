"""Reads a checkpoint's weights, and checks by name, shape and type that they match the model."""

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

import torch

from xalign_models.assets.inspection import Inspected
from xalign_models.backbones import borrowed
from xalign_models.errors import ModelError

_BUFFERS = r"(.*\.)?(position_ids|token_type_ids|inv_freq|masked_bias|attn\.bias|num_batches_tracked)"
_MISSING = re.compile(rf"{_BUFFERS}|(.*\.)?pooler\..*")
"""Weights that a checkpoint may lack: computed positions, and the pooler, which xalign does not use."""
_HEADS = (
    "cls", "classifier", "discriminator_predictions", "embed_out", "generator_lm_head", "generator_predictions",
    "lm_head", "mlm_head", "pred_layer", "predictions", "qa_outputs", "score", "seq_relationship", "sop_classifier",
    "vocab_layer_norm", "vocab_projector", "vocab_transform",
)  # fmt: skip
_UNEXPECTED = re.compile(rf"{_BUFFERS}|(.*\.)?pooler\..*|(\w+\.)?({'|'.join(_HEADS)})\..*")
"""Additional weights that a checkpoint may have: heads, which an encoder does not use."""
_LAYER = re.compile(r"\.(\d+)\.")
_MOST_OF_A_BYTE = 4
"""Maximum number of weights per byte of a checkpoint: packed 4-bit weights have two, and a part may be missing."""
_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
"""Types of safetensors -> torch's types."""
_FLOATING = {"F16", "BF16", "F32", "F64"}


def require_fit(info: Mapping[str, Any], model: str, layers: int | None = None) -> None:
    """Refuse a checkpoint that does not match its model; transformers would warn and draw missing weights at random.

    Args:
        info: transformers' loading info: ``missing_keys``, ``unexpected_keys``, ``mismatched_keys``, ``error_msgs``.
        model: Name of the checkpoint in messages.
        layers: Number of layers that the model keeps; weights of later layers are ignored.

    Raises:
        ModelError: The checkpoint lacks weights, has extra ones, or has some in another shape.
    """
    missing = [name for name in info["missing_keys"] if not _MISSING.fullmatch(name)]
    unexpected = [name for name in info["unexpected_keys"] if not _UNEXPECTED.fullmatch(name)]
    if layers is not None:
        numbers = {name: _LAYER.search(f".{name}") for name in unexpected}
        unexpected = [name for name, number in numbers.items() if number is None or int(number[1]) < layers]
    problems = [
        *([f"it lacks {_some(missing)}"] if missing else []),
        *([f"it has {_some(unexpected)}, which the model lacks"] if unexpected else []),
        *(
            f"{name} has the shape {tuple(there)} instead of {tuple(wanted)}"
            for name, there, wanted in sorted(info["mismatched_keys"])[:1]
        ),
        *(" ".join(str(message).split()) for message in list(info.get("error_msgs") or ())[:1]),
    ]
    if problems:
        raise ModelError(f"The checkpoint {model} does not fit its configuration: {'; '.join(problems)}.")


def state_dict(files: Inspected, folder: str = "") -> dict[str, torch.Tensor]:
    """The tensors in the safetensors of a folder, not copied: they share the memory of the files as read.

    Raises:
        ModelError: There are no tensors, or a file is damaged or has a type that torch lacks.
    """
    tensors: dict[str, torch.Tensor] = {}
    for name in _safetensors(files, folder):
        headers = files.header(name)
        content = files.take(name)
        for tensor, header in headers.items():
            if (kind := _TYPES.get(header.dtype)) is None:
                raise ModelError(f"{files.label}: {tensor} is of type {header.dtype}, which torch cannot read.")
            tensors[tensor] = torch.empty(0, dtype=kind)
            if count := math.prod(header.shape):
                tensors[tensor] = torch.frombuffer(content, dtype=kind, count=count, offset=header.start)
            tensors[tensor] = tensors[tensor].view(header.shape)
    if not tensors:
        raise ModelError(f"{files.label} has no weights in safetensors; save it in this format.")
    return tensors


def _safetensors(files: Inspected, folder: str) -> list[str]:
    """The files of a folder that transformers would load: ``model.safetensors``, else the shards of an index."""
    place = PurePosixPath(folder)
    if files.has(whole := (place / "model.safetensors").as_posix()):
        return [whole]
    shards = files.settings(f"{whole}.index.json").get("weight_map") or {}
    return sorted({(place / str(shard)).as_posix() for shard in shards.values()})


def _beside(model: Inspected, folder: str) -> list[str]:
    return sorted(name for name in model.headers if PurePosixPath(name).parent == PurePosixPath(folder))


def require_size(config: Any, files: Inspected, folder: str = "") -> Any:
    """Refuse a configuration with far more weights than the files contain, before allocating memory for them.

    Returns:
        The transformers class of the encoder; None if its code is the checkpoint's own, or there are no weights.

    Raises:
        ModelError: The sizes do not match the weights.
    """
    from transformers import AutoModel
    from transformers.initialization import no_init_weights

    size = sum((files.directory / name).stat().st_size for name in _beside(files, folder))
    if not size or not borrowed.is_built_in(config):
        return None
    with suppress(RuntimeError, OverflowError):  # a tensor whose bytes cannot be counted
        with torch.device("meta"), no_init_weights():
            encoder = AutoModel.from_config(config)
        if sum(weight.numel() for weight in encoder.parameters()) <= size * _MOST_OF_A_BYTE:
            return type(encoder)
    raise ModelError(
        f"The checkpoint {files.label} does not fit its configuration, which describes a far larger model than its "
        f"{size:,} bytes of weights."
    )


def require_vocabulary(tokenizer: Any, model: str) -> None:
    """Refuse a tokenizer with only special tokens, which transformers makes if files are missing.

    Raises:
        ModelError: There is no tokenizer, or it has no vocabulary.
    """
    if tokenizer is None or len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise ModelError(f"The checkpoint {model} has no tokenizer, or one without a vocabulary; is a file missing?")


def require_types(model: Inspected, folder: str = "") -> None:
    """Refuse integer weights of a transformer, unless its configuration declares quantisation.

    Raises:
        ModelError: There are such weights; the message names one.
    """
    if model.parsed.get((PurePosixPath(folder) / "config.json").as_posix(), {}).get("quantization_config"):
        return
    for path in _beside(model, folder):
        for name, header in model.headers[path].items():
            if header.dtype not in _FLOATING and not re.fullmatch(_BUFFERS, name):
                raise ModelError(
                    f"The checkpoint {model.label} does not fit its configuration: {name} is of type {header.dtype}."
                )


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
