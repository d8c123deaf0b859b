"""How evenly published models treat languages: statistics of the packaged table of mteb's public results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from xalign_models.analysis import Findings, Request
from xalign_models.atlas import Atlas, Column, load_atlas
from xalign_models.atlas.statistics import (
    MULTILINGUAL,
    PROPERTIES,
    STATISTICS,
    Levels,
    association,
    levels,
    multilingual,
    properties,
    rank_groups,
    summarise,
    with_intervals,
)

if TYPE_CHECKING:
    import pandas as pd

TASKS = (
    "NTREXBitextMining",
    "IN22GenBitextMining",
    "BelebeleRetrieval",
    "MLQARetrieval",
    "STS17",
    "SIB200ClusteringS2S",
)
LARGE = 1e9
FEWEST = 10


def analyse(request: Request) -> Findings:
    """Statistics of evenness, their correlations with size, dimension and date, rank groups, and findings.

    Raises:
        XAlignError: The families of languages are unavailable.
    """
    import pandas as pd

    from xalign_tasks.analyses import atlas_figures

    atlas = load_atlas()
    columns = [(column, of) for column, of in _columns(atlas) if len(of.models) >= FEWEST]
    frames = {
        "findings": pd.DataFrame({"finding": findings().keys(), "value": findings().values()}),
        "associations": pd.DataFrame(row for column, of in columns for row in _associations(atlas, column, of)),
        "ranks": pd.DataFrame(
            {"column": column.label, **vars(ranked)}
            for column, of in columns
            for ranked in rank_groups(of.models, of.level)
        ),
        "statistics": pd.concat([_statistics(column, of) for column, of in columns], ignore_index=True),
    }
    source = atlas.source
    notes = (
        f"Source: {source['address']} at {source['commit'][:7]} ({source['date']}, {source['licence']}).",
        "A column is one task, one revision of its text and one metric; models of different columns are not compared.",
        f"Only models with every language of a column count. Multilingual: a level of {MULTILINGUAL:.0%} or more.",
        "Intervals of statistics resample languages, those of associations resample models; both are 95%.",
    )
    return Findings(frames, atlas_figures.draw(atlas), notes, {"public results": source["commit"]})


def _columns(atlas: Atlas) -> Iterator[tuple[Column, Levels]]:
    return ((column, levels(atlas, column)) for column in atlas.columns if column.task in TASKS)


def _statistics(column: Column, of: Levels) -> pd.DataFrame:
    import pandas as pd

    parts = []
    for name, (value, low, high) in with_intervals(of).items():
        columns = {"statistic": name, "value": value, "low": low, "high": high}
        parts.append(pd.DataFrame({"column": column.label, "model": of.models, **columns}))
    return pd.concat(parts).dropna(subset="value")


def _associations(atlas: Atlas, column: Column, of: Levels) -> Iterator[dict[str, object]]:
    statistics = summarise(of)
    for whom, chosen in (("all", np.full(len(of.models), True)), ("multilingual", multilingual(of))):
        for name in STATISTICS:
            for about in PROPERTIES:
                result = association(properties(atlas, of, about)[chosen], statistics[name][chosen])
                if result is not None:
                    yield {"column": column.label, "models": whom, "statistic": name, "property": about} | {
                        "rho": result.rho,
                        "low": result.low,
                        "high": result.high,
                        "count": result.models,
                    }


@cache
def findings() -> dict[str, float]:
    """The numbers behind the page's findings, by name: points, counts, rank correlations."""
    atlas = load_atlas()
    parts = (_english, _directions, _size, _rare, _small, _breadth, _training)
    return {name: value for part in parts for name, value in part(atlas).items()}


def _english(atlas: Atlas) -> dict[str, float]:
    """Loss without English, on a text in which every language is paired with every other."""
    of = levels(atlas, atlas.column("IN22GenBitextMining"))
    lost = 100 * summarise(of)["english_centricity"][multilingual(of)]
    return {
        "english.models": len(lost),
        "english.median": float(np.median(lost)),
        "english.least": float(lost.min()),
        "english.most": float(lost.max()),
        "english.positive": int((lost > 0).sum()),
    }


