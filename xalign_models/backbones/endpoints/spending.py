"""Cost of requests: estimates in advance, a count of the tokens spent, and a budget that is not exceeded."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter

from xalign_models.backbones.endpoints.settings import Settings
from xalign_models.errors import ModelError

logger = logging.getLogger(__name__)

WORTH_A_LINE = 1_000
"""Minimum number of texts for which an estimate is shown."""


def estimated_tokens(text: str) -> int:
    """Estimated number of tokens: one per four bytes of UTF-8, and two special ones."""
    return len(text.encode("utf-8", "replace")) // 4 + 2


@dataclass
class Meter:
    """Token counts over all requests of a process.

    Attributes:
        spent: Tokens of answered requests, by the server's count or, if it gives none, by estimate.
        estimated: Estimated tokens of the same requests.
        texts: Number of answered texts.
        seconds: Time of the answers, from the first request to the last vector of each call.
    """

    spent: float = 0.0
    estimated: float = 0.0
    texts: int = 0
    seconds: float = 0.0
    _reserved: float = 0.0
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def ratio(self) -> float:
        """Spent tokens per estimated token."""
        return self.spent / self.estimated if self.estimated else 1.0

    def reserve(self, label: str, tokens: int, settings: Settings) -> None:
        """Reserve estimated tokens for a request.

        Raises:
            ModelError: The request would exceed the budget.
        """
        with self._lock:
            wanted = self.spent + (self._reserved + tokens) * self.ratio
            if settings.most_tokens is not None and wanted > settings.most_tokens:
                raise ModelError(
                    f"{label}: the budget of {_amount(settings.most_tokens, settings)} is reached: "
                    f"{_amount(self.spent, settings)} spent, about {_amount(tokens * self.ratio, settings)} for the "
                    "next request. All answers are stored; to continue, raise --budget and run the same command."
                )
            self._reserved += tokens

    def settle(self, tokens: int, reported: int | None, texts: int) -> None:
        """Count an answered request, or release the tokens of a failed one.

        Args:
            tokens: Number of reserved tokens.
            reported: The server's count; None if it gives none.
            texts: Number of answered texts; 0 if the request failed.
        """
        with self._lock:
            self._reserved -= tokens
            if texts:
                self.spent += tokens if reported is None else reported
                self.estimated += tokens
                self.texts += texts

    def announce(self, label: str, tokens: int, texts: int, settings: Settings) -> None:
        """Log an estimate of a call if it has many texts or costs money."""
        if texts < WORTH_A_LINE and settings.price is None and settings.most_tokens is None:
            return
        time = f", about {_duration(texts * self.seconds / self.texts)}" if self.texts and self.seconds else ""
        logger.warning("%s: %s texts, about %s%s.", label, f"{texts:,}", _amount(tokens * self.ratio, settings), time)

    def announce_run(self, texts: int, tokens: int, settings: Settings, uncounted: Sequence[str] = ()) -> None:
        """Log an estimate of a whole run, from the distinct texts that the store lacks and their estimated tokens.

        ``uncounted`` names the models and tasks that the estimate omits.

        Raises:
            ModelError: The run would exceed the budget.
        """
        needed = tokens * self.ratio
        omitted = f", without {', '.join(uncounted)}, which cannot be estimated" if uncounted else ""
        logger.warning("The run sends %s texts, about %s%s.", f"{texts:,}", _amount(needed, settings), omitted)
        if settings.most_tokens is not None and self.spent + needed > settings.most_tokens:
            raise ModelError(
                f"The run needs about {_amount(needed, settings)}, and the budget is "
                f"{_amount(settings.most_tokens - self.spent, settings)}: only the probe was sent. Raise --budget "
                "or name fewer tasks or languages."
            )

    def timed(self, since: float) -> None:
        """Add the time since ``since``, a value of ``perf_counter``."""
        with self._lock:
            self.seconds += perf_counter() - since


METER = Meter()
"""The meter of this process."""


def _amount(tokens: float, settings: Settings) -> str:
    dollars = f" ({tokens * settings.price / 1e6:,.4f} usd)" if settings.price else ""
    return f"{tokens:,.0f} tokens{dollars}"


def _duration(seconds: float) -> str:
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
