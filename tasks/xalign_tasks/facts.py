"""Facts of the tasks: lists show them without importing a task, and the tasks take their metadata from them.

The data are in ``tasks.tsv``, a row per task.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Facts:
    """A task's entry in lists: the main score, numbers of languages and subsets, and a line of description.

    Its place is module and class within this package, such as ``flores:FloresPrecision``.
    """

    place: str
    score: str
    languages: int
    subsets: int
    description: str


with files(__package__).joinpath("tasks.tsv").open(encoding="utf-8") as _file:
    _rows = list(csv.reader(_file, delimiter="\t"))[1:]
FACTS = {
    name: Facts(place, score, int(languages), int(subsets), description)
    for name, place, score, languages, subsets, description in _rows
}
"""The facts of each task, by its name."""
