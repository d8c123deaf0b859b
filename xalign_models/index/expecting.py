"""Expected recall of each method on an index, from the user's queries or passages of held-out parallel text."""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models import corpora
from xalign_models.alignments.module import module_of
from xalign_models.corpora import ENGLISH
from xalign_models.corpora.collection import read_records
from xalign_models.errors import AlignmentError, DataError, ModelError
from xalign_models.files import require_regular
from xalign_models.index.auditing import Sample
from xalign_models.index.forensics import encode
from xalign_models.languages import canonical
from xalign_models.linalg.arrays import Float32
from xalign_models.models.maps import Maps
from xalign_models.models.recipe import Recipe
from xalign_models.ranking.ranks import Ranks, normalise, one_target_precision, target_counts
from xalign_models.recommend.candidates import PLAIN, Candidate, candidates, fitted
from xalign_models.specs import Vectors

logger = logging.getLogger(__name__)
K = 10
"""A relevant row counts as found if it is among this many."""
PASSAGES, MOST = 100, 8
"""Maximum number of passages of a language, and of sentences in one."""
NEAR = 0.005
"""Maximum difference of recall at which the simpler method is chosen."""
ALONE = "The index is only in English; with one language there is nothing to align."
Text = dict[str, list[str]]


class NothingToFitError(DataError):
    """No fit text has another language of the index or its queries, or they have no other language."""


@dataclass(frozen=True)
class Expectation:
    """Recall@10 of a method, in [0, 1]; each relevant row is ranked without the query's other relevant rows.

    Attributes:
        candidate: The method.
        same: Mean over the relevant rows in the query's language; None without such rows.
        across: Mean over the relevant rows in other languages.
        error: Why it could not be fitted, else empty.
    """

    candidate: Candidate
    same: float | None = None
    across: float | None = None
    error: str = ""

    def cells(self) -> dict[str, Any]:
        """The row of a table, in points of 100."""
        same, across = (None if value is None else round(100 * value, 1) for value in (self.same, self.across))
        return {"method": self.candidate.label, "same language": same, "across": across, "error": self.error}


@dataclass(frozen=True)
class Judged:
    """Queries and searched rows with their languages, and the relevant rows (n, k), -1 for none."""

    queries: Float32
    asked: Any
    rows: Float32
    written: Any
    targets: Ranks


def _lines(queries: Path) -> list[dict[str, Any]]:
    records = [*read_records(require_regular(queries))]
    if wrong := [place for place, record in records if not {"text", "lang", "id"} <= {*record}]:
        raise DataError(
            f'{wrong[0]}: give lines such as {{"text": "...", "lang": "de", "id": 7}}, one per relevant row.'
        )
    return [record for _, record in records]


def languages_to_fit(sample: Sample, queries: Path | None) -> set[str]:
    """The languages of an index and its queries, without unrecognised ones, for which there is no text.

    Raises:
        XAlignError: The queries are missing, or a line has another form or lacks a language.
    """
    asked = (canonical(str(line["lang"])) for line in (_lines(queries) if queries else ()))
    return {*sample.codes.tolist(), *asked} - {"und"}


