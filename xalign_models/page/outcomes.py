"""Bits that tell which single items each model missed, for the tasks that fit into the page."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from xalign_models.page.packing import Numbered, deflated
from xalign_models.parallel import map_forked
from xalign_models.results.items import Items
from xalign_models.results.possible import MAIN
from xalign_models.results.reading import TaskScores

MOST_OUTCOMES = 400_000
"""Maximum size of all packed outcomes in characters; tasks from the first that exceeds it have none in the page."""
MOST_SUBSETS = 100
"""Maximum number of a task's subsets; a task with more only has those with English in the page."""

_Layout: TypeAlias = tuple[tuple[str, tuple[str, ...], int], ...]  # name, languages and items of each subset


def outcomes_data(
    tables: Mapping[int, Mapping[int, TaskScores]], labels: Numbered
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Blocks of rows with outcomes of the same items, by task, and their packed bits (rows, items), by element name.

    Only outcomes that are hits or misses count. A row's bytes are XORed with those of the row before, which is often of
    the same backbone. ``tables`` are by task and row; languages are added to ``labels``.
    """
    sizes = [0]  # characters of this process alone, which also exceed the maximum if they do

    def blocks_of(task: int) -> list[tuple[_Layout, list[int], str]]:
        items, alike = Items(MAIN), defaultdict[_Layout, dict[int, npt.NDArray[np.uint8]]](dict)
        for row, table in tables[task].items() if sum(sizes) <= MOST_OUTCOMES else ():
            outcomes = {key: one for key, one in items.outcomes(table).items() if one.dtype == np.bool_}
            spoken = {key: table.frame.languages[key] for key in outcomes}
            if len(outcomes) > MOST_SUBSETS:
                spoken = {key: languages for key, languages in spoken.items() if "eng-Latn" in languages}
            if spoken:
                layout = tuple((key, languages, len(outcomes[key])) for key, languages in spoken.items())
                alike[layout][row] = np.packbits(np.concatenate([outcomes[key] for key in spoken]))
        found = [(layout, [*hits], _packed(np.array([*hits.values()]))) for layout, hits in alike.items()]
        sizes.extend(len(text) for *_, text in found)
        return found

    blocks: list[dict[str, Any]] = []
    packed: dict[str, str] = {}
    for task, found in zip(tables, map_forked(blocks_of, [*tables], sum(map(len, tables.values()))), strict=True):
        for layout, rows, text in found:
            if sum(map(len, packed.values())) + len(text) > MOST_OUTCOMES:
                return blocks, packed
            name = f"items-{len(blocks)}"
            packed[name] = text
            subsets = [[labels[one] for one in (of if 0 < len(of) < 3 else [key])] for key, of, _ in layout]
            counts = [count for *_, count in layout]
            blocks.append({"task": task, "rows": rows, "subsets": subsets, "counts": counts, "name": name})
    return blocks, packed


def _packed(bits: npt.NDArray[np.uint8]) -> str:
    bits[1:] ^= bits[:-1].copy()
    return deflated([bits.tobytes()])
