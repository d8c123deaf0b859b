"""Served models: the vectors and scores of the model itself whatever the server does, and nothing paid for twice."""

from __future__ import annotations

import base64
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import xalign_models
from xalign_models.backbones.endpoints import client, probe
from xalign_models.backbones.endpoints.endpoint import Endpoint
from xalign_models.backbones.endpoints.openai import OpenAIEndpoint
from xalign_models.backbones.raw import key
from xalign_models.backbones.sources import find_source
from xalign_models.errors import ModelError
from xalign_models.evaluation.run import run
from xalign_models.models.building import load_encoder, raw_encoder
from xalign_models.models.names import find_spec, locate
from xalign_models.store import EmbeddingStore, open_store

TEXTS = [f"w{i} w{i * 7 % 100} w{i * 13 % 100}" for i in range(40)]


@pytest.fixture(autouse=True)
def _few_texts_in_a_request(monkeypatch):
    monkeypatch.setattr(Endpoint, "most_texts", 9)  # eight, and one of the probe
    monkeypatch.setenv("XALIGN_ENDPOINT_CONCURRENCY", "2")


def encoder(model, store=True):
    return raw_encoder(find_spec(model).backbone, "cpu", open_store() if store else None)


def scores(outcomes):
    (outcome,) = outcomes
    assert outcome.error == ""
    return {one["hf_subset"]: one["main_score"] for one in outcome.result.scores["test"]}


def good_after(change):
    """A fault that changes the items of an answer."""

    def fault(handler, items):
        handler.good(change(items))
        return True

    return fault


def status(code, **headers):
    def fault(handler, items):
        handler.reply(b'{"error": {"message": "not now"}}', code, **headers)
        return True

    return fault


def raw_answer(content, **headers):
    def fault(handler, items):
        handler.reply(content, **headers)
        return True

    return fault


def silence(handler, items):
    time.sleep(0.8)
    return True


def hang_up(handler, items):
    handler.connection.close()
    handler.close_connection = True
    return True


def cut_off(handler, items):
    handler.reply(b'{"object": "list", "data": [{"index": 0, "embed', length=100_000)
    return True


def put(position, **fields):
    return good_after(lambda items: [{**item, **(fields if i == position else {})} for i, item in enumerate(items)])


def plain_json(items):
    return [{**item, "embedding": np.frombuffer(base64.b64decode(item["embedding"]), "<f4").tolist()} for item in items]


