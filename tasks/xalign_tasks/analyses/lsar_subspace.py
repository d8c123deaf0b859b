"""The subspace that LSAR removes: language families (the paper's Figure 4) and syntax (its Table 5 and Figure 5)."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import pearsonr, spearmanr

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_models.languages import display_name
from xalign_models.linalg.arrays import AnyFloats, Float64, unit
from xalign_models.published import published_table
from xalign_models.typology import family, syntax
from xalign_tasks.analyses import spaces
from xalign_tasks.analyses.base import Study

DIRECTIONS = 2
BINS = 48
PARTS = {"removed": "removed by LSAR", "kept": "kept by LSAR"}


def analyse_families(request: Request) -> Findings:
    """Components of Tatoeba's sentences along the first two directions that LSAR removes, grouped by family."""
    study = Study()
    for space, tatoeba in spaces.each_space(request, study):
        removed = components(spaces.by_language(space, tatoeba), space.lsar.basis_[:, :DIRECTIONS])
        model = space.backbone.name
        study.add("languages", summary(removed), model=model)
        study.add("separation", separation(removed, space.lsar.singular_values_), model=model)
        study.figures[f"histograms-{model}"] = draw_families(removed, model)
    return study.findings(
        "A direction's sign is free: it is chosen so that English is on the positive side. "
        "eta_squared is the share of the components' variance that lies between the groups."
    )


def analyse_syntax(request: Request) -> Findings:
    """Correlation of languages' syntactic similarity to English with the cosine of their means to English's.

    The cosine is computed for the removed part and for the kept part of Tatoeba's raw vectors.

    Raises:
        DataError: Fewer than three languages besides English.
        XAlignError: A model, a text or URIEL is unavailable.
    """
    study = Study()
    for space, tatoeba in spaces.each_space(request, study):
        if len(tatoeba.languages) < 3:
            raise DataError("--languages: a correlation needs at least three languages besides English.")
        vectors = spaces.by_language(space, tatoeba)
        means = {language: rows.mean(axis=0, dtype=np.float64) for language, rows in vectors.items()}
        frame, model = similarities(means, space.lsar.basis_), space.backbone.name
        correlations = study.add("correlation", correlate(frame), model=model, source="this run")
        study.add("languages", frame, model=model)
        study.figures[f"similarity-{model}"] = draw_syntax(frame, correlations, model)
    paper = published_table("lsar-table-05.csv")
    rows = pd.DataFrame({"part": paper["part"], "pearson": paper["value"], "model": paper["model"]})
    study.add("correlation", rows.assign(languages=36, source="published: LSAR paper, Table 5"))
    return study.findings(
        "URIEL's published distances are not available: the similarity is the cosine of the 103 binary features of its "
        "set syntax_knn; pearson_angular uses 1 - 2/pi arccos of it instead.",
        "English itself is left out: both its similarities are 1.",
    )


def components(vectors: Mapping[str, AnyFloats], basis: Float64) -> dict[str, Float64]:
    """Components (n, k) of each language's rows (n, d) along ``basis`` (d, k); English's are positive on average."""
    along = {language: rows.astype(np.float64) @ basis for language, rows in vectors.items()}
    sign = np.where(along[ENGLISH].mean(axis=0) < 0, -1.0, 1.0) if ENGLISH in along else 1.0
    return {language: rows * sign for language, rows in along.items()}


def eta_squared(groups: list[Float64]) -> Float64:
    """Share of the variance of rows (n, k) that lies between groups of rows, per column (k,), in [0, 1]."""
    rows = np.concatenate(groups)
    centre = rows.mean(axis=0)
    between = sum(len(group) * (group.mean(axis=0) - centre) ** 2 for group in groups)
    return np.asarray(between / np.maximum(((rows - centre) ** 2).sum(axis=0), np.finfo(float).tiny))


def by_family(removed: Mapping[str, Float64]) -> dict[str, list[str]]:
    """Family to its languages, by the family's mean along the first direction, highest first."""
    groups: dict[str, list[str]] = {}
    for language in removed:
        groups.setdefault(family(language), []).append(language)

    means = {name: np.mean([removed[code][:, 0].mean() for code in members]) for name, members in groups.items()}
    return {name: groups[name] for name in sorted(groups, key=means.__getitem__, reverse=True)}


def separation(removed: Mapping[str, Float64], singular: Float64) -> pd.DataFrame:
    """A row per direction: its share of the differences between language means, and its separation of the groups."""
    families = by_family(removed).values()
    grouped = eta_squared([np.concatenate([removed[code] for code in members]) for members in families])
    columns = {
        "direction": np.arange(len(grouped)) + 1,
        "share_of_mean_differences": (singular**2 / (singular**2).sum())[: len(grouped)],
        "eta_squared_families": grouped,
        "eta_squared_languages": eta_squared(list(removed.values())),
    }
    return pd.DataFrame(columns).assign(families=len(families), languages=len(removed))


