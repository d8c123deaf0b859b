"""Shift moves means by the wanted share, and is the mean difference of translations."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.alignments import Centered, Shift, make
from xalign_models.errors import AlignmentError


@pytest.mark.parametrize("strength", [0.0, 0.25, 1.0])
def test_the_strength_is_the_share_of_the_offset_that_goes(parallel, strength):
    fitted = Shift(strength=strength).fit(parallel)
    pivot = parallel["eng-Latn"].mean(axis=0)
    for language, rows in parallel.items():
        left = fitted.transform(rows, language).mean(axis=0) - pivot
        np.testing.assert_allclose(left, (1 - strength) * (rows.mean(axis=0) - pivot), atol=1e-12)
    np.testing.assert_array_equal(fitted.transform(parallel["eng-Latn"], "eng-Latn"), parallel["eng-Latn"])


def test_on_translations_it_is_the_mean_difference_of_pairs_and_centring_moved_to_the_pivot(parallel):
    x = np.random.default_rng(1).standard_normal((5, 16))
    german, english = parallel["deu-Latn"], parallel["eng-Latn"]
    mapped = Shift().fit(parallel).transform(x, "deu-Latn")
    np.testing.assert_allclose(mapped, x - np.mean([a - b for a, b in zip(german, english, strict=True)], axis=0))
    centred = Centered().fit(parallel).transform(x, "deu-Latn")
    np.testing.assert_allclose(mapped, centred + english.mean(axis=0), atol=1e-12)


def test_index_only_is_a_true_attribute_of_the_method_and_its_compositions():
    assert Shift().index_only is False
    assert make("shift", index_only=True).index_only is True
    assert make("shift+lsar", index_only=True).index_only is True


def test_the_pivot_is_needed_and_the_strength_is_a_share(parallel):
    with pytest.raises(AlignmentError, match="pivot fra-Latn is not among eng-Latn, deu-Latn, tur-Latn"):
        Shift(pivot="fra-Latn").fit(parallel)
    for strength in (-0.1, 1.1, float("nan")):
        with pytest.raises(AlignmentError, match="strength"):
            Shift(strength=strength)
