"""Mutual nearest neighbours find a planted rotation without translations, and say where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from xalign_models.alignments import Seedless, make
from xalign_models.errors import AlignmentError


def spaces(angle, seed=0, n=400, d=12):
    """English, and German that is turned by ``angle`` and whose rows are in another order."""
    rng = np.random.default_rng(seed)
    skew = rng.standard_normal((d, d))
    turn = expm(angle * (skew - skew.T) / np.linalg.norm(skew - skew.T, 2))
    x = rng.standard_normal((n, d))
    order = rng.permutation(n)
    return {"eng-Latn": x, "deu-Latn": (x @ turn)[order]}, turn, order


def test_a_planted_rotation_is_found_without_pairs():
    data, turn, _ = spaces(0.5)
    fitted = Seedless(shrink=0.0, rounds=10).fit(data)
    np.testing.assert_allclose(fitted.weights_[1], turn.T, atol=1e-6)
    np.testing.assert_array_equal(fitted.weights_[0], np.eye(12))
    assert fitted.pairs_[1] == 400


def test_rounds_refine_what_the_first_pairs_begin():
    data, turn, _ = spaces(0.9)
    errors = [np.abs(Seedless(rounds=rounds, shrink=0.0).fit(data).weights_[1] - turn.T).max() for rounds in (1, 10)]
    assert errors[1] < 1e-6 < errors[0]


def test_a_shift_is_undone_before():
    data, _, order = spaces(0.5)
    data["deu-Latn"] = data["deu-Latn"] + 4
    centred = make("centered+seedless", shrink=0.0, rounds=10).fit(data)
    mapped = {language: centred.transform(rows, language) for language, rows in data.items()}
    np.testing.assert_allclose(mapped["deu-Latn"], mapped["eng-Latn"][order], atol=1e-6)


def test_the_pivot_is_needed_and_fields_are_checked():
    with pytest.raises(AlignmentError, match="pivot eng-Latn is not among deu-Latn"):
        Seedless().fit({"deu-Latn": np.eye(3)})
    for field in ("rounds", "shrink"):
        with pytest.raises(AlignmentError, match=field):
            Seedless(**{field: -1})
