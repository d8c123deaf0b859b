"""Bitext mining into English: xsim, xsim++ with changed English sentences, and F1 among sentences without a partner."""

from collections.abc import Iterable

import numpy as np
import torch

from xalign_models.corpora import ENGLISH
from xalign_models.languages import canonical, to_flores
from xalign_models.linalg.arrays import Float32, Mask
from xalign_models.progress import live
from xalign_models.ranking.ranks import TIE, Ranks, normalise, scores_of
from xalign_tasks.base import JointTask, Scored, Scoring, task_metadata
from xalign_tasks.facts import CODES
from xalign_tasks.parallel import FLORES_LANGUAGES
from xalign_tasks.perturbations import perturbed
from xalign_tasks.precision import pair_name

K = 4
"""Size of a neighbourhood, as in LASER's xsim."""
KINDS = ("numbers", "negation", "names")
"""Changes of English sentences: xsim++'s numbers, causality and entities (arXiv 2306.12907)."""


def into_english(languages: Iterable[str]) -> dict[str, list[str]]:
    """Each language with English as a subset, ``deu_Latn-eng_Latn``."""
    return {pair_name(code, ENGLISH): [code, ENGLISH] for code in sorted({*languages} - {ENGLISH})}


class FloresMining(JointTask):
    """Mining of FLORES-200 for English by :func:`margins`; ties count against the model.

    Every subset has:

    - ``xsim``: share of sentences whose translation is not the best among all English sentences;
    - ``xsim_pp``: the same if the changed forms of every English sentence are also candidates;
      ``xsim_pp_<change>``: share of sentences that prefer a form with this change;
    - ``one_minus_xsim_pp`` (main): 1 - ``xsim_pp``, so that higher is better;
    - ``mining_f1``: :func:`mining_f1`.
    """

    corpus_name = "flores"
    metadata = task_metadata("FloresMining", into_english(FLORES_LANGUAGES))

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Scores of the subsets, and whether each sentence found its translation among the changed forms."""
        languages = {subset: canonical(subset.split("-")[0]) for subset in sorted(subsets)}
        texts = self.corpus.parallel([ENGLISH, *languages.values()])
        known = set(texts[ENGLISH])
        forms = {
            kind: [form for form in perturbed(texts[ENGLISH], kind) if form and form not in known] for kind in KINDS
        }
        candidates = [(text, kind) for kind, rows in {"": texts[ENGLISH], **forms}.items() for text in rows]

        def vectors(rows: list[str], language: str) -> Float32:
            return normalise(self.embed(scoring, rows, language, to_flores(language)))

        pool, kinds = vectors([text for text, _ in candidates], ENGLISH), np.array([kind for _, kind in candidates])
        scores, items = {}, {}
        for subset, language in live(languages.items(), desc=self.metadata.name):
            side = vectors(texts[language], language)
            english = pool[: len(side)]
            found, rival = found_own(side, pool)
            errors = {"xsim": found_own(side, english)[0], "xsim_pp": found}
            scores[subset] = {name: 1 - float(hits.mean()) for name, hits in errors.items()}
            scores[subset] |= {f"xsim_pp_{kind}": float((~found & (kinds[rival] == kind)).mean()) for kind in KINDS}
            scores[subset] |= {"one_minus_xsim_pp": float(found.mean()), "mining_f1": mining_f1(side, english)}
            items[subset] = found
        return scores, items


class NTREXMining(FloresMining):
    """The same on NTREX-128."""

    corpus_name = "ntrex"
    metadata = task_metadata("NTREXMining", into_english(CODES["ntrex"]))


def margins(x: Float32, y: Float32) -> Float32:
    """Ratio margin (n, m) of unit rows (n, d) and (m, d); minus infinity beyond the K nearest of a row of ``x``.

    The margin is cos(x, y) / ((r(x) + r(y)) / 2), r the mean cosine of the K nearest on the other side (Artetxe and
    Schwenk, 2019, eqs. 1 and 2).
    """
    scores = torch.from_numpy(scores_of(x, y))
    near, back = scores.topk(min(K, len(y)), dim=1).values, scores.topk(min(K, len(x)), dim=0).values
    ratio = 2 * scores / (near.mean(dim=1, keepdim=True) + back.mean(dim=0)).clamp(min=TIE)
    found: Float32 = ratio.where(scores >= near[:, -1:], -torch.inf).numpy()
    return found


def found_own(x: Float32, y: Float32) -> tuple[Mask, Ranks]:
    """Whether row i of ``y`` (m, d), m >= n, is the best for row i of ``x`` (n, d), and the best other row, (n,)."""
    margin = margins(x, y)
    gold = margin.diagonal().copy()
    np.fill_diagonal(margin, -np.inf)
    return gold > margin.max(axis=1) + TIE, margin.argmax(axis=1)


def mining_f1(x: Float32, y: Float32) -> float:
    """F1 of mined pairs among sentences of which half have a partner, as in BUCC.

    Each half of the text gets three of every six rows: one on both sides, one only in ``x``, one only in ``y``. Rows
    that are each other's best by the margin are mined. The best threshold of one half, midway between two margins, is
    applied to the other half; the result is the mean of both ways.

    Args:
        x: (n, d) unit rows; row i of ``y`` is the counterpart of row i.
        y: (n, d).
    """
    halves = []
    for half in (0, 1):
        both, only_x, only_y = (np.arange(half + 2 * place, len(x), 6) for place in range(3))
        rows, columns = np.concatenate([both, only_x]), np.concatenate([both, only_y])
        margin = margins(x[rows], y[columns])
        to = margin.argmax(axis=1)
        mutual = np.flatnonzero(margin.argmax(axis=0)[to] == np.arange(len(rows)))
        mutual = mutual[np.argsort(-margin[mutual, to[mutual]], kind="stable")]
        halves.append((rows[mutual] == columns[to[mutual]], margin[mutual, to[mutual]], len(both)))
    f1 = []
    for (right, values, pairs), (right_there, there, pairs_there) in (halves, halves[::-1]):
        curve = 2 * np.cumsum(right) / (np.arange(1, len(right) + 1) + pairs)
        last = curve.argmax()
        kept = there >= values[last : last + 2].mean()
        f1.append(2 * right_there[kept].sum() / (kept.sum() + pairs_there))
    return float(np.mean(f1))
