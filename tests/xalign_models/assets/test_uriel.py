"""URIEL's tables come out of lang2vec's wheel as one JSON file."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np

from xalign_models.assets import uriel


def member(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.asarray(array) for name, array in arrays.items()})
    return buffer.getvalue()


def test_syntax_and_families_by_language(tmp_path: Path) -> None:
    syntax = [[[1], [0], [1]], [[0], [1], [1]]]
    families = [[[1], [1], [0]], [[0], [0], [0]]]
    with zipfile.ZipFile(tmp_path / "wheel.whl", "w") as archive:
        archive.writestr(
            "lang2vec/data/feature_predictions.npz",
            member(feats=["S_SVO", "P_VOICE", "S_SOV"], langs=["deu", "eus"], data=np.array(syntax, np.float32)),
        )
        archive.writestr(
            "lang2vec/data/family_features.npz",
            member(feats=["F_Indo-European", "F_Germanic", "F_Uralic"], langs=["deu", "eus"], data=families),
        )
        archive.writestr("lang2vec/__init__.py", "raise SystemExit")
    uriel.build({"lang2vec": tmp_path / "wheel.whl"}, tmp_path)
    assert json.loads((tmp_path / "uriel.json").read_text()) == {
        "features": ["S_SVO", "S_SOV"],
        "syntax": {"deu": "11", "eus": "01"},
        "families": {"deu": ["Indo-European", "Germanic"], "eus": []},
    }
