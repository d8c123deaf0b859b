"""How close the best affine map from English to another language is to a rotation, for any model."""

import hashlib
import logging
import math
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from xalign_models.alignments import dilation, orthogonality
from xalign_models.alignments.orthogonality import determined_map, explained
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_models.languages import canonical, to_flores
from xalign_models.linalg.arrays import unit
from xalign_models.linalg.solvers import affine_lsq
from xalign_tasks.base import JointTask, Scored, Scoring, task_metadata

logger = logging.getLogger(__name__)

Items = npt.NDArray[np.float32]

LANGUAGES = tuple(
    canonical(code)
    for code in "ara bel ben ber bul ces dan deu ell epo est eus fas fin fra hbs heb hin hun hye ind ita jpn kor lit "
    "mar mkd msa nld nor pol por ron rus slv spa swe tgl tur ukr vie zho".split()
)
PAIRS = 1500
"""Pairs per language, from the top of its file, or 2.5 per dimension if that is more: equal numbers, because the fit's
quality depends on them. The last fifth is held out."""
MAIN = "rotation"
RIDGE = 1e-4
"""Ridge of the map behind the score ``orthogonality``."""


class OrthogonalityTask(JointTask):
    """How close English embeddings e and their translations' e' are to a rotation of each other.

    Per language, on unit vectors, with the same number of pairs in each:

    - ``rotation`` (main): held-out explained variance of the best centred rotation over that of the best affine map,
      e to e' and e' to e, the lower of the two. It is 1 for a rotation, falls with shear, dilation, noise on either
      side and wrong pairs, and is 0 for shuffled pairs. ``r2_rotation`` and ``r2_affine`` are from e to e'.
    - ``p_*``: column cosines of A in e' = A e + b (eqs. 11-16), and ``dilation_*`` of its columns (eqs. 17-20). Least
      squares, with the rotation's columns where e hardly varies: :func:`.determined_map`. ``p_mean_abs_shuffled`` is
      the mean |p| of shuffled pairs, a floor.
    - ``dD`` (eq. 5: fall of the mean distance over the smaller of the two), ``dC`` (eq. 8: mean rise of the cosine),
      ``fD`` and ``fC`` (eqs. 9, 10: share that gets closer): gain of the best affine map on held-out pairs.
    - ``orthogonality``: 1 - mean |p| of least squares with a small ridge. It does not rise with quality: directions
      without variance decide it.
    """

    corpus_name = "tatoeba_pairs"
    metadata = task_metadata(
        "Orthogonality", {f"{to_flores(ENGLISH)}-{to_flores(code)}": [ENGLISH, code] for code in LANGUAGES}
    )

    def stamp(self, fingerprint: str) -> None:
        """Put the fingerprint of the text and of the main score into this instance's metadata."""
        super().stamp(hashlib.sha256(f"{fingerprint} {MAIN}".encode()).hexdigest())

    def _sides(self, subset: str) -> tuple[list[str], list[str]]:
        return self.corpus.pair(self.metadata.hf_subsets_to_langscripts[subset][1])

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Scores of the subsets, and the closeness of each held-out pair.

        Subsets with too few pairs for the model's dimension are left out with a warning.

        Raises:
            DataError: No subset of the task has enough pairs.
        """
        first = self.hf_subsets[0]
        probe = self.embed(scoring, self._sides(first)[1][:1], ENGLISH, first)
        pairs: int = max(PAIRS, math.ceil(2.5 * probe.shape[1]))

        def short(subset: str) -> bool:
            return len(self._sides(subset)[0]) < pairs

        left_out = sorted(filter(short, subsets))
        if left_out:
            reason = f"Orthogonality compares {pairs} pairs in every language, which %s lack"
            if all(map(short, self.hf_subsets)):
                raise DataError(f"{reason % ', '.join(self.hf_subsets)}; choose other languages (--languages).")
            logger.warning("%s; left out.", reason % ", ".join(left_out))
        scores, items = {}, {}
        for subset in sorted(subsets.difference(left_out)):
            language = self.metadata.hf_subsets_to_langscripts[subset][1]
            side, english = (texts[:pairs] for texts in self._sides(subset))
            x, y = (
                unit(self.embed(scoring, texts, lang, subset)) for texts, lang in ((english, ENGLISH), (side, language))
            )
            scores[subset], items[subset] = compared(x, y)
        return scores, items


def compared(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[dict[str, float], Items]:
    """All scores of row-aligned unit vectors x and y, (n, d) each, the last fifth held out; items as in map_gains."""
    train = len(x) * 4 // 5
    fit, held_out = (x[:train], y[:train]), (x[train:], y[train:])
    onward, backward = explained(fit, held_out), explained(fit[::-1], held_out[::-1])
    gains, items = map_gains(*held_out, held_out[0] @ onward.weight + onward.shift)
    shuffled = np.random.default_rng(0).permutation(train)
    scores = {
        "rotation": min(onward.share, backward.share),
        "r2_rotation": onward.rotation,
        "r2_affine": onward.affine,
        **map_shape(determined_map(*fit)),
        "p_mean_abs_shuffled": orthogonality(determined_map(fit[0], fit[1][shuffled])).mean_abs,
        "orthogonality": 1 - orthogonality(affine_lsq(*fit, RIDGE)[0]).mean_abs,
        **gains,
        "pairs": float(len(x)),
    }
    return scores, items


def map_shape(weight: npt.NDArray[np.float64]) -> dict[str, float]:
    """Orthogonality and dilation of a map ``y = x W``, (d, d), by their names in results."""
    alpha = dilation(weight)
    lengths = {f"dilation_{name}": float(getattr(alpha, name)) for name in ("std", "range", "mean")}
    return {**{f"p_{name}": value for name, value in asdict(orthogonality(weight)).items()}, **lengths}


def map_gains(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], mapped: npt.NDArray[np.float64]
) -> tuple[dict[str, float], Items]:
    """Gains in closeness to y from mapping x to ``mapped``; all (n, d).

    Returns:
        dD, dC, fD, fC; and (n, 4) per pair: distance before and after, cosine before and after.
    """
    before, after = np.linalg.norm(x - y, axis=1), np.linalg.norm(mapped - y, axis=1)
    cosine_before, cosine_after = (np.einsum("ij,ij->i", unit(rows), unit(y)) for rows in (x, mapped))
    smaller = max(min(before.mean(), after.mean()), np.finfo(np.float64).tiny)  # avoids dividing by 0
    scores = {
        "dD": float((before.mean() - after.mean()) / smaller),
        "dC": float((cosine_after - cosine_before).mean()),
        "fD": float((after < before).mean()),
        "fC": float((cosine_after > cosine_before).mean()),
    }
    return scores, np.stack([before, after, cosine_before, cosine_after], axis=1).astype(np.float32)
