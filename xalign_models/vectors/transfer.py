"""Exports vectors from the store to parquet files, and imports files into the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from xalign_models.backbones import loading
from xalign_models.backbones.raw import RawEncoder, key
from xalign_models.backbones.reduced import Reduced
from xalign_models.backbones.sources import find_source
from xalign_models.backbones.vectors import VectorsFile
from xalign_models.device import pick_device
from xalign_models.errors import DataError, FileError, ModelError
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.models.building import raw_encoder
from xalign_models.models.names import locate
from xalign_models.models.recipe import Recipe
from xalign_models.paths import atomic_file
from xalign_models.specs import BackboneSpec, ModelSpec
from xalign_models.store import NAME, EmbeddingStore
from xalign_models.vector_files.parquet import column_of, writer
from xalign_models.vector_files.reading import BY, read_batches

ROWS = 8192
"""Number of rows in memory."""
CHECKED = 8
"""Number of texts that the model encodes to check that the vectors come from it."""
SAME = 0.99
"""Minimum cosine between vectors that count as equal."""
LENGTHS = 0.02
"""Maximum relative difference of their lengths."""


def export(
    model: str,
    output: Path,
    store: EmbeddingStore,
    texts: Mapping[str, Sequence[str]] | None = None,
    *,
    prompt: str | None = None,
    device: str | None = None,
    **fields: Any,
) -> int:
    """Write raw vectors of a model's backbone as parquet.

    The store has hashes of prompts and texts instead of the texts. Without ``texts``, the file has all stored vectors
    of the backbone with their hashes as ``id``; with ``texts``, it has the columns ``text``, ``lang`` and ``vector``.
    If the model truncates or quantises vectors, so does the file, because maps are fitted on such vectors.

    Args:
        model: A name, a directory or a hub id; an aligned model stands for its backbone.
        output: The file.
        store: The store.
        texts: Language to texts; missing vectors are encoded.
        prompt: Prompt of all texts; by default the model's own.
        device: cpu, cuda or mps, for encoding.
        **fields: Fields of the backbone's spec: ``truncate_dim``, ``vectors``.

    Returns:
        Number of vectors.

    Raises:
        DataError: There is nothing to write.
        ModelError: The file at ``output`` is of another kind.
        XAlignError: The model is unavailable.
    """
    if output.is_file() and output.stat().st_size:
        with output.open("rb") as file:
            if file.read(4) != b"PAR1":
                raise ModelError(f"{output} exists and is not a parquet file; choose another file.")
    spec = _spec(model, **fields)
    raw = raw_encoder(spec.backbone, pick_device(device), store)
    (reduced,) = Recipe(spec, raw).reduced or (Reduced(),)
    if texts is None:
        rows = _stored(store, raw.namespace, reduced)
    else:
        rows = _encoded(spec.backbone, texts, raw, prompt, reduced)
    first = next(rows, None)
    if first is None:
        raise DataError(f"There are no vectors of {model} in {store.path}; give --texts to encode some.")
    count = 0
    with atomic_file(output) as temporary, writer(temporary, first.schema, "vector") as out:
        for batch in chain([first], rows):
            out.write_batch(batch)
            count += len(batch)
    return count


def import_file(
    file: Path,
    model: str,
    store: EmbeddingStore,
    *,
    prompt: str | None = None,
    check: int = CHECKED,
    device: str | None = None,
) -> tuple[int, int]:
    """Import the vectors of a file into the store as raw vectors of a model's backbone.

    Args:
        file: Parquet, npz or safetensors, with texts, or with the ids that :func:`export` wrote.
        model: A name, a directory or a hub id; an aligned model stands for its backbone.
        store: The store.
        prompt: Prompt of the texts; by default the model's own.
        check: Number of texts that the model first encodes, to refuse another model's vectors; ids cannot be checked.
        device: cpu, cuda or mps, for the check.

    Returns:
        Number of vectors, and number of vectors compared with the model's own.

    Raises:
        FileError: The file is damaged, or has other ids.
        ModelError: The vectors are not the model's, or a prompt is given although ids include it.
        XAlignError: The model is unavailable.
    """
    spec = _spec(model).backbone
    backbone = loading.open_backbone(spec)
    namespace, prompts = backbone.fingerprint, backbone.prompts
    if prompt is None and (languages := loading.prompt_languages(prompts)) is not None:
        raise ModelError(f"{model} has a prompt for each of {len(languages)} languages; choose one with --prompt.")
    chosen = prompts.get("default", "") if prompt is None else prompt
    store.note(NAME + namespace, spec.model)
    first = next(store.items(namespace), None)
    dim = backbone.source.facts().get("embed_dim") if first is None else len(first[1])
    count = checked = 0
    for rows in read_batches(file):
        if rows.by == "id" and not rows.hashed:
            raise FileError(f"{file} has ids that are not from `xalign store export`; only such ids identify a text.")
        if rows.by == "id" and prompt is not None:
            raise ModelError(f"{file} has ids, which include the prompt; leave out --prompt.")
        if dim is not None and rows.matrix.shape[1] != dim:
            raise ModelError(f"{file} has vectors of dimension {rows.matrix.shape[1]}, but {model} has {dim}.")
        if not count and check and rows.by == "text":
            checked = min(check, len(rows.names))
            some = np.linspace(0, len(rows.names) - 1, checked).astype(int)
            _require_same(spec, [rows.names[place] for place in some], rows.matrix[some], chosen, file, device)
        keys = [bytes.fromhex(name) if rows.by == "id" else key(chosen, name) for name in rows.names]
        for start in range(0, len(keys), ROWS):
            store.put(namespace, keys[start : start + ROWS], rows.matrix[start : start + ROWS].astype(np.float32))
        dim, count = rows.matrix.shape[1], count + len(keys)
    return count, checked


def _spec(model: str, **fields: Any) -> ModelSpec:
    spec = locate(model, **fields).spec
    if spec is None or isinstance(find_source(spec.backbone.model), VectorsFile):
        raise ModelError(f"{model} has no vectors in the store; give a registered backbone, a directory or a hub id.")
    return spec


def _require_same(
    spec: BackboneSpec, texts: Sequence[str], vectors: AnyFloats, prompt: str, file: Path, device: str | None
) -> None:
    encoded = raw_encoder(spec, pick_device(device)).encode(texts, prompt).astype(np.float64)
    if encoded.shape != vectors.shape:
        raise ModelError(f"{file} has vectors of dimension {vectors.shape[1]}, but {spec.name} has {encoded.shape[1]}.")
    own, lengths = (np.linalg.norm(side.astype(np.float64), axis=1) for side in (encoded, vectors))
    cosines = (encoded * vectors).sum(axis=1) / (own * lengths)
    if (least := float(cosines.min())) < SAME:
        text = texts[int(cosines.argmin())][:60]
        raise ModelError(
            f"{file} has vectors of another model, prompt or pooling: the cosine with the vector of {spec.name} is "
            f"{least:.3f} for {text!r}. `xalign parity` finds the cause; --check 0 imports them as they are."
        )
    if (np.abs(lengths / own - 1) > LENGTHS).any():
        raise ModelError(
            f"{file} has the vectors of {spec.name} with length {np.median(lengths):.3g}; the store keeps them with "
            f"{np.median(own):.3g}, not normalised. Use the file itself as a backbone, vectors:{file}."
        )


def _stored(store: EmbeddingStore, namespace: str, reduced: Reduced) -> Iterator[pa.RecordBatch]:
    items = store.items(namespace)
    while rows := list(islice(items, ROWS)):
        yield _batch({BY[1]: [name.hex() for name, _ in rows]}, np.stack([vector for _, vector in rows]), reduced)


def _encoded(
    spec: BackboneSpec, texts: Mapping[str, Sequence[str]], raw: RawEncoder, prompt: str | None, reduced: Reduced
) -> Iterator[pa.RecordBatch]:
    prompts = loading.open_backbone(spec).prompts
    for language, side in texts.items():
        chosen = loading.prompt_in(prompts, language) if prompt is None else prompt
        for start in range(0, len(side), ROWS):
            part = list(side[start : start + ROWS])
            vectors = raw.encode(part, chosen, f"export {language}")
            yield _batch({BY[0]: part, "lang": [language] * len(part)}, vectors, reduced)


def _batch(columns: dict[str, list[str]], whole: AnyFloats, reduced: Reduced) -> pa.RecordBatch:
    vectors = reduced.reduce(torch.from_numpy(whole)).numpy().astype(np.float32, copy=False)
    return pa.RecordBatch.from_pydict(
        {**columns, "vector": column_of(vectors, pa.list_(pa.float32(), vectors.shape[1]))}
    )
