"""Real texts of mixed lengths: single sentences, news sentences and paragraphs, in ten languages."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

LANGUAGES = "de el en es hi ru th tr vi zh".split()


def real_texts(n: int) -> list[str]:
    """n distinct texts in random order, a third each from Tatoeba, Flores and XQuAD-R's paragraphs; skips without."""
    root = os.environ.get("XALIGN_DATA")
    if root is None or not (paragraphs := Path(root) / "lareqa" / "xquad-r").is_dir():
        pytest.skip("$XALIGN_DATA does not point at the corpora")
    from xalign_models import corpora
    from xalign_models.languages import canonical

    columns = []
    for code in LANGUAGES:
        if code != "en":
            columns.append(corpora.load("tatoeba").pair(canonical(code))[0])
        columns.append(corpora.load("flores").texts(canonical(code)))
        articles = json.loads((paragraphs / f"{code}.json").read_text(encoding="utf-8"))["data"]
        columns.append([one["context"] for article in articles for one in article["paragraphs"]])
    take = -(-n // len(columns))
    texts = list(dict.fromkeys(text for column in columns for text in islice(column, take)))
    return [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:n]]
