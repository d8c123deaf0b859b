"""Bits that tell which single items each model missed, for the tasks that fit into the page."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from xalign_models.page.packing import Numbered, deflated
from xalign_models.results.items import Items
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import TaskScores

MOST_OUTCOMES = 400_000
"""Maximum size of all packed outcomes in characters; tasks from the first that exceeds it have none in the page."""
MOST_SUBSETS = 100
"""Maximum number of a task's subsets; a task with more only has those with English in the page."""


def outcomes_data(
    tables: Mapping[int, Mapping[int, TaskScores]], labels: Numbered
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Blocks of rows with outcomes of the same items, by task, and their packed bits (rows, items), by element name.

    Only outcomes that are hits or misses count. A row's bytes are XORed with those of the row before, which is often of
    the same backbone. ``tables`` are by task and row; languages are added to ``labels``.
    """
    blocks: list[dict[str, Any]] = []
    packed: dict[str, str] = {}
    for task, by_row in tables.items():
        items, alike = Items(MAIN), defaultdict[tuple[Any, ...], dict[int, Any]](dict)
        for row, table in by_row.items():
            outcomes = {key: one for key, one in items.outcomes(table).items() if one.dtype == np.bool_}
            spoken = {key: table.frame.languages[key] for key in outcomes}
            if len(outcomes) > MOST_SUBSETS:
                spoken = {key: languages for key, languages in spoken.items() if "eng-Latn" in languages}
            if spoken:
                layout = tuple((key, languages, len(outcomes[key])) for key, languages in spoken.items())
                alike[layout][row] = np.concatenate([outcomes[key] for key in spoken])
        for layout, hits in alike.items():
            bits = np.packbits([*hits.values()], axis=1)
            bits[1:] ^= bits[:-1].copy()
            text, name = deflated(bits.tobytes()), f"items-{len(blocks)}"
            if sum(map(len, packed.values())) + len(text) > MOST_OUTCOMES:
                return blocks, packed
            packed[name] = text
            subsets = [[labels[one] for one in (of if 0 < len(of) < 3 else [key])] for key, of, _ in layout]
            counts = [count for *_, count in layout]
            blocks.append({"task": task, "rows": [*hits], "subsets": subsets, "counts": counts, "name": name})
    return blocks, packed
