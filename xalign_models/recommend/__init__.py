"""Recommends an alignment for a backbone by held-out text, and says what it costs."""

from xalign_models.recommend.candidates import PLAIN, Candidate, candidates
from xalign_models.recommend.card import CardRow
from xalign_models.recommend.judging import (
    CandidateResult,
    Labelled,
    PairedVectors,
    Recommendation,
    recommend,
    recommend_centring,
    recommend_labelled,
)
from xalign_models.recommend.proxies import CLASSIFICATION, KINDS, RETRIEVAL, SIMILARITY

__all__ = [
    "CLASSIFICATION",
    "KINDS",
    "PLAIN",
    "RETRIEVAL",
    "SIMILARITY",
    "Candidate",
    "CandidateResult",
    "CardRow",
    "Labelled",
    "PairedVectors",
    "Recommendation",
    "candidates",
    "recommend",
    "recommend_centring",
    "recommend_labelled",
]
