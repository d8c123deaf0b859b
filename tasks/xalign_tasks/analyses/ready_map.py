"""Searches in many languages on the untouched index of an English model, by a map that comes with xalign."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH, read_lines
from xalign_models.errors import DataError
from xalign_models.linalg.arrays import AnyFloats, Float32
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.paths import data_dir
from xalign_models.portable.loading import load_map
from xalign_models.ranking.ranks import normalise, target_counts
from xalign_tasks.analyses.base import Study
from xalign_tasks.lareqa.reader import Side, read_file
from xalign_tasks.lareqa.task import XQuADR

NAME = "map:multilingual-e5-small->all-MiniLM-L6-v2"
TEXTS = 5_000
"""Questions, and as many sentences, that the map is fitted on."""


def sides() -> dict[str, Side]:
    """XQuAD-R by language."""
    return {code: read_file(paths[0]) for code, paths in XQuADR().files().items()}


def fingerprint(text: str) -> str:
    """A digest of the letters and digits of a text, which case, spaces and punctuation do not change."""
    plain = re.sub(r"[\W_]+", "", re.sub(r"-[lr][rs]b-", "", text.lower()))  # brackets, as tokenizers write them
    return sha256(plain.encode()).hexdigest()


def fit_texts(test: Side) -> tuple[list[str], int]:
    """Distinct questions and sentences of the test files of ``squad_nqg``, and the number of those in ``test``.

    The texts in ``test``, which are not returned, would give the answers away.

    Raises:
        DataError: The files are missing.
    """
    root = data_dir()
    files = [root / "squad_nqg" / f"{side}-test.txt" for side in ("src", "tgt")] if root else []
    if not files or not all(map(Path.is_file, files)):
        raise DataError("The map's text is missing: set XALIGN_DATA to a folder that has squad_nqg/{src,tgt}-test.txt.")
    tested = {fingerprint(text) for text in (*test.questions.values(), *test.candidates)}
    parts = [list(dict.fromkeys(filter(str.strip, read_lines(file)))) for file in files]
    clean = [[text for text in part if fingerprint(text) not in tested] for part in parts]
    rng = np.random.default_rng(0)
    chosen = [part[row] for part in clean for row in sorted(rng.permutation(len(part))[:TEXTS])]
    return chosen, sum(map(len, parts)) - sum(map(len, clean))


def analyse(request: Request) -> Findings:
    """Recall@10 and P@1 of XQuAD-R's questions among English sentences and paragraphs that all-MiniLM has indexed.

    Raises:
        DataError: XQuAD-R is missing.
    """
    maps, texts = load_map(NAME), sides()
    queries, index = (request.load(maps.settings[side]) for side in ("queries", "index"))
    english = texts[ENGLISH]
    paragraphs = list(dict.fromkeys(english.contexts))
    place = {context: number for number, context in enumerate(paragraphs)}
    study = Study()
    for unit, documents, gold in (
        ("sentences", english.candidates, english.answers),
        ("paragraphs", paragraphs, {key: place[english.contexts[at]] for key, at in english.answers.items()}),
    ):
        indexed = _vectors(index, documents)
        own = _vectors(queries, documents, "passage")
        for code, side in texts.items():
            asked = list(side.questions.values())
            answers = np.array([gold[key] for key in side.questions])
            new = _vectors(queries, asked, "query")
            ways = {"the index's model": (_vectors(index, asked), indexed), "map": (maps.transform(new, code), indexed),
                    "map without means": (maps.transform(new, ENGLISH), indexed), "new index": (new, own)}  # fmt: skip
            rows = [{"queries": way, "language": code, **scores(*sides, answers)} for way, sides in ways.items()]
            study.add("xquad", pd.DataFrame(rows).round(2), index=unit)
    return study.findings(
        f"In percent. {fit_texts(english)[1]} of the texts to fit on were XQuAD's own, and were left out."
    )


def scores(queries: AnyFloats, index: AnyFloats, gold: Any) -> dict[str, float]:
    """Recall@10 and P@1 in percent; ties count against the answer."""
    above = target_counts(queries, index, gold[:, None])
    return {"recall@10": 100 * float((above <= 10).mean()), "P@1": 100 * float((above <= 1).mean())}


def _vectors(encoder: XAlignEncoder, texts: list[str], prompt: str = "") -> Float32:
    return normalise(encoder.raw.encode(texts, encoder.prompts.get(prompt, "")))
