"""A rotation of any size is found from the shape of two spaces, without pairs, and refused fields are named."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.alignments import MiniVec2Vec, Seedless
from xalign_models.errors import AlignmentError


def spaces(n=1500, d=16):
    """Two draws from one mixture of topics, one of them turned by a random rotation and moved."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((12, d)) * np.linspace(0.3, 2, d)
    draws = [topics[rng.integers(12, size=n)] + 0.4 * rng.standard_normal((n, d)) for _ in range(2)]
    turn = np.linalg.qr(rng.standard_normal((d, d))).Q
    return {"eng-Latn": draws[0], "deu-Latn": draws[1] @ turn + 5}, draws[1]


def test_a_random_rotation_is_found_where_neighbours_say_nothing():
    data, truth = spaces()

    def cosine(method):
        mapped = method.fit(data).transform(data["deu-Latn"], "de")
        a, b = mapped - mapped.mean(axis=0), truth - truth.mean(axis=0)
        return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))

    assert cosine(Seedless()) < 0.5
    assert cosine(MiniVec2Vec(clusters=12, runs=4, rounds=20)) > 0.95


def test_maps_are_rotations_onto_the_pivots_mean():
    data, _ = spaces(300)
    fitted = MiniVec2Vec(clusters=8, runs=2, rounds=3, neighbours=10).fit(data)
    np.testing.assert_allclose(fitted.weights_[1] @ fitted.weights_[1].T, np.eye(16), atol=1e-6)
    np.testing.assert_allclose(fitted.transform(data["eng-Latn"], "en"), data["eng-Latn"], atol=1e-12)
    mean = fitted.transform(data["deu-Latn"], "de").mean(axis=0)
    np.testing.assert_allclose(mean, data["eng-Latn"].mean(axis=0), atol=1e-9)
    again = MiniVec2Vec(clusters=8, runs=2, rounds=3, neighbours=10).fit(data)
    np.testing.assert_array_equal(again.weights_, fitted.weights_)


def test_the_pivot_is_needed_and_fields_are_checked():
    with pytest.raises(AlignmentError, match="pivot eng-Latn is not among deu-Latn"):
        MiniVec2Vec().fit({"deu-Latn": np.eye(3)})
    for field in ("clusters", "runs", "neighbours", "rounds"):
        with pytest.raises(AlignmentError, match=field):
            MiniVec2Vec(**{field: 0})
