"""Extracts the final number of a written answer, in any digits and separators."""

import re
import unicodedata
from decimal import Decimal, InvalidOperation

_NUMBER = re.compile(r"[-−]?\d[\d.,'’٫٬\u00a0\u202f]*\d|[-−]?\d")
_MARK = re.compile(r"####|answer\s*(?:is)?\s*[:=]?", re.IGNORECASE)


def final_number(written: str) -> Decimal | None:
    """The number after the last "Answer:" or "####", else the last number; None where there is none."""
    tail = written[marks[-1].end() :] if (marks := list(_MARK.finditer(written))) else ""
    for text, place in ((tail, 0), (written, -1)):
        if numbers := [value for match in _NUMBER.finditer(text) if (value := to_number(match[0])) is not None]:
            return numbers[place]
    return None


def to_number(text: str) -> Decimal | None:
    """Parse a number in any script's digits, with points or commas as separators of thousands or decimals."""
    plain = "".join(str(unicodedata.digit(char, char)) for char in text.strip()).replace("−", "-")
    plain = re.sub(r"[\s'’٬]", "", plain).replace("٫", ".")
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
