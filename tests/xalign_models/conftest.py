"""Models of a few kilobytes that write, as tests of generation and of LiRA need them, and registries that forget."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from xalign_models import plugins
from xalign_models.plugins import loading

KINDS = ("ALIGNMENTS", "ANALYSES", "BACKBONES", "BENCHMARKS", "CORPORA", "MODULES", "TASKS")


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers and loads is gone after it."""
    for kind in KINDS:
        registry = getattr(plugins, kind)
        len(registry)  # what is built in is there
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(loading, "_modules", dict(loading._modules))
    monkeypatch.setenv(loading.VARIABLE, "")
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(plugins.PACKAGE):
            del sys.modules[name]


@pytest.fixture(scope="session")
def byte_tokenizer() -> Callable[..., Any]:
    """A tokenizer for which a byte is a token, so that any text can be written; with more special tokens if given."""

    def make(extra: tuple[str, ...] = (), **options: Any) -> Any:
        from tokenizers import Tokenizer, decoders, pre_tokenizers
        from tokenizers.models import BPE
        from transformers import PreTrainedTokenizerFast

        words = ["[PAD]", "[BOS]", "[EOS]", *extra, *sorted(pre_tokenizers.ByteLevel.alphabet())]
        tokenizer = Tokenizer(BPE({word: i for i, word in enumerate(words)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            pad_token="[PAD]",
            bos_token="[BOS]",
            eos_token="[EOS]",
            additional_special_tokens=list(extra),
            model_max_length=512,
            **options,
        )

    return make


@pytest.fixture(scope="session")
def make_writer(tmp_path_factory: pytest.TempPathFactory, byte_tokenizer: Callable[..., Any]) -> Callable[..., Path]:
    """Writes a random language model of a family with its head, whose tokens are bytes."""

    def make(family: str, **fields: Any) -> Path:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        folder = tmp_path_factory.mktemp("lira") / "writer"
        tokenizer = byte_tokenizer()
        tokenizer.save_pretrained(folder)
        config = AutoConfig.for_model(
            family, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            num_key_value_heads=1, vocab_size=len(tokenizer), max_position_embeddings=2048, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, initializer_range=0.3, **fields,
        )  # fmt: skip
        with torch.random.fork_rng():
            torch.manual_seed(0)
            AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def writer(make_writer: Callable[..., Path]) -> Path:
    """A Llama; never change it."""
    return make_writer("llama")


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory, byte_tokenizer: Callable[..., Any]) -> Callable[..., Path]:
    """Writes a random m2m100 whose tokenizer has the given language tokens."""

    def make(*languages: str) -> Path:
        import torch
        from transformers import M2M100Config, M2M100ForConditionalGeneration

        folder = tmp_path_factory.mktemp("lira") / "machine"
        tokenizer = byte_tokenizer(languages)
        tokenizer.save_pretrained(folder)
        config = M2M100Config(
            d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
            encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=len(tokenizer), max_position_embeddings=256,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2,
        )  # fmt: skip
        with torch.random.fork_rng():
            torch.manual_seed(0)
            M2M100ForConditionalGeneration(config).save_pretrained(folder)
        return folder

    return make
