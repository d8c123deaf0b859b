"""The alignments are estimators of scikit-learn: cloned, set, nested in pipelines."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from tests.xalign_models.conftest import QUICK
from xalign_models.alignments import METHODS, AffineMap, Centered, Procrustes, make
from xalign_models.errors import AlignmentError


@pytest.mark.parametrize("method", METHODS)
def test_a_clone_has_the_parameters_and_no_maps(method, parallel):
    fitted = make(method, **QUICK.get(method, {})).fit(parallel)
    check_is_fitted(fitted)
    copy = clone(fitted)
    assert copy.get_params(deep=True) == fitted.get_params(deep=False)
    assert not hasattr(copy, "languages_")
    assert copy.fit(parallel).fingerprint() == fitted.fingerprint()


def test_parameters_are_set_and_checked():
    alignment = make("lir", k=2)
    assert alignment.set_params(k=3) is alignment
    assert alignment.get_params()["k"] == 3
    for wrong in ({"k": -1}, {"rank": 3}):
        with pytest.raises(AlignmentError):
            alignment.set_params(**wrong)
    assert alignment.k == 3


def test_a_pipeline_is_the_composition(parallel):
    steps = Pipeline([("centre", Centered()), ("turn", Procrustes())]).fit(parallel)
    expected = make("centered+procrustes").fit(parallel)
    mapped = steps.transform(parallel)
    for code, rows in parallel.items():
        np.testing.assert_allclose(mapped[code], expected.transform(rows, code), atol=1e-9)
    again = clone(steps).set_params(turn__scale=True) if "scale" in Procrustes().get_params() else clone(steps)
    assert again.get_params()["turn__pivot"] == "eng-Latn"


def test_pipelines_pass_languages_on(parallel):
    alignment = AffineMap().fit(parallel)
    x = np.concatenate([rows[:2] for rows in parallel.values()])
    languages = [code for code in parallel for _ in range(2)]
    with config_context(enable_metadata_routing=True):
        steps = make_pipeline(FunctionTransformer(), AffineMap().fit(parallel))
        np.testing.assert_array_equal(steps.transform(x, language=languages), alignment.transform(x, languages))
