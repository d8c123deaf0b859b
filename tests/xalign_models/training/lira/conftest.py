"""Scores that soft ranks can tell apart, and (further down) models and text of a few kilobytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(scope="session")
def gapped() -> Callable[..., torch.Tensor]:
    """Float64 scores at least ``gap`` apart, in random order: a near tie is soft at any temperature."""

    def make(n: int, gap: float, seed: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        steps = gap * (1 + torch.rand(n, generator=generator, dtype=torch.float64))
        return steps.cumsum(0)[torch.randperm(n, generator=generator)]

    return make


@pytest.fixture
def lira_text(workdir: Path, write_text: Callable[..., Path]) -> Path:
    """``own:text`` in three languages, translations of its German and French by a file, and rated pairs."""
    import json

    root = write_text(workdir / "text", 30)
    columns = {code: (root / f"{code}.txt").read_text().splitlines() for code in ("deu", "eng", "fra")}
    made = [
        {"text": text, "lang": code, "translation": f"{english} w1"}
        for code in ("deu", "fra")
        for text, english in zip(columns[code], columns["eng"], strict=True)
    ]
    rated = [
        {"text1": one, "lang1": "deu", "text2": other, "lang2": "eng", "score": i % 6}
        for i, (one, other) in enumerate(zip(columns["deu"], columns["eng"], strict=True))
    ]
    for name, rows in (("made", made), ("rated", rated)):
        (workdir / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.fixture
def lira_config(lira_text: Path, tiny_model: Path, writer: Path) -> Callable[..., Any]:
    """A configuration that trains in seconds; ``changes`` are those of ``--set``."""
    from xalign_models.training.lira.config import LiraConfig, load_config

    fields = f"""
design:
  multilingual: {tiny_model}
  english: {writer}
  translators: [file:made.jsonl]
  bins: 2
arca:
  text: [own:text]
  extra: [reference:own:text]
  epochs: 2
  batch_size: 9
  encoder_rate: 1e-3
lasr:
  ranking: [file:rated.jsonl]
  retrieval: [own:text]
  epochs: 1
  ranking_batch: 8
  retrieval_batch: 16
  rank: 2
  alpha: 4
"""

    def make(*changes: str, ablation: Any = None) -> LiraConfig:
        path = lira_text.parent / "lira.yaml"
        path.write_text(fields)
        return load_config([str(path)], changes, ablation)

    return make
