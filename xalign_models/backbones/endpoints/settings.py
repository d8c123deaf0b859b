"""Settings of endpoints from environment variables: keys, timeout, concurrency, prices. Keys have no other source."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
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
        price = _number(PRICE, "--price-per-million")
        return cls(
            _number(TIMEOUT) or cls.timeout,
            min(64, max(1, int(_number(CONCURRENCY) or cls.concurrency))),
            price,
            most_tokens(os.environ.get(BUDGET, ""), price),
        )


def most_tokens(budget: str, price: float | None) -> float | None:
    """Number of tokens in a budget: ``2000000`` and ``2M`` are tokens, ``5usd`` is dollars; None for an empty text.

    Raises:
        ModelError: The budget has another form, or is in dollars and there is no price.
    """
    if not budget:
        return None
    amount = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|k|m|b|usd)", budget.strip().lower())
    if amount is None:
        raise ModelError(
            f"--budget {budget}: give a number of tokens, such as 2000000 or 2M, or of dollars, such as 5usd."
        )
    if amount[2] != "usd":
        return float(amount[1]) * _UNITS[amount[2]]
    if not price:
        raise ModelError(f"--budget {budget} also needs --price-per-million, the price of a million tokens in dollars.")
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
    """Whether OpenAI itself is the server, over an encrypted connection."""
    return url.startswith("https://") and f".{urlsplit(url).hostname}".endswith(".openai.com")


def checked_url(url: str) -> str:
    """A server's address without its final slash.

    Raises:
        ModelError: It is not a URL, or contains a user, a password or a query. The message does not show them.
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
    """The number in a variable, which ``flag`` sets; None if it is unset."""
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
