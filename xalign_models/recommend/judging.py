"""Judges candidates on held-out text: paired tests by kind of use, vetoes, and the reason for the choice.

Text with translations shows which candidate retrieves best, and what it costs in each language, by kind; see
:mod:`~xalign_models.recommend.proxies`. Text without translations shows only whether languages are separated: how many
of a sentence's nearest neighbours have its language. This measure judges centring, but it does not rank methods:
removing many directions, or whitening, mixes languages more than centring but retrieves worse.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xalign_models.errors import AlignmentError, DataError
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.ranking.ranks import nearest_others
from xalign_models.recommend.candidates import CENTRED, PLAIN, Candidate, Keys, Trial, candidates, folds, other_text
from xalign_models.recommend.card import CardRow
from xalign_models.recommend.proxies import PROXIES, RETRIEVAL, SIMILARITY, ByKind, Scored, joined, references, score
from xalign_models.results.intervals import over_items
from xalign_models.results.significance import holm, sign_flip_test

LEVEL = 0.05
"""Level of the tests: gains are divided by the number of candidates, losses corrected by Holm over the languages."""
LEAST_P = 1e-99
"""Smaller p values are printed as less than this."""
LEAST = 30
"""Minimum number of rows of a language; with fewer, a fold shows nothing."""
NEIGHBOURS = 10
"""Number of a sentence's nearest neighbours whose languages are counted if there are no translations."""
VETOES = (RETRIEVAL, SIMILARITY)
"""Kinds of use whose losses exclude a candidate; other kinds exclude it only if the model is meant for them."""

PairedVectors = Mapping[str, tuple[AnyFloats, AnyFloats]]


@dataclass(frozen=True)
class Labelled:
    """A labelled task that judges a kind of use in place of its proxy.

    Attributes:
        kind: The kind.
        name: The task's name.
        score: Scores of the task's items by subset, across languages and within each, under a candidate.
    """

    kind: str
    name: str
    score: Callable[[Candidate], tuple[Scored, Scored]]


