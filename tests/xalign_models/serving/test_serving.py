"""The server gives the vectors of ``encode`` to any number of clients, and refuses the rest by its status."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router

import xalign_models
from xalign_models import Thresholds
from xalign_models.errors import ModelError
from xalign_models.serving.app import Limits, Server

uvicorn = pytest.importorskip("uvicorn", reason="needs xalign[serve]")
CODES = ("deu-Latn", "eng-Latn", "fra-Latn", "spa-Latn")
TEXTS = ["w1 w2 w3 w4 w5", "w3", "w4 w5 w6", "w7 w1"]


@pytest.fixture
def start():
    """Serves a Server on a free port of this machine; gives the address."""
    running = []

    def run(server):
        app = uvicorn.Server(uvicorn.Config(server.app(), port=0, log_level="error", access_log=False))
        sock = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=app.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        running.append((app, thread, sock))
        while not app.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{sock.getsockname()[1]}"

    yield run
    for app, thread, sock in running:
        app.should_exit = True
        thread.join(10)
        sock.close()


@pytest.fixture
def text(workdir, write_text):
    return write_text(workdir / "fit", 40, ("deu", "eng", "fra", "spa"))


@pytest.fixture
def model(tiny_model, text):
    return xalign_models.fit("centered", backbone=str(tiny_model), corpus=f"own:{text}", device="cpu", unknown="error")


def send(url, body=None, headers=(), content="application/json"):
    """Status and parsed answer."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": content, **dict(headers)})
    try:
        with urlopen(request, timeout=60) as answer:
            raw = answer.read().decode()
            return answer.status, json.loads(raw) if raw.startswith("{") else raw
    except HTTPError as error:
        return error.code, json.loads(error.read() or b"{}") if error.headers[
            "content-type"
        ] != "text/plain; charset=utf-8" else {}


def vectors(url, **body):
    status, answer = send(f"{url}/v1/embeddings", body)
    assert status == 200, answer
    assert [item["index"] for item in answer["data"]] == [*range(len(answer["data"]))]
    return np.array([item["embedding"] for item in answer["data"]])


def test_vectors_are_those_of_encode(model, start):
    url = start(Server(model, "tiny"))
    expected = model.encode(TEXTS, lang=list(CODES))
    np.testing.assert_allclose(vectors(url, input=TEXTS, lang=list(CODES)), expected, atol=1e-6)
    np.testing.assert_allclose(vectors(url, input=TEXTS[0], lang="de", model="tiny"), expected[:1], atol=1e-6)


def test_the_client_of_openai_needs_no_code(model, start):
    openai = pytest.importorskip("openai", reason="needs xalign[endpoints]")
    pytest.importorskip("py3langid", reason="needs xalign[langid]")
    client = openai.OpenAI(api_key="none", base_url=f"{start(Server(model, 'tiny'))}/v1")
    sentence = "Das ist ein deutscher Satz, den niemand für einen englischen halten wird."
    answer = client.embeddings.create(input=[sentence, "12"], model="tiny")  # asks for base64
    np.testing.assert_allclose(answer.data[0].embedding, model.encode(sentence, lang="de"), atol=1e-6)
    assert answer.usage.total_tokens > 0
    given = client.embeddings.create(input=TEXTS[:1], model="tiny", extra_body={"lang": ["fr"]})
    np.testing.assert_allclose(given.data[0].embedding, model.encode(TEXTS[0], lang="fr"), atol=1e-6)
    assert [one.id for one in client.models.list()] == ["tiny", *(f"tiny:{name}" for name in model.prompts)]