MENDED = {
    "429": status(429, Retry_After_Ms="5"),
    "429 in a second": status(429, Retry_After="1"),
    "500": status(500),
    "502": status(502),
    "503": status(503, Retry_After="0"),
    "529": status(529),
    "408": status(408),
    "409": status(409),
    "no answer": silence,
    "no connection": hang_up,
    "a truncated body": cut_off,
    "items in another order": good_after(lambda items: items[::-1]),
    "numbers instead of base64": good_after(plain_json),
}
REFUSED = {
    "a missing item": (good_after(lambda items: items[:-1]), "8 embeddings, not 9"),
    "an item more": (good_after(lambda items: [*items, items[0]]), "10 embeddings, not 9"),
    "an index twice": (put(3, index=2), "no index 3"),
    "an index of none": (put(3, index=9), "no index 3"),
    "a negative index": (put(0, index=-1), "no index 0"),
    "an index that is no number": (put(0, index="0"), "no index 0"),
    "no vector": (put(5, embedding=None), "text 6 has no vector"),
    "a shorter vector": (put(5, embedding=[0.1] * 15), "text 6 has 15 dimensions, not 16"),
    "vectors of another dimension": (
        good_after(lambda items: [{**item, "embedding": [0.1] * 3} for item in items]),
        "3 dimensions, not 16",
    ),
    "NaN": (put(5, embedding=[0.1] * 15 + [float("nan")]), "text 6 has a value that is not finite"),
    "infinity": (put(5, embedding=[float("inf")] * 16), "not finite"),
    "more than float32 holds": (put(5, embedding=[1e39] * 16), "not finite"),
    "an endless integer": (put(5, embedding=[10**400] * 16), "not finite"),
    "zeros": (put(5, embedding=[0.0] * 16), "text 6 has a vector of zeros"),
    "words in a vector": (put(5, embedding=["0.1"] * 16), "no vector"),
    "truth values in a vector": (put(5, embedding=[True] * 16), "no vector"),
    "what is not base64": (put(5, embedding="?" * 64), "no vector"),
    "half a number": (put(5, embedding="AAAAAAA="), "no vector"),
    "no list": (raw_answer(b'{"data": 3}'), "no list of embeddings"),
    "a list of numbers": (raw_answer(b'{"data": [1, 2]}'), "no list of embeddings"),
    "no JSON": (raw_answer(b"<html>hello</html>"), "not JSON"),
    "half a JSON": (raw_answer(b'{"data": [{"index": 0'), "not JSON"),
    "nothing": (raw_answer(b""), "not JSON"),
    "a deep nest": (raw_answer(b"[" * 5000 + b"]" * 5000), "nested too deeply"),
    "a bomb": (raw_answer(b"\x1f\x8b", Content_Encoding="gzip"), "compressed"),
    "a long body": (raw_answer(b" " * 200_000), "longer than"),
    "a way elsewhere": (
        status(302, Location="http://me:hunter2@127.0.0.1:1/v2/embeddings?key=hunter2#hunter2"),
        "HTTP 302: the server redirects to http://127.0.0.1:1/v2. Give that address.",
    ),
    "a way nearby": (status(307, Location="/v2/embeddings?key=hunter2"), "/v2. Give that address."),
    "a way nowhere": (status(302, Location="http://[hunter2"), "failed: "),
    "401": (status(401), "HTTP 401"),
    "400": (status(400), "HTTP 400"),
    "a terminal's escapes": (raw_answer(b'{"data": 3}\x1b[2J\xe2\x80\xae', status=404), "HTTP 404"),
}


@pytest.mark.parametrize("fault", MENDED.values(), ids=MENDED)
def test_what_passes_is_tried_again_and_what_is_disordered_is_ordered(server, tiny_encode, fault, caplog, request):
    raw = encoder(server.openai)
    server.faults.extend([fault, fault])
    assert np.abs(raw.encode(TEXTS) - tiny_encode(TEXTS)).max() < 1e-5
    assert not server.faults
    code = request.node.callspec.id.partition(" ")[0]
    told = [message for message in caplog.messages if "sends such requests again, up to 8 times" in message]
    assert len(told) == code.isdigit() and all(f"HTTP {code}." in message for message in told)


