"""X-CSQA (Lin et al. 2021): commonsense questions with five choices in sixteen languages, in its publisher's layout."""

from pathlib import Path
from typing import NamedTuple

from xalign_models.corpora.collection import read_records
from xalign_models.errors import DataError
from xalign_tasks.files import files_by_language

FOLDER = "xcsqa"
PUBLISHER = "inklab.usc.edu/XCSR, X-CSQA/<language>/dev.jsonl; the answers of its test set are not published"
_OWN_CODES = {"jap": "ja"}


class Question(NamedTuple):
    """A question, its choices by letter, and the letter of the right one."""

    stem: str
    choices: dict[str, str]
    answer: str


def languages() -> dict[str, Path]:
    """The development file of each canonical language.

    Raises:
        DataError: There are no files.
    """
    missing = f"X-CSQA is missing: set XALIGN_DATA to a folder that has {FOLDER}/ with {PUBLISHER}."
    return files_by_language(
        FOLDER, "**/dev.jsonl", lambda path: _OWN_CODES.get(path.parent.name, path.parent.name), missing
    )


def read(path: Path) -> list[Question]:
    """The questions of a file.

    Raises:
        DataError: A line is not a question with choices of different letters and the letter of one of them.
    """
    questions = []
    for place, record in read_records(path):
        try:
            choices = {str(choice["label"]): str(choice["text"]) for choice in record["question"]["choices"]}
            question = Question(str(record["question"]["stem"]), choices, str(record["answerKey"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{place} is not a question of X-CSQA ({error!r}).") from None
        if len(choices) < len(record["question"]["choices"]):
            raise DataError(f"{place}: two choices have the same letter.")
        if question.answer not in choices:
            raise DataError(f"{place}: the answer {question.answer!r} is not one of {', '.join(choices)}.")
        questions.append(question)
    return questions
