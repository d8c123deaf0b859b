"""How far small edits of a text move its embedding: data-local Lipschitz ratios (LiRA's Table 7)."""

import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_tasks.analyses.base import Sentences, load_sentences, statistics
from xalign_tasks.analyses.rkhs import COLUMNS

Unit = TypeVar("Unit", bound=Hashable)


def perturb(units: Sequence[Unit], most: int, alphabet: Sequence[Unit], draw: random.Random) -> list[Unit]:
    """Apply one to ``most`` insertions, deletions and substitutions, equally likely, to tokens or characters.

    At least one unit is kept; new units come from ``alphabet``.
    """
    edited = list(units)
    for _ in range(draw.randint(1, most)):
        operation = draw.choice(("insert", "delete", "substitute"))
        if operation == "insert" or not edited:
            edited.insert(draw.randint(0, len(edited)), draw.choice(alphabet))
        elif operation == "substitute":
            edited[draw.randrange(len(edited))] = draw.choice(alphabet)
        elif len(edited) > 1:
            del edited[draw.randrange(len(edited))]
    return edited


def levenshtein(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Fewest insertions, deletions and substitutions that turn the first sequence into the second."""
    numbers: dict[Hashable, int] = {}
    a, b = (np.array([numbers.setdefault(unit, len(numbers)) for unit in side], int) for side in (first, second))
    places = np.arange(len(b) + 1)
    row = places
    for i, unit in enumerate(a, 1):  # a running minimum over earlier columns covers all insertions
        best = np.minimum(row[1:] + 1, row[:-1] + (b != unit))
        row = np.minimum.accumulate(np.concatenate([[i], best]) - places) + places
    return int(row[-1])


ROWS = 200
DELTAS = (1, 2, 3, 5, 8, 10)
"""Maximum numbers of edits, as in the paper."""
SEED = 0
KINDS = ("token", "character")


def analyse(request: Request) -> Findings:
    """Ratios ``||f(x) - f(x')|| / d(x, x')`` for texts and their random edits, in tokens and in characters."""
    sentences, study = load_sentences(request, ROWS)
    for name in request.named():
        encoder = load_encoder(name, device=request.device)  # without the store, because the texts occur only here
        model = str(encoder.mteb_model_meta.name).removeprefix("xalign/").removeprefix("plain__")
        rows = [
            {"edits": kind, "delta": delta, **statistics(part["ratio"].to_numpy(), COLUMNS)}
            for (kind, delta), part in ratios(encoder, sentences).groupby(["edits", "delta"], sort=False)
        ]
        frame = study.add("ratios", rows, model=model, text=sentences.name)
        study.figures[f"ratios-{model.replace('/', '_')}"] = draw(frame, model)
    return study.findings(
        "One random edit per text and delta: a lower estimate of the largest ratio in a neighbourhood.",
        "Delta is the largest number of edits; the ratio is divided by the actual distance. Unchanged texts do not "
        "count.",
        "Vectors have unit length, so no ratio is above 2 / d: much of the decline with delta is due to that.",
    )


def ratios(encoder: XAlignEncoder, sentences: Sentences) -> pd.DataFrame:
    """A row per edited text: edits (token or character), delta, distance, ratio."""
    tokenizer = getattr(encoder.raw.modules[0], "tokenizer", None)
    original = encoder.encode_texts(sentences.texts, sentences.languages, progress="lipschitz")
    parts = []
    for kind, (split, join) in zip(KINDS, (_tokens(tokenizer), (list, "".join)), strict=True):
        units = [split(text) for text in sentences.texts]
        alphabet = sorted({unit for row in units for unit in row})
        for delta in DELTAS:
            draw_ = random.Random(f"{SEED} {kind} {delta}")
            edited = [join(perturb(row, delta, alphabet, draw_)) for row in units]
            distances = [levenshtein(row, split(text)) for row, text in zip(units, edited, strict=True)]
            moved = np.flatnonzero(distances)
            if not len(moved):
                continue
            texts, codes = ([side[i] for i in moved] for side in (edited, sentences.languages))
            gaps = np.linalg.norm(original[moved] - encoder.encode_texts(texts, codes, progress=kind), axis=1)
            far = np.array(distances)[moved]
            columns = {"edits": kind, "delta": delta, "distance": far, "ratio": gaps.astype(float) / far}
            parts.append(pd.DataFrame(columns))
    return pd.concat(parts)


def _tokens(tokenizer: Any) -> tuple[Callable[[str], list[Any]], Callable[[Sequence[Any]], str]]:
    """Functions that split a text into tokens and join them: with the model's tokenizer, or into words without one."""
    if not callable(tokenizer) or not hasattr(tokenizer, "decode"):
        return str.split, " ".join
    return (
        lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"]),
        lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True)),
    )


def draw(frame: pd.DataFrame, model: str) -> Figure:
    """Median and 95th percentile by delta, for both kinds of edits."""
    figure, (axes,) = figures.canvas(1, 2, width=10.0, sharey=True)
    for index, (axis, kind) in enumerate(zip(axes, KINDS, strict=True)):
        part = frame[frame["edits"] == kind]
        for column, label, style in (("median", "median", "-"), ("p95", "95th percentile", "--"), ("max", "max", ":")):
            axis.plot(part["delta"], part[column], label=label, **{**figures.look(index), "linestyle": style})
        figures.from_zero(axis)
        axis.legend()
        figures.describe(axis, f"{kind} edits", "delta, the most edits", "change of the vector per edit")
    figure.suptitle(model)
    return figure