def test_a_prompt_is_chosen_by_name(model, start):
    model.prompts = {"query": "w8 ", "passage": "w9 w9 "}
    for module in model:
        if hasattr(module, "unknown_prompt"):
            module.unknown_prompt = "default"
    url = start(Server(model, "org/tiny"))
    expected = model.encode(TEXTS, lang="de", prompt_name="passage")
    for body in ({"model": "org/tiny:passage"}, {"prompt": "passage"}):
        np.testing.assert_allclose(vectors(url, input=TEXTS, lang="de", **body), expected, atol=1e-6)
    assert np.abs(vectors(url, input=TEXTS, lang="de") - expected).max() > 1e-3
    for name in ("other", "org/tiny:title", "org/tinypassage"):
        assert send(f"{url}/v1/embeddings", {"input": "w1", "lang": "de", "model": name})[0] == 404


def test_prompts_by_language_are_served_without_one_that_would_replace_them(tiny_model, start):
    prompts = (("deu-Latn", "w5 "), ("eng-Latn", "w8 "), ("query", "w9 "))
    model = xalign_models.load(str(tiny_model), device="cpu", prompts=prompts)
    thresholds = Thresholds({"de": {"en": (0.0, 1.0)}}, (1, 1, 1, 1, 1, 1, 1))
    url = start(Server(model, "tiny", thresholds=thresholds))
    names = [item["id"] for item in send(f"{url}/v1/models")[1]["data"]]
    assert names == ["tiny", "tiny:document", "tiny:deu-Latn", "tiny:eng-Latn"]
    assert send(f"{url}/v1/embeddings", {"input": "w1", "lang": "de", "prompt": "query"})[0] == 404
    expected = [model.encode(text, lang=code) for text, code in zip(TEXTS[:2], ("de", "en"), strict=True)]
    np.testing.assert_allclose(vectors(url, input=TEXTS[:2], lang=["de", "en"]), expected, atol=1e-6)
    pytest.importorskip("py3langid", reason="needs xalign[langid]")
    sentence = "Das ist ein deutscher Satz, den niemand für einen englischen halten wird."
    np.testing.assert_allclose(vectors(url, input=sentence)[0], model.encode(sentence, lang="de"), atol=1e-6)
    body = {"query": TEXTS[0], "documents": TEXTS[1:2], "query_lang": "de", "document_lang": "en"}
    score = send(f"{url}/v1/scores", body)[1]["data"][0]["cosine"]
    assert score == pytest.approx(expected[0] @ expected[1], abs=1e-6)


def test_the_prompt_of_a_side_takes_its_route(tiny_model, start, workdir):
    bert, pooling, normalise = SentenceTransformer(str(tiny_model), device="cpu")
    other = SentenceTransformer(str(tiny_model), device="cpu")[1]
    other.pooling_mode = ("max",)
    router = Router({"query": [pooling], "document": [other]}, allow_empty_key=False)
    model = SentenceTransformer(modules=[bert, router, normalise], prompts={"passage": "w9 "}, device="cpu")
    model.save_pretrained("routed", create_model_card=False)
    model = xalign_models.load(str(workdir / "routed"), device="cpu")
    thresholds = Thresholds({code: dict.fromkeys(CODES, (0.0, 1.0)) for code in CODES}, (1, 1, 1, 1, 1, 1, 1))
    url = start(Server(model, "routed", thresholds=thresholds))
    rows = {"query": model.encode_query(TEXTS), "document": model.encode_document(TEXTS)}
    rows["passage"] = model.encode(TEXTS, prompt_name="passage", task="document")
    for name, expected in rows.items():
        np.testing.assert_allclose(vectors(url, input=TEXTS, model=f"routed:{name}"), expected, atol=1e-6)
    body = {"query": TEXTS[0], "documents": TEXTS, "query_lang": "de", "document_lang": list(CODES)}
    found = [item["cosine"] for item in send(f"{url}/v1/scores", body)[1]["data"]]
    np.testing.assert_allclose(found, rows["document"] @ rows["query"][0], atol=1e-6)


def test_counts_have_all_their_digits(model, start):
    server = Server(model, "tiny")
    server.counts["xalign_texts_total"] = 123_456_789
    assert "xalign_texts_total 123456789\n" in send(f"{start(server)}/metrics")[1]


