"""A server on the loopback that speaks both protocols, over a local model, with faults as they are ordered."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from xalign_models.backbones.endpoints import client, probe, settings
from xalign_models.backbones.sources import find_source

Fault = Callable[["Handler", list[Any]], bool]
"""Is given the handler and the items of a good answer; True if it answered itself."""


@dataclass
class Served:
    """What a server serves and what it saw.

    Attributes:
        encode: Texts to vectors (n, d).
        asked: How often each text came, probes left out.
        answered: How often each text was answered in full.
        headers: Of the last request.
        faults: For the next requests, in turn; probes meet none.
        held: Requests that wait, when ``hold`` is set, for ever.
    """

    encode: Callable[[Sequence[str]], np.ndarray]
    url: str = ""
    model: str = "tiny"
    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    headers: dict[str, str] = field(default_factory=dict)
    faults: deque[Fault] = field(default_factory=deque)
    info: dict[str, Any] = field(default_factory=lambda: {"model_id": "tiny", "max_client_batch_size": 9})
    requests: list[int] = field(default_factory=list)
    usage: Callable[[Sequence[str]], dict[str, Any]] = lambda texts: {
        "total_tokens": sum(len(t.split()) for t in texts)
    }
    hold_after: int | None = None
    held: int = 0
    lock: Any = field(default_factory=threading.Lock)

    @property
    def openai(self) -> str:
        return f"openai:tiny@{self.url}/v1"

    @property
    def tei(self) -> str:
        return f"tei:tiny@{self.url}"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes, of which the second would wait 40 ms

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def reply(self, content: bytes, status: int = 200, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()
        if length is not None:
            self.close_connection = True

    def do_GET(self) -> None:
        self.reply(json.dumps(self.server.served.info).encode() if self.path == "/info" else b"{}")

    def do_POST(self) -> None:
        served: Served = self.server.served
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = body["input"] if self.path == "/v1/embeddings" else body["inputs"]
        is_probe = tuple(texts) == probe.TEXTS
        with served.lock:
            served.headers = {name.lower(): value for name, value in self.headers.items()}
            if not is_probe:
                served.asked.update(texts[:-1])  # the last one is of the probe
                served.requests.append(len(texts) - 1)
            if not is_probe and served.hold_after is not None and sum(served.answered.values()) >= served.hold_after:
                served.held += 1
                held = True
            else:
                held = False
            fault = served.faults.popleft() if served.faults and not is_probe else None
            vectors = np.asarray(served.encode(texts), dtype="<f4")
        if held:
            threading.Event().wait(60)
        self.served, self.texts = served, texts
        if self.path == "/v1/embeddings":
            items = [
                {"object": "embedding", "index": i, "embedding": base64.b64encode(vector.tobytes()).decode()}
                for i, vector in enumerate(vectors)
            ]
        else:
            items = vectors.tolist()
        if fault is None or not fault(self, items):
            self.good(items)
            if not is_probe:
                with served.lock:
                    served.answered.update(texts[:-1])

    def good(self, items: list[Any]) -> None:
        answer: Any = items
        if self.path == "/v1/embeddings":
            answer = {
                "object": "list",
                "data": items,
                "model": self.served.model,
                "usage": self.served.usage(self.texts),
            }
        self.reply(json.dumps(answer).encode())


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no matter."""


@pytest.fixture
def serve(monkeypatch, workdir):
    """Starts a server over ``encode``; the client tries again without a pause worth the name."""
    servers, clients = [], []
    original = client.Client.__init__

    def spy(self, *arguments):
        original(self, *arguments)
        clients.append(self)

    monkeypatch.setattr(client.Client, "__init__", spy)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.02)
    monkeypatch.setenv("XALIGN_ENDPOINT_TIMEOUT", "0.5")
    monkeypatch.setattr(settings.METER, "spent", 0.0)
    monkeypatch.setattr(settings.METER, "estimated", 0.0)
    for name in ("OPENAI_API_KEY", "XALIGN_ENDPOINT_KEY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)

    def start(encode):
        server = Server(("127.0.0.1", 0), Handler)
        server.served = Served(encode, f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return server.served

    yield start
    for opened in clients:
        opened.close()
    for server in servers:
        server.shutdown()
        server.server_close()
    find_source.cache_clear()


@pytest.fixture(scope="session")
def tiny_encode(tiny_model):
    """Texts to raw vectors (n, 16) by the tiny model itself, before it normalises them."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(modules=list(SentenceTransformer(str(tiny_model), device="cpu"))[:-1], device="cpu")
    lock = threading.Lock()

    def encode(texts):
        with lock:
            return model.encode(list(texts), batch_size=64, show_progress_bar=False)

    return encode


@pytest.fixture
def server(serve, tiny_encode):
    return serve(tiny_encode)
