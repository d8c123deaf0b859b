"""Alignments compute in double precision, whatever they are given."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.alignments import make


@pytest.mark.parametrize(
    ("method", "params"),
    [("centered", {}), ("lir", {}), ("lsar", {}), ("procrustes", {}), ("procrustes", {"center": True}), ("affine", {})],
)
def test_single_precision_is_fitted_as_double(method: str, params: dict[str, bool]) -> None:
    """Rows far from the origin, whose means single precision would round."""
    rng = np.random.default_rng(0)
    rows = {code: (1000 + rng.standard_normal((500, 6))).astype(np.float32) for code in ("deu-Latn", "eng-Latn")}
    single = make(method, **params).fit(rows)
    double = make(method, **params).fit({code: vectors.astype(np.float64) for code, vectors in rows.items()})
    for name, factor in double.factors().items():
        np.testing.assert_allclose(single.factors()[name], factor, rtol=1e-9, atol=1e-9, err_msg=name)


def test_lir_may_take_all_directions() -> None:
    rows = np.random.default_rng(0).standard_normal((30, 4))
    fitted = make("lir", k=4).fit({"deu-Latn": rows, "eng-Latn": rows[::-1]})
    np.testing.assert_allclose(fitted.transform(rows, "deu-Latn"), 0, atol=1e-9)
