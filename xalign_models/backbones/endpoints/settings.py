"""Settings of endpoints from environment variables: keys, timeout, concurrency, prices. Keys come only from there."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter
from urllib.parse import SplitResult, urlsplit

from xalign_models.errors import ModelError

KEY, OPENAI_KEY = "XALIGN_ENDPOINT_KEY", "OPENAI_API_KEY"
BUDGET, PRICE = "XALIGN_ENDPOINT_BUDGET", "XALIGN_ENDPOINT_PRICE"
TIMEOUT, CONCURRENCY = "XALIGN_ENDPOINT_TIMEOUT", "XALIGN_ENDPOINT_CONCURRENCY"
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}


@dataclass(frozen=True)
class Settings:
    """Limits of requests.

    Attributes:
        timeout: Seconds to wait for an answer.
        concurrency: Maximum number of concurrent requests.
        price: Dollars per million tokens; None if unknown.
        most_tokens: Maximum number of tokens that this process may spend; None for no limit.
    """

    timeout: float = 120.0
    concurrency: int = 8
    price: float | None = None
    most_tokens: float | None = None

    @classmethod
    def from_environment(cls) -> Settings:
        """The settings of this process.

        Raises:
            ModelError: A variable has an invalid value.
        """
        price = _number(PRICE, f"--price-per-million or ${PRICE}")
        return cls(
            _number(TIMEOUT) or cls.timeout,
            min(64, max(1, int(_number(CONCURRENCY) or cls.concurrency))),
            price,
            most_tokens(os.environ.get(BUDGET, ""), price),
        )


def most_tokens(budget: str, price: float | None) -> float | None:
    """Number of tokens in a budget: ``2000000`` and ``2M`` are tokens, ``5usd`` is dollars; None if empty.

    Raises:
        ModelError: The budget has another form, or it is in dollars and there is no price.
    """
    if not budget:
        return None
    amount = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|k|m|b|usd)", budget.strip().lower())
    if amount is None:
        raise ModelError(
            f"--budget or ${BUDGET} {budget}: give a number of tokens, such as 2000000 or 2M, or dollars, such as 5usd."
        )
    if amount[2] != "usd":
        return float(amount[1]) * _UNITS[amount[2]]
    if not price:
        raise ModelError(
            f"--budget or ${BUDGET} {budget} also needs --price-per-million or ${PRICE}, the price of a million tokens "
            "in dollars."
        )
    return float(amount[1]) / price * 1e6


def key_for(url: str) -> str | None:
    """The key of a server: ``$XALIGN_ENDPOINT_KEY``; for OpenAI's own server also ``$OPENAI_API_KEY``.

    Raises:
        ModelError: The key contains characters that a header cannot have. The message does not show it.
    """
    name = KEY if os.environ.get(KEY) or not is_openai(url) else OPENAI_KEY
    key = os.environ.get(name, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ModelError(f"${name} has characters that a key cannot have, such as a line break; set it again.")
    return key or None


def is_openai(url: str) -> bool:
    """Whether the server is OpenAI's own, over an encrypted connection."""
    return url.startswith("https://") and f".{urlsplit(url).hostname}".endswith(".openai.com")


def checked_url(url: str) -> str:
    """A server's address without its final slash.

    Raises:
        ModelError: The address is not a URL, or contains a user, password or query, which the message does not show.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = SplitResult("", "", "", "", ""), None
    if parts.scheme not in {"http", "https"} or not host or not url.isprintable() or " " in url:
        raise ModelError("The endpoint's address is not a URL; write openai:MODEL@http://host:8000/v1.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ModelError(
            f"The endpoint's address at {host} contains a user, a password or a query, which results would show; "
            f"remove it and set ${KEY}."
        )
    return url.rstrip("/")


def _number(variable: str, flag: str = "") -> float | None:
    """The number in a variable that ``flag`` sets; None if it is unset."""
    value = os.environ.get(variable)
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ModelError(f"{flag or variable} {value[:40]}: give a number above 0.")
    return number


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
        spent: Tokens of answered requests, as counted by the server or, without a count, as estimated.
        estimated: Estimated tokens of the same requests.
        texts: Number of answered texts.
        seconds: Time for answers, from the first request to the last vector of each call.
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
                    "next request. All answers are stored; to continue, raise --budget or "
                    f"${BUDGET} and run the same command."
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
        """Log an estimate for a call that has many texts or costs money."""
        if texts < WORTH_A_LINE and settings.price is None and settings.most_tokens is None:
            return
        time = f", about {_duration(texts * self.seconds / self.texts)}" if self.texts and self.seconds else ""
        logger.warning("%s: %s texts, about %s%s.", label, f"{texts:,}", _amount(tokens * self.ratio, settings), time)

    def announce_run(self, texts: int, tokens: int, settings: Settings, uncounted: Sequence[str] = ()) -> None:
        """Log an estimate of a whole run, from the distinct texts that the store lacks and their estimated tokens.

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
