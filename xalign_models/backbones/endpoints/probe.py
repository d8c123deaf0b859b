"""Identity of a served model: its vectors of a few fixed texts, which reveal a change behind an unchanged name.

The first answers are kept in the cache. Batching and other processors change the last digits of later answers. A larger
difference means another model, whose vectors must not be mixed with the stored ones.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xalign_models.errors import FileError, ModelError
from xalign_models.files import read_json, set_aside
from xalign_models.paths import atomic_write_text, cache_dir
from xalign_models.specs import digest

TEXTS = (
    "A small boat crossed the lake before sunrise.",
    "Der Zug nach Leipzig hat heute zwölf Minuten Verspätung.",
    "这本书的第三章讲的是海洋里的动物。",
    "وصل المسافرون إلى المدينة القديمة عند الغروب.",
    "42",
)
TOLERANCE = 0.02
"""Maximum relative difference of an answer from the first one, ``|a - b| / |a|``; a cosine of 0.9998."""
_DIGITS = 8
"""Number of leading components of each vector in the digest."""


@dataclass(frozen=True)
class Probe:
    """A served model's identity: dimension of the vectors, and sha256 (hex) of the first answers, rounded."""

    dimension: int
    digest: str


def identify(label: str, vectors: npt.NDArray[np.float32]) -> Probe:
    """Compare answers with the first ones, or keep them as the first ones.

    Args:
        label: The endpoint and the model.
        vectors: Answers to :data:`TEXTS`, (5, d), finite.

    Raises:
        ModelError: The answers differ from the first ones, or the first ones cannot be written.
    """
    path = cache_dir() / "endpoints" / f"{digest(label)[:32]}.json"
    first, when = _read(path)
    change = ""
    if first is None:
        first = vectors
        kept = {"endpoint": label, "date": datetime.date.today().isoformat(), "vectors": vectors.tolist()}
        try:
            atomic_write_text(path, json.dumps(kept) + "\n")
        except OSError as error:  # without the file a change would go unnoticed
            raise ModelError(f"{label}: its probe cannot be written to {path.parent} ({error.strerror}).") from None
    elif first.shape != vectors.shape:
        change = f"its vectors had {first.shape[1]} dimensions and have {vectors.shape[1]}"
    elif (differ := (np.linalg.norm(first - vectors, axis=1) / np.linalg.norm(first, axis=1)).max()) > TOLERANCE:
        change = f"its answers to the probe differ by {differ:.2f}, {TOLERANCE} is allowed"
    if change:
        raise ModelError(
            f"{label} has changed since {when}: {change}. Stored vectors and results belong to the earlier model; to "
            f"start again with this one, remove {path}"
        )
    return Probe(vectors.shape[1], _rounded(first))


def _rounded(vectors: npt.NDArray[np.float32]) -> str:
    """Digest that noise in the last digits does not change: components over their root mean square, to one decimal."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    leading = np.round(vectors / norms * np.sqrt(vectors.shape[1]), 1)[:, :_DIGITS] + 0.0
    return digest(
        vectors.shape[1], f"{float(norms.mean()):.1e}", [[f"{value:.1f}" for value in row] for row in leading]
    )


def _read(file: Path) -> tuple[npt.NDArray[np.float32] | None, str]:
    if not file.is_file():
        return None, ""
    try:
        kept = read_json(file)
        vectors = np.array(kept["vectors"], dtype=np.float32)
        if vectors.ndim == 2 and len(vectors) == len(TEXTS) and np.isfinite(vectors).all() and vectors.any(1).all():
            return vectors, str(kept.get("date", "the first run"))[:10]
    except (FileError, KeyError, ValueError, TypeError):
        pass
    set_aside(file, f"{file} is damaged: the probe of an endpoint was expected.")
    return None, ""
