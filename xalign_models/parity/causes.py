"""Finds the cause of a difference between two ways to serve a model, by trial.

Each guess makes one change to the local model: another prompt, pooling, precision or length. The closest is reported if
it explains most of the difference. Another tokenizer or normalisation is found by the pattern of the differences.
"""

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.errors import XAlignError
from xalign_models.linalg.arrays import Float64, unit
from xalign_models.parity.served import Served
from xalign_models.specs import Dtype, Pooling

SAMPLE = 48
"""Number of texts for trials, half of them those that differ most."""
EXPLAINED = 0.2
"""Maximum remaining share of the distance under a correct guess."""
ROUNDING = 0.03
"""Maximum distance of unit vectors due to lower precision."""
TOLD = 0.6
"""Maximum remaining share under a correct guess of the precision, as rounding depends on the processor."""
SURE = 0.01
"""Remaining share of the distance below which no other guess is tried."""
LIMITS = (32, 64, 128, 256, 384, 512)
PROMPTS = (
    "",
    "query: ",
    "passage: ",
    "search_query: ",
    "search_document: ",
    "clustering: ",
    "Represent this sentence for searching relevant passages: ",
)


@dataclass(frozen=True)
class Cause:
    """A possible cause.

    Attributes:
        kind: ``normalisation``, ``prompt``, ``pooling``, ``tokenizer``, ``precision``, ``truncation`` or ``weights``.
        text: A sentence.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Guess:
    """A cause, and the change to a model that tests it: its prompt, the texts, or fields of the backbone's spec."""

    cause: Cause
    prompt: str | None = None
    text: Callable[[str], str] = str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """The observed vectors, before any trial.

    Attributes:
        texts: The n texts.
        languages: Languages of the texts.
        lengths: Lengths of the texts in tokens.
        a: Vectors (n, d) of the first.
        b: Vectors (n, d) of the second.
        tolerance: Distance of unit vectors that counts as equal.
    """

    texts: Sequence[str]
    languages: Sequence[str]
    lengths: npt.NDArray[np.int64]
    a: Float64
    b: Float64
    tolerance: float

    @property
    def distances(self) -> Float64:
        """Distances of the unit vectors, (n,)."""
        distances: Float64 = np.linalg.norm(unit(self.a) - unit(self.b), axis=1)
        return distances

    @property
    def limit(self) -> tuple[float, float] | None:
        """Lengths of the longest equal and the shortest different text, if length alone separates them."""
        differ = self.distances > self.tolerance
        if differ.all() or not differ.any():
            return None
        below, above = self.lengths[~differ].max(), self.lengths[differ].min()
        return (float(below), float(above)) if below < above and (~differ).sum() > 1 else None


def causes(a: Served, b: Served, evidence: Evidence) -> list[Cause]:
    """Likely causes of a difference, the most likely first; empty without a difference."""
    likely = [cause] if (cause := _lengths(evidence)) else []
    if evidence.distances.max() <= evidence.tolerance:
        return likely
    return [_direction(a, b, evidence), *likely]


def _lengths(evidence: Evidence) -> Cause | None:
    norms = [np.linalg.norm(side, axis=1) for side in (evidence.a, evidence.b)]
    if np.abs(norms[0] - norms[1]).max() <= 1e-3 * max(norms[0].max(), norms[1].max()):
        return None
    units = [bool(np.abs(norm - 1).max() < 1e-3) for norm in norms]
    phrases = {
        (True, False): "The first model normalises its vectors, the second does not.",
        (False, True): "The second model normalises its vectors, the first does not.",
    }
    text = phrases.get((units[0], units[1]), "The vectors differ in length.")
    return Cause("normalisation", f"{text} Their mean lengths are {norms[0].mean():.4g} and {norms[1].mean():.4g}.")


