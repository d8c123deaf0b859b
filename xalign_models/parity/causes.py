"""Why two ways to serve a model differ: what is tried, and which of it gives the other's vectors.

Each guess makes one change to the model at hand: another prompt, pooling, precision or length. The guess that comes
nearest to the other's vectors is named if it explains most of the difference. Two faults change no vector that could
be computed here. Another tokenizer leaves the empty text, or some texts, as they are. Another length of the vectors
leaves all directions as they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.arrays import Float64
from xalign_models.errors import ModelError, XAlignError
from xalign_models.parity.served import Served, unit
from xalign_models.specs import Dtype, Pooling

SAMPLE = 48
"""Texts that guesses are tried on, half of them those that differ most."""
EXPLAINED = 0.2
"""Of the distance that is left where a guess is right."""
ROUNDING = 0.03
"""Distance of unit vectors that lower precision does not exceed."""
TOLD = 0.6
"""Of the distance that is left where the guessed precision is right: its rounding depends on the processor."""
SURE = 0.01
"""Of the distance that is left where nothing else has to be tried."""
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
    """What may be the matter.

    Attributes:
        kind: ``normalisation``, ``prompt``, ``pooling``, ``tokenizer``, ``precision``, ``truncation`` or ``weights``.
        text: A sentence.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Guess:
    """A cause, and the change to a model by which it can be tried.

    Attributes:
        cause: What it would be.
        prompt: Before all texts; None is the model's own.
        text: What is done to texts first.
        changes: Fields of the backbone's spec.
    """

    cause: Cause
    prompt: str | None = None
    text: Callable[[str], str] = str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """What is known of the two before anything is tried.

    Attributes:
        texts: n texts.
        languages: Of each.
        lengths: Tokens of each.
        a: Vectors (n, d) of the first.
        b: Those of the second.
        tolerance: Largest distance of unit vectors that is none.
    """

    texts: Sequence[str]
    languages: Sequence[str]
    lengths: npt.NDArray[np.int64]
    a: Float64
    b: Float64
    tolerance: float

    @property
    def distances(self) -> Float64:
        """Of the unit vectors, (n,)."""
        distances: Float64 = np.linalg.norm(unit(self.a) - unit(self.b), axis=1)
        return distances

    @property
    def limit(self) -> tuple[float, float] | None:
        """Tokens of the longest equal and the shortest different text, where length alone tells them apart."""
        differ = self.distances > self.tolerance
        if differ.all() or not differ.any():
            return None
        below, above = self.lengths[~differ].max(), self.lengths[differ].min()
        return (float(below), float(above)) if below < above and (~differ).sum() > 1 else None


def causes(a: Served, b: Served, evidence: Evidence) -> list[Cause]:
    """Likely causes of a difference, the most likely first; none where there is no difference."""
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
        (True, False): "The first is brought to unit length, the second is not.",
        (False, True): "The second is brought to unit length, the first is not.",
    }
    text = phrases.get((units[0], units[1]), "The vectors have other lengths.")
    return Cause("normalisation", f"{text} Their mean lengths are {norms[0].mean():.4g} and {norms[1].mean():.4g}.")


def _direction(a: Served, b: Served, evidence: Evidence) -> Cause:
    model, target = (a, evidence.b) if a.can_vary else (b, evidence.a)
    if _has_other_tokens(a, b, evidence):
        return Cause("tokenizer", "The tokenizers are different: some texts become other tokens.")
    rows = _sample(evidence)
    texts, languages = ([side[row] for row in rows] for side in (evidence.texts, evidence.languages))
    base = float(evidence.distances[rows].mean())
    best, least = Cause("weights", ""), np.inf
    for guess in _guesses(model, evidence) if model.can_vary else ():
        changed = [guess.text(text) for text in texts]
        if guess.text is not str and changed == texts:
            continue
        with suppress(XAlignError):  # a model that does not take the change cannot be the other one
            vectors = model.vectors(changed, languages, guess.prompt, **guess.changes)
            distance = float(np.linalg.norm(unit(vectors) - unit(target[rows]), axis=1).mean())
            if distance < least:
                best, least = guess.cause, distance
        if least <= SURE * base:
            break
    limit = TOLD if best.kind == "precision" and evidence.distances.max() < ROUNDING else EXPLAINED
    if least <= limit * base:
        return Cause(best.kind, f"{best.text} That leaves {100 * least / base:.2g}% of the difference.")
    return _by_signs(a, b, evidence)


def _by_signs(a: Served, b: Served, evidence: Evidence) -> Cause:
    """What the pattern of the differences says, where no guess gives the other's vectors."""
    distances = evidence.distances
    if limit := evidence.limit:
        return Cause("truncation", f"Texts of {limit[1]:.0f} tokens or more differ, those up to {limit[0]:.0f} do not.")
    if distances.max() < ROUNDING:
        return Cause("precision", f"All vectors are nearly the same (distance {distances.max():.2g} at most).")
    same = float((distances <= evidence.tolerance).mean())
    if same > 0 or _same_empty(a, b, evidence.tolerance):
        return Cause(
            "tokenizer",
            f"{100 * same:.0f}% of the texts have the same vectors, or the empty text has: the tokenizer differs, or "
            "what is done to texts before it.",
        )
    return Cause("weights", "Nothing that was tried explains it: the weights differ, or an unknown prompt.")


def _guesses(model: Served, evidence: Evidence) -> Iterator[Guess]:
    """One change each, those of prompts first, which are the most frequent and load no weights again."""
    assert model.spec is not None
    default = model.prompts.get("default", "")
    for prompt in dict.fromkeys([*PROMPTS, *model.prompts.values()]):
        if prompt != default:
            yield Guess(Cause("prompt", f"One puts {default!r} before texts, the other {prompt!r}."), prompt=prompt)
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
    "makes letters small": str.lower,
    "drops accents": _without_accents,
    "makes letters small and drops accents": lambda text: _without_accents(text.lower()),
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
    """Whether the empty text, which has special tokens alone, has one vector: then the weights are the same."""
    try:
        first, second = (unit(side.vectors([""], ["und"], "")) for side in (a, b))
    except ModelError:
        return False
    return first.shape == second.shape and bool(np.linalg.norm(first - second) <= max(tolerance, ROUNDING))
