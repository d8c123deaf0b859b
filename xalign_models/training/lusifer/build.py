"""Builds the model of a configuration, with gradients for exactly the parts that a stage trains."""

from collections.abc import Mapping
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn
from transformers import PreTrainedModel

from xalign_models.backbones.adapters import add_lora
from xalign_models.errors import ModelError
from xalign_models.training.lusifer.config import PARTS, LusiferConfig, Stage
from xalign_models.training.lusifer.decoder import Bidirectional
from xalign_models.training.lusifer.module import Lusifer, modules_of
from xalign_models.training.lusifer.parts import Base, base_of, load_bidirectional, load_encoder, load_llm


def bases_of(config: LusiferConfig) -> dict[str, Base]:
    """Identities of a configuration's ``encoder`` and ``llm``. Raises AssetError if a checkpoint is missing."""
    named = {"encoder": (config.encoder, config.encoder_revision), "llm": (config.llm, config.llm_revision)}
    return {part: base_of(model, revision, str(config.dtype)) for part, (model, revision) in named.items() if model}


def begin(config: LusiferConfig, device: str = "cpu") -> tuple[SentenceTransformer, PreTrainedModel | None]:
    """The untrained model, and the language model with its head if the model has both an encoder and a language model.

    Raises:
        AssetError: A checkpoint is unavailable.
        ModelError: A checkpoint is unsuitable for its part.
    """
    bases = bases_of(config)
    writer: PreTrainedModel | None = None
    if "llm" not in bases:
        first: Any = load_encoder(bases["encoder"])
    elif "encoder" not in bases:
        first = load_bidirectional(bases["llm"])
    else:
        encoder = load_encoder(bases["encoder"])
        writer = load_llm(bases["llm"], head=True)
        first = Lusifer(encoder, writer.base_model, bases["llm"], config.seed)
    first.max_seq_length = min(filter(None, (config.max_tokens, first.max_seq_length)))
    modules = [*modules_of(first, config.projection), Normalize()]
    model = SentenceTransformer(modules=modules, device=device)
    set_prompts(model, config)
    return model, writer


def set_prompts(model: SentenceTransformer, config: LusiferConfig) -> None:
    """Give a model the prompts of the configuration in place of its own."""
    default = dict(config.prompts).get("default")
    model.prompts = {"query": default or "", "document": default or "", **config.prompts}
    model.default_prompt_name = None if default is None else "default"


def prepare(model: SentenceTransformer, config: LusiferConfig, stage: Stage) -> None:
    """Enable gradients of exactly the parts that the stage trains, in place.

    Raises:
        ModelError: The model has other LoRA matrices, or the number of trained weights differs from
            ``config.parameters``.
    """
    model.requires_grad_(False)
    parts: dict[str, Any] = parts_of(model)
    for name in stage.train:
        if name in ("encoder", "llm"):
            add_lora(parts[name], rank=config.rank, alpha=config.alpha, dropout=config.dropout, seed=config.seed)
        else:
            parts[name].requires_grad_(True)
    if stage.gradient_checkpointing:  # a frozen encoder keeps no activations; a frozen language model does
        for part in {"encoder", "llm"} & {"llm", *stage.train} & parts.keys():
            parts[part].activation_checkpointing_enable({"use_reentrant": False})
    trained = {name: trainable(part) for name, part in parts.items()}
    counts = config.parameters or trained
    expected = {name: counts[name] if name in stage.train else 0 for name in parts}
    if trained != expected or sum(trained.values()) != trainable(model):
        raise ModelError(
            f"Stage {stage.label!r} is to train {_listed(expected)} weights, but would train {_listed(trained)}; "
            "correct parameters, encoder, llm or rank in the configuration."
        )


def parts_of(model: SentenceTransformer) -> dict[str, nn.Module]:
    """The parts of a model, by the names of :data:`~xalign_models.training.lusifer.config.PARTS`."""
    first: Any = model[0]
    if isinstance(first, Lusifer):
        parts = {"encoder": first.encoder.model, "connector": first.connector, "llm": first.llm}
    else:
        parts = {"llm" if isinstance(first, Bidirectional) else "encoder": first.model}
    if len(model) > 3:
        parts["projection"] = nn.ModuleList(list(model)[2:-1])
    return {name: parts[name] for name in PARTS if name in parts}


def trainable(module: nn.Module) -> int:
    """Number of weights with gradients."""
    return sum(weight.numel() for weight in module.parameters() if weight.requires_grad)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