def test_many_clients_at_once_get_their_own_vectors_in_fewer_batches(model, start):
    url = start(Server(model, "tiny"))
    rng = np.random.default_rng(0)
    draw = lambda: (f"w{rng.integers(9) + 1} w{rng.integers(9) + 1}", str(rng.choice(CODES)))  # noqa: E731
    jobs = [[draw() for _ in range(rng.integers(1, 9))] for _ in range(120)]
    with ThreadPoolExecutor(16) as pool:
        ask = lambda job: vectors(url, input=[t for t, _ in job], lang=[c for _, c in job])  # noqa: E731
        found = list(pool.map(ask, jobs))
    for job, rows in zip(jobs, found, strict=True):
        expected = model.encode([t for t, _ in job], lang=[c for _, c in job])
        np.testing.assert_allclose(rows, expected, atol=1e-6)
    metrics = dict(line.rsplit(" ", 1) for line in send(f"{url}/metrics")[1].splitlines())
    assert int(metrics["xalign_texts_total"]) == sum(map(len, jobs))
    assert int(metrics["xalign_batches_total"]) < len(jobs)
    assert metrics['xalign_requests_total{status="200"}'] == "120"
    assert metrics["xalign_texts_waiting"] == "0"
    assert send(f"{url}/health") == (200, {"status": "ok"})


@pytest.mark.parametrize("tokens", [[1, 2], [[1, 2], [3]]])
def test_token_ids_are_refused_with_the_setting_that_sends_text(model, start, tokens):
    status, answer = send(f"{start(Server(model, 'tiny'))}/v1/embeddings", {"input": tokens, "lang": "de"})
    assert status == 400
    assert "check_embedding_ctx_length=False" in answer["error"]["message"]


def test_a_bad_request_fails_no_other_of_its_batch(model, start):
    server = Server(model, "tiny")
    encode, gate = server.batcher.encode, threading.Event()
    server.batcher.encode = lambda rows, prompt: (gate.wait(20), encode(rows, prompt))[1]
    url = start(server)
    bodies = [{"input": "w1", "lang": "de"}, {"input": "w2", "lang": "ja"}, {"input": "w3", "lang": "fr"}] * 3
    with ThreadPoolExecutor(9) as pool:
        answers = [pool.submit(send, f"{url}/v1/embeddings", body) for body in bodies]
        time.sleep(0.5)  # all but the first wait for one batch
        gate.set()
        found = [answer.result() for answer in answers]
    assert [status for status, _ in found] == [200, 400, 200] * 3
    assert "not fitted for jpn-Jpan" in found[1][1]["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400), (b"[1]", 400), ({}, 400), ({"input": []}, 400), ({"input": [[1, 2]]}, 400), ({"input": ""}, 400),
        ({"input": ["a"] * 6}, 413), ({"input": "a" * 101}, 413), (b" " * 5000, 413), ({"input": "a", "lang": 3}, 400),
        ({"input": "a", "lang": ["de", "en"]}, 400), ({"input": "a", "lang": "xx-yy-zz"}, 400),
        ({"input": "a", "lang": "de", "encoding_format": "int8"}, 400),
        ({"input": "a", "lang": "de", "dimensions": 3}, 400), ({"input": "a", "lang": "de", "model": 3}, 404),
        ({"input": "a", "lang": "de", "encoding_format": []}, 400), ({"input": "a", "dimensions": [1]}, 400),
        ({"input": "a", "lang": "de", "prompt": ["a"]}, 404), ({"input": "a", "language": "de"}, 400),
    ],
)  # fmt: skip
def test_requests_out_of_bounds_are_refused(model, start, body, status):
    url = start(Server(model, "tiny", limits=Limits(texts=5, characters=100, bytes=4096)))
    found, answer = send(f"{url}/v1/embeddings", body)
    assert found == status
    assert answer["error"]["message"]
    assert send(f"{url}/v1/embeddings", {"input": "w1", "lang": "de", "encoding_format": None})[0] == 200


