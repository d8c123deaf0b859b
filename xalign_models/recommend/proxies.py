"""Scores held-out translations by kind of use, across languages and within each: proxies in place of labels.

Retrieval is the reciprocal rank of a row's counterpart among all rows, fitted ones included; within a language, the
counterpart is the sentence that the plain backbone finds nearest on the pivot's side. Similarity is Spearman's
correlation with the similarities of the pivot's sentences under the same maps. The plain backbone's similarities would
count any change of the pivot's space as harm, even centring's, but labelled pairs show no such harm.
Classification is the accuracy of centroids, with the plain backbone's clusters of the pivot's sentences as classes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from xalign_models.linalg.arrays import AnyFloats, Float32, Float64
from xalign_models.ranking.correlation import spearman_shares
from xalign_models.ranking.ranks import TIE, nearest_others, normalise, target_counts
from xalign_models.recommend.candidates import Candidate, Keys, Trial

RETRIEVAL, SIMILARITY, CLASSIFICATION = KINDS = ("retrieval", "similarity", "classification")
CLUSTERS = 8
"""Number of clusters of the pivot's sentences, which the classification proxy uses as classes."""
MOST = 500
"""Maximum number of held-out rows of a fold whose similarities are compared: all pairs are in memory."""
PROXIES = {
    RETRIEVAL: "rank among all rows",
    SIMILARITY: "rank agreement with the pivot's own similarities",
    CLASSIFICATION: f"centroids of {CLUSTERS} clusters of the pivot",
}
"""How each kind is judged without labels."""

Scored = Mapping[str, tuple[Keys, Float64]]
"""Language to the sentences of its held-out rows, and their scores."""
ByKind = Mapping[tuple[str, bool], Scored]
"""Scores by kind and by whether both sides have the same language."""


class Reference(NamedTuple):
    """The plain backbone's view of a language's pivot side: the class and the nearest sentence of each row."""

    classes: npt.NDArray[np.integer]
    nearest: npt.NDArray[np.integer]


def references(trial: Trial, seed: int) -> dict[str, Reference]:
    """The references of each language's judged text."""
    from sklearn.cluster import KMeans

    found = {}
    for language in trial.judge[0]:
        pivot, pool = (normalise(data[language][1]) for data in (trial.judge[0], trial.judge[-1]))
        classes = KMeans(CLUSTERS, n_init=1, random_state=seed).fit_predict(pivot)
        keys = trial.keys[language]
        found[language] = Reference(classes, nearest_others(pivot, pool, keys, 1, keys)[:, 0])
    return found


def score(trials: Sequence[Trial], pivot: str, candidate: Candidate, views: Mapping[str, Reference]) -> ByKind:
    """Scores of held-out rows under a candidate fitted on other rows.

    Raises:
        AlignmentError: The candidate cannot be fitted.
    """
    parts: dict[tuple[str, bool], dict[str, list[tuple[Keys, Float64]]]]
    parts = {(kind, within): defaultdict(list) for kind in KINDS for within in (False, True)}
    for trial in trials:
        roles = trial.moved(candidate, pivot)
        for language, ranks in retrieval(roles[0], roles[-1], trial):
            parts[RETRIEVAL, False][language].append((trial.keys[language][trial.judged[language]], ranks))
        for language, (own, other) in roles[0].items():
            keys, view = trial.keys[language], views[language]
            held = np.flatnonzero(trial.judged[language])
            few = held[:MOST]
            near = reciprocal_ranks(own[held], roles[-1][language][0], view.nearest[held], (keys[held], keys))
            parts[RETRIEVAL, True][language].append((keys[held], near))
            for within, side in ((False, other), (True, own)):
                shares = agreement(own[few] @ side[few].T, other[few] @ other[few].T)
                parts[SIMILARITY, within][language].append((keys[few], shares))
                hits = centroid_hits(side, own, view.classes, keys % 2 == 1)[held]
                parts[CLASSIFICATION, within][language].append((keys[held], hits))
    return {key: {code: joined(pieces) for code, pieces in by_code.items()} for key, by_code in parts.items()}


def joined(pieces: Sequence[tuple[Keys, Float64]]) -> tuple[Keys, Float64]:
    """The sentences and scores of all folds."""
    return np.concatenate([keys for keys, _ in pieces]), np.concatenate([scores for _, scores in pieces])


def retrieval(
    queries: Mapping[str, Sequence[Float32]], documents: Mapping[str, Sequence[Float32]], trial: Trial
) -> Iterator[tuple[str, Float64]]:
    """Reciprocal ranks in both directions: to the pivot and, if it has the same sentences, to the next language."""
    names = list(queries)
    for language, following in zip(names, [*names[1:], names[0]], strict=True):
        sides = [(language, 1)]
        if following != language and np.array_equal(trial.keys[language], trial.keys[following]):
            sides.append((following, 0))
        held = np.flatnonzero(trial.judged[language])
        for code, side in sides:
            yield language, reciprocal_ranks(queries[language][0][held], documents[code][side], held)
            yield language, reciprocal_ranks(queries[code][side][held], documents[language][0], held)


def reciprocal_ranks(
    queries: AnyFloats, pool: AnyFloats, gold: npt.NDArray[np.integer], sentences: tuple[Keys, Keys] | None = None
) -> Float64:
    """1 / rank (n,) of each query's row of the pool; ties count against it.

    Args:
        queries: (n, d) unit rows.
        pool: (m, d) unit rows.
        gold: (n,) rows of the pool.
        sentences: (n,) sentences of the queries, which are left out of the pool, and (m,) sentences of the pool.
    """

    def adjust(scores: AnyFloats, rows: slice) -> AnyFloats:
        if sentences is not None:
            own, keys = sentences
            scores[own[rows][:, None] == keys] = -np.inf
        places = np.arange(len(scores)), gold[rows]
        scores[places] -= TIE  # equal scores differ by rounding
        return scores

    return 1.0 / target_counts(queries, pool, gold[:, None], adjust=adjust)[:, 0]


def agreement(scores: AnyFloats, reference: AnyFloats) -> Float64:
    """Each sentence's share (n,) in Spearman's correlation, their mean, of two (n, n) matrices without diagonals.

    A sentence is in a row and in a column: its share is the correlation and the deviations of both (Hoeffding's
    projection).
    """
    if len(scores) < 3:
        return np.zeros(len(scores))
    off = ~np.eye(len(scores), dtype=bool)
    pairs = np.full(scores.shape, np.nan)
    pairs[off] = np.nan_to_num(spearman_shares(scores[off], reference[off]))
    shares: Float64 = np.nanmean(pairs, axis=0) + np.nanmean(pairs, axis=1) - np.nanmean(pairs)
    return shares


def centroid_hits(
    train: AnyFloats, test: AnyFloats, classes: npt.NDArray[np.integer], half: npt.NDArray[np.bool_]
) -> Float64:
    """Whether (n,) a row's nearest centroid, by cosine, from the other half's training rows has the row's class.

    Args:
        train: (n, d) unit rows whose means by class are the centroids.
        test: (n, d) unit rows of the same sentences.
        classes: (n,) from 0.
        half: (n,) the half of each sentence.
    """
    hits = np.zeros(len(test))
    for part in (False, True):
        members = (classes == np.arange(classes.max() + 1)[:, None]) & (half != part)
        centroids = normalise(members.astype(np.float32) @ train)
        hits[half == part] = (test @ centroids.T).argmax(axis=1)[half == part] == classes[half == part]
    return hits
