"""MGSM (Shi et al. 2022): school arithmetic in eleven languages, scored by the number that an answer ends with."""

from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from xalign_models.corpora import read_lines
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import from_iso639_1
from xalign_models.paths import data_dir
from xalign_tasks.reasoning.answers import to_number

FOLDER = "mgsm"
PUBLISHER = "github.com/google-research/url-nlp, mgsm/"


class Problem(NamedTuple):
    """A question and the number that answers it."""

    question: str
    answer: Decimal


def languages() -> dict[str, Path]:
    """The file of each canonical language.

    Raises:
        DataError: There are no files.
    """
    base = data_dir()
    files = {}
    for path in sorted((base / FOLDER).glob("mgsm_*.tsv")) if base else []:
        try:
            files[from_iso639_1(path.stem.removeprefix("mgsm_"))] = path
        except LanguageError:
            continue
    if not files:
        raise DataError(
            f"MGSM is missing: set XALIGN_DATA to a folder with {FOLDER}/mgsm_<language>.tsv ({PUBLISHER})."
        )
    return files


def read(path: Path) -> list[Problem]:
    """The problems of a file.

    Raises:
        DataError: A line lacks a question, a tab or a number.
    """
    problems = []
    for number, line in enumerate(read_lines(path), 1):
        question, tab, answer = line.rpartition("\t")
        value = to_number(answer) if tab else None
        if value is None:
            raise DataError(f"{path}, line {number}: expected a question, a tab and a number.")
        problems.append(Problem(question.strip().strip('"'), value))
    return problems