def fit_text(corpus: str, languages: set[str], limit: int) -> tuple[Text, Text]:
    """Parallel text in the languages of an index and in English: rows to fit on, and the held-out last rows.

    Raises:
        NothingToFitError: The corpus lacks English or another language of the index, or all is English.
        DataError: The corpus is not parallel.
    """
    if languages == {ENGLISH}:
        raise NothingToFitError(ALONE)
    text = corpora.load(corpus)
    common = sorted({*text.languages} & (languages | {ENGLISH}))
    if ENGLISH not in common or len(common) < 2:
        raise NothingToFitError(
            f"{corpus} must have English and another language of the index; name another text with --corpus."
        )
    columns = text.parallel(common)
    start = max(len(columns[ENGLISH]) - PASSAGES * MOST, len(columns[ENGLISH]) * 2 // 3)
    rows = {code: side[: min(limit, start)] for code, side in columns.items()}
    return rows, {code: side[start:] for code, side in columns.items()}


def passages(recipe: Recipe, held: Text, sample: Sample) -> Judged:
    """Passages of held-out sentences, as long as the index's texts, among its rows; the queries are first sentences."""
    roles, texts = recipe.role_prompts(), sample.rows.texts
    sentence = np.median([len(row) for row in held[ENGLISH]])
    size = int(np.clip(np.median([len(str(text)) for text in texts]) / sentence, 1, MOST)) if texts else MOST // 2
    size = min(size, len(held[ENGLISH]))
    starts = range(0, len(held[ENGLISH]) - size + 1, size)[:PASSAGES]
    spoken = [code for code in held for _ in starts]
    documents = encode(recipe, [" ".join(held[c][s : s + size]) for c in held for s in starts], spoken, roles[-1])
    queries = encode(recipe, [held[code][start] for code in held for start in starts], spoken, roles[0])
    targets = np.arange(len(starts))[:, None] + len(starts) * np.arange(len(held))
    rows, written = np.concatenate([documents, sample.rows.vectors]), np.concatenate([spoken, sample.codes])
    return Judged(queries, np.array(spoken), rows, written, np.tile(targets, (len(held), 1)))


def own_queries(recipe: Recipe, path: Path, sample: Sample) -> Judged:
    """The user's queries: JSON lines with ``text``, ``lang`` and the ``id`` of relevant rows.

    Ids come from the store or a file's column of ids; otherwise they are row numbers from 0.

    Raises:
        FileError: The file is missing.
        DataError: A line has another form, or no line names a row of the sample.
    """
    records, places = _lines(path), dict[str, list[int]]()
    for number, key in enumerate(sample.rows.ids):
        places.setdefault(str(key), []).append(number)
    found: dict[tuple[str, str], dict[int, None]] = {}  # a repeated line does not name a second row
    known = [record for record in records if str(record["id"]) in places]
    if len(known) < len(records) or not known:
        message = f"{path}: queries that name a row of the sample: {len(known)} of {len(records)}"
        if not known:
            raise DataError(f"{message}; its first id is {sample.rows.ids[0]}.")
        logger.warning("%s; the others are left out.", message)
    for record in known:
        query = str(record["text"]), canonical(str(record["lang"]))
        found.setdefault(query, {}).update(dict.fromkeys(places[str(record["id"])]))
    targets = np.full((len(found), max(map(len, found.values()))), -1)
    for number, rows in enumerate(found.values()):
        targets[number, : len(rows)] = [*rows]
    texts, codes = zip(*found, strict=True)
    queries = encode(recipe, texts, codes, recipe.role_prompts()[0])
    return Judged(queries, np.array(codes), sample.rows.vectors, sample.codes, targets)


def expect(
    sample: Sample, recipe: Recipe, corpus: str, limit: int = 300, queries: Path | None = None
) -> list[Expectation]:
    """The recall of the plain vectors and of each method that ``xalign recommend`` tries, the simplest first.

    Maps are fitted on vectors of unit length, as most indexes have; other vectors are scaled to it.

    Args:
        sample: Rows of the index.
        recipe: The index's model.
        corpus: Parallel text in the index's languages, to fit on.
        limit: Rows of the text to fit on.
        queries: The user's queries, as in :func:`own_queries`; by default :func:`passages`.

    Raises:
        XAlignError: Text is missing, or the vectors have another dimension than the model's.
    """
    spec = replace(recipe.spec, backbone=replace(recipe.spec.backbone, vectors=Vectors.UNIT))
    recipe = Recipe(spec, recipe.raw, recipe.backbone)
    judged = own_queries(recipe, queries, sample) if queries else None
    text, held = fit_text(corpus, languages_to_fit(sample, queries), limit)
    roles = []
    for prompt in recipe.role_prompts():
        vectors = {code: recipe.encode(side, code, prompt=prompt) for code, side in text.items()}
        roles.append({code: (rows, vectors[ENGLISH]) for code, rows in vectors.items() if code != ENGLISH})
    if (dim := vectors[ENGLISH].shape[1]) != sample.rows.vectors.shape[1]:
        raise ModelError(f"The index has dimension {sample.rows.vectors.shape[1]}, and {recipe.spec.name} {dim}.")
    judged = judged or passages(recipe, held, sample)
    return [_expected(candidate, roles, judged) for candidate in (PLAIN, *candidates(len(text)))]


def _expected(candidate: Candidate, roles: Sequence[Any], judged: Judged) -> Expectation:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from candidates that need more text than there is
            maps = fitted(candidate, roles, ENGLISH)
    except AlignmentError as error:
        return Expectation(candidate, error=str(error))
    queries, rows = _moved(maps[0], judged.queries, judged.asked), _moved(maps[-1], judged.rows, judged.written)
    found = np.nan_to_num(one_target_precision(target_counts(queries, rows, judged.targets))) * K >= 1 - 1e-9
    own, there = judged.written[judged.targets] == judged.asked[:, None], judged.targets >= 0
    shares = [float(found[mask].mean()) if mask.any() else None for mask in (there & own, there & ~own)]
    return Expectation(candidate, shares[0], shares[1])


def _moved(alignment: Any, vectors: Float32, codes: Any) -> Float32:
    """Unit rows under a fitted alignment, or unchanged without one; unfitted languages get a relative's map."""
    vectors = normalise(vectors)
    if alignment is None:
        return vectors
    module = module_of({"": alignment})
    module.unknown = "related"
    return Maps(module, normalise=True).transform(vectors, codes.tolist())


def best(expectations: Sequence[Expectation]) -> Expectation:
    """The simplest method within half a point of the best mean of both recalls, within and across languages."""
    means = [(row.across + (row.across if row.same is None else row.same)) / 2 if row.across is not None else 0.0
             for row in expectations]  # fmt: skip
    return next(row for row, mean in zip(expectations, means, strict=True) if mean >= max(means) - NEAR)
