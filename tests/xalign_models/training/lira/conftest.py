"""Scores that soft ranks can tell apart, and (further down) models and text of a few kilobytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(scope="session")
def gapped() -> Callable[..., torch.Tensor]:
    """Float64 scores at least ``gap`` apart, in random order: a near tie is soft at any temperature."""

    def make(n: int, gap: float, seed: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        steps = gap * (1 + torch.rand(n, generator=generator, dtype=torch.float64))
        return steps.cumsum(0)[torch.randperm(n, generator=generator)]

    return make


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
            tokenizer_object=tokenizer, pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]",
            additional_special_tokens=list(extra), model_max_length=512, **options,
        )  # fmt: skip

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


@pytest.fixture
def lira_text(workdir: Path, write_text: Callable[..., Path]) -> Path:
    """``own:text`` in three languages, translations of its German and French by a file, and rated pairs."""
    import json

    root = write_text(workdir / "text", 30)
    columns = {code: (root / f"{code}.txt").read_text().splitlines() for code in ("deu", "eng", "fra")}
    made = [
        {"text": text, "lang": code, "translation": f"{english} w1"}
        for code in ("deu", "fra")
        for text, english in zip(columns[code], columns["eng"], strict=True)
    ]
    rated = [
        {"text1": one, "lang1": "deu", "text2": other, "lang2": "eng", "score": i % 6}
        for i, (one, other) in enumerate(zip(columns["deu"], columns["eng"], strict=True))
    ]
    for name, rows in (("made", made), ("rated", rated)):
        (workdir / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.fixture
def lira_config(lira_text: Path, tiny_model: Path, writer: Path) -> Callable[..., Any]:
    """A configuration that trains in seconds; ``changes`` are those of ``--set``."""
    from xalign_models.training.lira.config import LiraConfig, load_config

    fields = f"""
design:
  multilingual: {tiny_model}
  english: {writer}
  translators: [file:made.jsonl]
  bins: 2
arca:
  text: [own:text]
  extra: [reference:own:text]
  epochs: 2
  batch_size: 9
  encoder_rate: 1e-3
lasr:
  ranking: [file:rated.jsonl]
  retrieval: [own:text]
  epochs: 1
  ranking_batch: 8
  retrieval_batch: 16
  rank: 2
  alpha: 4
"""

    def make(*changes: str, ablation: Any = None) -> LiraConfig:
        path = lira_text.parent / "lira.yaml"
        path.write_text(fields)
        return load_config([str(path)], changes, ablation)

    return make
