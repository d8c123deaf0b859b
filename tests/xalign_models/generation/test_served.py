"""A chat server on the loopback, with faults: every translation and score is right, and none is paid for twice."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from xalign_models.backbones.endpoints import settings
from xalign_models.errors import ModelError
from xalign_models.generation.critics import Critic, Judged, Scores
from xalign_models.generation.served import short_name
from xalign_models.generation.translators import Translations, make_translator

TEXTS = [(f"der satz hat die nummer {i} und endet hier", "deu-Latn") for i in range(40)]


class Server:
    """Answers a chat request by the text in it; ``faults`` are statuses or bodies of the next requests."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()
        self.faults: deque[Any] = deque()
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Nothing."""

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    fault = outer.faults.popleft() if outer.faults else None
                asked = body["messages"][0]["content"]
                status, content = fault if isinstance(fault, tuple) else (200, json.dumps(outer.answer(asked)))
                if fault is None:
                    with outer.lock:
                        outer.paid[asked] += 1
                self.send_response(status)
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content.encode())

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.name = f"openai:tiny@http://127.0.0.1:{self.http.server_port}/v1"

    def answer(self, asked: str) -> dict[str, Any]:
        number = re.findall(r"nummer (\d+)", asked)[0]
        text = f"The sentence has the number {number} and it ends here."
        if "Judge" in asked:
            text = json.dumps({"semantic": int(number) % 10 + 1, "emotional": 5, "pragmatic": 7})
        text = text.partition("}")[0]  # the stop string of scores
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"total_tokens": 50}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(settings, "METER", settings.Meter())
    monkeypatch.setattr("xalign_models.generation.served.METER", settings.Meter())
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


FAULTS = [(500, "{}"), (429, "{}"), (200, "no json"), (503, "{}"), (200, '{"choices": []}'), (400, "{}")]


def test_translations_by_a_server_are_right_and_paid_for_once(server: Server, tmp_path: Path) -> None:
    server.faults.extend([None, None, *FAULTS])
    failed = 0
    while True:
        made = Translations(make_translator(f"llm:{server.name}"), tmp_path)
        try:
            found = made.get(TEXTS, online=True)
            break
        except ModelError as error:
            assert "tiny" in str(error)
            failed += 1
    assert 0 < failed < 10
    assert [row.text.split()[5] for row in found] == [str(i) for i in range(len(TEXTS))]
    assert set(server.paid.values()) == {1} and len(server.paid) == len(TEXTS)
    assert [row.text for row in made.get(TEXTS, online=False)] == [row.text for row in found]


@pytest.mark.slow
def test_scores_by_a_server_are_right_and_paid_for_once(server: Server, tmp_path: Path) -> None:
    items = [Judged(language, text, "A translation of it.") for text, language in TEXTS]
    server.faults.extend([None, (400, "{}"), None])
    with pytest.raises(ModelError, match="HTTP 400"):
        Scores(Critic(f"generate:{server.name}"), tmp_path).get(items)
    scores, readable = Scores(Critic(f"generate:{server.name}"), tmp_path).get(items)
    assert bool(readable.all())
    assert scores[:, 0].tolist() == [i % 10 + 1 for i in range(len(items))]
    assert set(server.paid.values()) == {1} and len(server.paid) == len(items)


def test_a_budget_is_not_exceeded(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XALIGN_ENDPOINT_BUDGET", "600")
    made = Translations(make_translator(f"llm:{server.name}"), tmp_path)
    reached = r"the budget of 600 tokens is reached.*raise --budget or \$XALIGN_ENDPOINT_BUDGET and run"
    with pytest.raises(ModelError, match=reached):
        made.get(TEXTS, online=True)
    assert 0 < len(server.paid) * 50 <= 600
    monkeypatch.delenv("XALIGN_ENDPOINT_BUDGET")
    made.get(TEXTS, online=True)
    assert set(server.paid.values()) == {1}


@pytest.mark.parametrize(
    ("variable", "value"), [("BUDGET", "lots"), ("BUDGET", "5usd"), ("PRICE", "free"), ("PRICE", "-1")]
)
def test_variables_are_named_where_a_command_has_no_such_option(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"XALIGN_ENDPOINT_{variable}", value)
    with pytest.raises(ModelError, match=rf"\$XALIGN_ENDPOINT_{variable} {value}"):
        Translations(make_translator(f"llm:{server.name}"), tmp_path).get(TEXTS, online=True)


def test_a_served_model_has_a_name_of_its_own_and_no_probabilities(server: Server) -> None:
    assert short_name("openai:org/m@http://host:8000/v1") == "org-m-http-host-8000-v1"
    assert (
        make_translator("llm:openai:a@http://h:1/v1").identity != make_translator("llm:openai:b@http://h:1/v1").identity
    )
    with pytest.raises(ModelError, match="digits' probabilities"):
        Critic(f"expected_score:{server.name}")
