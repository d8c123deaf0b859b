"""URIEL's typology of languages, read from the arrays in lang2vec's wheel.

lang2vec itself needs ``pkg_resources``, which setuptools no longer has, but its data do not. ``uriel.json`` has

- ``features``: names of the syntactic features (``S_SVO``, ...);
- ``syntax``: ISO 639-3 code to a string of 0 and 1, a character per feature: the ``syntax_knn`` set, in which unknown
  values are predicted from the nearest languages;
- ``families``: ISO 639-3 code to the families that the language is in, the widest first; none for an isolate.
"""

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models.assets.download import read_member


def build(wheels: Mapping[str, Path], target: Path) -> None:
    """Write ``uriel.json`` into ``target`` from the wheel of lang2vec."""
    features, languages, syntax = _table(wheels["lang2vec"], "feature_predictions")
    chosen = [i for i, name in enumerate(features) if name.startswith("S_")]
    families, members, belongs = _table(wheels["lang2vec"], "family_features")
    content = {
        "features": [features[i] for i in chosen],
        "syntax": {
            code: "".join(str(int(value)) for value in row[chosen]) for code, row in zip(languages, syntax, strict=True)
        },
        "families": {
            code: [families[i].removeprefix("F_") for i in np.flatnonzero(row)]
            for code, row in zip(members, belongs, strict=True)
        },
    }
    (target / "uriel.json").write_text(json.dumps(content), encoding="utf-8")


def _table(wheel: Path, name: str) -> tuple[list[str], list[str], np.ndarray[Any, Any]]:
    """Names of the columns, codes of the rows, and values (languages, columns) of one of URIEL's tables."""
    with np.load(BytesIO(read_member(wheel, f"lang2vec/data/{name}.npz"))) as table:
        return table["feats"].tolist(), table["langs"].tolist(), table["data"][:, :, 0]
