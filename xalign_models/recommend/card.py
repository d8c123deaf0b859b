"""The do-no-harm card: gains across languages and the price within each, by kind of use."""

from dataclasses import dataclass

COLUMNS = ("use", "score", "change", "worst language", "same-language change", "worse in", "judged by")
"""Columns of the card as a table."""


@dataclass(frozen=True)
class CardRow:
    """Changes against the plain backbone for a kind of use, as fractions of the score.

    Attributes:
        kind: Kind of use: retrieval, similarity or classification.
        judge: Labelled task, or the proxy on held-out translations.
        score: Score across languages, the mean over them.
        gain: Change of the score.
        interval: 95% interval of the change, over sentences.
        worst: Language with the least gain.
        worst_gain: Change in that language.
        worst_interval: Its interval.
        price: Change within each language, the mean; None if the judge has no such part.
        price_interval: Its interval.
        losses: Languages with significantly worse scores across languages, with Holm's correction.
    """

    kind: str
    judge: str
    score: float
    gain: float
    interval: tuple[float, float]
    worst: str
    worst_gain: float
    worst_interval: tuple[float, float]
    price: float | None
    price_interval: tuple[float, float] | None
    losses: tuple[str, ...]

    def cells(self) -> dict[str, str]:
        """The row of a table, in points of 100."""
        cells = (
            self.kind,
            f"{100 * self.score:.1f}",
            _change(self.gain, self.interval),
            f"{self.worst} {_change(self.worst_gain, self.worst_interval)}",
            _change(self.price, self.price_interval),
            ", ".join(self.losses),
            self.judge,
        )
        return dict(zip(COLUMNS, cells, strict=True))


def _change(gain: float | None, interval: tuple[float, float] | None) -> str:
    if gain is None or interval is None:
        return "not judged"
    return f"{100 * gain:+z.1f} [{100 * interval[0]:+z.1f}, {100 * interval[1]:+z.1f}]"
