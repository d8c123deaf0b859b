"""Installed models and real texts; a benchmark skips where they are missing."""

import json
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from xalign_models import assets, corpora
from xalign_models.backbones.loading import open_backbone
from xalign_models.languages import canonical
from xalign_models.models.catalogue import BACKBONES

LANGUAGES = "de el en es hi ru th tr vi zh".split()


def require(*names: str) -> None:
    """Skip unless these assets are installed."""
    for name in names:
        if assets.where(name) is None:
            pytest.skip(f"the asset {name} is not installed; run: xalign assets install {name}")


def embedded_model(asset: str, device: str, backbone: str = "") -> list[nn.Module]:
    """The modules of an installed model, as the backbone of that name or of the asset's own name."""
    require(asset)
    return list(open_backbone(BACKBONES[backbone or asset]).modules(device))


def interface_texts() -> list[str]:
    """Distinct interface strings, eight in each of twelve languages."""
    require("gettext")
    columns = corpora.load("gettext:test")
    return list(dict.fromkeys(text for language in columns.languages for text in columns.texts(language)[:8]))


def real_texts(n: int) -> list[str]:
    """n distinct texts in random order: single sentences, news and paragraphs in ten languages.

    A third each comes from Tatoeba, FLORES and XQuAD-R, in the folder that ``XALIGN_DATA`` names.
    """
    root = os.environ.get("XALIGN_DATA")
    if root is None or not (paragraphs := Path(root) / "lareqa" / "xquad-r").is_dir():
        pytest.skip("$XALIGN_DATA does not point at the corpora")
    columns = []
    for code in LANGUAGES:
        if code != "en":
            columns.append(corpora.load("tatoeba").pair(canonical(code))[0])
        columns.append(corpora.load("flores").texts(canonical(code)))
        articles = json.loads((paragraphs / f"{code}.json").read_text(encoding="utf-8"))["data"]
        columns.append([paragraph["context"] for article in articles for paragraph in article["paragraphs"]])
    take = -(-n // len(columns))
    texts = list(dict.fromkeys(text for column in columns for text in islice(column, take)))
    return [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:n]]
