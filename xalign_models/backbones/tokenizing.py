"""Bounds the time and memory that a ``tokenizer.json`` may need for a text, by rules over its parsed content."""

import base64
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xalign_models.errors import ModelError

_MOST_GROWTH = 100
"""Maximum number of characters that normalisation may make of one; published character charts reach 33 bytes."""
_MOST_ADDED = 1_000
"""Maximum number of characters or tokens added to a text, in an affix, and in a word."""
_TEXT = 1_000
"""Text length, in characters, for which the ways a pattern can match are counted."""
MOST_WAYS = 20_000
"""Maximum ways to match over all patterns: one unbounded repetition and others, but never the text's length cubed."""
_FEW = 20
_PIECE = re.compile(
    r"(?P<open>\((?:\?(?:i?:|=|!|<=|<!|>)|(?!\?)))|(?P<close>\))|(?P<either>\|)"
    r"|(?P<repeat>(?P<sign>[*+?])[?+]?|\{(?=,?\d)(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\}\??)"
    r"|(?P<one>\\[pPx]\{[^{}]*\}|\\[^cCMkgQXRN1-9]|[^][\\(){}?*+|]"
    r"|\[\^?(?!\])(?:\\.|\[\^?(?!\])(?:\\.|[^][\\])+\]|[^][\\])+\])",
    re.DOTALL,
)


def check_tokenizer(parts: Iterable[Any], where: str) -> None:
    """Refuse a tokenizer that multiplies text, adds long text, or searches text with a pattern that may never finish.

    Args:
        parts: Every part of ``tokenizer.json``, without its vocabulary.
        where: The file, for messages.

    Raises:
        ModelError: The tokenizer is refused; the message gives the reason.
    """
    growth, added, ways = 1, 0, 0.0
    for part in (part for part in parts if isinstance(part, Mapping)):
        kind, content = part.get("type"), str(part.get("content", ""))
        if isinstance(pattern := part.get("pattern"), Mapping):
            ways += ways_to_match(str(pattern.get("Regex", "")))
            if kind == "Replace":
                growth *= max(1, -(-len(content) // max(1, len(str(pattern.get("String", ""))))))
        if kind == "Precompiled":
            growth *= _longest(str(part.get("precompiled_charsmap", "")), where)
        added += len(str(part.get("prepend", ""))) + len(part.get("single") or ()) + len(part.get("pair") or ())
        added += sum(len(ids) for ids in (part.get("ids"), part.get("tokens")) if isinstance(ids, list))
        affixes = [len(str(part.get(key) or "")) for key in ("continuing_subword_prefix", "end_of_word_suffix")]
        numbers = [part.get(key) for key in ("max_input_chars_per_word", "pad_to_multiple_of", "Fixed")]
        if max(affixes + [number for number in numbers if isinstance(number, int)]) > _MOST_ADDED:
            raise ModelError(f"{where} pads texts, or cuts words, to more than {_MOST_ADDED:,} characters or tokens.")
    if ways > MOST_WAYS:
        raise ModelError(
            f"{where} searches text with a pattern that may take forever; only --trust-remote-code allows it."
        )
    if growth > _MOST_GROWTH:
        raise ModelError(f"{where} turns one character into up to {growth:.3g}; {_MOST_GROWTH} are allowed.")
    if added > _MOST_ADDED:
        raise ModelError(f"{where} adds {added:,} characters or tokens to a text; {_MOST_ADDED:,} are allowed.")


def ways_to_match(pattern: str) -> float:
    """Upper bound of the ways in which a regular expression can match at one place in a text of 1,000 characters.

    It is infinite for an unbounded repetition of a part that matches in several ways, and for unsupported syntax, such
    as references to earlier groups.
    """
    pattern = pattern.removeprefix("(?i)")
    pieces = list(_PIECE.finditer(pattern))
    opened, closed = (sum(piece.lastgroup == kind for piece in pieces) for kind in ("open", "close"))
    if "".join(piece[0] for piece in pieces) != pattern or opened != closed or opened > 5 * _FEW:
        return math.inf
    return _ways(iter(pieces), outermost=True)


def _ways(pieces: Iterator[re.Match[str]], *, outermost: bool = False) -> float:
    """The ways of a group, up to its end: the sum over alternatives of the product over the parts of each."""
    total, parts = 0.0, list[tuple[float, bool, float]]()  # ways, whether it is one character, fewest repetitions
    previous = None
    for piece in pieces:
        kind = piece.lastgroup
        if kind == "close" and not outermost:
            break
        if kind == "either":
            total, parts = total + _product(parts, outermost), []
        elif kind == "open":
            parts.append((_ways(pieces), False, 1))
        elif kind == "one":
            parts.append((1, True, 1))
        elif kind == "repeat" and previous in {"open", "one"}:
            parts[-1] = _repeated(parts[-1][0], parts[-1][1], piece)
        else:
            return math.inf
        previous = kind
    return total + _product(parts, outermost)


def _repeated(ways: float, is_single: bool, piece: re.Match[str]) -> tuple[float, bool, float]:
    least = int(piece["least"] or piece["sign"] == "+")
    most = max(least, int(piece["most"] or piece["least"] or 1))
    if piece["sign"] in {"*", "+"} or (piece["comma"] and not piece["most"]):
        return (_TEXT if ways <= 1 else math.inf), is_single, least
    if is_single and most == least:
        return max(1, most / _FEW), True, least
    return 1 + most * (ways**most if ways <= 1 or most <= _FEW else math.inf), is_single, least


def _product(parts: list[tuple[float, bool, float]], outermost: bool) -> float:
    """The product of ways; an optional part at the end is tried once, because nothing after it can fail."""
    factors, last = [ways for ways, _, _ in parts], 0.0
    for number, (ways, is_single, least) in reversed(list(enumerate(parts)) if outermost else []):
        if least > is_single:
            break
        last += 0 if is_single else ways
        factors[number] = 1
        if least:
            break
    return math.prod(factors) * max(1, len(parts) / _FEW) + last


def _longest(chart: str, where: str) -> int:
    """Bytes of the longest replacement in a compiled chart: a 4-byte length, a trie of this length, texts with NULs."""
    try:
        content = base64.b64decode(chart)
    except ValueError:
        raise ModelError(f"{where} is damaged: its chart of characters is not base64.") from None
    return max(1, *map(len, content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")))
