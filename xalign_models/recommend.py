"""Recommends an alignment for a backbone: cross-validation of candidates, paired tests, and the reason.

Text with translations shows which candidate retrieves best. Text without them shows whether the languages lie apart:
how many of a sentence's nearest neighbours are of its own language. Centring is judged by that. This measure does not
rank methods: removing many directions, or whitening, mixes languages more than centring but retrieves worse.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models import alignments
from xalign_models.alignments import Alignment
from xalign_models.errors import AlignmentError, DataError
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.ranking.ranks import gold_ranks, normalise
from xalign_models.results.significance import sign_test

FOLDS = 5
LEVEL = 0.05
"""Level of the tests, divided by the number of candidates or languages tested at once."""
LEAST_P = 1e-99
"""Smaller p values are printed as less than this."""
LEAST = 50
"""Minimum number of rows of a language; fewer in a fold tell nothing."""
NEIGHBOURS = 10
"""Number of a sentence's nearest neighbours whose languages are counted, without translations."""

PairedVectors = Mapping[str, tuple[AnyFloats, AnyFloats]]
Keys = npt.NDArray[np.uint32]
"""(n,) a number for each row, equal for rows of equal sentences."""
Scored = Mapping[str, tuple[Keys, Float64]]
"""Language to the sentences of its held-out rows, and their scores."""


@dataclass(frozen=True)
class Candidate:
    """A method with its parameters; no method is the plain backbone."""

    method: str = ""
    params: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """``procrustes shrink=1.0``."""
        return " ".join([self.method or "plain", *(f"{name}={value}" for name, value in self.params)])


PLAIN = Candidate()
CENTRED = Candidate("centered")


