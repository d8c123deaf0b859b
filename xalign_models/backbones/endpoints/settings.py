"""What the environment says of endpoints: keys, patience, concurrency, prices. Keys come from nowhere else."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from xalign_models.errors import ModelError

KEY, OPENAI_KEY, ALLOWED = "XALIGN_ENDPOINT_KEY", "OPENAI_API_KEY", "XALIGN_ENDPOINTS"
BUDGET, PRICE = "XALIGN_ENDPOINT_BUDGET", "XALIGN_ENDPOINT_PRICE"
TIMEOUT, CONCURRENCY = "XALIGN_ENDPOINT_TIMEOUT", "XALIGN_ENDPOINT_CONCURRENCY"
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")


@dataclass(frozen=True)
class Settings:
    """How endpoints are asked.

    Attributes:
        timeout: Seconds to wait for an answer.
        concurrency: Requests that are under way at a time.
        price: Dollars for a million tokens; None where it is not known.
        most_tokens: Tokens that this process may spend; None is no limit.
    """

    timeout: float = 120.0
    concurrency: int = 8
    price: float | None = None
    most_tokens: float | None = field(default=None)

    @classmethod
    def from_environment(cls) -> Settings:
        """The settings of this process.

        Raises:
            ModelError: A variable has no usable value.
        """
        price = _number(PRICE, "--price-per-million", None)
        return cls(
            _number(TIMEOUT, TIMEOUT, cls.timeout) or cls.timeout,
            min(64, max(1, int(_number(CONCURRENCY, CONCURRENCY, cls.concurrency) or 1))),
            price,
            most_tokens(os.environ.get(BUDGET, ""), price),
        )


def most_tokens(budget: str, price: float | None) -> float | None:
    """Tokens that a budget buys: ``2000000`` and ``2M`` are tokens, ``5usd`` is dollars; empty is no limit.

    Raises:
        ModelError: It is neither, or is of dollars and there is no price.
    """
    if not budget:
        return None
    amount = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|k|m|b|usd)", budget.strip().lower())
    if amount is None:
        raise ModelError(f"--budget {budget}: give tokens, such as 2000000 or 2M, or dollars, such as 5usd.")
    if amount[2] != "usd":
        return float(amount[1]) * _UNITS[amount[2]]
    if not price:
        raise ModelError(f"--budget {budget} needs --price-per-million, the dollars for a million tokens.")
    return float(amount[1]) / price * 1e6


def key_for(url: str) -> str | None:
    """The key of a server: ``$XALIGN_ENDPOINT_KEY``; for OpenAI's own also ``$OPENAI_API_KEY``.

    Raises:
        ModelError: It holds what no header can. The message does not show it.
    """
    host = urlsplit(url).hostname or ""
    own = host == "openai.com" or host.endswith(".openai.com")
    name = KEY if os.environ.get(KEY) or not own else OPENAI_KEY
    key = os.environ.get(name, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ModelError(f"${name} has characters that no key has, such as a line break; set it again.")
    return key or None


def checked_url(url: str) -> str:
    """A server's address without a slash at its end.

    Raises:
        ModelError: It is none, or holds a user, a password or a query. The message does not show them.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = SplitResult("", "", "", "", ""), None
    if parts.scheme not in {"http", "https"} or not host or not url.isprintable() or " " in url:
        raise ModelError("The endpoint's address is no URL; write openai:MODEL@http://host:8000/v1.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ModelError(
            f"The endpoint's address at {host} holds a user, a password or a query, which would be kept in results; "
            f"leave them out and set ${KEY}."
        )
    return url.rstrip("/")


def require_allowed(url: str, named: bool) -> None:
    """Refuse a server that only a file names: it would get texts, and a key.

    Args:
        url: The server.
        named: Whether the user named it in this process.

    Raises:
        ModelError: It is neither named, nor on this machine, nor in ``$XALIGN_ENDPOINTS``.
    """
    parts = urlsplit(url)
    server = f"{parts.scheme}://{parts.netloc}"
    allowed = {host.strip().rstrip("/") for host in os.environ.get(ALLOWED, "").split(",")}
    if not named and not _LOOPBACK.fullmatch(parts.hostname or "") and server not in allowed:
        raise ModelError(
            f"The model points to the server {server}, which would get your texts; allow it: {ALLOWED}={server}"
        )


def _number(variable: str, flag: str, default: float | None) -> float | None:
    value = os.environ.get(variable)
    if not value:
        return default
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ModelError(f"{flag} {value[:40]}: a number above 0 is needed.")
    return number