def _directions(atlas: Atlas) -> dict[str, float]:
    """Score of English questions with passages in a language, minus that of the opposite direction."""
    of = levels(atlas, atlas.column("BelebeleRetrieval"))
    gain = 100 * summarise(of)["asymmetry"][multilingual(of)]
    return {
        "directions.models": len(gain),
        "directions.median": float(np.median(gain)),
        "directions.least": float(gain.min()),
        "directions.positive": int((gain > 0).sum()),
    }


def _size(atlas: Atlas) -> dict[str, float]:
    """Whether the cross-lingual gap closes with size."""
    of = levels(atlas, atlas.column("BelebeleRetrieval"))
    chosen = multilingual(of)
    size, gap = properties(atlas, of, "parameters")[chosen], 100 * summarise(of)["gap"][chosen]
    return {
        **_correlation("size", size, gap),
        "size.large": float(np.median(gap[size >= LARGE])),
        "size.small": float(np.median(gap[size < LARGE])),
        "size.large_models": int((size >= LARGE).sum()),
        "size.small_models": int((size < LARGE).sum()),
    }


def _rare(atlas: Atlas) -> dict[str, float]:
    """Loss in languages that few models name, and whether size helps."""
    of = levels(atlas, atlas.column("NTREXBitextMining"))
    chosen = multilingual(of)
    gap = 100 * summarise(of)["low_resource_gap"][chosen]
    return {
        "rare.models": len(gap),
        "rare.languages": int(of.low_resource.sum()),
        "rare.median": float(np.median(gap)),
        "rare.least": float(gap.min()),
        **_correlation("rare.size", properties(atlas, of, "parameters")[chosen], gap),
        **_correlation("rare.date", properties(atlas, of, "release_year")[chosen], gap),
    }


def _small(atlas: Atlas, name: str = "intfloat/multilingual-e5-small") -> dict[str, float]:
    """Compare a small model of 2023 with models fifty times its size."""
    of = levels(atlas, atlas.column("NTREXBitextMining"))
    size, level = properties(atlas, of, "parameters"), 100 * summarise(of)["level"]
    reference = level[of.models.index(name)]
    large = level[size >= 7e9]
    return {
        "small.level": float(reference),
        "small.large_models": len(large),
        "small.beaten": int((large < reference).sum()),
        "small.parameters": size[of.models.index(name)] / 1e6,
    }


def _breadth(atlas: Atlas) -> dict[str, float]:
    """Whether evenness correlates with the number of named languages, or with a model's date or size."""
    of = levels(atlas, atlas.column("NTREXBitextMining"))
    chosen = multilingual(of)
    evenness = summarise(of)["evenness"][chosen]
    correlations: dict[str, float] = {}
    for about in ("languages", "parameters", "release_year", "dimension"):
        correlations |= _correlation(f"breadth.{about}", properties(atlas, of, about)[chosen], evenness)
    return correlations


def _training(atlas: Atlas) -> dict[str, float]:
    """Whether rarely named languages lag less in models trained on data of multilingual tasks."""
    gaps: dict[str, float] = {"training.declared": sum(model.trained_on is not None for model in atlas.models.values())}
    for name, task in (
        ("ntrex", "NTREXBitextMining"),
        ("in22", "IN22GenBitextMining"),
        ("belebele", "BelebeleRetrieval"),
    ):
        of = levels(atlas, atlas.column(task))
        chosen = multilingual(of)
        tasks, gap = properties(atlas, of, "training_tasks")[chosen], 100 * summarise(of)["low_resource_gap"][chosen]
        gaps |= _correlation(f"training.{name}", tasks, gap)
        gaps |= {
            f"training.{name}.none": float(np.median(gap[tasks == 0])),
            f"training.{name}.some": float(np.median(gap[tasks > 0])),
        }
    return gaps


def _correlation(name: str, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> dict[str, float]:
    result = association(x, y)
    if result is None:
        return {}
    fields = {"rho": result.rho, "low": result.low, "high": result.high, "n": result.models}
    return {f"{name}.{field}": value for field, value in fields.items()}
