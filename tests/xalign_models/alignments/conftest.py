"""A sentence transformer of a few kilobytes, and embeddings of a few languages."""

from __future__ import annotations

import numpy as np
import pytest

WORDS = ["the", "a", "cat", "dog", "die", "eine", "katze", "hund", "sees", "sieht"]


@pytest.fixture
def tiny_backbone(tmp_path):
    """Modules of a random two-layer BERT, 16-d, that knows ten words, with mean pooling."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=5 + len(WORDS), max_position_embeddings=32, **size)).save_pretrained(folder)
    return [Transformer(str(folder)), Pooling(16, "mean")]


@pytest.fixture
def parallel():
    """Three languages, 40 aligned rows of dimension 16: one content, moved and turned per language."""
    rng = np.random.default_rng(0)
    content = rng.standard_normal((40, 16))
    turn = {one: np.linalg.qr(rng.standard_normal((16, 16))).Q for one in ("deu-Latn", "tur-Latn")}
    data = {"eng-Latn": content, **{one: content @ turn[one] + rng.standard_normal(16) for one in turn}}
    return {one: rows + 0.1 * rng.standard_normal(rows.shape) for one, rows in data.items()}
