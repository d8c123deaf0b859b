"""Adds LoRA to a transformers model, and loads saved LoRA weights without rounding them."""

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
_PREFIX = "base_model.model."  # PEFT puts it before the names of saved matrices


def add_lora(model: Any, *, rank: int, alpha: int, dropout: float, seed: int) -> None:
    """Add trainable LoRA matrices to every linear layer of a transformers model except its pooler, in place.

    The second matrix of each pair starts at zero, so that the model's output stays the same until training. The
    matrices are float32 in models of any dtype. Existing LoRA matrices are kept and trained further.

    Their product is scaled by alpha / rank. Dropout applies to their input. The seed initialises the first matrices;
    torch's own generator is not changed.

    Raises:
        ModelError: The model has LoRA of another rank, scale or dropout; the message names them.
    """
    from peft import LoraConfig

    wanted: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "lora_dropout": dropout}
    for config in getattr(model, "peft_config", {}).values():
        if differing := [
            f"{key} ({getattr(config, key)} saved, {value} requested)"
            for key, value in wanted.items()
            if getattr(config, key) != value
        ]:
            raise ModelError(f"The initial model has LoRA matrices of another kind: {', '.join(differing)}.")
    names = [name for name, _ in model.named_modules()]
    if not getattr(model, "peft_config", None):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            # The pooler of many encoders does not affect token states.
            excluded = _POOLER if any(map(re.compile(_POOLER).fullmatch, names)) else None
            model.add_adapter(LoraConfig(**wanted, target_modules="all-linear", exclude_modules=excluded))
    for matrix in lora_matrices(model):
        matrix.data = matrix.data.float()
        matrix.requires_grad_(True)


def name_base(folder: Path, name: str) -> None:
    """Write the checkpoint's name into a saved adapter, in place of its local path."""
    path = folder / ADAPTER
    adapter = {**read_json(path), "base_model_name_or_path": name}
    path.write_text(json.dumps(adapter, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_adapter(model: Any, folder: Path) -> None:
    """Add a complete saved adapter to a model, in the model's dtype, with transformers' ``load_adapter``.

    Raises:
        ModelError: Matrices are missing, have another shape, or belong to layers that the model lacks.
    """
    from transformers.modeling_utils import LoadStateDictConfig

    options = LoadStateDictConfig(
        pretrained_model_name_or_path=str(folder), use_safetensors=True, ignore_mismatched_sizes=True
    )
    require_fit(model.load_adapter(str(folder), load_config=options).to_dict(), str(folder))


def load_lora(model: Any, folder: Path) -> None:
    """Like :func:`load_adapter`, but in the adapter's saved dtype and without gradients."""
    from peft import LoraConfig

    weights = load_file(folder / "adapter_model.safetensors")
    state = {name.removeprefix(_PREFIX): matrix for name, matrix in weights.items()}
    _put_lora(model, LoraConfig.from_pretrained(str(folder)), state, str(folder))


def copy_lora(source: Any, target: Any) -> None:
    """Copy one model's LoRA to a model with the same layers and no LoRA, in its dtype, without gradients.

    Raises:
        ModelError: Matrices have another shape, or belong to layers that the target lacks.
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
    """The parameters of a model's LoRA matrices."""
    return (parameter for name, parameter in model.named_parameters() if "lora_" in name)
