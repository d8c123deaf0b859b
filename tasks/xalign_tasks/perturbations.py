"""English sentences with a changed meaning: numbers, negation, names, order, a dropped clause."""

import re
from collections.abc import Sequence

import numpy as np

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NUMBER_WORDS = "two three four five six seven eight nine ten eleven twelve".split()
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
_AUXILIARY = re.compile(
    r"\b(is|are|was|were|has|have|had|can|could|will|would|should|must|may|might|do|does|did)\b(?!\s+not\b)"
)
_NEGATION = re.compile(r"\s+not\b|n't\b")
_NAME = re.compile(r"(?<=[\w,;:)] )(?:[A-Z][\w'-]+)(?: [A-Z][\w'-]+)*")
_CLAUSE = re.compile(r"[,;:] (?=\w)")
_WORD = re.compile(r"\b[a-z]{4,}\b")

Texts = Sequence[str]


def _numbers(text: str, _: Texts, rng: np.random.Generator) -> str | None:
    """The text with another number of the same length, or another number word."""
    if match := _NUMBER.search(text):
        changed = "".join(str(rng.integers(1, 10)) if char.isdigit() else char for char in match[0])
        if changed == match[0]:
            changed = f"{int(changed[0]) % 9 + 1}{changed[1:]}"
        return text[: match.start()] + changed + text[match.end() :]
    if match := _NUMBER_WORD.search(text):
        others = [word for word in _NUMBER_WORDS if word != match[0].lower()]
        return text[: match.start()] + str(rng.choice(others)) + text[match.end() :]
    return None


def _negation(text: str, _: Texts, rng: np.random.Generator) -> str | None:
    """The text without its first negation, or with a negation after the first auxiliary."""
    if match := _NEGATION.search(text):
        stem = text[: match.start()]
        return re.sub(r"\b(ca|wo)$", lambda m: {"ca": "can", "wo": "will"}[m[0]], stem) + text[match.end() :]
    if match := _AUXILIARY.search(text):
        return f"{text[: match.end()]} not{text[match.end() :]}"
    return None


def _names(text: str, others: Texts, rng: np.random.Generator) -> str | None:
    """The text with its name replaced by a name from another sentence."""
    match = _NAME.search(text)
    candidates = [name for sentence in others for name in _NAME.findall(sentence) if match and name not in text]
    if match is None or not candidates:
        return None
    return text[: match.start()] + str(rng.choice(candidates)) + text[match.end() :]


def _order(text: str, _: Texts, rng: np.random.Generator) -> str | None:
    """The text with two of its words swapped."""
    words = list({match[0]: match for match in _WORD.finditer(text)}.values())
    if len(words) < 2:
        return None
    first, second = sorted(rng.choice(len(words), 2, replace=False))
    a, b = words[first], words[second]
    return f"{text[: a.start()]}{b[0]}{text[a.end() : b.start()]}{a[0]}{text[b.end() :]}"


def _dropped_clause(text: str, _: Texts, rng: np.random.Generator) -> str | None:
    """The text up to its last comma, if that drops a fifth or more."""
    cuts = [match.start() for match in _CLAUSE.finditer(text) if 0.2 * len(text) < match.start() < 0.8 * len(text)]
    return text[: cuts[-1]].rstrip() + "." if cuts else None


_CHANGES = {f.__name__.removeprefix("_"): f for f in (_numbers, _negation, _names, _order, _dropped_clause)}
KINDS = tuple(_CHANGES)
"""Kinds of changes."""


def perturbed(texts: Texts, kind: str, seed: int = 0) -> list[str | None]:
    """Each English sentence with one change of meaning; None if the sentence has nothing of this kind to change."""
    rng = np.random.default_rng(seed)
    change = _CHANGES[kind]
    changed = []
    for i, text in enumerate(texts):
        others = [texts[(i + step) % len(texts)] for step in (1, 2, 3) if step < len(texts)]
        result = change(text, others, rng)
        changed.append(result if result != text else None)
    return changed
