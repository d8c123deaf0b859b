"""Candidates for a recommendation, and how they are fitted on a fold's rows under each role's prompt."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models import alignments
from xalign_models.alignments import Alignment
from xalign_models.alignments.composed import unpaired
from xalign_models.alignments.groups import grouped, of_prompt
from xalign_models.linalg.arrays import AnyFloats, Float32
from xalign_models.ranking.ranks import normalise

FOLDS = 5
Keys = npt.NDArray[np.uint32]
"""(n,) a number for each row, equal for equal sentences."""
Rows = Mapping[str, Sequence[AnyFloats]]
"""Language to raw vectors (n, d), its own and, with translations, the pivot's."""
Roles = Sequence[Rows]
"""Vectors of the same rows as queries and, if the backbone has another prompt for documents, as documents."""


@dataclass(frozen=True)
class Candidate:
    """A method with its parameters; no method means the plain backbone."""

    method: str = ""
    params: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """``procrustes shrink=1.0``."""
        return " ".join([self.method or "plain", *(f"{name}={value}" for name, value in self.params)])

    def onto(self, pivot: str | None) -> dict[str, Any]:
        """The parameters, with the pivot if the method has one."""
        params = dict(self.params)
        return params | ({"pivot": pivot} if hasattr(alignments.make(self.method, **params), "pivot") else {})


PLAIN = Candidate()
CENTRED = Candidate("centered")


def candidates(languages: int) -> tuple[Candidate, ...]:
    """Candidates for a number of languages, the simplest first: every closed form, its strengths, compositions."""
    ranks = sorted({1, (languages - 1) // 2, languages - 1} - {0})
    shrunk = (("shrink", 1.0),)
    return (
        CENTRED,
        *(Candidate("shift", (("strength", strength),)) for strength in (0.5, 1.0)),
        *(Candidate("lir", (("k", k),)) for k in (1, 4)),
        *(Candidate("lsar", (("rank", rank),)) for rank in ranks),
        Candidate("procrustes"),
        Candidate("procrustes", shrunk),
        Candidate("centered+procrustes", shrunk),
        Candidate("lsar+procrustes", shrunk),
        Candidate("affine"),
        Candidate("centered+affine"),
        Candidate("whitened+procrustes", shrunk),
    )


def sentence_keys(rows: AnyFloats, seed: int) -> Keys:
    """A number for each row, equal for equal rows."""
    return np.array([zlib.crc32(np.ascontiguousarray(row).tobytes(), seed) for row in rows], dtype=np.uint32)


@dataclass(frozen=True)
class Trial:
    """Vectors to fit on and to judge on by role, with masks of the rows, and the sentence of each judged row."""

    fit: Roles
    judge: Roles
    keys: Mapping[str, Keys]
    fitted: Mapping[str, npt.NDArray[np.bool_]]
    judged: Mapping[str, npt.NDArray[np.bool_]]

    def moved(self, candidate: Candidate, pivot: str | None) -> list[dict[str, list[Float32]]]:
        """By role, all rows of the judged text under a candidate fitted on other rows, at unit length.

        Raises:
            AlignmentError: The candidate cannot be fitted.
        """
        fit = [{code: tuple(side[self.fitted[code]] for side in data[code]) for code in data} for data in self.fit]
        return [
            {
                code: [
                    normalise(rows if alignment is None else alignment.transform(rows, language))
                    for rows, language in zip(sides, (code, pivot), strict=False)
                ]
                for code, sides in data.items()
            }
            for alignment, data in zip(fitted(candidate, fit, pivot), self.judge, strict=True)
        ]


def folds(data: Roles, seed: int) -> list[Trial]:
    """Trials that judge on a fold of the rows and fit on the others; a sentence and its repetitions are in one fold."""
    keys = {language: sentence_keys(sides[-1], seed) for language, sides in data[0].items()}
    held = [{language: hashes % FOLDS == fold for language, hashes in keys.items()} for fold in range(FOLDS)]
    return [Trial(data, data, keys, {language: ~mask for language, mask in fold.items()}, fold) for fold in held]


def other_text(data: Roles, judge: Roles, seed: int) -> list[Trial]:
    """One trial that judges on all rows of another text, whose sentences are not fitted on."""
    keys = {language: sentence_keys(sides[1], seed) for language, sides in judge[0].items()}
    judged = np.unique(np.concatenate(list(keys.values())))
    new = {language: ~np.isin(sentence_keys(sides[1], seed), judged) for language, sides in data[0].items()}
    return [Trial(data, judge, keys, new, {language: np.ones(len(rows), bool) for language, rows in keys.items()})]


def fitted(candidate: Candidate, roles: Roles, pivot: str | None) -> Sequence[Alignment | None]:
    """The maps of each role; a joint method is fitted on the groups of all roles."""
    if not candidate.method:
        return [None] * len(roles)
    kind, params = alignments.find_method(candidate.method), candidate.onto(pivot)
    texts: list[Mapping[str, Any]] = [data if kind.parallel else unpaired(data, pivot) for data in roles]
    if kind.joint and len(texts) > 1:
        groups = grouped({str(role): data for role, data in enumerate(texts)})
        together = alignments.make(candidate.method, **params).fit(groups)
        return [of_prompt(together, str(role)) for role in range(len(texts))]
    return [alignments.make(candidate.method, **params).fit(data) for data in texts]
