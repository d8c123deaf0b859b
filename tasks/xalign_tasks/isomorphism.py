"""Isomorphism of languages: precision@k before and after the best rotation of one language's vectors onto another's."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from xalign_models import corpora
from xalign_models.languages import FLORES_200, canonical
from xalign_models.linalg.arrays import Float32
from xalign_models.ranking.pairs import Sides
from xalign_models.ranking.ranks import AnyRanks, normalise, precision_at
from xalign_tasks.base import Scoring, without_normalisation
from xalign_tasks.facts import CODES
from xalign_tasks.pairs import RankedSubset, scored_pairs
from xalign_tasks.precision import PrecisionTask, precision_metadata

STAGES = ("before", "after")
SHARED = set(FLORES_200) & set(CODES["ntrex"]) - {"fuv-Latn"}  # NTREX-128's is Pulaar, FLORES-200's Nigerian Fulfulde


class IsomorphismStudy(PrecisionTask):
    """How similar two languages' vectors are in shape: P@k by cosine, before and after rotating one onto the other.

    Per ordered pair A-B, the rotation min ||A W - B||_F, W^T W = I is fitted on NTREX-128 (1,997 sentences), and each
    A-sentence of FLORES-200 looks for its translation among all B-sentences, unchanged and rotated by W. FLORES-200 is
    dev and devtest (2,009 sentences) if dev is available, else devtest (1,012). Ties count against the model: rank =
    1 + number of strictly greater scores + number of equal other scores. With fewer sentences than dimensions, W is
    undetermined outside the span of the fitted rows; there it is the rotation nearest the identity.

    The rotation of B-A is the transpose of A-B's, and so are its scores: a fit and two score matrices, before and
    after, serve both directions. Peak memory for L languages, n + m sentences and dimension d: 4 L (n + m) d bytes of
    vectors (beyond a gigabyte in a temporary file), and for a pair at most 12 float64 matrices with max(n, d) rows and
    columns. On a GPU, pairs run in batches. An interrupted run resumes at the next pair.

    Attributes:
        normalised: Whether the rows of the fit have unit length; the paper does not say whether its rows do.
    """

    corpus_name = "flores_full"
    fit_corpus_name: ClassVar[str] = "ntrex"
    normalised: ClassVar[bool] = True
    metadata = precision_metadata("IsomorphismStudy", SHARED)

    def stamp(self, fingerprint: str) -> None:
        """Put the fingerprint of both texts, for fitting and testing, into this instance's metadata."""
        fit = corpora.load(self.fit_corpus_name, local=True).fingerprint()
        super().stamp(hashlib.sha256(f"{fingerprint} {fit}".encode()).hexdigest())

    def scores(self, ranks: AnyRanks) -> dict[str, float]:
        """P@k of ranks (2, n) before and after, and the number of sentences."""
        precisions = {stage: precision_at(row) for stage, row in zip(STAGES, ranks, strict=True)}
        scores = {f"{stage}_{name}": value for stage, values in precisions.items() for name, value in values.items()}
        return {**scores, "sentences": float(ranks.shape[1])}

    def ranks(self, scoring: Scoring, subsets: set[str]) -> Iterator[RankedSubset]:
        """Each subset with its ranks (2, n) before and after."""
        languages = {code: canonical(code) for code in sorted({code for pair in subsets for code in pair.split("-")})}
        fit = corpora.load(self.fit_corpus_name).parallel(languages.values())
        test = self.corpus.parallel(languages.values())

        def sides(code: str) -> Sides:
            language = languages[code]
            vectors = self.embed(scoring, [*fit[language], *test[language]], language, code)
            rows = vectors[: len(fit[language])]
            return Sides(normalise(vectors[len(fit[language]) :]), normalise(rows) if self.normalised else rows.copy())

        shape = (2, len(next(iter(test.values()))))
        return scored_pairs(self, scoring, subsets, sides, shape)


class IsomorphismStudyRaw(IsomorphismStudy):
    """The study with the rotation fitted on the backbone's rows before its final Normalize."""

    normalised = False
    metadata = precision_metadata("IsomorphismStudyRaw", SHARED)

    def embed(self, scoring: Scoring, *args: Any, **kwargs: Any) -> Float32:
        """Vectors (n, d), float32, of an xalign model without its final Normalize, or of any other model unchanged."""
        return super().embed(replace(scoring, model=without_normalisation(scoring.model)), *args, **kwargs)