def test_other_paths_and_methods_are_refused_in_the_form_of_all_errors(model, start):
    url = start(Server(model, "tiny"))
    for path, body, expected in (("v1/chat", {}, 404), ("v1/embeddings", None, 405), ("health", {}, 405)):
        status, answer = send(f"{url}/{path}", body)
        assert (status, answer["error"]["type"]) == (expected, "invalid_request_error")


def test_a_token_a_host_and_a_type_are_asked_for(model, start):
    body = {"input": "w1", "lang": "de"}
    url = start(Server(model, "tiny", token="secret"))
    for path, given in (("v1/embeddings", body), ("v1/models", None), ("metrics", None)):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            status, answer = send(f"{url}/{path}", given, headers)
            assert (status, "secret" in str(answer)) == (401, False)
        assert send(f"{url}/{path}", given, {"Authorization": "Bearer secret"})[0] == 200
    assert send(f"{url}/health")[0] == 200
    url = start(Server(model, "tiny"))
    for host in ("evil.example", "my_site.example", "localhost.evil.example", "localhost@evil.example", "[::1"):
        status, answer = send(f"{url}/v1/embeddings", body, {"Host": host})
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert "XALIGN_SERVE_TOKEN" in answer["error"]["message"]
    for host in ("localhost:1", "LOCALHOST", "[::1]:80", "127.0.0.1"):
        assert send(f"{url}/v1/embeddings", body, {"Host": host})[0] == 200
    assert send(f"{url}/v1/embeddings", body, content="text/plain")[0] == 415
    assert send(f"{url}/v1/embeddings", body, content="Application/JSON; charset=utf-8")[0] == 200


def test_a_full_queue_and_a_slow_or_broken_model_end_in_a_status(model, start):
    server = Server(model, "tiny", limits=Limits(waiting=3, seconds=1.5))
    encode, gate = server.batcher.encode, threading.Event()
    server.batcher.encode = lambda rows, prompt: (gate.wait(20), encode(rows, prompt))[1]
    url, body = start(server), {"input": ["w1", "w2"], "lang": "de"}
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(send, f"{url}/v1/embeddings", body)
        time.sleep(0.3)
        assert send(f"{url}/v1/embeddings", body)[0] == 429
        assert slow.result()[0] == 504
    gate.set()
    assert send(f"{url}/v1/embeddings", body)[0] == 200

    def fail(rows, prompt):
        raise RuntimeError("a path of the server")

    server.batcher.encode = fail
    status, answer = send(f"{url}/v1/embeddings", body)
    assert (status, "path" in str(answer)) == (500, False)
    server.batcher.encode = encode
    assert send(f"{url}/v1/embeddings", body)[0] == 200


