"""Random language models and encoders of a few kilobytes for which a word is a token, and text to train them on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORDS = [f"w{i}" for i in range(100)]
TEMPLATE = 'This sentence : "[TEXT]" means in one word:"'
QUOTED = 'this sentence : " " means in one word'.split()
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def write_tokenizer(folder: Path) -> int:
    """A word-level tokenizer with a begin token; returns the size of its vocabulary."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Punctuation, Sequence, WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[BOS]",
        "[EOS]",
        "This",
        "sentence",
        ":",
        '"',
        "means",
        "in",
        "one",
        "word",
        *WORDS,
    ]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Sequence([WhitespaceSplit(), Punctuation()])
    tokenizer.post_processor = TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 2)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        bos_token="[BOS]",
        eos_token="[EOS]",
        model_max_length=64,
    ).save_pretrained(folder)
    return len(vocabulary)


def causal(folder: Path, kind: str) -> Path:
    """A random Llama or Gemma 3, head and all, as a hub checkpoint has it."""
    import torch
    from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig

    folder.mkdir(parents=True, exist_ok=True)
    size = {
        **SIZE,
        "vocab_size": write_tokenizer(folder),
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "initializer_range": 0.3,
    }
    config = LlamaConfig(**size) if kind == "llama" else Gemma3TextConfig(**size, head_dim=16, sliding_window=16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, make_model: Callable[..., Path]) -> dict[str, Path]:
    """Directories of a random Llama, Gemma 3, and BERT encoder; never change them."""
    root = tmp_path_factory.mktemp("checkpoints")
    encoder = make_model(root / "bert")
    config = json.loads((encoder / "config_sentence_transformers.json").read_text())
    config |= {"prompts": {"query": "w1 w2 ", "default": "w1 w2 "}, "default_prompt_name": "default"}
    (encoder / "config_sentence_transformers.json").write_text(json.dumps(config))
    return {"llama": causal(root / "llama", "llama"), "gemma": causal(root / "gemma", "gemma"), "bert": encoder}


@pytest.fixture
def spec(checkpoints: dict[str, Path]) -> Callable[..., Any]:
    """The spec of a checkpoint: a language model reads the English template's last token."""
    from xalign_models.specs import BackboneSpec, ModelSpec, Pooling

    def make(kind: str, **fields: Any) -> ModelSpec:
        asks = {"pooling": Pooling.LAST, "prompts": (("default", TEMPLATE),)} if kind != "bert" else {}
        return ModelSpec(BackboneSpec(kind, str(checkpoints[kind]), **{**asks, **fields}))

    return make


@pytest.fixture
def text(workdir: Path, write_text: Callable[..., Path]) -> Path:
    """``own:text``: 40 rows in Arabic, English and Spanish."""
    return write_text(workdir / "text", 40, ("arb", "eng", "spa"))
