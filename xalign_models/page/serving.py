"""Serves a folder on a local port, for browsers that cannot open files."""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal shows the address."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore disconnected browsers; report other errors."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server of the folder's files for this machine only; ``serve_forever`` starts it.

    Port 0 is any free port; ``server_address`` has the result.
    """
    return _Server(("127.0.0.1", port), partial(_Quiet, directory=str(folder)))
