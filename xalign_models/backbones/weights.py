"""Whether a checkpoint fits its model: what it lacks, has too much of, or has in another shape or type, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xalign_models.errors import FileError, ModelError
from xalign_models.files import read_json, safetensors_header

_BUFFERS = r"(.*\.)?(position_ids|token_type_ids|inv_freq|masked_bias|attn\.bias|num_batches_tracked)"
_MISSING = re.compile(rf"{_BUFFERS}|(.*\.)?pooler\..*")
"""What a checkpoint may lack: positions that are counted, and the pooler, which no pooling of ours reads."""
_HEADS = (
    "cls", "classifier", "discriminator_predictions", "embed_out", "generator_lm_head", "generator_predictions",
    "lm_head", "mlm_head", "pred_layer", "predictions", "qa_outputs", "score", "seq_relationship", "sop_classifier",
    "vocab_layer_norm", "vocab_projector", "vocab_transform",
)  # fmt: skip
_UNEXPECTED = re.compile(rf"{_BUFFERS}|(.*\.)?pooler\..*|(\w+\.)?({'|'.join(_HEADS)})\..*")
"""What it may have besides: heads, which an encoder has no use for."""
_LAYER = re.compile(r"\.(\d+)\.")
_MOST_OF_A_BYTE = 4
"""Weights for each byte of a checkpoint: two of four bits, of a part of the model."""
_FLOATING = {"F16", "BF16", "F32", "F64"}


def require_fit(info: Mapping[str, Any], model: str, layers: int | None = None) -> None:
    """Refuse what transformers would only warn of: it draws weights that a checkpoint lacks at random.

    Args:
        info: transformers' loading info: ``missing_keys``, ``unexpected_keys``, ``mismatched_keys``, ``error_msgs``.
        model: What the error calls the checkpoint.
        layers: Where the model is cut on purpose; weights of later layers are left over then.

    Raises:
        ModelError: The checkpoint lacks weights, has others, or has them in another shape.
    """
    missing = [name for name in info["missing_keys"] if not _MISSING.fullmatch(name)]
    unexpected = [
        name for name in info["unexpected_keys"] if not (_UNEXPECTED.fullmatch(name) or _is_later(name, layers))
    ]
    problems = [
        *([f"it lacks {_some(missing)}"] if missing else []),
        *([f"it has {_some(unexpected)}, which the model has not"] if unexpected else []),
        *(
            f"{name} has the shape {tuple(there)} instead of {tuple(wanted)}"
            for name, there, wanted in sorted(info["mismatched_keys"])[:1]
        ),
        *(" ".join(str(message).split()) for message in list(info.get("error_msgs") or ())[:1]),
    ]
    if problems:
        raise ModelError(f"The checkpoint {model} does not fit its configuration: {'; '.join(problems)}.")


def require_size(config: Any, directory: Path) -> None:
    """Refuse a configuration of far more weights than the files have, before memory is taken for those they lack.

    Args:
        config: transformers' configuration; one whose code is the checkpoint's own is not looked at.
        directory: Where the weights lie.

    Raises:
        ModelError: The sizes are not those of the weights.
    """
    import torch
    from transformers import AutoModel
    from transformers.initialization import no_init_weights

    try:
        there = sum(path.stat().st_size for path in directory.glob("*.safetensors"))
        if not there or type(config) not in AutoModel._model_mapping:
            return
        with torch.device("meta"), no_init_weights():
            wanted = sum(weight.numel() for weight in AutoModel.from_config(config).parameters())
    except (RuntimeError, OverflowError):  # of a tensor whose bytes cannot be counted
        wanted = there * _MOST_OF_A_BYTE + 1
    if wanted > there * _MOST_OF_A_BYTE:
        raise ModelError(
            f"The checkpoint {directory} does not fit its configuration: that is of a model of a size far beyond its "
            f"{there:,} bytes of weights."
        )


def require_vocabulary(tokenizer: Any, model: str) -> None:
    """Refuse a tokenizer that knows its special tokens alone, as transformers makes one where its files are missing.

    Raises:
        ModelError: There is no tokenizer, or it knows no text.
    """
    if tokenizer is None or len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise ModelError(f"The checkpoint {model} has no tokenizer, or one that knows no text; is a file missing?")


def require_types(directory: Path) -> None:
    """Refuse a transformer's weights in whole numbers, which no configuration explains.

    Raises:
        ModelError: There are such weights; the message names one.
    """
    try:
        config = directory / "config.json"
        if config.is_file() and read_json(config).get("quantization_config"):
            return
        for path in sorted(directory.glob("*.safetensors")):
            for name, header in safetensors_header(path).items():
                if header.dtype not in _FLOATING and not re.fullmatch(_BUFFERS, name):
                    raise ModelError(
                        f"The checkpoint {directory} does not fit its configuration: {name} is of type {header.dtype}."
                    )
    except FileError as error:
        raise ModelError(str(error)) from None


def _is_later(name: str, layers: int | None) -> bool:
    number = _LAYER.search(f".{name}")
    return layers is not None and number is not None and int(number[1]) >= layers


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