def summary(removed: Mapping[str, Float64]) -> pd.DataFrame:
    """A row per language: family, sentences, mean and standard deviation along each direction."""
    rows = []
    for language, along in removed.items():
        names = {"language": language, "name": display_name(language), "family": family(language)}
        of = {"mean": along.mean(axis=0), "std": along.std(axis=0)}
        along_each = {f"{name}_{k}": value for name, row in of.items() for k, value in enumerate(row, 1)}
        rows.append({**names, "sentences": len(along), **along_each})
    return pd.DataFrame(rows)


def similarities(means: Mapping[str, Float64], basis: Float64) -> pd.DataFrame:
    """Similarity of every language to English: in syntax, and by the cosine of the removed and kept parts of its mean.

    Args:
        means: Language to the mean (d,) of its raw vectors, English among them.
        basis: C (d, r), orthonormal columns; C C^T mean is the removed part.
    """
    codes = sorted(means, key=lambda language: language != ENGLISH)  # English first, the others in order
    rows = np.stack([means[language] for language in codes])
    removed = (rows @ basis) @ basis.T
    frame = pd.DataFrame({"language": codes[1:]})
    frame["name"], frame["family"] = frame["language"].map(display_name), frame["language"].map(family)
    cosines = {"syntax": _cosines(syntax(codes)), "removed": _cosines(removed), "kept": _cosines(rows - removed)}
    return frame.assign(**cosines)


def _cosines(rows: Float64) -> Float64:
    directions = unit(rows)
    return np.asarray(directions[1:] @ directions[0])


def correlate(frame: pd.DataFrame) -> pd.DataFrame:
    """Pearson's and Spearman's correlation of the syntactic similarity with each part's similarity."""
    angular = 1 - 2 / np.pi * np.arccos(frame["syntax"].clip(-1, 1))
    columns = "part languages pearson p_value spearman pearson_angular cosine_mean cosine_std".split()
    rows = []
    for part in PARTS:
        cosines = frame[part]
        ranked, turned = spearmanr(frame["syntax"], cosines).statistic, pearsonr(angular, cosines).statistic
        spread = cosines.mean(), cosines.std(ddof=0)
        rows.append((part, len(frame), *pearsonr(frame["syntax"], cosines), ranked, turned, *spread))
    return pd.DataFrame(rows, columns=columns)


def draw_families(removed: Mapping[str, Float64], backbone: str) -> Figure:
    """One row per family, one column per direction: histograms of the removed components, each of the same height."""
    groups = by_family(removed)
    columns = next(iter(removed.values())).shape[1]
    size = {"width": 8.0, "height": 1.2 + 0.36 * len(groups)}
    figure, axes = figures.canvas(len(groups), columns, **size, sharex="col", sharey=True)
    for k in range(columns):
        pooled = np.concatenate([rows[:, k] for rows in removed.values()])
        low, high = np.quantile(pooled, [0.001, 0.999])
        edges = np.linspace(low, high, BINS)
        for axis, (name, members) in zip(axes[:, k], groups.items(), strict=True):
            values = np.concatenate([removed[code][:, k] for code in members])
            counts, _ = np.histogram(values.clip(low, high), edges)
            axis.stairs(counts / counts.max(), edges, fill=True, color=figures.COLOURS[0], alpha=0.75)
            axis.axvline(values.mean(), color=figures.COLOURS[1], linewidth=1.2)
            axis.set_yticks([])
            axis.spines["left"].set_visible(False)
            if k == 0:
                axis.set_ylabel(f"{name} ({len(members)})", rotation=0, ha="right", va="center", fontsize=9)
        axes[0, k].set_title(f"Direction {k + 1}")
        axes[-1, k].set_xlabel("component along the direction (no unit)")
        axes[-1, k].xaxis.set_major_locator(MaxNLocator(5, prune="both"))
    figure.suptitle(
        f"What LSAR removes from {backbone}, by language family (number of languages)\n"
        "histograms of Tatoeba sentences (each to its own peak); the orange line is the family's mean",
        fontsize=11,
    )
    return figure


def draw_syntax(frame: pd.DataFrame, correlations: pd.DataFrame, backbone: str) -> Figure:
    """A point per language: syntactic similarity to English against the cosine of the means, removed part and kept."""
    figure, axes = figures.canvas(1, len(PARTS), width=11, height=5.2)
    for axis, (part, label), pearson in zip(axes[0], PARTS.items(), correlations["pearson"], strict=True):
        figures.draw_points(axis, frame["syntax"], frame[part])
        figures.name_points(axis, zip(frame["language"].str[:3], frame["syntax"], frame[part], strict=True))
        slope, start = np.polyfit(frame["syntax"], frame[part], 1)
        ends = np.array([frame["syntax"].min(), frame["syntax"].max()])
        axis.plot(ends, start + slope * ends, color=figures.COLOURS[1], linewidth=1.2)
        across, up = "syntactic similarity to English (cosine of URIEL's features)", "cosine of the language means"
        figures.describe(axis, f"{label}: Pearson r = {pearson:.2f}", across, f"{up}, {part} part")
    title = f"Is it syntax that LSAR removes from {backbone}? Each point is a language (ISO 639-3)"
    figure.suptitle(title, fontsize=11)
    return figure