@pytest.mark.parametrize(("fault", "said"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_answer_is_an_error_that_names_the_request_and_loses_nothing(
    server, tiny_encode, fault, said, monkeypatch
):
    monkeypatch.setattr(client, "MOST_JSON", 100_000)
    raw = encoder(server.openai)
    server.faults.extend([lambda handler, items: False, fault])
    with pytest.raises(ModelError, match=r"request \d \(texts \d+ to \d+ of 40\) failed: ") as refused:
        raw.encode(TEXTS)
    assert said in str(refused.value)
    assert str(refused.value).isprintable()
    stored = {text for text in TEXTS if server.answered[text]}
    assert np.abs(encoder(server.openai).encode(TEXTS) - tiny_encode(TEXTS)).max() < 1e-5
    assert stored
    assert all(server.asked[text] == 1 for text in stored)


@pytest.mark.slow
def test_scores_are_the_models_own_and_what_is_aligned_is_stored(server, tiny_model, workdir, write_text, monkeypatch):
    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "own", 30)))
    monkeypatch.setattr(Endpoint, "most_texts", 5)
    store = open_store()
    for fault in MENDED.values():
        server.faults.extend([fault, lambda handler, items: False])
    served = scores(run([server.openai], ["OwnParallel"], Path("out"), device="cpu", store=store))
    local = scores(run([str(tiny_model)], ["OwnParallel"], Path("out"), device="cpu", store=store))
    assert served == pytest.approx(local, abs=1e-6)
    assert not server.faults
    text = write_text(workdir / "fit", 40)
    before = sum(server.asked.values())
    model = xalign_models.fit("procrustes", backbone=server.openai, corpus=f"own:{text}", device="cpu")
    same = xalign_models.fit("procrustes", backbone=str(tiny_model), corpus=f"own:{text}", device="cpu")
    inputs = [{"text": text, "lang": "deu"} for text in TEXTS]
    assert np.abs(model.encode(inputs) - same.encode(inputs)).max() < 1e-4  # small singular values amplify noise
    xalign_models.save(model, "aligned")
    assert not list(Path("aligned").glob("*.safetensors"))
    assert server.url in Path("aligned/xalign_base.json").read_text("utf-8")
    reloaded = xalign_models.load("aligned", device="cpu")
    assert np.abs(model.encode(inputs) - reloaded.encode(inputs)).max() < 1e-6
    xalign_models.save(same, "same")
    asked = server.asked.copy()
    one, two = (
        scores(run([name], ["OwnParallel"], Path("out"), device="cpu", store=store)) for name in ("aligned", "same")
    )
    assert one == pytest.approx(two, abs=1e-6)
    assert server.asked == asked, "a saved model shares the vectors that are stored"
    assert sum(server.asked.values()) > before


def test_by_teis_own_route_too(server, tiny_encode):
    server.faults.extend([status(429, Retry_After_Ms="5"), cut_off])
    assert np.abs(encoder(server.tei).encode(TEXTS) - tiny_encode(TEXTS)).max() < 1e-5
    assert max(server.requests) <= server.info["max_client_batch_size"]
    for change in (lambda items: items[:-1], lambda items: {"vectors": items}, lambda items: [*items[:-1], [0.5]]):
        server.faults.append(good_after(change))
        with pytest.raises(ModelError, match=r"request 1 \(texts 1 to 8 of 8\) failed"):
            encoder(server.tei, store=False).encode(TEXTS[:8])
    server.info["model_id"] = "other\x1b[2J"
    find_source.cache_clear()
    with pytest.raises(ModelError, match=r"the server has another model, other\[2J"):
        _ = locate(server.tei).namespace


def test_prompts_are_the_clients(server, tiny_encode):
    assert np.abs(encoder(server.openai).encode(["w1", "w2"], "w3 ") - tiny_encode(["w3 w1", "w3 w2"])).max() < 1e-5
    assert set(server.asked) == {"w3 w1", "w3 w2"}


def test_a_default_prompt_serves_the_languages_without_one(server):
    model = xalign_models.load(server.openai, prompts=(("deu-Latn", "w3 "), ("default", "w4 ")))
    model.encode([{"text": "w1", "lang": "de"}, {"text": "w1", "lang": "fr"}, "w2"])
    assert set(server.asked) == {"w3 w1", "w4 w1", "w4 w2"}


def test_a_model_that_changed_behind_its_name_is_refused(serve, tiny_encode):
    server = serve(tiny_encode)
    first = locate(server.openai).namespace
    server.encode = lambda texts: tiny_encode(texts) * (1 + 1e-4)
    find_source.cache_clear()
    assert locate(server.openai).namespace == first, "the last digits are no change"
    for change in (lambda vectors: vectors * 2, lambda vectors: vectors[:, ::-1], lambda vectors: vectors[:, :8]):
        server.encode = lambda texts, change=change: change(tiny_encode(texts))
        find_source.cache_clear()
        with pytest.raises(ModelError, match=r"has changed since 20.*remove .*\.json") as refused:
            _ = locate(server.openai).namespace
        assert "\n" not in str(refused.value)
    (kept,) = Path(os.environ["XALIGN_CACHE"], "endpoints").glob("*.json")
    kept.unlink()
    assert locate(server.openai).namespace != first, "its vectors lie apart from those of the other"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openai", "tei"])