def _direction(a: Served, b: Served, evidence: Evidence) -> Cause:
    model, target = (a, evidence.b) if a.can_vary else (b, evidence.a)
    if _has_other_tokens(a, b, evidence):
        return Cause("tokenizer", "The tokenizers are different: some texts are split into other tokens.")
    rows = _sample(evidence)
    texts, languages = ([side[row] for row in rows] for side in (evidence.texts, evidence.languages))
    base = float(evidence.distances[rows].mean())
    best, least = Cause("weights", ""), np.inf
    for guess in _guesses(model, evidence) if model.can_vary else ():
        changed = [guess.text(text) for text in texts]
        if guess.text is not str and changed == texts:
            continue
        with suppress(XAlignError):  # a model that refuses the change cannot be the other one
            vectors = model.vectors(changed, languages, guess.prompt, **guess.changes)
            distance = float(np.linalg.norm(unit(vectors) - unit(target[rows]), axis=1).mean())
            if distance < least:
                best, least = guess.cause, distance
        if least <= SURE * base:
            break
    limit = TOLD if best.kind == "precision" and evidence.distances.max() < ROUNDING else EXPLAINED
    if least <= limit * base:
        return Cause(best.kind, f"{best.text} This leaves {100 * least / base:.2g}% of the difference.")
    return _by_signs(a, b, evidence)


def _by_signs(a: Served, b: Served, evidence: Evidence) -> Cause:
    """The cause that the pattern of the differences suggests when no guess explains them."""
    distances = evidence.distances
    if limit := evidence.limit:
        return Cause("truncation", f"Texts of {limit[1]:.0f} tokens or more differ, those up to {limit[0]:.0f} do not.")
    if distances.max() < ROUNDING:
        return Cause("precision", f"All vectors are nearly the same (distance {distances.max():.2g} at most).")
    same = float((distances <= evidence.tolerance).mean())
    if same > 0 or _same_empty(a, b, evidence.tolerance):
        return Cause(
            "tokenizer",
            f"{100 * same:.0f}% of the texts, or the empty text, have the same vectors: the tokenizer or the "
            "preprocessing before it differs.",
        )
    return Cause("weights", "No trial explains the difference: the weights differ, or one model has an unknown prompt.")


def _guesses(model: Served, evidence: Evidence) -> Iterator[Guess]:
    """Guesses of one change each, prompts first: they are the most frequent and reload no weights."""
    assert model.spec is not None
    default = model.prompts.get("default", "")
    for prompt in dict.fromkeys([*PROMPTS, *model.prompts.values()]):
        if prompt != default:
            yield Guess(Cause("prompt", f"The prompts differ: {default!r} and {prompt!r}."), prompt=prompt)
    bounds = evidence.limit
    for limit in LIMITS:
        if limit < max(evidence.lengths) and (bounds is None or bounds[0] <= limit < bounds[1]):
            yield _changed("truncation", f"One of the models cuts texts at {limit} tokens.", max_tokens=limit)
    for pooling in (Pooling.MEAN, Pooling.CLS, Pooling.LAST):
        yield _changed("pooling", f"One of the models pools by {pooling}.", pooling=pooling)
    yield _changed("pooling", "One of the models leaves special tokens out of the mean.", special_tokens=False)
    for name, change in _TEXT.items():
        yield Guess(Cause("tokenizer", f"One of the tokenizers {name}."), text=change)
    for dtype in Dtype:
        if dtype != model.spec.dtype:
            yield _changed("precision", f"One of the models computes in {dtype}.", dtype=dtype)


def _changed(kind: str, text: str, **changes: Any) -> Guess:
    return Guess(Cause(kind, text), changes=changes)


def _without_accents(text: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))


_TEXT: dict[str, Callable[[str], str]] = {
    "lowercases texts": str.lower,
    "drops accents": _without_accents,
    "lowercases texts and drops accents": lambda text: _without_accents(text.lower()),
    "normalises characters (NFKC)": lambda text: unicodedata.normalize("NFKC", text),
}


def _sample(evidence: Evidence) -> Sequence[int]:
    order = np.argsort(-evidence.distances, kind="stable")
    random_rows = np.random.default_rng(0).permutation(order[SAMPLE // 2 :])[: SAMPLE - SAMPLE // 2]
    return [int(row) for row in (*order[: SAMPLE // 2], *random_rows)]


def _has_other_tokens(a: Served, b: Served, evidence: Evidence) -> bool:
    if a.tokenizer is None or b.tokenizer is None:
        return False
    texts = list(evidence.texts)
    first, second = (side.tokenizer(texts, truncation=False)["input_ids"] for side in (a, b))
    return bool(first != second)


def _same_empty(a: Served, b: Served, tolerance: float) -> bool:
    """Whether both give the empty text (special tokens only) the same vector, which means equal weights."""
    try:
        first, second = (unit(side.vectors([""], ["und"], "")) for side in (a, b))
    except XAlignError:  # the alignment asks for a language, for instance
        return False
    return first.shape == second.shape and bool(np.linalg.norm(first - second) <= max(tolerance, ROUNDING))