def candidates(languages: int) -> tuple[Candidate, ...]:
    """Candidates for a number of languages, the simplest first: every method, ranks, shrinkage, compositions."""
    ranks = sorted({1, (languages - 1) // 2, languages - 1} - {0})
    shrunk = (("shrink", 1.0),)
    return (
        CENTRED,
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


@dataclass(frozen=True)
class CandidateResult:
    """Scores of a candidate on held-out rows.

    Attributes:
        candidate: The candidate.
        score: The recommendation's measure, the mean over languages.
        precision_at_1: P@1 in both directions, the mean over languages; None without translations.
        gain: Gain in score over the plain backbone.
        p_gain: One-sided sign test over sentences that it is no better than the plain backbone.
        worst: The language with the least gain.
        worst_gain: Gain in that language.
        losses: Languages in which the candidate is significantly worse.
        error: Reason why it could not be fitted, else empty.
    """

    candidate: Candidate
    score: float = 0.0
    precision_at_1: float | None = None
    gain: float = 0.0
    p_gain: float = 1.0
    worst: str = ""
    worst_gain: float = 0.0
    losses: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Recommendation:
    """A recommended alignment, with the reason.

    Attributes:
        chosen: The candidate with the best score of those that are significantly better than the plain backbone and
            nowhere significantly worse; or the first that was tried of those whose mean score is not significantly
            below the best, so that chance does not decide. :data:`PLAIN` if there is none.
        verdicts: Verdicts on all candidates, the plain backbone first, then by decreasing score.
        reason: The reason in a sentence.
        measure: Measure of the scores: ``MRR``, the mean reciprocal rank of the translation in both directions, or
            ``mixed``, the share of the nearest neighbours in another language.
    """

    chosen: Candidate
    verdicts: tuple[CandidateResult, ...]
    reason: str
    measure: str = "MRR"


def recommend(
    data: PairedVectors,
    pivot: str,
    tried: Sequence[Candidate] | None = None,
    seed: int = 0,
    judge: PairedVectors | None = None,
) -> Recommendation:
    """Judge candidates on held-out rows and choose the best that is not worse than the plain backbone in any language.

    The rows are a fold's each time, or all of another text. A sentence and its repetitions are in one fold. If
    languages share the pivot's rows, each is also ranked against the next one, as maps onto a pivot may harm pairs
    without the pivot.

    Args:
        data: Language to row-aligned raw vectors, its own and the pivot's, (n, d) each.
        pivot: The language on the other side of the pairs.
        tried: The candidates; by default :func:`candidates`.
        seed: Seed of the folds.
        judge: Text of another kind to judge on, in languages of ``data``. Its sentences are not fitted on.

    Raises:
        DataError: A language has fewer than 50 pairs, or the other text has another language.
    """
    for text in (data, judge or {}):
        _check({language: rows for language, (rows, _) in text.items()})
    if judge is not None and (judge.keys() - data.keys() or not judge):
        have = ", ".join(sorted(judge)) or "no language"
        raise DataError(f"The text to judge on has {have}; it may only have languages of the fit text.")
    trials = _folds(data, seed) if judge is None else _other(data, judge, seed)
    plain = _scored(trials, pivot, PLAIN)
    tried = candidates(len(data) + 1) if tried is None else tried
    verdicts, scored = [_verdict(PLAIN, plain, plain, precision=True)], {}
    for candidate in tried:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # candidates that need more pairs than there are show here
                scored[candidate] = _scored(trials, pivot, candidate)
            verdicts.append(_verdict(candidate, scored[candidate], plain, precision=True))
        except AlignmentError as error:
            verdicts.append(CandidateResult(candidate, error=str(error)))
    ordered = sorted(verdicts[1:], key=lambda verdict: (bool(verdict.error), -verdict.score))
    fit = [verdict for verdict in ordered if verdict.p_gain < LEVEL / len(tried) and not verdict.losses]
    chosen, note = verdicts[0], ""
    if fit:
        best = scored[fit[0].candidate]
        equal = [verdict for verdict in fit if loss_p(scored[verdict.candidate], best) >= LEVEL]
        chosen = min(equal, key=lambda verdict: tried.index(verdict.candidate))
        if chosen is not fit[0]:
            note = f" {fit[0].candidate.label}, less simple, has {fit[0].score:.3f}, which chance could explain."
    reason = _reason(chosen, ordered, verdicts[0]) + note
    return Recommendation(chosen.candidate, (verdicts[0], *ordered), reason)


def recommend_centring(data: Mapping[str, AnyFloats], seed: int = 0) -> Recommendation:
    """Decide by raw vectors (n, d) of each language, without translations, whether to centre a backbone.

    Raises:
        DataError: There is only one language, or one has fewer than 50 rows.
    """
    if len(data) < 2:
        raise DataError("Centring needs the text of two or more languages.")
    _check(data)
    trials = _folds({language: (rows,) for language, rows in data.items()}, seed)
    before, after = (_scored(trials, None, candidate) for candidate in (PLAIN, CENTRED))
    plain, verdict = _verdict(PLAIN, before, before), _verdict(CENTRED, after, before)
    significant = verdict.p_gain < LEVEL and not verdict.losses
    ending = "the languages lie apart, and centring brings them together." if significant else "it is not needed."
    reason = (
        f"Without translations only centring is judged: of a sentence's {NEIGHBOURS} nearest neighbours "
        f"{plain.score:.0%} are of another language, {verdict.score:.0%} with each language centred "
        f"({_chance(verdict)}): {ending}"
    )
    return Recommendation(CENTRED if significant else PLAIN, (plain, verdict), reason, "mixed")


def _check(data: Mapping[str, AnyFloats]) -> None:
    if short := [language for language, rows in data.items() if len(rows) < LEAST]:
        raise DataError(
            f"{', '.join(short)}: fewer than {LEAST} rows are too few to judge; give more, or leave the language out."
        )


def _reason(best: CandidateResult, ordered: Sequence[CandidateResult], plain: CandidateResult) -> str:
    if best.candidate != PLAIN:
        return (
            f"{best.candidate.label} raises the mean reciprocal rank of held-out translations from {plain.score:.3f} "
            f"to {best.score:.3f} ({_chance(best)}) and is worse beyond chance in no language; the least gain is "
            f"{best.worst_gain:+.3f}, in {best.worst}."
        )
    first = next((verdict for verdict in ordered if not verdict.error), plain)
    reason = f"it is worse in {', '.join(first.losses)}" if first.losses else f"p = {first.p_gain:.2g}"
    return (
        f"The plain backbone, with a mean reciprocal rank of {plain.score:.3f} on held-out translations: the best "
        f"alignment, {first.candidate.label}, has {first.score:.3f}, and {reason}."
    )


def _chance(verdict: CandidateResult) -> str:
    return f"p = {verdict.p_gain:.1g}" if verdict.p_gain > LEAST_P else f"p < {LEAST_P:g}"


def sentence_keys(rows: AnyFloats, seed: int) -> Keys:
    """A number for each row, equal for equal rows."""
    return np.array([zlib.crc32(np.ascontiguousarray(row).tobytes(), seed) for row in rows], dtype=np.uint32)


@dataclass(frozen=True)
class _Trial:
    """Vectors to fit on and to judge on, with masks of the rows, and the sentence of each row to judge on."""

    fit: Mapping[str, Sequence[AnyFloats]]
    judge: Mapping[str, Sequence[AnyFloats]]
    keys: Mapping[str, Keys]
    fitted: Mapping[str, npt.NDArray[np.bool_]]
    judged: Mapping[str, npt.NDArray[np.bool_]]


def _folds(data: Mapping[str, Sequence[AnyFloats]], seed: int) -> list[_Trial]:
    keys = {language: sentence_keys(sides[-1], seed) for language, sides in data.items()}
    held = [{language: hashes % FOLDS == fold for language, hashes in keys.items()} for fold in range(FOLDS)]
    return [_Trial(data, data, keys, {language: ~mask for language, mask in fold.items()}, fold) for fold in held]


def _other(data: PairedVectors, judge: PairedVectors, seed: int) -> list[_Trial]:
    keys = {language: sentence_keys(sides[1], seed) for language, sides in judge.items()}
    judged = np.unique(np.concatenate(list(keys.values())))
    new = {language: ~np.isin(sentence_keys(sides[1], seed), judged) for language, sides in data.items()}
    return [_Trial(data, judge, keys, new, {language: np.ones(len(rows), bool) for language, rows in keys.items()})]


def _scored(trials: Sequence[_Trial], pivot: str | None, candidate: Candidate) -> Scored:
    """Scores of held-out rows under a candidate that is fitted on other rows.

    They are reciprocal ranks of translations, or without a pivot the shares of neighbours in another language.
    """
    parts: dict[str, list[tuple[Keys, Float64]]] = {code: [] for code in trials[0].judge}
    for trial in trials:
        fit = {code: tuple(side[trial.fitted[code]] for side in sides) for code, sides in trial.fit.items()}
        alignment = _fitted(candidate, fit, pivot)
        moved = {}
        for language, sides in trial.judge.items():
            test = [(side[trial.judged[language]], code) for side, code in zip(sides, (language, pivot), strict=False)]
            moved[language] = [
                normalise(rows if alignment is None else alignment.transform(rows, code)) for rows, code in test
            ]
        held = {language: keys[trial.judged[language]] for language, keys in trial.keys.items()}
        for language, scores in _reciprocal_ranks(moved, held) if pivot else _mixed(moved):
            parts[language].append((held[language], scores))
    return {
        language: (np.concatenate([keys for keys, _ in pieces]), np.concatenate([scores for _, scores in pieces]))
        for language, pieces in parts.items()
    }


def _reciprocal_ranks(
    moved: Mapping[str, Sequence[AnyFloats]], held: Mapping[str, Keys]
) -> Iterator[tuple[str, Float64]]:
    """Rank translations in both directions: to the pivot and, if it has the same sentences, to the next language."""
    names = list(held)
    for language, following in zip(names, [*names[1:], names[0]], strict=True):
        queries, translations = moved[language]
        targets = [translations]
        if following != language and np.array_equal(held[language], held[following]):
            targets.append(moved[following][0])
        yield from ((language, 1 / ranks) for target in targets for ranks in gold_ranks(queries, target))


def _mixed(moved: Mapping[str, Sequence[AnyFloats]]) -> Iterator[tuple[str, Float64]]:
    """The share of each row's nearest neighbours, among all rows, that are in another language."""
    pool = np.concatenate([rows for (rows,) in moved.values()])
    languages = np.repeat(np.arange(len(moved)), [len(rows) for (rows,) in moved.values()])
    start = 0
    for index, (language, (rows,)) in enumerate(moved.items()):
        scores = rows @ pool.T
        scores[np.arange(len(rows)), start + np.arange(len(rows))] = -np.inf
        nearest = np.argpartition(-scores, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        yield language, (languages[nearest] != index).mean(axis=1)
        start += len(rows)


def _fitted(candidate: Candidate, data: Mapping[str, Any], pivot: str | None) -> Alignment | None:
    if not candidate.method:
        return None
    params = dict(candidate.params)
    unfitted = alignments.make(candidate.method, **params)
    if hasattr(unfitted, "pivot"):
        unfitted = alignments.make(candidate.method, pivot=pivot, **params)
    if alignments.find_method(candidate.method).parallel:
        return unfitted.fit(data)
    rows = {language: sides[0] for language, sides in data.items()}
    if pivot:
        rows = {pivot: np.unique(np.concatenate([sides[1] for sides in data.values()]), axis=0), **rows}
    return unfitted.fit(rows)


def _verdict(candidate: Candidate, scored: Scored, plain: Scored, *, precision: bool = False) -> CandidateResult:
    gains = {language: scores - plain[language][1] for language, (_, scores) in scored.items()}
    by_language = {language: float(gain.mean()) for language, gain in gains.items()}
    worst = min(by_language, key=by_language.__getitem__)
    keys = {language: keys for language, (keys, _) in scored.items()}
    return CandidateResult(
        candidate,
        score=float(np.mean([scores.mean() for _, scores in scored.values()])),
        precision_at_1=float(np.mean([(scores == 1).mean() for _, scores in scored.values()])) if precision else None,
        gain=float(np.mean(list(by_language.values()))),
        p_gain=_sign_test(np.concatenate(list(gains.values())), np.concatenate(list(keys.values()))),
        worst=worst,
        worst_gain=by_language[worst],
        losses=tuple(code for code, gain in gains.items() if _sign_test(-gain, keys[code]) < LEVEL / len(gains)),
    )


def loss_p(scored: Scored, best: Scored) -> float:
    """One-sided p of a lower mean score than the best's; the rows of a sentence are one observation."""
    from scipy.stats import ttest_1samp

    gains = np.concatenate([scores - best[language][1] for language, (_, scores) in scored.items()])
    sums = _by_sentence(gains, np.concatenate([keys for keys, _ in scored.values()]))
    return float(ttest_1samp(sums, 0.0, alternative="less").pvalue) if sums.any() else 1.0


def _sign_test(gains: Float64, keys: Keys) -> float:
    """One-sided p of gains; all rows of a sentence, in any language, are one observation."""
    sums = np.round(_by_sentence(gains, keys), 12)
    return sign_test(int((sums > 0).sum()), int((sums < 0).sum()))


def _by_sentence(gains: Float64, keys: Keys) -> Float64:
    return np.bincount(np.unique(keys, return_inverse=True)[1], weights=gains).astype(np.float64)