@pytest.mark.parametrize("how", ["vectors", "model"])
def test_a_model_exchanged_at_any_request_stores_no_vector_under_the_old_name(
    serve, tiny_encode, monkeypatch, name, how
):
    """Exchanged at each of 20 moments in turn: what is stored is the first model's, and later runs are right."""
    if (name, how) == ("tei", "model"):
        pytest.skip("the answers name no model")
    monkeypatch.setenv("XALIGN_ENDPOINT_CONCURRENCY", "1")
    monkeypatch.setattr(Endpoint, "most_texts", 3)
    vectors = {text: tiny_encode([text])[0] for text in (*TEXTS, *probe.TEXTS)}  # in batches of one: bit for bit
    right = np.stack([vectors[text] for text in TEXTS])

    def encode(texts):
        return np.stack([vectors[text] for text in texts])

    for moment in range(20):
        server = serve(encode)

        def exchanged(texts, server=server, moment=moment):
            if len(server.requests) <= moment:
                return encode(texts)
            server.model = "another" if how == "model" else "tiny"
            return encode(texts) if how == "model" else encode(texts)[:, ::-1]

        server.info["max_client_batch_size"], server.encode = 3, exchanged
        with pytest.raises(ModelError, match="has changed since 20"):
            encoder(getattr(server, name)).encode(TEXTS)
        server.encode, server.model = encode, "tiny"
        find_source.cache_clear()
        raw = encoder(getattr(server, name))
        stored = open_store().get(raw.namespace, [key("", text) for text in TEXTS])
        assert sum(vector is not None for vector in stored) == 2 * moment
        assert all(np.array_equal(a, b) for a, b in zip(stored, right, strict=True) if a is not None)
        assert np.array_equal(raw.encode(TEXTS), right)


def test_a_server_that_takes_one_text_at_a_time_is_probed_too(server, tiny_encode, monkeypatch):
    monkeypatch.setattr(Endpoint, "most_texts", 1)
    asked, ask = [], OpenAIEndpoint.ask
    monkeypatch.setattr(
        OpenAIEndpoint, "ask", lambda self, texts, request: asked.append(texts) or ask(self, texts, request)
    )
    assert np.abs(encoder(server.openai).encode(TEXTS[:3]) - tiny_encode(TEXTS[:3])).max() < 1e-5
    assert [len(texts) for texts in asked] == [5, *[1] * 6]


@pytest.mark.parametrize("damage", ["{", '{"vectors": [[1]]}', '{"vectors": "x"}', "[]"])
def test_a_damaged_probe_is_set_aside(server, damage, caplog):
    _ = locate(server.openai).namespace
    (kept,) = Path(os.environ["XALIGN_CACHE"], "endpoints").glob("*.json")
    kept.write_text(damage)
    find_source.cache_clear()
    _ = locate(server.openai).namespace
    assert "set aside" in caplog.text


def test_the_key_goes_to_its_server_and_nowhere_else(server, monkeypatch, caplog, workdir):
    key = "sk-secret-4711"
    monkeypatch.setenv("XALIGN_ENDPOINT_KEY", key)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    caplog.set_level(logging.DEBUG)
    raw = encoder(server.openai)
    raw.encode(TEXTS[:8])
    assert server.headers["authorization"] == f"Bearer {key}"
    assert key not in caplog.text

    def echo(handler, items):
        handler.reply(json.dumps({"error": f"wrong key {handler.headers['authorization']}"}).encode(), 401)
        return True

    server.faults.append(echo)
    with pytest.raises(ModelError, match=r"wrong key Bearer \*\*\*") as refused:
        raw.encode(TEXTS[8:16])
    assert key not in str(refused.value) + caplog.text
    kept = b"".join(path.read_bytes() for path in workdir.rglob("*") if path.is_file())
    assert key.encode() not in kept
    monkeypatch.delenv("XALIGN_ENDPOINT_KEY")
    find_source.cache_clear()
    encoder(server.openai).encode(TEXTS[16:24])
    assert "sk-of-openai" not in server.headers["authorization"], "OpenAI's key is OpenAI's"


