"""Recall to expect of each method: queries rank the user's own rows among planted or judged ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models import corpora
from xalign_models.alignments.module import module_of
from xalign_models.errors import AlignmentError, DataError
from xalign_models.files import read_log
from xalign_models.languages import canonical
from xalign_models.linalg.arrays import Float32
from xalign_models.models.maps import Maps
from xalign_models.models.recipe import Recipe
from xalign_models.ranking.ranks import normalise, one_target_precision, target_counts
from xalign_models.recommend.candidates import PLAIN, Candidate, fitted

K = 10
"""A target counts as found among this many rows."""
PASSAGES = 100
"""Number of passages of each language that are made of held-out sentences, unless the text has too few."""
MOST = 8
"""Maximum number of sentences of a passage."""
NEAR = 0.005
"""Difference of recall up to which the simpler method is preferred."""
PRICE = 0.01
"""Greatest loss of recall within a language that a recommended method may cost."""
Codes = npt.NDArray[np.str_]


@dataclass(frozen=True)
class Expectation:
    """Recall@10 of a method, in [0, 1]: each relevant row is ranked with the query's other relevant rows left out.

    Attributes:
        candidate: The method.
        same: Mean over the relevant rows in the query's language; None if there are none.
        across: Mean over those in other languages.
        worst: Language of queries with the least recall across languages, and that recall.
        error: Why it could not be fitted, else empty.
    """

    candidate: Candidate
    same: float | None = None
    across: float | None = None
    worst: tuple[str, float] | None = None
    error: str = ""

    def cells(self) -> dict[str, Any]:
        """The row of a table, in points of 100."""
        shown = [None if value is None else round(100 * value, 1) for value in (self.same, self.across)]
        worst = f"{self.worst[0]} {100 * self.worst[1]:.1f}" if self.worst else self.error
        return {"method": self.candidate.label, "same": shown[0], "across": shown[1], "worst": worst}


@dataclass(frozen=True)
class Judged:
    """Queries with their relevant rows among documents, which may be the index's rows: raw vectors and languages.

    ``targets`` (n, k) has rows of ``documents``, and -1 where a query has fewer than k.
    """

    queries: Float32
    asked: Codes
    documents: Float32
    written: Codes
    targets: npt.NDArray[np.int64]


@dataclass(frozen=True)
class FitText:
    """Rows of parallel text by language to fit on, and later rows to judge on."""

    fit: Mapping[str, Sequence[str]]
    held: Mapping[str, Sequence[str]]
    size: int


def parallel_text(corpus: str, languages: set[str], limit: int, length: float, pivot: str) -> FitText:
    """Text in the languages of an index and the pivot; the last rows are held out.

    ``size`` of them make a passage of about ``length`` characters, the median of the index, 0 if it is unknown.

    Raises:
        DataError: The corpus is not parallel, or has no other language of the index than the pivot.
    """
    text = corpora.load(corpus)
    common = sorted({*text.languages} & (languages | {pivot}))
    if len(common) < 2:
        raise DataError(f"{corpus} has none of the index's languages beside {pivot}; name another text by --corpus.")
    columns = text.parallel(common)
    count = len(columns[pivot])
    sentence = float(np.median([len(row) for row in columns[pivot]]))
    size = min(MOST, max(1, round(length / sentence))) if length else MOST // 2
    start = count - min(PASSAGES * size, count // 3)
    fit = {code: side[:start][:limit] for code, side in columns.items()}
    return FitText(fit, {code: side[start:] for code, side in columns.items()}, size)


def passages(recipe: Recipe, held: Mapping[str, Sequence[str]], size: int) -> Judged:
    """Passages of ``size`` sentences of each language; each language's first sentence is a query for all of them."""
    roles, codes = recipe.role_prompts(), sorted(held)
    starts = range(0, len(held[codes[0]]) - size + 1, size)
    documents = [
        recipe.encode([" ".join(held[code][start : start + size]) for start in starts], code, prompt=roles[-1])
        for code in codes
    ]
    queries = [recipe.encode([held[code][start] for start in starts], code, prompt=roles[0]) for code in codes]
    targets = np.arange(len(starts))[:, None] + len(starts) * np.arange(len(codes))
    spoken = np.repeat(codes, len(starts))
    return Judged(np.concatenate(queries), spoken, np.concatenate(documents), spoken, np.tile(targets, (len(codes), 1)))


