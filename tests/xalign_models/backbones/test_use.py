"""USE: the network against the same formulas token by token, and the conversion of its SentencePiece model."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from xalign_models.assets import use as conversion
from xalign_models.backbones.use import USEMultilingual
from xalign_models.errors import AssetError, ModelError

WIDTH, CHANNELS, OUT = 8, 4, 512
LEFT = {2: 0, 3: 1, 5: 2}
PIECES = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab"]
Arrays = dict[str, np.ndarray]


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


@pytest.fixture
def model() -> bytes:
    """A SentencePiece model of eight pieces whose longer pieces are more likely, without normalisation rules."""
    pieces = b"".join(
        field(1, field(1, piece.encode()) + b"\x15" + struct.pack("<f", -5.0 / len(piece)) + b"\x18\x01")
        for piece in PIECES
    )
    charsmap = struct.pack("<I", 1024) + bytes(1024)  # a double-array trie that holds nothing
    return pieces + field(3, field(1, b"identity") + field(2, charsmap))


def test_the_sentencepiece_model_becomes_a_tokenizer(model: bytes) -> None:
    tokenizer = conversion.sentencepiece_tokenizer(model)
    assert tokenizer.encode("a  aa ").tokens == ["<s>", "▁a", "▁a", "a", "</s>"]
    assert tokenizer.encode("azzb").ids == [1, 6, 0, 5, 2]
    assert tokenizer.encode("").tokens == ["<s>", "</s>"]


def test_a_cut_protobuf_is_an_asset_error(model: bytes) -> None:
    with pytest.raises(AssetError, match="cut short"):
        list(conversion.protobuf_fields(model[:-1]))


@pytest.fixture
def arrays() -> Arrays:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(scale=0.5, size=shape).astype(np.float32)

    made: Arrays = {"embedding": rng.integers(0, 64, (len(PIECES), WIDTH), dtype=np.uint8)}
    made |= {"scale": np.abs(draw(17)) / 9, "lo": draw(17)}
    for n in LEFT:
        made |= {f"proj{n}": draw(WIDTH, CHANNELS), f"proj_b{n}": draw(CHANNELS)}
        made |= {f"ln_g{n}": draw(CHANNELS), f"ln_b{n}": draw(CHANNELS)}
        for step in "12":
            made |= {f"w{step}_{n}": draw(n * CHANNELS, CHANNELS), f"b{step}_{n}": draw(CHANNELS)}
    features = WIDTH + 3 * CHANNELS
    made |= {"ln_g": draw(features), "ln_b": draw(features), "cnn_W": draw(features, 6), "cnn_b": draw(6)}
    return made | {
        "d0": draw(6, 5),
        "d1": draw(5, 5),
        "p1": draw(6, 5),
        "d2": draw(5, 7),
        "p3": draw(5, OUT),
        "d3": draw(7, OUT),
    }


@pytest.fixture
def directory(arrays: Arrays, model: bytes, tmp_path: Path) -> Path:
    save_file(arrays, tmp_path / "model.safetensors")
    conversion.sentencepiece_tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def by_hand(w: Arrays, ids: list[int]) -> np.ndarray:
    """One text, one token and one window at a time."""

    def norm(x: np.ndarray, name: str, n: int | str) -> np.ndarray:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-12) * w[f"{name}_g{n}"] + w[f"{name}_b{n}"]

    embedded = [w["embedding"][i] * w["scale"][i % 17] + w["lo"][i % 17] for i in ids]
    branches = []
    for n, left in LEFT.items():
        x = [norm(e @ w[f"proj{n}"] + w[f"proj_b{n}"], "ln", n) for e in embedded]
        for step in "12":
            zero = np.zeros(CHANNELS)
            padded = [zero] * left + x + [zero] * (n - 1 - left)
            window = [np.concatenate(padded[t : t + n]) for t in range(len(ids))]
            x = [x[t] + np.maximum(window[t] @ w[f"w{step}_{n}"] + w[f"b{step}_{n}"], 0) for t in range(len(ids))]
        branches.append(x)
    tokens = [norm(np.concatenate([e, *parts]), "ln", "") for e, *parts in zip(embedded, *branches, strict=True)]
    sentence = sum(token @ w["cnn_W"] + w["cnn_b"] for token in tokens) / np.sqrt(len(ids))
    hidden = np.maximum(sentence @ w["p1"] + np.maximum(sentence @ w["d0"], 0) @ w["d1"], 0)
    out = np.tanh(hidden @ w["p3"] + np.maximum(hidden @ w["d2"], 0) @ w["d3"])
    return out / np.linalg.norm(out)


def test_vectors_are_those_of_the_formulas_whatever_the_batch(directory: Path, arrays: Arrays) -> None:
    texts = ["ab a b ab a", "", "b", "a ab ab a a a b", "zz"]
    encoder = SentenceTransformer(modules=[USEMultilingual(directory)], device="cpu")
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    expected = np.stack([by_hand(arrays, tokenizer.encode(text).ids) for text in texts])
    for batch_size in (1, 2, 64):
        vectors = encoder.encode(texts, batch_size=batch_size)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_directory_without_weights_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="xalign assets install use-multilingual-v3"):
        USEMultilingual(tmp_path)
