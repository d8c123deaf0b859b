"""What requests cost: estimates before they are sent, a count of what was spent, and a budget that is kept."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter

from xalign_models.backbones.endpoints.settings import Settings
from xalign_models.errors import ModelError

logger = logging.getLogger(__name__)

WORTH_A_LINE = 1_000
"""Texts from which an estimate is shown."""


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has: one for four bytes of UTF-8, and two for the special ones."""
    return len(text.encode("utf-8", "replace")) // 4 + 2


@dataclass
class Meter:
    """Tokens of all requests of a process.

    Attributes:
        spent: Tokens of answered requests: as the server counts them, or as estimated where it does not say.
        estimated: What had been estimated for those.
        texts: Texts that were answered.
        seconds: Time of those answers, from the first request to the last vector of each stretch.
    """

    spent: float = 0.0
    estimated: float = 0.0
    texts: int = 0
    seconds: float = 0.0
    _reserved: float = 0.0
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def ratio(self) -> float:
        """Tokens that the server counts for one that is estimated."""
        return self.spent / self.estimated if self.estimated else 1.0

    def reserve(self, label: str, tokens: int, settings: Settings) -> None:
        """Set estimated tokens aside for a request.

        Raises:
            ModelError: The budget would be exceeded.
        """
        with self._lock:
            wanted = self.spent + (self._reserved + tokens) * self.ratio
            if settings.most_tokens is not None and wanted > settings.most_tokens:
                raise ModelError(
                    f"{label}: the budget of {_amount(settings.most_tokens, settings)} is reached: "
                    f"{_amount(self.spent, settings)} spent, about {_amount(tokens * self.ratio, settings)} for the "
                    "next request. What was answered is stored; raise --budget and run the same command to go on."
                )
            self._reserved += tokens

    def settle(self, tokens: int, reported: int | None, texts: int) -> None:
        """Count an answered request, or one that failed (no texts).

        Args:
            tokens: What was reserved.
            reported: The server's own count; None where it gives none.
            texts: Texts that were answered.
        """
        with self._lock:
            self._reserved -= tokens
            if texts:
                self.spent += tokens if reported is None else reported
                self.estimated += tokens
                self.texts += texts

    def announce(self, label: str, tokens: int, texts: int, settings: Settings) -> None:
        """Say what is about to be asked for, where it is much or costs money."""
        if texts < WORTH_A_LINE and settings.price is None and settings.most_tokens is None:
            return
        time = f", about {_duration(texts * self.seconds / self.texts)}" if self.texts and self.seconds else ""
        logger.warning("%s: %s texts, about %s%s.", label, f"{texts:,}", _amount(tokens * self.ratio, settings), time)

    def announce_run(self, texts: int, tokens: int, settings: Settings, uncounted: Sequence[str] = ()) -> None:
        """Say what a whole run is about to ask for.

        Args:
            texts: Distinct ones that are not stored.
            tokens: Estimated, of all of them.
            settings: Price and budget.
            uncounted: Models and tasks that could not be counted.

        Raises:
            ModelError: It would exceed the budget.
        """
        needed = tokens * self.ratio
        beside = f", and what could not be counted: {', '.join(uncounted)}" if uncounted else ""
        logger.warning("The run sends %s texts, about %s%s.", f"{texts:,}", _amount(needed, settings), beside)
        if settings.most_tokens is not None and self.spent + needed > settings.most_tokens:
            raise ModelError(
                f"The run needs about {_amount(needed, settings)}, and the budget is "
                f"{_amount(settings.most_tokens - self.spent, settings)}: nothing was sent but the probe. Raise "
                "--budget or name fewer tasks or languages."
            )

    def timed(self, since: float) -> None:
        """Count a stretch of requests that began at ``since`` (``perf_counter``)."""
        with self._lock:
            self.seconds += perf_counter() - since


METER = Meter()
"""Of this process."""


def _amount(tokens: float, settings: Settings) -> str:
    dollars = f" ({tokens * settings.price / 1e6:,.4f} usd)" if settings.price else ""
    return f"{tokens:,.0f} tokens{dollars}"


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
