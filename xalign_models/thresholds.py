"""One score threshold for all languages: cosines standardised by the languages of query and document.

A multilingual model gives unrelated texts of one pair of languages higher cosines than those of another pair, so a
threshold that suits English rejects translations in one language and accepts noise in another. The median and spread
of the cosines between unrelated texts, which need no labels, put all pairs on one scale.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from xalign_models.errors import DataError, FileError, LanguageError
from xalign_models.files import is_number, read_json
from xalign_models.languages import match
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.paths import atomic_write_text

logger = logging.getLogger(__name__)

FEW = 100
"""Texts of a language below which more unrelated texts may pass than a rate says: 1.7% for 1% with 30, 9% with 5."""
RATES = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Rates of false positives with a stored threshold, from the highest to the lowest."""


@dataclass(frozen=True)
class Thresholds:
    """Median and spread of unrelated texts' cosines by pair of languages, and thresholds of the standardised scores.

    Attributes:
        pairs: (median, spread) by language of the query, then of the document; the spread is the distance from the
            median to the cosine that 1% of unrelated texts exceed.
        quantiles: The standardised score that a share of :data:`RATES` of the unrelated texts exceeds, over all pairs.

    Examples:
        >>> import numpy as np
        >>> import xalign_models
        >>> rng = np.random.default_rng(0)
        >>> vectors = {language: rng.normal(size=(300, 16)) for language in ("deu-Latn", "eng-Latn")}
        >>> thresholds = xalign_models.Thresholds.fit(vectors)
        >>> scores = thresholds.standardise([0.1, 0.9], "de", "en")
        >>> (scores > thresholds.at(0.01)).tolist()
        [False, True]
    """

    pairs: Mapping[str, Mapping[str, tuple[float, float]]]
    quantiles: tuple[float, ...]

    @classmethod
    def fit(
        cls,
        queries: Mapping[str, npt.ArrayLike],
        documents: Mapping[str, npt.ArrayLike] | None = None,
        *,
        samples: int = 50_000,
        seed: int = 0,
    ) -> Self:
        """Measure the cosines of random pairs of texts, which need neither labels nor translations.

        Args:
            queries: Vectors (n, d) of texts by canonical language, as the model encodes queries.
            documents: The same for documents; None if queries and documents are encoded alike.
            samples: Number of random pairs of texts for each pair of languages.
            seed: Seed of the pairs. Rows with the same number are never paired, because they may be translations.

        Raises:
            DataError: A language has fewer than two rows, rows are zero, not finite or of different widths, all cosines
                of a pair are equal, or there are no samples.
        """
        if samples < 1:
            raise DataError(f"samples={samples}; it must be at least 1.")
        rng = np.random.default_rng(seed)
        asked = {code: _unit(rows, code) for code, rows in queries.items()}
        stored = asked if documents is None else {code: _unit(rows, code) for code, rows in documents.items()}
        if len(widths := {rows.shape[1] for side in (asked, stored) for rows in side.values()}) > 1:
            listed = ", ".join(map(str, sorted(widths)))
            raise DataError(f"The vectors have different widths ({listed}); give vectors of one model.")
        if few := sorted({code for side in (asked, stored) for code, rows in side.items() if len(rows) < FEW}):
            logger.warning(
                "%s: fewer than %d texts; more unrelated ones may pass than the rate says.", ", ".join(few), FEW
            )
        pairs: dict[str, dict[str, tuple[float, float]]] = {}
        tails = []
        for query, x in asked.items():
            for document, y in stored.items():
                i, j = rng.integers(len(x), size=samples), rng.integers(len(y), size=samples)
                i, j = i[i != j], j[i != j]
                scores = np.einsum("nd,nd->n", x[i], y[j])
                median, spread = scale(scores) if len(scores) else (0.0, 0.0)
                if spread < 1e-9:
                    raise DataError(f"{query} and {document}: all cosines are equal; give more and other texts.")
                pairs.setdefault(query, {})[document] = median, spread
                tails.append(np.quantile((scores - median) / spread, 1 - np.array(RATES)))
        if not tails:
            raise DataError("There are no vectors; give those of at least one language.")
        return cls(pairs, tuple(float(value) for value in np.mean(tails, axis=0)))

    def standardise(
        self, scores: npt.ArrayLike, query_lang: str | Sequence[str], document_lang: str | Sequence[str]
    ) -> Float64:
        """Cosines on the common scale, ``(score - median) / spread``.

        Args:
            scores: Cosines (n,), or of any shape if all are of one pair of languages.
            query_lang: Language of all queries, in any code, or one per score.
            document_lang: The same for documents.

        Raises:
            LanguageError: A language was not measured.
            ValueError: A list of languages and the scores differ in length, or the scores do not have the shape (n,).
        """
        values = np.asarray(scores, np.float64)
        if isinstance(query_lang, str) and isinstance(document_lang, str):
            one, width = self._facts(query_lang, document_lang)
            return np.asarray((values - one) / width)
        sides = [[code] * values.size if isinstance(code, str) else code for code in (query_lang, document_lang)]
        if any(values.shape != (len(side),) for side in sides):
            raise ValueError(f"Give one language per score in a list; the scores have the shape {values.shape}.")
        by_row = [*zip(*sides, strict=True)]
        facts = {pair: self._facts(*pair) for pair in set(by_row)}
        median, spread = np.array([facts[pair] for pair in by_row], np.float64).reshape(-1, 2).T
        return np.asarray((values - median) / spread)

    def at(self, rate: float = 0.01) -> float:
        """The threshold of standardised scores that a share ``rate`` of unrelated texts exceeds, over all pairs.

        At 1%, where the scale is set, it is about this share in each pair; at 10%, up to 14% of a pair were seen.

        Raises:
            DataError: The rate is not between 0.001 and 0.1.
        """
        if not RATES[-1] <= rate <= RATES[0]:
            raise DataError(f"rate={rate}; it must be between {RATES[-1]} and {RATES[0]}.")
        return float(np.interp(-np.log(rate), -np.log(RATES), self.quantiles))

    def save(self, path: str | Path) -> None:
        """Write a JSON file."""
        content = {"format": 1, "rates": RATES, "quantiles": self.quantiles, "pairs": self.pairs}
        atomic_write_text(Path(path), json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the file that :meth:`save` wrote.

        Raises:
            FileError: The file is missing or damaged.
        """
        content = read_json(Path(path))
        try:
            pairs = {query: {document: (median, spread) for document, (median, spread) in row.items()}
                     for query, row in content["pairs"].items()}  # fmt: skip
            known = content["format"] == 1 and tuple(content["rates"]) == RATES
            facts = [pair for row in pairs.values() for pair in row.values()]
            finite = all(map(is_number, [*content["quantiles"], *(value for pair in facts for value in pair)]))
            spread = min((spread for _, spread in facts), default=0)
            if not (known and finite and spread > 0 and len(content["quantiles"]) == len(RATES)):
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise FileError(f"{path} is not a file of thresholds; save it again.") from None
        return cls(pairs, tuple(content["quantiles"]))

    def _facts(self, query: str, document: str) -> tuple[float, float]:
        row = self.pairs.get(match(query, tuple(self.pairs)), {})
        if (code := match(document, tuple(row))) not in row:
            raise LanguageError(
                f"No threshold for queries in {query} and documents in {document}; measured are "
                f"{', '.join(sorted({*self.pairs, *(code for part in self.pairs.values() for code in part)}))}."
            )
        return row[code]


def scale(scores: AnyFloats) -> tuple[float, float]:
    """Median and spread of the scores (n,) of unrelated texts: 1% of them exceed median + spread."""
    median = float(np.median(scores))
    return median, float(np.quantile(scores, 0.99)) - median


def _unit(rows: npt.ArrayLike, label: str) -> AnyFloats:
    try:
        matrix: AnyFloats = np.asarray(rows, np.float64)
    except (TypeError, ValueError):  # rows of several lengths, or texts
        matrix = np.empty(0)
    lengths = np.linalg.norm(matrix, axis=-1, keepdims=True)
    if matrix.ndim != 2 or len(matrix) < 2 or not (np.isfinite(lengths).all() and lengths.all()):
        raise DataError(f"{label}: give a matrix (n, d) of at least two finite rows that are not zero.")
    return np.asarray(matrix / lengths)
