"""HTTP requests to a server, with retries, limits on time and size, and a key that never appears in messages."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from time import monotonic
from typing import Any

import httpx2
from openai import APIConnectionError, APIStatusError, APITimeoutError, DefaultHttpxClient, OpenAI, OpenAIError

from xalign_models.backbones.endpoints.settings import Settings, is_openai, key_for
from xalign_models.errors import ModelError, one_line
from xalign_models.files import MOST_JSON, parse_json

logger = logging.getLogger(__name__)

RETRIES = 8
"""Maximum number of retries after 408, 409, 429, 5xx, timeouts and lost connections. ``Retry-After`` is honoured up to
two minutes; otherwise the pause doubles from half a second to eight."""


class Client:
    """A connection to one server.

    Args:
        label: Name of the server in error messages.
        url: Base URL.
        settings: Timeout and concurrency.

    Raises:
        ModelError: The key is unusable.
    """

    def __init__(self, label: str, url: str, settings: Settings) -> None:
        self._label, self._told = label, False
        self._key, self._seconds = key_for(url), 10 * settings.timeout
        http = DefaultHttpxClient(
            follow_redirects=False,  # which could send texts to another host
            event_hooks={"response": [self._bound]},
            headers={"Accept-Encoding": "identity"},  # a short body may decompress without end
            timeout=httpx2.Timeout(settings.timeout, connect=10.0),
        )
        self._client = OpenAI(
            api_key=self._key or "none", base_url=url, max_retries=RETRIES, timeout=settings.timeout, http_client=http
        )
        if not is_openai(url):  # the library reads them from the environment and sends them to any server
            self._client.organization = self._client.project = None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def post(self, route: str, body: Mapping[str, Any], request: str) -> Any:
        """Send JSON and return the server's JSON answer.

        Args:
            route: Path below the base URL.
            body: Content of the request.
            request: Name of the request in error messages, e.g. ``request 3 (texts 257 to 384 of 1,000)``.

        Raises:
            ModelError: After all retries, the server cannot be reached, refuses, or its answer is not JSON.
        """
        return self._answer(request, lambda: self._client.post(route, body=body, cast_to=httpx2.Response))

    def get(self, route: str) -> Any:
        """The JSON at a route; None if the server does not have the route.

        Raises:
            ModelError: The server cannot be reached or its answer is not JSON.
        """
        return self._answer(route, lambda: self._client.get(route, cast_to=httpx2.Response), absent=(404, 405))

    def _answer(self, request: str, send: Callable[[], httpx2.Response], absent: Collection[int] = ()) -> Any:
        """The parsed answer to a request; None for a status in ``absent``."""
        try:
            return parse_json(send().content, "the answer", (dict, list))
        except Exception as error:
            if isinstance(error, APIStatusError) and error.status_code in absent:
                return None
            raise ModelError(self._line(request, error)) from None

    def _bound(self, response: httpx2.Response) -> None:
        """Limit the body of a response in bytes and seconds, and log the first time that requests are repeated."""
        if not self._told and (response.status_code in {408, 409, 429} or response.status_code >= 500):
            self._told = True
            told = "%s: the server answered HTTP %d. xalign pauses and sends such requests again, up to %d times."
            logger.warning(told, self._label, response.status_code, RETRIES)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise _TooLargeError("the answer is compressed although the request excluded compression")
        response.stream = _Bounded(response.stream, monotonic() + self._seconds)

    def _line(self, request: str, error: Exception) -> str:
        if isinstance(error, APIStatusError):
            reason = f"HTTP {error.status_code}: {error.response.text[:300]}"
            if following := error.response.next_request:
                place = following.url.copy_with(userinfo=b"", query=None, fragment=None)  # they may contain secrets
                route = error.request.url.path.removeprefix(self._client.base_url.path)
                base = str(place).removesuffix(route).rstrip("/")
                reason = f"HTTP {error.status_code}: the server redirects to {base}. Give that address"
        elif isinstance(error, APITimeoutError):
            reason = f"no answer in time, {RETRIES + 1} times"
        elif isinstance(error, APIConnectionError):
            reason = f"the connection failed {RETRIES + 1} times ({one_line(error.__cause__ or error)})"
        else:
            reason = str(error) if isinstance(error, _TooLargeError) else one_line(error)
        if self._key:
            reason = reason.replace(self._key, "***")
        shown = " ".join("".join(letter if letter.isprintable() else " " for letter in reason).split())
        return f"{self._label}: {request} failed: {shown[:400].rstrip('.')}."


class _TooLargeError(OpenAIError):
    """An answer is too long or too slow. The client does not retry after an error of its own base class."""


class _Bounded(httpx2.SyncByteStream):
    """A body that ends with an error if it is too long or too slow."""

    def __init__(self, stream: Any, end: float) -> None:
        self._stream, self._end = stream, end

    def __iter__(self) -> Iterator[bytes]:
        length = 0
        for chunk in self._stream:
            length += len(chunk)
            if length > MOST_JSON:
                raise _TooLargeError(f"the answer is longer than {MOST_JSON >> 20} MiB")
            if monotonic() > self._end:
                raise _TooLargeError("the answer is too slow")
            yield chunk

    def close(self) -> None:
        self._stream.close()