def read_queries(path: Path) -> dict[tuple[str, str], list[Any]]:
    """Ids of relevant rows by text and language of a query, from JSON lines with ``text``, ``lang`` and ``id``.

    Raises:
        DataError: A line has another form, or there is none.
    """
    records, damaged = read_log(path)
    if damaged or not records or not all({"text", "lang", "id"} <= {*record} for record in records):
        raise DataError(f'{path}: give lines such as {{"text": "...", "lang": "de", "id": 7}}, one per relevant row.')
    queries: dict[tuple[str, str], list[Any]] = {}
    for record in records:
        queries.setdefault((str(record["text"]), canonical(str(record["lang"]))), []).append(record["id"])
    return queries


def judged_queries(
    recipe: Recipe, queries: Mapping[tuple[str, str], Sequence[Any]], ids: Sequence[Any], vectors: Float32, codes: Codes
) -> Judged:
    """The user's queries, encoded, with their rows among those of the index.

    Raises:
        DataError: No query has a relevant row.
    """
    row = {str(key): place for place, key in enumerate(ids)}
    found = {query: [row[str(key)] for key in keys if str(key) in row] for query, keys in queries.items()}
    found = {query: places for query, places in found.items() if places}
    if not found:
        raise DataError("No query names the id of a row of the index.")
    targets = np.full((len(found), max(map(len, found.values()))), -1)
    for number, places in enumerate(found.values()):
        targets[number, : len(places)] = places
    asked = np.array([code for _, code in found])
    encoded = np.zeros((len(found), vectors.shape[1]), np.float32)
    for code in np.unique(asked):
        texts = [text for text, spoken in found if spoken == code]
        encoded[asked == code] = recipe.encode(texts, str(code), prompt=recipe.role_prompts()[0])
    return Judged(encoded, asked, vectors, codes, targets)


def expected(
    recipe: Recipe,
    text: Mapping[str, Sequence[str]],
    judged: Judged,
    others: tuple[Float32, Codes],
    pivot: str,
    tried: Sequence[Candidate],
) -> list[Expectation]:
    """The recall of the plain vectors and of each method.

    Args:
        recipe: The model of the index.
        text: Parallel text to fit on.
        judged: Queries and their relevant rows.
        others: Rows that no query asks for: raw vectors (m, d) and languages (m,).
        pivot: The language that text is paired with.
        tried: The methods.
    """
    roles = []
    for prompt in recipe.role_prompts():
        vectors = {code: recipe.encode(side, code, prompt=prompt) for code, side in text.items()}
        roles.append({code: (rows, vectors[pivot]) for code, rows in vectors.items() if code != pivot})
    pool, written = np.concatenate([judged.documents, others[0]]), np.concatenate([judged.written, others[1]])
    return [_expected(candidate, roles, judged, pool, written, pivot) for candidate in (PLAIN, *tried)]


def _expected(
    candidate: Candidate, roles: Sequence[Any], judged: Judged, pool: Float32, written: Codes, pivot: str
) -> Expectation:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of candidates that need more text than there is
            maps = fitted(candidate, roles, pivot)
    except AlignmentError as error:
        return Expectation(candidate, error=str(error))
    queries, rows = _mapped(maps[0], judged.queries, judged.asked), _mapped(maps[-1], pool, written)
    precision = one_target_precision(target_counts(queries, rows, judged.targets))
    there = judged.targets >= 0
    found = np.where(there, np.nan_to_num(precision) * K >= 1 - 1e-9, False)
    same = there & (written[judged.targets] == judged.asked[:, None])
    across = there & ~same
    by_language = {
        str(code): float(found[part][across[part]].mean())
        for code in np.unique(judged.asked)
        if across[part := judged.asked == code].any()
    }
    worst = min(by_language.items(), key=lambda item: item[1], default=None)
    means = [float(found[mask].mean()) if mask.any() else None for mask in (same, across)]
    return Expectation(candidate, *means, worst=worst)


def _mapped(alignment: Any, vectors: Float32, codes: Codes) -> Float32:
    """Unit rows under a fitted alignment, or none; languages that were not fitted get a relative's map."""
    if alignment is None:
        return normalise(vectors)
    maps = Maps(module_of({"": alignment}), normalise=True)
    maps.aligned.unknown = "related"
    numbers = maps.index({*codes.tolist()})
    places = np.array([-1 if (number := numbers[code]) is None else number for code in codes.tolist()])
    return np.asarray(maps.apply(vectors, places), np.float32)


def best(expectations: Sequence[Expectation]) -> Expectation:
    """The simplest method within :data:`NEAR` of the best recall across languages, at no more than :data:`PRICE`.

    Methods are in the order of their simplicity, the plain vectors first.
    """
    plain = expectations[0]
    fair = [
        row
        for row in expectations
        if row.across is not None and (row.same is None or row.same >= (plain.same or 0.0) - PRICE)
    ]
    most = max((row.across or 0.0 for row in fair), default=0.0)
    return next((row for row in fair if (row.across or 0.0) >= most - NEAR), plain)
