"""Searches in many languages on the unchanged index of an English model, with a map that comes with xalign."""

import re
from collections.abc import Mapping
from hashlib import sha256
from itertools import chain

import numpy as np
import pandas as pd

from xalign_models import corpora
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.linalg.arrays import Float32
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.portable.loading import load_map
from xalign_models.ranking.ranks import Ranks, normalise, target_counts
from xalign_models.results.intervals import Sample, estimate
from xalign_models.training.lusifer.data.sources import source
from xalign_tasks.analyses.base import Study
from xalign_tasks.lareqa.reader import Side, read_file
from xalign_tasks.lareqa.task import XQuADR

NAME = "map:multilingual-e5-small->all-MiniLM-L6-v2"
SETS = ("squad-nqg", "wikitext-2")
"""Training sets that the map is fitted on, besides NTREX's English."""
PLAIN = "the index's model"
"""Label of the queries without any change."""


def sides() -> dict[str, Side]:
    """XQuAD-R by language."""
    return {code: read_file(paths[0]) for code, paths in XQuADR().files().items()}


def fingerprint(text: str) -> str:
    """A digest of a text's letters and digits, independent of case, spaces and punctuation."""
    plain = re.sub(r"[\W_]+", "", re.sub(r"-[lr][rs]b-", "", text.lower()))  # brackets, as tokenizers write them
    return sha256(plain.encode()).hexdigest()


def fit_texts(test: Side) -> tuple[list[str], int]:
    """Distinct English texts to fit the map on, and the number of texts left out because ``test`` has them.

    The texts are the questions and sentences of ``squad-nqg`` and the sentences of ``wikitext-2`` and NTREX. Texts from
    ``test`` would give its answers away.

    Raises:
        DataError: One of the sets is missing.
    """
    rows = [source(name).read(None, 0) for name in SETS]
    read = dict.fromkeys(filter(str.strip, chain(*chain(*rows), corpora.load("ntrex").texts(ENGLISH))))
    tested = {fingerprint(text) for text in (*test.questions.values(), *test.candidates)}
    clean = [text for text in read if fingerprint(text) not in tested]
    return clean, len(read) - len(clean)


def analyse(request: Request) -> Findings:
    """Recall@10 and P@1 of XQuAD-R's questions among English sentences and paragraphs indexed with all-MiniLM.

    Raises:
        DataError: XQuAD-R or a set to fit on is missing.
    """
    maps, texts = load_map(NAME), sides()
    queries, index = (request.load(maps.settings[side]) for side in ("queries", "index"))
    english = texts[ENGLISH]
    paragraphs = list(dict.fromkeys(english.contexts))
    place = {context: number for number, context in enumerate(paragraphs)}
    study = Study()
    study.record_task("XQuAD-R")
    for unit, documents, gold in (
        ("sentences", english.candidates, english.answers),
        ("paragraphs", paragraphs, {key: place[english.contexts[at]] for key, at in english.answers.items()}),
    ):
        indexed = _vectors(index, documents)
        own = _vectors(queries, documents, "passage")
        ranks: dict[str, dict[str, Ranks]] = {}
        for code, side in texts.items():
            asked = list(side.questions.values())
            answers = np.array([gold[key] for key in side.questions])[:, None]
            new = _vectors(queries, asked, "query")
            ways = {PLAIN: (_vectors(index, asked), indexed), "map": (maps.transform(new, code), indexed),
                    "map without means": (maps.transform(new, ENGLISH), indexed), "new index": (new, own)}  # fmt: skip
            for way, vectors in ways.items():  # in a tie, the answer comes last
                ranks.setdefault(way, {})[code] = target_counts(*vectors, answers)[:, 0]
        for way, found in ranks.items():
            rows = [{"language": code, **scores({code: found[code]})} for code in found]
            study.add("xquad", pd.DataFrame(rows).round(2), index=unit, queries=way)
            others = ({code: ranks[of][code] for code in texts if code != ENGLISH} for of in (way, PLAIN))
            study.add("means", pd.DataFrame([scores(*others)]).round(2), index=unit, queries=way)
    study.models = (maps.settings["queries"], maps.settings["index"])
    return study.findings(
        f"In percent; means are over {len(texts) - 1} languages, 95% intervals over questions. Gains are over the "
        f"index's model. {fit_texts(english)[1]} of the texts to fit on were XQuAD's own, and were left out."
    )


def scores(ranks: Mapping[str, Ranks], plain: Mapping[str, Ranks] | None = None) -> dict[str, float]:
    """Mean recall@10 and P@1 in percent over languages, from the ranks of the answers.

    With ``plain``, the scores have 95% intervals, also of the paired difference from it.
    """
    found = {}
    for name, most in (("recall@10", 10), ("P@1", 1)):
        sample = _sample(ranks, most)
        found[name] = 100 * float(sample.shares.sum())
        if plain is not None:
            for kind, ends in (("", estimate(sample)), (" gain", estimate(sample - _sample(plain, most)))):
                found |= {f"{name}{kind} low": 100 * ends.low, f"{name}{kind} high": 100 * ends.high}
    return found


def _sample(ranks: Mapping[str, Ranks], most: int) -> Sample:
    return Sample.of({code: own <= most for code, own in ranks.items()}, {code: [code] for code in ranks})


def _vectors(encoder: XAlignEncoder, texts: list[str], prompt: str = "") -> Float32:
    return normalise(encoder.raw.encode(texts, encoder.prompts.get(prompt, "")))
