"""Bounds the time and memory that a ``tokenizer.json`` may take for a text, by rules over its parsed content."""

import base64
import re
from collections.abc import Mapping
from typing import Any

from xalign_models.errors import ModelError
from xalign_models.files import walk

_MOST_GROWTH = 100
"""Maximum characters that normalisation may make of one; published charts of characters reach 33 bytes."""
_MOST_ADDED = 1_000
"""Maximum characters or tokens added to a text, length of an affix, and number of characters of a word."""
_UNBOUNDED = re.compile(r"[*+]|\{\d*,\}|\{\d*,?\d{3,}\}")
_PIECE = re.compile(r"\\.|\[(?:\\.|\[[^\]]*\]|[^\]\\])*\]|[*+?]|\{\d*,?\d*\}|.", re.DOTALL)
_MOST_REPEATS = 4


def check_tokenizer(settings: Mapping[str, Any], where: str) -> None:
    """Refuse a tokenizer that multiplies text, adds long text to it, or searches it with a pattern that may not end.

    Args:
        settings: The content of ``tokenizer.json`` without its vocabulary.
        where: The file, for messages.

    Raises:
        ModelError: The tokenizer is refused; the message gives the reason.
    """
    growth, added = 1, 0
    for part in (part for part in walk(settings) if isinstance(part, Mapping)):
        kind, content = part.get("type"), str(part.get("content", ""))
        if isinstance(pattern := part.get("pattern"), Mapping):
            if not is_safe_pattern(str(pattern.get("Regex", ""))):
                raise ModelError(f"{where} searches text with a pattern that may take forever.")
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
    if growth > _MOST_GROWTH:
        raise ModelError(f"{where} makes up to {growth:.3g} characters of one; {_MOST_GROWTH} are allowed.")
    if added > _MOST_ADDED:
        raise ModelError(f"{where} adds {added:,} characters or tokens to a text; {_MOST_ADDED:,} are allowed.")


def is_safe_pattern(pattern: str) -> bool:
    """Whether a regular expression repeats without bound only what has no choice or unbounded repetition inside."""
    depth: list[bool] = [False]  # of each open group: whether it may match in several ways
    repeats, closed = 0, False
    for piece in _PIECE.findall(pattern):
        if piece == "(":
            depth.append(False)
        elif piece == ")" and len(depth) > 1:
            closed = depth.pop()
            depth[-1] |= closed
            continue
        elif piece == "|":
            depth[-1], repeats = True, 0
        elif _UNBOUNDED.fullmatch(piece):
            if closed:
                return False
            depth[-1], repeats = True, repeats + 1
        elif re.fullmatch(r"\\[1-9gk]", piece):
            return False
        if repeats > _MOST_REPEATS:
            return False
        closed = False
    return True


def _longest(chart: str, where: str) -> int:
    """Bytes of the longest replacement in a compiled chart: 4 bytes of a length, so many of a trie, texts with NULs."""
    try:
        content = base64.b64decode(chart)
    except ValueError:
        raise ModelError(f"{where} is damaged: its chart of characters is not base64.") from None
    return max(1, *map(len, content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")))
