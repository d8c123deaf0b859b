"""Pools that are planted apart are apart, mixed ones are mixed; one model is shown beside its counterpart."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from xalign_models.analysis import Request
from xalign_models.errors import DataError, LanguageError
from xalign_models.models.building import build
from xalign_models.models.metadata import model_meta
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.models.saving import save
from xalign_models.ranking.ranks import normalise
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_tasks.analyses import scatter
from xalign_tasks.analyses.scatter import before_and_after, draw, mixing, project

LABELS = ["eng-Latn"] * 30 + ["tha-Thai"] * 30
MEANINGS = [*range(30), *range(30)]


@pytest.fixture
def pools():
    """The same meanings twice, near each other, or each language far from the other."""
    rng = np.random.default_rng(0)
    meaning, apart = rng.standard_normal((30, 16)), np.eye(16)[0]
    noise = 0.01 * rng.standard_normal((60, 16))
    both = np.concatenate([meaning, meaning])
    away = np.concatenate([meaning + 20 * apart, meaning - 20 * apart])
    return normalise(both + noise), normalise(away + noise)


def test_mixing_tells_them_apart(pools):
    mixed, apart = (mixing(one, LABELS, MEANINGS) for one in pools)
    assert mixed["neighbour_translation"] == 100
    assert mixed["neighbour_same_language"] == 0
    assert apart["neighbour_translation"] == 0
    assert apart["neighbour_same_language"] == 100
    assert apart["silhouette"] > 0.9 > 0.1 > mixed["silhouette"]
    assert mixed["silhouette"] == pytest.approx(silhouette_score(pools[0], LABELS, metric="cosine"))


def test_pca_is_the_singular_value_decomposition(pools):
    plane = project(pools[1])["PCA"]
    centred = pools[1] - pools[1].mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(plane), np.abs(left[:, :2] * singular[:2]), atol=1e-5)
    total = (singular**2).sum()
    assert mixing(pools[1], LABELS, MEANINGS)["pca_variance"] == pytest.approx((singular[:2] ** 2).sum() / total)


def test_tsne_keeps_neighbours_together_and_is_the_same_every_time(pools):
    plane = project(pools[0])["t-SNE"]
    np.testing.assert_array_equal(plane, project(pools[0])["t-SNE"])
    gap = np.linalg.norm(plane[:30] - plane[30:], axis=1)
    assert np.median(gap) < 0.2 * plane.std()
    assert project(pools[0][:5])["t-SNE"].shape == (5, 2)  # fewer rows than the perplexity


def test_a_single_model_gets_its_counterpart():
    def names(*models):
        return [model_meta(one).name.removeprefix("xalign/") for one in before_and_after(models)]

    plain, lsar = "plain__multilingual-e5-small-q4", "lsar__multilingual-e5-small-q4"
    assert names("multilingual-e5-small-q4") == [plain, lsar]
    assert names(f"xalign/{lsar}") == [plain, lsar]
    assert names("xalign/procrustes__multilingual-e5-small-q4__gettext")[0] == plain
    assert names(f"xalign/{lsar}", f"xalign/{plain}") == [lsar, plain]


def test_a_saved_model_is_shown_as_it_was_saved_beside_its_backbone(workdir, tiny_model, write_text):
    text = write_text(workdir / "fit", 20)
    backbone = find_spec(str(tiny_model)).backbone
    spec = ModelSpec(backbone, AlignmentSpec("lsar", "lsar", corpora=(f"own:{text}",)), "fit")
    save(build(spec, device="cpu"), workdir / "saved")
    write_text(workdir / "fit", 20, seed=1)  # another fit would be another model
    assert before_and_after(["saved"]) == [ModelSpec(backbone), "saved"]
    meta = model_meta("saved")
    assert meta.name == spec.name
    assert meta.revision == json.loads((workdir / "saved" / "xalign.json").read_text())["content"][:40]
    assert meta.revision != Recipe(spec).revision


def test_the_figure_shows_every_panel_and_names_the_languages(pools):
    panels = {name: project(pool) for name, pool in zip(("a", "b"), pools, strict=True)}
    figure = draw(panels, LABELS, MEANINGS)
    assert [axis.get_title() for axis in figure.axes] == ["a", "b", "a", "b"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["English", "Thai"]
    line = figure.axes[0].lines[0].get_xydata()
    np.testing.assert_allclose(line[:2], panels["a"]["PCA"][[0, 30]])


def test_end_to_end(workdir, tiny_model, write_fit_text):
    write_fit_text(workdir, 15)
    folder = workdir / "data" / "flores200_dataset" / "devtest"
    folder.mkdir(parents=True)
    for code in ("eng_Latn", "deu_Latn", "fra_Latn"):
        (folder / f"{code}.devtest").write_text("".join(f"w{i} w{2 * i}\n" for i in range(12)))
    asked = Request((str(tiny_model),), workdir, "cpu", rows=10, languages=("eng-Latn", "deu-Latn"))
    findings = scatter.analyse(asked)
    assert findings.tables["mixing"]["model"].tolist() == ["xalign/plain__tiny", "xalign/lsar__tiny"]
    assert len(findings.tables["points"]) == 2 * 2 * 20
    with pytest.raises(LanguageError, match="Corpus 'flores' has no jpn-Jpan; it has deu-Latn"):
        scatter.analyse(Request(asked.models, workdir, "cpu", languages=("eng-Latn", "jpn-Jpan")))
    with pytest.raises(DataError, match="at least 2 languages and 2 rows"):
        scatter.analyse(Request(asked.models, workdir, "cpu", languages=("eng-Latn",)))
