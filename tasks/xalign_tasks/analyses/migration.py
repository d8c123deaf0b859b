"""How much retrieval a new model keeps on an old model's index, by language and number of pairs."""

from itertools import chain, permutations, product
from typing import Any

import numpy as np
import pandas as pd

from xalign_models import corpora
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError, ModelError
from xalign_models.evaluation.cache import without_folders
from xalign_models.languages import canonical
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.models.migration import MAPS, apply, fit_map
from xalign_models.ranking.ranks import gold_ranks, normalise
from xalign_tasks.analyses.base import Study, embed

CORPUS = "ntrex"
HELD = 500
"""Number of held-out sentences; the index has their English side."""
PAIR_CORPUS, PAIR_ROWS = "tatoeba_pairs", 1_500
"""Additional English text to fit on: the English sides of this many rows of each language of the corpus."""
EVERY, ALONE = "all languages", "English"
"""Texts to fit maps on: those of all languages of NTREX, or English texts only, as in the index."""
PAIRS = (500, 2_000, 8_000, 50_000)
"""Numbers of texts that both models encode, capped at the number available."""
LANGUAGES = tuple(map(canonical, "af ar bn bg de el en et eu fi fr he hi hu id it ja ka kk swh th".split()))
MORE = "eng-Latn of pairs"
Vectors = dict[str, AnyFloats]


def analyse(request: Request) -> Findings:
    """P@1 of translations among the English sentences of an index, for every ordered pair of the models.

    Raises:
        ModelError: There are fewer than two models.
        DataError: The text has too few rows.
    """
    names = request.named()
    if len(names) < 2:
        raise ModelError("--model: name two models, one of which had the index; `xalign models` lists them.")
    languages = tuple(dict.fromkeys((*(request.languages or LANGUAGES), ENGLISH)))
    corpus = corpora.load(CORPUS)
    texts = {language: side[: request.rows] for language, side in corpus.parallel(languages).items()}
    if len(texts[ENGLISH]) < 2 * HELD:
        raise DataError(f"{CORPUS} has {len(texts[ENGLISH])} rows; {2 * HELD} are needed, half of them to score on.")
    texts[MORE] = _more_english(request, set(texts[ENGLISH][-HELD:]))
    vectors = {}
    for name in names:
        encoder = request.load(name)
        vectors[name] = {code: embed(encoder, side, code.split()[0]) for code, side in texts.items()}
    study = Study({CORPUS: corpus.fingerprint(languages), PAIR_CORPUS: corpora.load(PAIR_CORPUS).fingerprint()})
    for old, new in permutations(names, 2):
        rows = kept(vectors[old], vectors[new], languages, without_folders({"index": old, "queries": new}))
        study.add("migration", pd.DataFrame(rows).round(2))
    return study.findings(
        "In percent. Queries are NTREX's last 500 sentences in each language; the index has their English sides. "
        "`kept` is the P@1 of the new model's mapped queries over that of the new model with an index of its own, "
        "`new`; `old` is the old model alone. Maps are fitted on other sentences.",
    )


def _more_english(request: Request, held: set[str]) -> list[str]:
    """Distinct English texts of the requested languages' pairs, without held-out ones."""
    pairs = corpora.load(PAIR_CORPUS)
    languages = [code for code in request.languages or pairs.languages if code in pairs.languages and code != ENGLISH]
    sides = (pairs.pair(code)[1][: request.rows or PAIR_ROWS] for code in languages)
    return [text for text in dict.fromkeys(chain.from_iterable(sides)) if text not in held]


def kept(old: Vectors, new: Vectors, languages: tuple[str, ...], facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Scores by method, number of pairs and language; also without a map if the dimensions are equal.

    ``old`` and ``new`` have row-parallel unit vectors by language and of more English texts, from the index's model
    and the queries' model. ``facts`` are columns of every row.
    """
    sides = (("old", old), ("new", new))
    fit = {
        EVERY: {name: np.concatenate([side[language][:-HELD] for language in languages]) for name, side in sides},
        ALONE: {name: np.concatenate([side[ENGLISH][:-HELD], side[MORE]]) for name, side in sides},
    }
    index = {name: side[ENGLISH][-HELD:] for name, side in sides}
    unmapped = {code: {name: _p1(side[code][-HELD:], index[name]) for name, side in sides} for code in languages}
    rows: list[dict[str, Any]] = []

    def score(mapped: Vectors, method: str, fitted_on: str, pairs: int) -> None:
        columns = {**facts, "method": method, "fitted_on": fitted_on, "pairs": pairs}
        for code, alone in unmapped.items():
            precision = _p1(mapped[code], index["old"])
            share = 100 * precision / alone["new"] if alone["new"] else None
            rows.append({**columns, "language": code, **alone, "mapped": precision, "kept": share})

    queries = {language: new[language][-HELD:] for language in languages}
    if new[ENGLISH].shape[1] == old[ENGLISH].shape[1]:
        score(queries, "no map", "nothing", 0)
    for method, (fitted_on, text) in product(MAPS, fit.items()):
        order = np.random.default_rng(0).permutation(len(text["old"]))
        for count in sorted({min(count, len(order)) for count in PAIRS}):
            chosen = order[:count]
            layers = fit_map(method, text["new"][chosen], text["old"][chosen])
            mapped = {language: normalise(apply(layers, side)) for language, side in queries.items()}
            score(mapped, method, fitted_on, count)
    return rows


def _p1(queries: AnyFloats, index: AnyFloats) -> float:
    forward, _ = gold_ranks(np.asarray(queries, np.float32), np.asarray(index, np.float32))
    return float(100 * np.mean(forward == 1))
