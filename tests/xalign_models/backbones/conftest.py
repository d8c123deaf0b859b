"""A random BERT of a few kilobytes that knows a few words, on disk and as modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORDS = "the a cat dog sees query : die eine katze hund sieht und very long text of many words".split()
LAYERS, WIDTH, LIMIT = 3, 16, 24


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint directory: random weights far from zero, so that padding and layers tell."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=LIMIT).save_pretrained(folder)
    config = BertConfig(
        vocab_size=5 + len(WORDS),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def transformer(checkpoint: Path) -> Callable[..., Any]:
    """Makes a LanguageTransformer of the checkpoint."""
    from xalign_models.backbones.transformer import LanguageTransformer

    return lambda **options: LanguageTransformer(str(checkpoint), **options)


@pytest.fixture
def modules(transformer: Callable[..., Any]) -> list[Any]:
    """The checkpoint with mean pooling."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    return [transformer().eval(), Pooling(WIDTH, "mean")]