@dataclass(frozen=True)
class CandidateResult:
    """Scores of a candidate on held-out rows.

    Attributes:
        candidate: The candidate.
        score: The recommendation's measure, the mean over languages.
        precision_at_1: P@1 in both directions, the mean over languages; None without translations.
        gain: Gain in score over the plain backbone.
        p_gain: p value of a one-sided sign-flip test over sentences that it is no better than the plain backbone.
        worst: The language with the least gain.
        worst_gain: Gain in that language.
        losses: Languages in which the candidate is significantly worse, with the kind of use if it is not retrieval.
        card: Gains and prices by kind of use; empty without translations.
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
    card: tuple[CardRow, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Recommendation:
    """A recommended alignment, with the reason.

    Attributes:
        chosen: Among candidates that are significantly better than the plain backbone and nowhere significantly worse,
            the one with the best score, or the first tried whose mean score is not significantly below the best, so
            that chance does not decide. :data:`PLAIN` if there is none.
        verdicts: Verdicts on all candidates, the plain backbone first, then by decreasing score.
        reason: The reason in a sentence.
        measure: Measure of the scores: ``MRR``, the mean reciprocal rank of the translation in both directions, or
            ``mixed``, the share of the nearest neighbours in another language.
    """

    chosen: Candidate
    verdicts: tuple[CandidateResult, ...]
    reason: str
    measure: str = "MRR"

    @property
    def card(self) -> tuple[CardRow, ...]:
        """The do-no-harm card of the chosen candidate."""
        return next(verdict.card for verdict in self.verdicts if verdict.candidate == self.chosen)


def recommend(
    data: PairedVectors,
    pivot: str,
    tried: Sequence[Candidate] | None = None,
    seed: int = 0,
    judge: PairedVectors | None = None,
    *,
    documents: PairedVectors | None = None,
    judge_documents: PairedVectors | None = None,
    use: str = RETRIEVAL,
    labelled: Sequence[Labelled] = (),
) -> Recommendation:
    """Judge candidates on held-out rows, and choose the best that is not worse than the plain backbone in any language.

    The rows are those of one fold at a time, ranked among all rows, or all rows of another text. A sentence and its
    repetitions are in one fold. If languages share the pivot's rows, each is also ranked against the next one, because
    maps onto a pivot may harm pairs without the pivot.

    Args:
        data: Language to row-aligned raw vectors, its own and the pivot's, (n, d) each, as queries.
        pivot: The language on the other side of the pairs.
        tried: The candidates; by default :func:`candidates`.
        seed: Seed of the folds.
        judge: Text of another kind to judge on, in languages of ``data``. Its sentences are not fitted on.
        documents: ``data`` under the prompt of documents, if it differs.
        judge_documents: ``judge`` under the prompt of documents, if it differs.
        use: Kind of use whose losses exclude a candidate, besides retrieval and similarity.
        labelled: Tasks that judge in place of the proxies of their kind, once a candidate passes the other tests.

    Raises:
        DataError: A language has fewer than 30 pairs, the other text has another language, or the use is unknown.
    """
    if use not in PROXIES:
        raise DataError(f"--for {use}: choose one of {', '.join(PROXIES)}.")
    for text in (data, judge or {}):
        _check({language: rows for language, (rows, _) in text.items()})
    if judge is not None and (judge.keys() - data.keys() or not judge):
        have = ", ".join(sorted(judge)) or "no language"
        raise DataError(f"The text to judge on has {have}; it may only have languages of the fit text.")
    fit = [data] if documents is None else [data, documents]
    other = [text for text in (judge, judge_documents) if text is not None]
    trials = other_text(fit, other, seed) if other else folds(fit, seed)
    views = references(trials[0], seed)
    plain = score(trials, pivot, PLAIN, views)
    vetoes, labels = {*VETOES, use}, {judging.kind for judging in labelled}
    tried = candidates(len(data) + 1) if tried is None else tried

    def judged(candidate: Candidate) -> tuple[CandidateResult, Scored]:
        by_kind = score(trials, pivot, candidate, views)
        return _judgement(candidate, by_kind, plain, vetoes - labels), by_kind[RETRIEVAL, False]

    before_all = _judgement(PLAIN, plain, plain, vetoes)
    ordered, scored = _judged(tried, judged)
    chosen, note = before_all, ""
    plain_labels = [judging.score(PLAIN) for judging in labelled]
    while usable := _usable(ordered):
        first, chosen = usable[0], _simplest(usable, scored, tried)
        place = ordered.index(chosen)
        for judging, before in zip(labelled, plain_labels, strict=True):
            row = _card_row(judging.kind, judging.name, judging.score(chosen.candidate), before)
            chosen = _with_row(chosen, row, vetoes)
        ordered[place] = chosen
        if not chosen.losses:
            if chosen.candidate != first.candidate:
                note = f" {first.candidate.label}, less simple, has {first.score:.3f}, which chance could explain."
            break
        chosen = before_all
    reason = _reason(chosen, ordered, before_all, "the mean reciprocal rank of held-out translations") + note
    if losses := [f"{row.kind} ({', '.join(row.losses)})" for row in chosen.card if row.losses]:  # that are no vetoes
        reason += f" It is worse beyond chance at {', '.join(losses)}."
    return Recommendation(chosen.candidate, (before_all, *ordered), reason)


def recommend_labelled(judge: Labelled, tried: Sequence[Candidate]) -> Recommendation:
    """Choose among candidates by a labelled task only, as for text without translations.

    The choice follows the rules of :func:`recommend`.

    Args:
        judge: The task.
        tried: The candidates, the simplest first.
    """
    plain = judge.score(PLAIN)

    def judged(candidate: Candidate) -> tuple[CandidateResult, Scored]:
        by_part = judge.score(candidate)
        row = _card_row(judge.kind, judge.name, by_part, plain)
        return replace(_verdict(candidate, by_part[0], plain[0]), card=(row,)), by_part[0]

    before_all = _verdict(PLAIN, plain[0], plain[0])
    ordered, scored = _judged(tried, judged)
    usable = _usable(ordered)
    chosen = _simplest(usable, scored, tried) if usable else before_all
    reason = _reason(chosen, ordered, before_all, f"the mean score across languages of {judge.name}")
    return Recommendation(chosen.candidate, (before_all, *ordered), reason, "score")


def _judged(
    tried: Sequence[Candidate], judge: Callable[[Candidate], tuple[CandidateResult, Scored]]
) -> tuple[list[CandidateResult], dict[Candidate, Scored]]:
    """Verdicts on the candidates, the best first, and the scores of those that can be fitted."""
    verdicts, scored = [], {}
    for candidate in tried:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # candidates that need more pairs than there are warn here
                verdict, scored[candidate] = judge(candidate)
        except AlignmentError as error:
            verdict = CandidateResult(candidate, error=str(error))
        verdicts.append(verdict)
    return sorted(verdicts, key=lambda verdict: (bool(verdict.error), -verdict.score)), scored


def _usable(verdicts: Sequence[CandidateResult]) -> list[CandidateResult]:
    """Verdicts on candidates that gain beyond chance and lose in no language."""
    return [verdict for verdict in verdicts if verdict.p_gain < LEVEL / len(verdicts) and not verdict.losses]


def _simplest(
    usable: Sequence[CandidateResult], scored: Mapping[Candidate, Scored], tried: Sequence[Candidate]
) -> CandidateResult:
    """The first tried candidate whose score is not significantly below the best, which comes first here."""
    best = scored[usable[0].candidate]
    equal = [verdict for verdict in usable if loss_p(scored[verdict.candidate], best) >= LEVEL]
    return min(equal, key=lambda verdict: tried.index(verdict.candidate))


def recommend_centring(data: Mapping[str, AnyFloats], seed: int = 0) -> Recommendation:
    """Decide from raw vectors (n, d) of each language, without translations, whether to centre a backbone.

    Raises:
        DataError: There is only one language, or one has fewer than 30 rows.
    """
    if len(data) < 2:
        raise DataError("Centring needs the text of two or more languages.")
    _check(data)
    trials = folds([{language: (rows,) for language, rows in data.items()}], seed)
    before, after = (_mixed(trials, candidate) for candidate in (PLAIN, CENTRED))
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


def _reason(best: CandidateResult, ordered: Sequence[CandidateResult], plain: CandidateResult, measure: str) -> str:
    if best.candidate != PLAIN:
        return (
            f"{best.candidate.label} raises {measure} from {plain.score:.3f} "
            f"to {best.score:.3f} ({_chance(best)}) and is worse beyond chance in no language; the least gain is "
            f"{best.worst_gain:+.3f}, in {best.worst}."
        )
    first = next((verdict for verdict in ordered if not verdict.error), plain)
    reason = f"that may be chance (p = {first.p_gain:.2g}, {len(ordered)} methods compared)"
    reason = f"it is worse in {', '.join(first.losses)}" if first.losses else reason
    return (
        f"The plain backbone: no alignment raises {measure}, {plain.score:.3f}; the best, {first.candidate.label}, has "
        f"{first.score:.3f}, and {reason}."
    )


def _chance(verdict: CandidateResult) -> str:
    return f"p = {verdict.p_gain:.1g}" if verdict.p_gain > LEAST_P else f"p < {LEAST_P:g}"


def _judgement(candidate: Candidate, by_kind: ByKind, plain: ByKind, vetoes: set[str]) -> CandidateResult:
    """The verdict by retrieval, with the card of all kinds; losses in vetoed kinds exclude the candidate."""
    verdict = _verdict(candidate, by_kind[RETRIEVAL, False], plain[RETRIEVAL, False])
    scores = by_kind[RETRIEVAL, False].values()
    hits = float(np.mean([(ranks == 1).mean() for _, ranks in scores]))
    verdict = replace(verdict, precision_at_1=hits, losses=())
    for kind, judge in PROXIES.items():
        sides = [(scored[kind, False], scored[kind, True]) for scored in (by_kind, plain)]
        verdict = _with_row(verdict, _card_row(kind, judge, *sides), vetoes)
    return verdict


def _with_row(verdict: CandidateResult, row: CardRow, vetoes: set[str]) -> CandidateResult:
    """The verdict with a row of its card in place of an earlier one of the same kind."""
    card = (*(other for other in verdict.card if other.kind != row.kind), row)
    losses = tuple(
        code if other.kind == RETRIEVAL else f"{code} ({other.kind})"
        for other in card
        if other.kind in vetoes
        for code in other.losses
    )
    ordered = sorted(card, key=lambda other: [*PROXIES].index(other.kind))
    return replace(verdict, card=tuple(ordered), losses=losses)


def _card_row(kind: str, judge: str, scored: tuple[Scored, Scored], plain: tuple[Scored, Scored]) -> CardRow:
    across, within = (_gains(*sides) for sides in zip(scored, plain, strict=True))
    worst = min(across, key=lambda language: across[language][1].mean())
    mean = float(np.mean([scores.mean() for _, scores in scored[0].values()]))
    gain, worst_gain = _interval(across), _interval({worst: across[worst]})
    price, price_interval = _interval(within) if within else (None, None)
    return CardRow(kind, judge, mean, *gain, worst, *worst_gain, price, price_interval, _losses(across))


def _gains(scored: Scored, plain: Scored) -> dict[str, tuple[Keys, Float64]]:
    return {language: (keys, scores - plain[language][1]) for language, (keys, scores) in scored.items()}


def _losses(gains: Scored) -> tuple[str, ...]:
    """Languages that lose beyond chance, with Holm's correction."""
    adjusted = holm([_p(-rows, keys) for keys, rows in gains.values()])
    return tuple(code for code, p in zip(gains, adjusted, strict=True) if p < LEVEL)