def test_a_client_that_leaves_in_the_middle_of_a_request_is_no_failure(model, start, caplog):
    server = Server(model, "tiny")
    url = start(server)
    head = (
        "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    )
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
        client.sendall(f'{head}\r\n{{"input'.encode())
    deadline = time.monotonic() + 20
    while not server.counts and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [*server.counts] == ['xalign_requests_total{status="499"}']
    assert not caplog.records
    vectors(url, input=TEXTS, lang="de")


def test_a_proxy_aligns_what_another_server_encodes(tiny_model, text, start, workdir):
    pytest.importorskip("openai", reason="needs xalign[endpoints]")
    plain = xalign_models.load(str(tiny_model), device="cpu")
    behind = Server(plain, "behind")
    backbone = f"openai:behind@{start(behind)}/v1"
    model = xalign_models.fit("procrustes", backbone=backbone, corpus=f"own:{text}", device="cpu")
    url = start(Server(model, "proxy"))
    local = xalign_models.fit("procrustes", backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    found = vectors(url, input=TEXTS, lang=list(CODES))
    np.testing.assert_allclose(found, model.encode(TEXTS, lang=list(CODES)), atol=1e-6)
    assert found.shape == local.encode(TEXTS, lang="de").shape

    def fail(rows, prompt):
        raise ModelError("key sk-1 is wrong")

    server = Server(model, "proxy")
    server.batcher.encode = fail
    status, answer = send(f"{start(server)}/v1/embeddings", {"input": "w9", "lang": "de"})
    assert (status, "sk-1" in str(answer)) == (502, False)


def test_scores_are_standardised_against_one_threshold(model, start):
    thresholds = Thresholds({code: dict.fromkeys(CODES, (0.25, 0.5)) for code in CODES}, (1, 1, 1, 1, 1, 1, 1))
    url = start(Server(model, "tiny", thresholds=thresholds))
    body = {"query": TEXTS[0], "documents": TEXTS, "query_lang": "de", "document_lang": list(CODES)}
    status, answer = send(f"{url}/v1/scores", body)
    assert status == 200
    rows, query = model.encode(TEXTS, lang=list(CODES)), model.encode(TEXTS[0], lang="de")
    for item, row in zip(answer["data"], rows, strict=True):
        assert item["cosine"] == pytest.approx(row @ query, abs=1e-6)
        assert item["score"] == pytest.approx((row @ query - 0.25) / 0.5, abs=1e-5)
        assert item["related"] == (item["score"] > answer["threshold"])
    assert send(f"{url}/v1/scores", body | {"rate": 0.9})[0] == 400
    assert send(f"{url}/v1/scores", body | {"lang": "de"})[0] == 400
    assert send(f"{url}/v1/scores", body | {"model": "other"})[0] == 404
    assert send(f"{url}/v1/scores", body | {"query": ["w1", "w2"]})[0] == 400
    assert send(f"{url}/v1/scores", body | {"query": "12", "query_lang": None})[0] == 400
    assert send(f"{start(Server(model, 'tiny'))}/v1/scores", body)[0] == 404


def test_a_documents_language_is_sought_among_those_of_documents(model, start):
    """Languages of documents may be others than those of queries, and one of these would get another pair's scale."""
    pytest.importorskip("py3langid", reason="needs xalign[langid]")
    thresholds = Thresholds(
        {code: {"fra-Latn": (0.5, 0.5), "eng-Latn": (0.0, 0.5)} for code in CODES[:2]}, (1, 1, 1, 1, 1, 1, 1)
    )
    url = start(Server(model, "tiny", thresholds=thresholds))
    documents = ["La gare se trouve au centre de la ville, près du marché.", "The station is near the market."]
    status, answer = send(f"{url}/v1/scores", {"query": "Wo ist der Bahnhof der Stadt?", "documents": documents})
    assert (status, answer["languages"]) == (200, ["deu-Latn", "fra-Latn", "eng-Latn"])
    given = {"query": "Wo ist der Bahnhof der Stadt?", "documents": documents, "query_lang": "de"}
    given["document_lang"] = ["fr", "en"]
    named = send(f"{url}/v1/scores", given)[1]
    for one, other in zip(answer["data"], named["data"], strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)


def test_the_command_listens_on_this_machine_alone_without_a_token_and_says_where(xalign, monkeypatch, tiny_model):
    places = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: places.extend(one.getsockname() for one in sockets))
    status, _, err = xalign("serve", tiny_model, "--host", "0.0.0.0")
    assert status == 2
    assert "XALIGN_SERVE_TOKEN" in err[-1]
    assert not places
    status, out, _ = xalign("serve", tiny_model, "--device", "cpu", "--port", "0")
    ((host, port),) = places
    assert (status, host) == (0, "127.0.0.1")
    assert port > 0
    assert out.strip().endswith(f"://127.0.0.1:{port}/v1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, _, err = xalign("serve", tiny_model, "--device", "cpu", "--port", str(taken.getsockname()[1]))
    assert status == 2
    assert "Cannot listen on 127.0.0.1" in err[-1]