@pytest.mark.parametrize(
    "model",
    [
        "openai:m@http://user:hunter2@127.0.0.1/v1", "openai:m@http://hunter2@127.0.0.1/v1",
        "openai:m@http://127.0.0.1/v1?key=hunter2", "openai:m@http://127.0.0.1/v1#hunter2",
        "openai:m@http://hunter2:port/", "openai:m@http:///hunter2", "tei:hunter2", "openai:", "openai:m@ftp://hunter2",
        "openai:@http://127.0.0.1/v1", "tei:m@http://[hunter2",
    ],
)  # fmt: skip
def test_an_address_with_a_password_or_none_is_refused_in_one_line(model):
    with pytest.raises(ModelError) as refused:
        find_spec(model)
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value).replace("tei:hunter2", "")


@pytest.mark.parametrize("key", ["sk-a\nb", "sk a", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_not_shown(server, key, monkeypatch):
    monkeypatch.setenv("XALIGN_ENDPOINT_KEY", key)
    with pytest.raises(ModelError, match=r"\$XALIGN_ENDPOINT_KEY has characters") as refused:
        _ = locate(server.openai).namespace
    assert key not in str(refused.value)


def test_a_server_that_only_a_file_names_gets_nothing(server, workdir, write_text, monkeypatch):
    """A directory is data; it must not send texts and keys to whom it likes."""
    text = write_text(workdir / "fit", 20)
    xalign_models.save(xalign_models.fit("centered", backbone=server.openai, corpus=f"own:{text}"), "aligned")
    pointer = Path("aligned/xalign_base.json")
    pointer.write_text(pointer.read_text("utf-8").replace(server.url, "http://elsewhere.example"))
    for opened in (lambda: xalign_models.load("aligned"), lambda: locate("aligned").namespace):
        with pytest.raises(ModelError, match=r"A file names 'openai:\S+@http://elsewhere\.example.*XALIGN_ALLOW"):
            opened()
    monkeypatch.setenv("XALIGN_ALLOW", server.openai.replace(server.url, "http://elsewhere.example"))
    monkeypatch.setattr(client, "RETRIES", 0)
    with pytest.raises(ModelError, match=r"the connection failed"):
        _ = locate("aligned").namespace


@pytest.mark.parametrize("field", [{"layer": 2}, {"max_tokens": 9}, {"dtype": "bfloat16"}, {"pooling": "cls"}])
def test_what_only_a_checkpoint_has_is_refused(server, field):
    with pytest.raises(ModelError, match="does not apply"):
        _ = locate(server.openai, **field).namespace


def test_the_budget_is_kept_and_what_was_paid_for_is_stored(server, tiny_encode, monkeypatch, caplog):
    """Each text has three words, which the server counts as tokens."""
    monkeypatch.setenv("XALIGN_ENDPOINT_BUDGET", "66")
    with pytest.raises(ModelError, match=r"the budget of 66 tokens is reached: \d+ tokens spent"):
        encoder(server.openai).encode(TEXTS)
    spent = 3 * sum(server.answered.values())
    assert 0 < spent <= 66
    assert "40 texts, about" in caplog.text
    monkeypatch.setenv("XALIGN_ENDPOINT_BUDGET", "0.001usd")
    monkeypatch.setenv("XALIGN_ENDPOINT_PRICE", "1")
    assert np.abs(encoder(server.openai).encode(TEXTS) - tiny_encode(TEXTS)).max() < 1e-5
    assert set(server.asked.values()) == {1}
    assert "usd" in caplog.text


@pytest.mark.parametrize(
    ("variable", "value"),
    [("BUDGET", "much"), ("BUDGET", "5usd"), ("BUDGET", "-3"), ("PRICE", "0"), ("PRICE", "nan"), ("TIMEOUT", "soon")],
)
def test_unusable_amounts_are_refused(server, variable, value, monkeypatch):
    monkeypatch.setenv(f"XALIGN_ENDPOINT_{variable}", value)
    with pytest.raises(ModelError, match=r"budget|price|TIMEOUT"):
        encoder(server.openai).encode(TEXTS)


def test_what_was_answered_is_stored_before_more_is_asked_for(server, workdir, monkeypatch):
    monkeypatch.setenv("XALIGN_ENDPOINT_CONCURRENCY", "1")
    put, ask, stored, behind = EmbeddingStore.put, Endpoint.vectors, [], []

    def slow_put(self, namespace, keys, vectors):
        time.sleep(0.1)
        put(self, namespace, keys, vectors)
        stored.extend(keys)

    def counted(self, texts, request):
        behind.append(sum(server.answered.values()) - len(stored))
        return ask(self, texts, request)

    monkeypatch.setattr(EmbeddingStore, "put", slow_put)
    monkeypatch.setattr(Endpoint, "vectors", counted)
    encoder(server.openai).encode(TEXTS)
    assert behind == [0] * 5


@pytest.mark.slow
def test_after_a_kill_nothing_that_was_answered_is_paid_for_again(server, tiny_encode, workdir, python):
    """The killed process had two requests under way; every earlier answer was stored before they were sent."""
    server.hold_after = 16
    script = (
        "import sys; from xalign_models.backbones.endpoints.endpoint import Endpoint; Endpoint.most_texts = 5\n"
        "from xalign_models.models.building import raw_encoder; from xalign_models.models.names import find_spec\n"
        "from xalign_models.store import open_store\n"
        f"raw_encoder(find_spec({server.openai!r}).backbone, 'cpu', open_store()).encode({TEXTS!r})"
    )
    environment = {**os.environ, "XALIGN_ENDPOINT_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([python, "-c", script], env=environment)
    while server.held < 2 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    paid = set(server.answered)
    assert 16 <= len(paid) < 40
    server.hold_after = None
    assert np.abs(encoder(server.openai).encode(TEXTS) - tiny_encode(TEXTS)).max() < 1e-5
    assert [text for text in paid if server.asked[text] != 1] == []
    assert set(server.answered.values()) == {1}


def test_without_the_client_library_one_line_says_so(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "xalign_models.backbones.endpoints.client", raising=False)
    with pytest.raises(ModelError, match=r"pip install 'xalign\[endpoints\]'"):
        _ = locate(server.openai).namespace


def test_naming_a_served_model_asks_nobody(serve):
    spec = find_spec("openai:org/m@http://127.0.0.1:9/v1")
    assert spec.name == "xalign/plain__openai-org-m-127.0.0.1-9-v1"
    assert find_spec("openai:text-embedding-3-small").backbone.name == "openai-text-embedding-3-small-api.openai.com-v1"


@pytest.mark.slow
def test_e5_behind_a_server_scores_as_e5(serve, workdir, take_assets, write_text, monkeypatch):
    """The package's own model, with its prompts, through thirteen faults."""
    take_assets("multilingual-e5-small-q4")
    monkeypatch.setenv("XALIGN_ENDPOINT_TIMEOUT", "20")
    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "own", 20)))
    local = find_spec("multilingual-e5-small-q4")
    own = raw_encoder(local.backbone, "cpu")
    server = serve(own.encode)
    for fault in MENDED.values():
        server.faults.extend([*([] if fault is silence else [fault]), lambda handler, items: False])
    spec = find_spec(server.openai, prompts=local.backbone.prompts)
    encoders = [load_encoder(one, device="cpu", store=open_store()) for one in (spec, local)]
    one, two = (scores(run([one], ["OwnParallel"], Path("out"), device="cpu")) for one in encoders)
    assert one == pytest.approx(two, abs=1e-6)
    assert all(text.startswith("query: ") for text in server.answered)
    assert len(server.faults) < 20