def _interval(gains: Scored) -> tuple[float, tuple[float, float]]:
    """The mean over languages of their mean gains, and its 95% interval over sentences.

    A sentence's rows, in any language, are one observation; the interval does not cover other languages.
    """
    means = [float(rows.mean()) for _, rows in gains.values()]
    shares = [(rows - rows.mean()) / len(rows) / len(gains) for _, rows in gains.values()]
    sums = _by_sentence(np.concatenate(shares), np.concatenate([keys for keys, _ in gains.values()]))
    mean = float(np.mean(means))
    return mean, over_items(mean, float(sums @ sums), 1 / len(sums))


def _verdict(candidate: Candidate, scored: Scored, plain: Scored) -> CandidateResult:
    row = _card_row("", "", (scored, {}), (plain, {}))
    p_gain = _p(*_evenly(_gains(scored, plain)))
    copied = {name: getattr(row, name) for name in ("score", "gain", "worst", "worst_gain", "losses")}
    return CandidateResult(candidate, p_gain=p_gain, **copied)


def loss_p(scored: Scored, best: Scored) -> float:
    """One-sided p of a lower mean score than the best's; the rows of a sentence are one observation."""
    from scipy.stats import ttest_1samp

    sums = _by_sentence(*_evenly(_gains(scored, best)))
    return float(ttest_1samp(sums, 0.0, alternative="less").pvalue) if sums.any() else 1.0


