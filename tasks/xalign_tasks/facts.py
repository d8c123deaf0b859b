"""Facts of the tasks: lists show them without importing a task, and tasks read their metadata from them.

The data is in ``tasks.tsv``, with a row per task, and in ``metadata.toml``, with mteb's other metadata.
"""

import csv
import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Facts:
    """A task's entry in lists: the main score, numbers of languages and subsets, and a one-line description.

    Its place is module and class within this package, such as ``flores:FloresPrecision``.
    """

    place: str
    score: str
    languages: int
    subsets: int
    description: str


def rows(table: str) -> list[list[str]]:
    """The rows of one of this package's tables, a ``.tsv`` file, without its header."""
    with files(__package__).joinpath(table).open(encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t"))[1:]


FACTS = {
    name: Facts(place, score, int(languages), int(subsets), description)
    for name, place, score, languages, subsets, description in rows("tasks.tsv")
}
"""The facts of each task, by its name."""
METADATA = tomllib.loads(files(__package__).joinpath("metadata.toml").read_text(encoding="utf-8"))
"""Fields of mteb's metadata, by task."""
CODES = {text: tuple(codes.split()) for text, codes in METADATA.pop("languages").items()}
"""The canonical codes of a text's languages."""
