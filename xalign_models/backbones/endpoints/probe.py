"""Identity of a served model: its vectors of a few fixed texts reveal a change behind an unchanged name.

The first answers are kept in the cache; later ones may differ from them only in the last digits.
"""

import datetime
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
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
"""Maximum relative difference between an answer and the first one, ``|a - b| / |a|``; a cosine of 0.9998."""
_DIGITS = 8
"""Number of leading components of each vector in the digest."""


@dataclass(frozen=True)
class Probe:
    """A served model's identity.

    Attributes:
        label: The endpoint and the model.
        first: The first answers to :data:`TEXTS`, (5, d).
        served: The server's name for the model in these answers; empty if it gives none.
        date: Day of these answers.
        file: The file that keeps them.
    """

    label: str
    first: npt.NDArray[np.float32]
    served: str
    date: str
    file: Path

    @property
    def dimension(self) -> int:
        """Dimension of the vectors."""
        return int(self.first.shape[1])

    @cached_property
    def digest(self) -> str:
        """Sha256 (hex) of the first answers, unaffected by noise in the last digits.

        It covers components divided by their root mean square, to one decimal.
        """
        norms = np.linalg.norm(self.first, axis=1, keepdims=True)
        leading = np.round(self.first / norms * np.sqrt(self.dimension), 1)[:, :_DIGITS] + 0.0
        rounded = [[f"{value:.1f}" for value in row] for row in leading]
        return digest(self.dimension, f"{float(norms.mean()):.1e}", rounded)

    def check(self, texts: slice, vectors: npt.NDArray[np.float32], served: str) -> None:
        """Compare later answers with the first ones.

        Args:
            texts: The answered part of :data:`TEXTS`.
            vectors: The answers, (n, d), finite.
            served: The server's name for the model; empty if it gives none.

        Raises:
            ModelError: The model has changed.
        """
        first, change = self.first[texts], ""
        if served and self.served and served != self.served:
            shown = ("".join(letter for letter in name[:80] if letter.isprintable()) for name in (self.served, served))
            change = "the server called it {}, and now {}".format(*shown)
        elif first.shape != vectors.shape:
            change = f"its vectors had {first.shape[1]} dimensions and have {vectors.shape[1]}"
        elif (differ := (np.linalg.norm(first - vectors, axis=1) / np.linalg.norm(first, axis=1)).max()) > TOLERANCE:
            change = f"its answers to the probe differ by {differ:.2f}, more than the allowed {TOLERANCE}"
        if change:
            raise ModelError(
                f"{self.label} has changed since {self.date}: {change}. Stored vectors and results belong to the "
                f"earlier model; to start again with this one, remove {self.file}"
            )


def identify(label: str, vectors: npt.NDArray[np.float32], served: str = "") -> Probe:
    """Compare answers with the first ones, or store them as the first ones.

    Args:
        label: The endpoint and the model.
        vectors: Answers to :data:`TEXTS`, (5, d), finite.
        served: The server's name for the model in its answer; empty if it gives none.

    Raises:
        ModelError: The answers differ from the first ones, or the first ones cannot be written.
    """
    path = cache_dir() / "endpoints" / f"{digest(label)[:32]}.json"
    if (first := _read(label, path, served)) is None:
        first = Probe(label, vectors, served, datetime.date.today().isoformat(), path)
        kept = {"endpoint": label, "date": first.date, "model": served, "vectors": vectors.tolist()}
        try:
            atomic_write_text(path, json.dumps(kept) + "\n")
        except OSError as error:  # without the file, a change would go unnoticed
            raise ModelError(f"{label}: its probe cannot be written to {path.parent} ({error.strerror}).") from None
    first.check(slice(None), vectors, served)
    return first


def _read(label: str, file: Path, served: str) -> Probe | None:
    if not file.is_file():
        return None
    with suppress(FileError, KeyError, ValueError, TypeError):
        kept = read_json(file)
        vectors = np.array(kept["vectors"], dtype=np.float32)
        if vectors.ndim == 2 and len(vectors) == len(TEXTS) and np.isfinite(vectors).all() and vectors.any(1).all():
            name, date = str(kept.get("model") or served), str(kept.get("date", "the first run"))[:10]
            return Probe(label, vectors, name, date, file)
    set_aside(file, f"{file} is damaged: the probe of an endpoint was expected.")
    return None
