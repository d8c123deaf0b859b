"""Files of vectors in every form, and maps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xalign_models import alignments

LANGUAGES = ("deu-Latn", "eng-Latn", "fra-Latn")


def list_column(matrix: np.ndarray, kind: str = "fixed") -> pa.Array:
    """Vectors as a column: lists of fixed size, lists, large lists or a tensor."""
    rows, dim = matrix.shape
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, dim)
    if kind == "tensor":
        return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(matrix))
    large = kind == "large"
    offsets = pa.array(np.arange(rows + 1) * dim, pa.int64() if large else pa.int32())
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, flat)


@pytest.fixture
def write_vectors() -> Callable[..., Path]:
    """Writes texts and vectors in the form that the file's name says."""

    def write(path: Path, names: Sequence[Any], matrix: np.ndarray, by: str = "text", kind: str = "fixed") -> Path:
        if path.suffix == ".npz":
            np.savez(path, **{by: np.array(names) if len(names) else np.array([], str), "vectors": matrix})
        elif path.suffix == ".safetensors":
            from safetensors.numpy import save_file

            save_file({"vectors": matrix}, path, metadata={by: json.dumps(list(names))})
        else:
            pq.write_table(pa.table({by: names, "vector": list_column(matrix, kind)}), path)
        return path

    return write


@pytest.fixture
def make_maps(tmp_path: Path) -> Callable[..., Path]:
    """Saves a fitted alignment of three languages to a directory."""

    def make(method: str = "affine", dim: int = 8, **params: Any) -> Path:
        rng = np.random.default_rng(7)
        fit = {language: rng.standard_normal((40, dim)) for language in LANGUAGES}
        folder = tmp_path / f"map-{method}"
        folder.mkdir(exist_ok=True)
        alignments.make(method, **params).fit(fit).save(folder)
        return folder

    return make
