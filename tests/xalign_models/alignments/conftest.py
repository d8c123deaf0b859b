"""A sentence transformer of a few kilobytes, and embeddings of a few languages."""

from __future__ import annotations

import numpy as np
import pytest

WORDS = ["the", "a", "cat", "dog", "die", "eine", "katze", "hund", "sees", "sieht"]


@pytest.fixture
def tiny_backbone(make_bert, tmp_path):
    """Modules of a random two-layer BERT, 16-d, that knows ten words, with mean pooling."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    return [Transformer(str(make_bert(tmp_path / "bert", WORDS))), Pooling(16, "mean")]


@pytest.fixture
def parallel():
    """Three languages, 40 aligned rows of dimension 16: one content, moved and turned per language."""
    rng = np.random.default_rng(0)
    content = rng.standard_normal((40, 16))
    turn = {one: np.linalg.qr(rng.standard_normal((16, 16))).Q for one in ("deu-Latn", "tur-Latn")}
    data = {"eng-Latn": content, **{one: content @ turn[one] + rng.standard_normal(16) for one in turn}}
    return {one: rows + 0.1 * rng.standard_normal(rows.shape) for one, rows in data.items()}
