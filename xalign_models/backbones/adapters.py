"""LoRA on a transformers model: added, and loaded without rounding its weights."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from xalign_models.backbones.weights import require_fit
from xalign_models.errors import ModelError
from xalign_models.files import read_json

ADAPTER = "adapter_config.json"
_POOLER = r"(.*\.)?pooler\..*"
_PREFIX = "base_model.model."  # of the names in a saved adapter


def add_lora(model: Any, *, rank: int, alpha: int, dropout: float, seed: int) -> None:
    """Put trainable LoRA matrices on every linear layer of a transformers model that its states pass, in place.

    The second matrix of each starts at zero: nothing changes until it is trained. The matrices are float32, whatever
    the model is. A model that has LoRA already keeps it, and it is trained on.

    Args:
        model: Without gradients.
        rank: Of the matrices.
        alpha: Their scale is alpha / rank.
        dropout: Of their input.
        seed: Of the first matrices; torch's own generator is left as it was.

    Raises:
        ModelError: It has LoRA of another rank, scale or dropout; the message names them.
    """
    from peft import LoraConfig

    wanted: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "lora_dropout": dropout}
    for config in getattr(model, "peft_config", {}).values():
        if differing := [
            f"{key} ({getattr(config, key)} there, {value} now)"
            for key, value in wanted.items()
            if getattr(config, key) != value
        ]:
            raise ModelError(f"The model to start from has other LoRA matrices: {', '.join(differing)}.")
    names = [name for name, _ in model.named_modules()]
    if not getattr(model, "peft_config", None):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            # A pooler, which many encoders have, reads one state and changes none.
            excluded = _POOLER if any(map(re.compile(_POOLER).fullmatch, names)) else None
            model.add_adapter(LoraConfig(**wanted, target_modules="all-linear", exclude_modules=excluded))
    for matrix in lora_matrices(model):
        matrix.data = matrix.data.float()
        matrix.requires_grad_(True)


def name_base(folder: Path, name: str) -> None:
    """Let a saved adapter name its checkpoint, not where that lies on this machine.

    Not before it is saved: PEFT then reads the checkpoint's configuration, and asks the hub for a name that is no path.
    """
    path = folder / ADAPTER
    adapter = {**read_json(path), "base_model_name_or_path": name}
    path.write_text(json.dumps(adapter, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_adapter(model: Any, folder: Path) -> None:
    """Transformers' own ``load_adapter``, in the precision of the model; the adapter has to be whole.

    Raises:
        ModelError: Matrices are missing, of another shape, or of layers that the model has not.
    """
    from transformers.modeling_utils import LoadStateDictConfig

    options = LoadStateDictConfig(
        pretrained_model_name_or_path=str(folder), use_safetensors=True, ignore_mismatched_sizes=True
    )
    require_fit(model.load_adapter(str(folder), load_config=options).to_dict(), str(folder))


def load_lora(model: Any, folder: Path) -> None:
    """Put a saved adapter on a model, in the precision that it was saved in, without gradients.

    transformers' own ``load_adapter`` rounds it to the precision of the model.

    Raises:
        ModelError: Matrices are missing, of another shape, or of layers that the model has not.
    """
    from peft import LoraConfig

    weights = load_file(folder / "adapter_model.safetensors")
    state = {name.removeprefix(_PREFIX): matrix for name, matrix in weights.items()}
    _put_lora(model, LoraConfig.from_pretrained(str(folder)), state, str(folder))


def copy_lora(source: Any, target: Any) -> None:
    """Put one model's LoRA on another of the same layers that has none, in its precision, without gradients.

    Raises:
        ModelError: Matrices are of another shape, or of layers that the target has not.
    """
    from peft import get_peft_model_state_dict

    (config,) = source.peft_config.values()
    _put_lora(target, copy.copy(config), get_peft_model_state_dict(source), "The LoRA matrices to copy")


def _put_lora(model: Any, config: Any, state: dict[str, torch.Tensor], origin: str) -> None:
    from peft import set_peft_model_state_dict

    config.base_model_name_or_path = model.name_or_path
    model.add_adapter(config)
    for matrix in lora_matrices(model):
        matrix.data = matrix.data.to(next(iter(state.values())).dtype)
        matrix.requires_grad_(False)
    result: Any = set_peft_model_state_dict(model, state)
    missing = [name for name in result.missing_keys if "lora_" in name]
    require_fit({"missing_keys": missing, "unexpected_keys": result.unexpected_keys, "mismatched_keys": ()}, origin)


def lora_matrices(model: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of a model that are LoRA's."""
    return (parameter for name, parameter in model.named_parameters() if "lora_" in name)