def _evenly(gains: Scored) -> tuple[Float64, Keys]:
    """The rows of all languages, weighted so that each language counts equally, and their sentences.

    A row of the language with the most rows has the weight 1.
    """
    most = max(len(rows) for _, rows in gains.values())
    keys, rows = joined([(keys, rows * (most / len(rows))) for keys, rows in gains.values()])
    return rows, keys


def _p(gains: Float64, keys: Keys) -> float:
    """One-sided p of gains under random signs; all rows of a sentence, in any language, are one observation."""
    sums = _by_sentence(gains, keys)
    p = sign_flip_test(sums)
    return p / 2 if sums.sum() > 0 else 1 - p / 2


def _by_sentence(gains: Float64, keys: Keys) -> Float64:
    return np.bincount(np.unique(keys, return_inverse=True)[1], weights=gains).astype(np.float64)


def _mixed(trials: Sequence[Trial], candidate: Candidate) -> Scored:
    """The share of each held-out row's nearest other sentences, among all languages, that are in another language."""
    parts: dict[str, list[tuple[Keys, Float64]]] = {code: [] for code in trials[0].keys}
    for trial in trials:
        (moved,) = trial.moved(candidate, None)
        held = {code: rows[trial.judged[code]] for code, (rows,) in moved.items()}
        pool, codes = np.concatenate([*held.values()]), np.repeat([*held], [*map(len, held.values())])
        keys = np.concatenate([trial.keys[code][trial.judged[code]] for code in held])
        nearest = nearest_others(pool, pool, keys, NEIGHBOURS, keys)
        for code in held:
            mixed = (codes[nearest[codes == code]] != code).mean(axis=1)
            parts[code].append((keys[codes == code], mixed))
    return {language: joined(pieces) for language, pieces in parts.items()}
