"""Loads the two checkpoints of LUSIFER, and checks that each is suitable."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from xalign_models import assets
from xalign_models.assets import ResolvedModel
from xalign_models.backbones.checkpoint import is_decoder_only, open_config, open_pretrained, open_transformer
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.errors import ModelError
from xalign_models.training.lusifer.decoder import Bidirectional

Base = Mapping[str, str | None]
"""A checkpoint: ``model`` (asset, directory or hub id), ``revision``, ``fingerprint`` and ``dtype``."""


def base_of(model: str, revision: str | None, dtype: str) -> dict[str, str | None]:
    """Identity of a checkpoint. Raises AssetError if it is unavailable."""
    resolved = assets.resolve(model, revision)
    return {"model": model, "revision": resolved.revision, "fingerprint": resolved.fingerprint, "dtype": dtype}


def load_encoder(base: Base) -> LanguageTransformer:
    """An encoder's module, with its tokenizer.

    Raises:
        AssetError: The checkpoint is unavailable.
        ModelError: The checkpoint is a decoder-only language model, or has changed since the training.
    """
    resolved = _find(base)
    if is_decoder_only(open_config(resolved)):
        raise ModelError(f"encoder {base['model']} is a decoder-only language model; name an encoder or null.")
    module = open_transformer(LanguageTransformer, resolved, str(base["dtype"]), base=base)
    module.tokenizer.padding_side = "right"  # some encoders count positions from the first column, padding or not
    return module


def load_bidirectional(base: Base) -> LanguageTransformer:
    """A decoder-only language model with bidirectional attention over its own tokens.

    Raises:
        AssetError: The checkpoint is unavailable.
        ModelError: The checkpoint is not a decoder-only language model, or has changed since the training.
    """
    resolved = _find(base)
    config = open_config(resolved)
    if not is_decoder_only(config):
        raise ModelError(f"llm {base['model']} is an encoder ({config.model_type}); give a decoder-only model.")
    return open_transformer(Bidirectional, resolved, str(base["dtype"]), base=base)


def load_llm(base: Base, *, head: bool = False) -> PreTrainedModel:
    """The English model without gradients: a decoder-only language model, with or without its head, or an encoder.

    Raises:
        AssetError: The checkpoint is unavailable.
        ModelError: The checkpoint is an encoder-decoder, or has changed since the training.
    """
    resolved = _find(base)
    config = open_config(resolved)
    if config.is_encoder_decoder:
        raise ModelError(f"llm {base['model']} is an encoder-decoder; give a decoder-only model, e.g. smollm2-135m-q4.")
    kind = AutoModelForCausalLM if head and is_decoder_only(config) else AutoModel
    model = open_pretrained(kind, resolved, torch_dtype=base["dtype"])
    model.config.use_cache = False
    return model.requires_grad_(False).eval()


def load_llm_tokenizer(base: Base) -> tuple[PreTrainedTokenizerBase, int, int]:
    """The English model's tokenizer, and the ids of its begin and end token; an encoder's are its CLS and SEP.

    Raises:
        AssetError: The checkpoint is unavailable.
        ModelError: Neither the tokenizer nor the configuration names one of the tokens.
    """
    resolved = _find(base)
    tokenizer = open_pretrained(AutoTokenizer, resolved)
    ids = []
    for name, encoders in (("bos", "cls"), ("eos", "sep")):
        id_ = getattr(tokenizer, f"{name}_token_id")
        id_ = getattr(tokenizer, f"{encoders}_token_id", None) if id_ is None else id_
        id_ = getattr(open_config(resolved), f"{name}_token_id", None) if id_ is None else id_
        id_ = id_[0] if isinstance(id_, list) else id_
        if id_ is None:
            raise ModelError(
                f"llm {base['model']}: neither its tokenizer nor its configuration has a {name} token, which stage 1 "
                f"needs; set {name}_token in its tokenizer_config.json."
            )
        ids.append(int(id_))
    return tokenizer, ids[0], ids[1]


def embeddings_of(llm: PreTrainedModel, ids: Sequence[int] | Tensor) -> Tensor:
    """Input embeddings of tokens (n, d_t), with the model's own scaling: Gemma multiplies its table by sqrt(d_t)."""
    embedding = llm.get_input_embeddings()
    found: Tensor = embedding(torch.as_tensor(ids, device=embedding.weight.device))
    return found


def _find(base: Base) -> ResolvedModel:
    resolved = assets.resolve(str(base["model"]), base["revision"])
    if resolved.fingerprint != base["fingerprint"]:
        raise ModelError(f"This model was trained on another version of {base['model']} than the installed one.")
    return resolved
