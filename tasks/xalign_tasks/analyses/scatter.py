"""A multilingual pool in the plane by PCA and t-SNE, one panel per model (LSAR's Figure 2, LUSIFER's Figure 6)."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score

from xalign_models import corpora, figures
from xalign_models.analysis import Findings, Request
from xalign_models.errors import DataError
from xalign_models.languages import canonical, display_name, is_canonical
from xalign_models.linalg.arrays import Float32, Float64
from xalign_models.models.names import find_spec
from xalign_models.ranking.ranks import nearest_others
from xalign_models.specs import ModelSpec
from xalign_tasks.analyses.base import Study, embed
from xalign_tasks.analyses.spaces import PAPERS_FIT

LANGUAGES = tuple(canonical(code) for code in "en th zh".split())
"""The languages of LSAR's Figure 2."""
ROWS, SEED, PERPLEXITY = 200, 0, 30.0


def analyse(request: Request) -> Findings:
    """The first sentences of FLORES-200 in a few languages, in one plane per model.

    A single model is shown next to its unaligned backbone, and a single plain backbone next to its LSAR.

    Raises:
        DataError: The text is missing, or the request has fewer than 2 languages or 2 rows.
        XAlignError: A model or language is unavailable.
    """
    languages = request.languages or LANGUAGES
    corpus = corpora.load("flores")
    if len(languages) < 2 or (request.rows or ROWS) < 2:
        raise DataError("--languages, --rows: a mixed pool needs at least 2 languages and 2 rows.")
    texts = {language: side[: request.rows or ROWS] for language, side in corpus.parallel(languages).items()}
    labels = [language for language, side in texts.items() for _ in side]
    meanings = [row for side in texts.values() for row in range(len(side))]
    panels, study = {}, Study()
    for model in before_and_after(request.named()):
        encoder = request.load(model)
        name = str(encoder.mteb_model_meta.name)
        vectors = np.concatenate([embed(encoder, side, code) for code, side in texts.items()])
        panels[name] = project(vectors)
        study.add("mixing", [mixing(vectors, labels, meanings)], model=name)
        for how, plane in panels[name].items():
            points = {"language": labels, "row": meanings, "x": plane[:, 0], "y": plane[:, 1]}
            study.add("points", pd.DataFrame(points), model=name, projection=how)
    study.figures["pool"] = draw(panels, labels, meanings)
    study.data["flores"] = corpus.fingerprint(languages)
    return study.findings(
        f"{len(next(iter(texts.values())))} sentences of FLORES-200's devtest in each of "
        f"{', '.join(display_name(language) for language in languages)}; unit vectors.",
        "silhouette: of the languages, by cosine; 1 is apart, 0 is mixed. neighbour_*: percent of texts whose nearest "
        "neighbour in the pool is in the same language, or is a translation.",
        f"t-SNE: perplexity {PERPLEXITY:g} or fewer, from PCA, seed {SEED}; its axes and distances have no unit.",
    )


def before_and_after(models: Sequence[str]) -> list[str | ModelSpec]:
    """The models; a single model comes after its unaligned backbone, a single plain backbone before its LSAR."""
    if len(models) > 1:
        return list(models)
    (model,) = models
    spec = find_spec(model)
    if spec.name == spec.baseline:
        return [model, ModelSpec(spec.backbone, PAPERS_FIT)]
    return [find_spec(spec.baseline) if spec.backbone.tuned else ModelSpec(spec.backbone), model]


def project(vectors: Float32) -> dict[str, Float64]:
    """Rows (n, d) in the plane (n, 2): ``PCA``, and ``t-SNE`` by cosine."""
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, metric="cosine", init="pca", random_state=SEED)
    return {"PCA": PCA(2, random_state=SEED).fit_transform(vectors), "t-SNE": tsne.fit_transform(vectors)}


def mixing(vectors: Float32, labels: Sequence[str], meanings: Sequence[int]) -> dict[str, float]:
    """Measures of the mixing of a pool of unit rows (n, d); translations share a meaning, which is a number.

    Returns:
        The silhouette of the languages by cosine; percent of rows whose nearest neighbour has the same language, and
        the same meaning; share of the variance in PCA's plane.
    """
    nearest = nearest_others(vectors, vectors, np.arange(len(vectors)), 1)[:, 0]
    language, meaning = np.asarray(labels), np.asarray(meanings)
    return {
        "silhouette": float(silhouette_score(vectors, language, metric="cosine")),
        "neighbour_same_language": float(100 * (language[nearest] == language).mean()),
        "neighbour_translation": float(100 * (meaning[nearest] == meaning).mean()),
        "pca_variance": float(PCA(2, random_state=SEED).fit(vectors).explained_variance_ratio_.sum()),
    }


def draw(panels: Mapping[str, Mapping[str, Float64]], labels: Sequence[str], meanings: Sequence[int]) -> Figure:
    """A row per projection, a column per model, a colour and a marker per label; meaning 0 large and connected.

    ``panels`` has :func:`project`'s result by model, ``labels`` canonical codes or other text for the legend.
    """
    names, hows = list(panels), list(next(iter(panels.values())))
    group, meaning = np.asarray(labels), np.asarray(meanings)
    figure, axes = figures.canvas(len(hows), len(names), width=5 * len(names), height=0.6 + 4.4 * len(hows))
    for axis, (name, how) in zip(axes.T.ravel().tolist(), product(names, hows), strict=True):
        plane, large = panels[name][how], meaning == 0
        axis.plot(*np.concatenate([plane[large], plane[large][:1]]).T, color="#000000", linewidth=1, zorder=3)
        for index, label in enumerate(dict.fromkeys(labels)):
            look = {key: value for key, value in figures.look(index).items() if key != "linestyle"}
            text, mine = display_name(label) if is_canonical(label) else label, group == label
            axis.scatter(*plane[mine & ~large].T, s=14, alpha=0.55, linewidths=0, label=text, **look)
            axis.scatter(*plane[mine & large].T, s=110, edgecolors="#000000", linewidths=1.2, zorder=4, **look)
        figures.describe(axis, name.removeprefix("xalign/"), f"{how}, first axis", f"{how}, second axis")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, markerscale=2)
    figure.suptitle(
        "A mixed pool of sentences in the plane. Large and connected: one sentence and its translations", fontsize=11
    )
    return figure
