"""The atlas in the page: published and measured scores by language, and the data for choosing a model."""

from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.atlas import Atlas, Column
from xalign_models.atlas import choose as choosing
from xalign_models.atlas.factors import LEAST, MOST
from xalign_models.atlas.scores import CAUTION, STEP, UNIT, scores_of
from xalign_models.atlas.statistics import levels, summarise
from xalign_models.atlas.table import TASKS, scaled
from xalign_models.page.packing import THOUSAND, Numbered, pack

SHOWN = {
    "level": ("level", "mean of the languages other than English"),
    "worst_tenth": ("worst tenth", "mean of the lowest tenth of the languages"),
    "evenness": ("evenness", "worst tenth in percent of the level: 100 if all languages are alike"),
    "english_centricity": ("English-centricity", "pairs with English less pairs without"),
    "asymmetry": ("asymmetry", "English into the language less the language into English"),
    "gap": ("cross-lingual gap", "same-language less cross-language"),
    "low_resource_gap": ("gap of rarely named languages", "frequently less rarely named languages"),
}
"""Statistics of the page with their heads and explanations."""
PARTS = ("tasks", "rows", "coordinates", "residuals", "states", "row_spreads", "model_spreads")
"""Arrays of the table of scores in the page, in this order."""
_LARGEST = 32  # maximum value in 16 bits


def atlas_data(atlas: Atlas, labels: Numbered) -> tuple[dict[str, Any], dict[str, str]]:
    """Data that the page's script reads at once, and the packed numbers of each column, by element name.

    A column's numbers are counts (languages, kinds), scores (kinds, languages, models) and the statistics
    (statistics, models), scores and statistics in thousandths. Its languages are added to ``labels``.

    Raises:
        ResultsError: The atlas has no predicted scores.
    """
    scores, names = scores_of(atlas), sorted(atlas.models)
    place = {name: index for index, name in enumerate(names)}
    revisions, versions = Numbered(), Numbered()
    columns = [
        {
            **{name: getattr(column, name) for name in ("task", "kind", "label", "split", "metric")},
            "text": column.dataset_revision,
            "measured": [row for row, model in enumerate(column.models) if model in column.measured],
            "models": [place[model] for model in column.models],
            "revisions": [revisions[revision] for revision in column.revisions],
            "versions": [versions[version] for version in column.versions],
            "languages": [labels[language] for language in column.languages],
        }
        for column in atlas.columns
    ]
    languages = sorted({*scores.languages, *(code for column in atlas.columns for code in column.languages)})
    about = {
        "source": atlas.source,
        "settings": {
            "permissive": sorted(choosing.PERMISSIVE),
            "close": choosing.CLOSE,
            "caution": CAUTION,
            "next": choosing.NEXT,
            "least": LEAST,
            "most": MOST,
            "tasks": TASKS,
        },
        "statistics": list(SHOWN.values()),
        "models": [
            {key: value for key, value in vars(atlas.models[name]).items() if value is not None} for name in names
        ],
        "revisions": list(revisions),
        "versions": list(versions),
        "columns": columns,
        "languages": [labels[code] for code in languages],
        "words": {word: labels[code] for word, code in choosing.language_words(scores.languages).items()},
        "table": {
            "models": [place[model] for model in scores.models],
            "languages": [labels[code] for code in scores.languages],
            "parts": [[name, getattr(scores, name).size] for name in PARTS],
            "rank": scores.rows.shape[1],
            "step": STEP,
            "unit": UNIT,
            "effects": scores.effects.tolist(),
        },
    }
    packed = {f"atlas-{index}": pack(_numbers(atlas, column)) for index, column in enumerate(atlas.columns)}
    packed["atlas-table"] = pack(getattr(scores, name) for name in PARTS)
    return about, packed


def _numbers(atlas: Atlas, column: Column) -> tuple[npt.NDArray[np.int16], ...]:
    model_levels = levels(atlas, column)
    statistics = np.full((len(SHOWN), len(column.models)), np.nan)
    if model_levels.models and model_levels.languages:
        rows, summary = [column.row[model] for model in model_levels.models], summarise(model_levels)
        statistics[:, rows] = [summary[name] for name in SHOWN]
    statistics[np.abs(statistics) > _LARGEST] = np.nan
    return column.counts, scaled(column.scores.transpose(2, 1, 0), THOUSAND), scaled(statistics, THOUSAND)
