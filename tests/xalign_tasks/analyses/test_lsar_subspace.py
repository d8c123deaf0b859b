"""Components are projections; planted families are found apart, and planted syntax in the removed part alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import f_oneway, pearsonr, spearmanr

from xalign_models.analysis import Request
from xalign_models.errors import DataError
from xalign_models.typology import syntax
from xalign_tasks.analyses import lsar_subspace
from xalign_tasks.analyses.lsar_subspace import (
    by_family,
    components,
    correlate,
    eta_squared,
    separation,
    similarities,
    summary,
)

LANGUAGES = tuple(f"{code}-Latn" for code in ("eng", "deu", "fra", "spa", "tur", "rus", "eus", "jpn", "fin", "hin"))


def test_components_are_projections_with_english_on_the_positive_side():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((8, 2))).Q
    vectors = {one: rng.standard_normal((5, 8)) - 3 * basis[:, 0] for one in ("eng-Latn", "deu-Latn")}
    found = components(vectors, basis)
    np.testing.assert_allclose(found["deu-Latn"][:, 0], -vectors["deu-Latn"] @ basis[:, 0])  # English's mean is -3
    assert (found["eng-Latn"].mean(axis=0) > 0).all()
    for one in components(vectors, -basis).values(), found.values():
        assert (next(iter(one)).mean(axis=0) > 0).all()
    np.testing.assert_allclose(components(vectors, -basis)["deu-Latn"], found["deu-Latn"])  # the sign is free


def test_eta_squared_is_that_of_the_analysis_of_variance():
    rng = np.random.default_rng(1)
    groups = [rng.standard_normal((n, 1)) + shift for n, shift in ((30, 0), (20, 1), (50, 0.3))]
    (share,) = eta_squared(groups)
    statistic = f_oneway(*groups).statistic.item()
    assert (share / 2) / ((1 - share) / 97) == pytest.approx(statistic)
    assert eta_squared([np.ones((3, 1)), np.zeros((3, 1))]) == pytest.approx(1)
    assert eta_squared([np.ones((3, 1)), np.ones((3, 1))]) == pytest.approx(0)  # no variance at all


def test_planted_families_explain_what_is_removed(uriel):
    rng = np.random.default_rng(2)
    place = {"Germanic": 0, "Romance": 5, "Turkic": -5}
    languages = ("eng-Latn", "deu-Latn", "fra-Latn", "spa-Latn", "tur-Latn")
    removed = {one: 0.1 * rng.standard_normal((40, 2)) + [place[lsar_subspace.family(one)], 0] for one in languages}
    assert list(by_family(removed)) == ["Romance", "Germanic", "Turkic"]
    assert by_family(removed)["Romance"] == ["fra-Latn", "spa-Latn"]
    table = separation(removed, np.array([3.0, 1.0]))
    assert table["eta_squared_families"][0] > 0.99
    assert table["eta_squared_families"][1] < 0.2
    assert table["share_of_mean_differences"].tolist() == pytest.approx([0.9, 0.1])
    described = summary(removed).set_index("language")
    assert described.loc["fra-Latn", "mean_1"] == pytest.approx(5, abs=0.1)
    assert described.loc["fra-Latn", "sentences"] == 40


def test_families_end_to_end(workdir, tiny_model, write_tatoeba, write_fit_text, uriel):
    write_tatoeba(workdir, 12)
    write_fit_text(workdir, 15)
    languages = ("deu-Latn", "fra-Latn", "spa-Latn", "tur-Latn")
    findings = lsar_subspace.analyse_families(Request((str(tiny_model),), workdir, "cpu", languages=languages))
    assert findings.tables["languages"]["family"].tolist() == ["Germanic", "Germanic", "Romance", "Romance", "Turkic"]
    (figure,) = findings.figures.values()
    labels = {axis.get_ylabel() for axis in figure.axes}
    assert {"Germanic (2)", "Romance (2)", "Turkic (1)"} <= labels
    assert findings.data["tatoeba"]


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


def test_syntax_end_to_end_with_the_published_numbers_beside(workdir, tiny_model, write_tatoeba, write_fit_text, uriel):
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
