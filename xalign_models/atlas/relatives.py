"""Scores in languages that no task has, from languages like them: a Gaussian process over kinds and languages."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.errors import AssetError
from xalign_models.linalg.arrays import Float64
from xalign_models.typology import load_uriel

ACROSS = 0.6
"""Covariance of a language's scores in two kinds of tasks, as a share of that within a kind."""
NOISE = 0.05
"""Variance of what no kinship explains; that of a score is about 1."""
_LINEAGE, _SCRIPT, _NAMED, _SYNTAX, _SAME = 0.35, 0.15, 0.25, 0.1, 0.15


@lru_cache(maxsize=4)
def likeness(languages: tuple[str, ...], named: tuple[tuple[str, int], ...]) -> Float64:
    """Covariances (n, n) of languages by canonical code, between 0 and 1.

    The sum of shared lineage, script, number of models that name the language (``named``, by ISO 639-3), syntax, and
    identity, with fixed weights. Without URIEL, lineage and syntax say nothing.
    """
    try:
        uriel = load_uriel()
    except AssetError:
        uriel = {"families": {}, "syntax": {}}
    shared = np.zeros((len(languages), len(languages)))
    lines = [uriel["families"].get(code[:3], ()) for code in languages]
    for row, line in enumerate(lines):
        for column, other in enumerate(lines[: row + 1]):
            if line and other and line[0] == other[0]:
                common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(line, other, strict=False)))
                shared[row, column] = shared[column, row] = common / max(len(line), len(other))
    texts = [uriel["syntax"].get(code[:3]) for code in languages]
    bits = np.array([[float(bit) for bit in text] if text else [0.5] * 103 for text in texts])
    squares = (bits**2).sum(axis=1)
    agreement = np.exp((2 * bits @ bits.T - squares - squares[:, None]) / 20)
    models = dict(named)
    counts = np.log1p([models.get(code[:3], 0) for code in languages])
    codes, scripts = np.array([(code[:3], code[4:]) for code in languages]).T
    return np.asarray(
        _LINEAGE * shared
        + _SCRIPT * np.equal.outer(scripts, scripts)
        + _NAMED * np.exp(-0.5 * np.subtract.outer(counts, counts) ** 2)
        + _SYNTAX * agreement
        + _SAME * np.equal.outer(codes, codes)
    )


def weights(
    kinds: Sequence[str], languages: Sequence[str], known: npt.NDArray[np.integer[Any]], named: Mapping[str, int]
) -> tuple[Float64, Float64]:
    """Weights (rows, known rows) of known scores in the prediction of every row, and its standard errors (rows,).

    Row i is the score of a kind of task in a language, ``kinds[i]`` and ``languages[i]``. Scores are residuals from
    the mean of their kind.
    """
    distinct = sorted({*languages})
    place = np.searchsorted(distinct, languages)
    kin = likeness(tuple(distinct), tuple(named.items()))
    same = np.where(np.equal.outer(np.array(kinds), np.array(kinds)[known]), 1.0, ACROSS)
    covariance = kin[np.ix_(place, place[known])] * same
    inside = covariance[known] + NOISE * np.eye(len(known))
    solved = np.linalg.solve(inside, covariance.T).T
    variance = kin[place, place] + NOISE - (solved * covariance).sum(axis=1)
    return np.asarray(solved), np.sqrt(np.maximum(variance, NOISE))
