"""MGSM (Shi et al. 2022): school arithmetic in eleven languages, scored by the final number of an answer."""

import re
import unicodedata
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from xalign_models.corpora import read_lines
from xalign_models.errors import DataError
from xalign_tasks.files import files_by_language

_SPACES = " \u00a0\u2009\u202f"
_GROUPED = rf"\d{{1,3}}(?:[{_SPACES}，]\d{{3}})+(?!\d)(?:[.,٫]\d+)?"
_NUMBER = re.compile(rf"[-−]?(?:{_GROUPED}|\d[\d.,'’٫٬]*\d|\d)")
_MARK = re.compile(r"####|\banswer\**\s*(?:is\b|[:=])", re.IGNORECASE)


def final_number(written: str) -> Decimal | None:
    """The number after the last "Answer:" or "####", else the last number; None if there is none."""
    tail = written[marks[-1].end() :] if (marks := list(_MARK.finditer(written))) else ""
    for text, place in ((tail, 0), (written, -1)):
        if numbers := [value for match in _NUMBER.finditer(text) if (value := to_number(match[0])) is not None]:
            return numbers[place]
    return None


def to_number(text: str) -> Decimal | None:
    """Parse a number in any script's digits, with separators of decimals and thousands.

    A single point or comma before three digits separates thousands, because answers of MGSM are whole numbers.
    """
    plain = "".join(str(unicodedata.digit(char, char)) for char in text.strip()).replace("−", "-")
    plain = re.sub(r"[\s'’٬，]", "", plain).replace("٫", ".")
    separators = [char for char in plain if char in ".,"]
    grouped = len(separators) > 1 and len(set(separators)) == 1
    if grouped or re.fullmatch(r"-?[1-9]\d{0,2}[.,]\d{3}", plain):
        plain = plain.replace(".", "").replace(",", "")  # thousands
    elif separators:
        last = separators[-1]
        plain = plain.replace("," if last == "." else ".", "").replace(",", ".")
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None


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
    missing = f"MGSM is missing: set XALIGN_DATA to a folder with {FOLDER}/mgsm_<language>.tsv ({PUBLISHER})."
    return files_by_language(FOLDER, "mgsm_*.tsv", lambda path: path.stem.removeprefix("mgsm_"), missing)


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
