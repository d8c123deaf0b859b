"""Files of vectors in every form, and maps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xalign_models import alignments

LANGUAGES = ("deu-Latn", "eng-Latn", "fra-Latn")


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
