"""A removed subspace that encodes planted syntax correlates with it, and the part that is kept does not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from xalign_models.analysis import Request
from xalign_models.errors import DataError
from xalign_models.typology import syntax
from xalign_tasks.analyses import lsar_subspace
from xalign_tasks.analyses.lsar_subspace import correlate, similarities

LANGUAGES = tuple(f"{code}-Latn" for code in ("eng", "deu", "fra", "spa", "tur", "rus", "eus", "jpn", "fin", "hin"))


@pytest.fixture
def planted_means(uriel):
    """Means whose part in the subspace is the syntactic features, turned; the rest is noise."""
    rng = np.random.default_rng(0)
    features = syntax(LANGUAGES)
    axes = np.linalg.qr(rng.standard_normal((80, 80))).Q
    basis, others = axes[:, :40], axes[:, 40:]
    means = features @ basis.T + rng.standard_normal((10, 40)) @ others.T
    return dict(zip(LANGUAGES, means, strict=True)), basis


def test_the_removed_part_has_the_cosines_of_the_planted_syntax(planted_means):
    frame = similarities(*planted_means)
    assert frame["language"].tolist() == list(LANGUAGES[1:])
    np.testing.assert_allclose(frame["removed"], frame["syntax"], atol=1e-12)
    found = correlate(frame).set_index("part")
    assert found.loc["removed", "pearson"] == pytest.approx(1)
    assert abs(found.loc["kept", "pearson"]) < 0.6
    assert found.loc["removed", "p_value"] < 1e-6 < 0.05 < found.loc["kept", "p_value"]


def test_removed_and_kept_are_cosines_of_projections(planted_means):
    means, basis = planted_means
    frame = similarities(means, basis)
    projector = basis @ basis.T
    for part, matrix in (("removed", projector), ("kept", np.eye(80) - projector)):
        a, b = matrix @ means["eng-Latn"], matrix @ means["fin-Latn"]
        expected = a @ b / np.sqrt((a @ a) * (b @ b))
        assert frame.set_index("language").loc["fin-Latn", part] == pytest.approx(expected)


def test_correlations_are_scipys(planted_means):
    frame = similarities(*planted_means)
    row = correlate(frame).set_index("part").loc["kept"]
    assert row["pearson"] == pytest.approx(np.corrcoef(frame["syntax"], frame["kept"])[0, 1])
    assert row["spearman"] == pytest.approx(spearmanr(frame["syntax"], frame["kept"]).statistic)
    distance = 2 / np.pi * np.arccos(frame["syntax"])
    assert row["pearson_angular"] == pytest.approx(-pearsonr(distance, frame["kept"]).statistic)


def test_end_to_end_with_the_published_numbers_beside(workdir, tiny_model, write_tatoeba, write_fit_text, uriel):
    write_tatoeba(workdir, 12)
    write_fit_text(workdir, 15)
    languages = ("deu-Latn", "fra-Latn", "spa-Latn", "tur-Latn")
    asked = Request((str(tiny_model),), workdir, "cpu", languages=languages)
    findings = lsar_subspace.analyse_syntax(asked)
    correlation = findings.tables["correlation"]
    sources = correlation["source"].tolist()
    assert sources[:2] == ["this run", "this run"]
    assert set(sources[2:]) == {"published: LSAR paper, Table 5"}
    assert 0.691 in correlation["pearson"].tolist()
    (figure,) = findings.figures.values()
    assert {text.get_text() for text in figure.axes[0].texts} == {"deu", "fra", "spa", "tur"}
    with pytest.raises(DataError, match="at least three languages"):
        lsar_subspace.analyse_syntax(Request(asked.models, workdir, "cpu", languages=languages[:2]))
