"""Files of strangers name servers, paths, hub ids and texts: nothing is opened or sent, and one line says so."""

from __future__ import annotations

import json
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from xalign_models import corpora
from xalign_models.assets import Inspected
from xalign_models.backbones import policy
from xalign_models.backbones.sources import find_source
from xalign_models.claims import Claim, named
from xalign_models.errors import ModelError, XAlignError
from xalign_models.evaluation.reproduction import reproduce
from xalign_models.models.building import build, load, load_encoder
from xalign_models.models.card import read_card
from xalign_models.models.metadata import model_meta
from xalign_models.models.names import locate
from xalign_models.results.layout import folder_name
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec

PLACES = {
    "an OpenAI server": "openai:m@{url}/v1",
    "a TEI server": "tei:m@{url}",
    "OpenAI's own server": "openai:text-embedding-3-small",
    "a hub id": "stranger/model",
    "a hub id of mteb's registry": "mteb:intfloat/multilingual-e5-small",
    "a released LUSIFER": "lusifer:stranger/model",
    "a path": "{private}",
    "a path relative to the working folder": "private",
    "a file of vectors": "vectors:{private}/vectors.npz",
}
"""What a file names; ``{url}`` is a server on this machine, and ``{private}`` a model's directory."""


@pytest.fixture
def server(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server that counts requests, with the keys of a user and a hub on the same server; connections are counted."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            running.requests.append((self.path, dict(self.headers)))
            self.send_error(400)

        do_GET = do_POST = do_HEAD = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    running: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.requests, running.connections = [], []
    running.url = f"http://127.0.0.1:{running.server_port}"
    connect = socket.socket.connect

    def counted(self: socket.socket, address: Any) -> None:
        running.connections.append(address)
        connect(self, address)

    import huggingface_hub.constants

    monkeypatch.setattr(socket.socket, "connect", counted)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.url)
    for name in ("XALIGN_ENDPOINT_KEY", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "secret")
    for name in ("XALIGN_ALLOW", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def place(server: Any, tiny_model: Path, workdir: Path) -> Callable[[str], str]:
    """The text of a kind of place, whose directory is there and would load."""
    (workdir / "private").symlink_to(tiny_model)
    return lambda kind: PLACES[kind].format(url=server.url, private=workdir / "private")


def result(root: Path, name: str, spec: dict[str, Any] | None) -> Path:
    """A result that a stranger sends, with its model's metadata."""
    folder = root / "results" / folder_name(name) / ("0" * 40)
    folder.mkdir(parents=True)
    arguments = {"spec": spec} if spec else {}
    meta = {"name": name, "revision": "0" * 40, "loader_kwargs": arguments, "training_datasets": None}
    (folder / "model_meta.json").write_text(json.dumps(meta))
    entry = {"hf_subset": "deu-Latn", "languages": ["deu-Latn"], "main_score": 0.5}
    data = {
        "task_name": "GettextPrecision",
        "mteb_version": "2.1.0",
        "dataset_revision": "1",
        "scores": {"test": [entry]},
    }
    (folder / "GettextPrecision.json").write_text(json.dumps(data))
    return folder / "GettextPrecision.json"


def spec_of(model: str, **fields: Any) -> dict[str, Any]:
    return ModelSpec(BackboneSpec("stranger", model), **fields).to_dict()


def by_name(text: str, root: Path, base: Path) -> None:
    reproduce(result(root, text, None))


def by_spec(text: str, root: Path, base: Path) -> None:
    reproduce(result(root, "xalign/plain__stranger", spec_of(text)))


def pointer(text: str, root: Path, base: Path) -> Path:
    folder = root / "saved"
    folder.mkdir()
    modules = [{"idx": 0, "name": "0", "path": "", "type": "xalign_models.backbones.pointer.Pointer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "xalign_base.json").write_text(json.dumps({"spec": spec_of(text)["backbone"], "fingerprint": "0"}))
    return folder


def by_pointer(text: str, root: Path, base: Path) -> None:
    load(str(pointer(text, root, base)), device="cpu")


def by_pointers_namespace(text: str, root: Path, base: Path) -> None:
    _ = locate(str(pointer(text, root, base))).namespace


def by_card(text: str, root: Path, base: Path) -> None:
    """A model with weights of its own, whose card names another backbone: its spec alone would open it."""
    folder = pointer("stranger/model", root, base)
    claims = {"spec": spec_of(text), "name": "a/b", "content": read_card(folder).content}
    (folder / "xalign.json").write_text(json.dumps(claims))
    spec = locate(str(folder)).spec
    assert spec is not None
    build(spec, device="cpu")


def by_adapter(text: str, root: Path, base: Path) -> None:
    folder = root / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": text}))
    load_encoder(str(folder), device="cpu")


def by_policy_of_an_adapter(text: str, root: Path, base: Path) -> None:
    folder = root / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": text}))
    policy.check(Inspected(folder))


def by_trained_adapter(text: str, root: Path, base: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(base, root / "trained"))
    kind = "xalign_models.backbones.transformer.LanguageTransformer"
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))
    path = folder / "sentence_bert_config.json"
    named_base = {"model": text, "revision": None, "fingerprint": "0", "dtype": "float32"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "base": named_base}))
    load(str(folder), device="cpu")


def by_release(text: str, root: Path, base: Path) -> None:
    folder = root / "release"
    folder.mkdir()
    settings = {
        "connection_type": "ff", "encoder_backbone_type": "mistral", "num_added_tokens": 0, "pooling_method": "mean",
        "universal_learner_backbone_type": "xlm-r", "universal_learner_name_or_path": text,
        "encoder_name_or_path": text, "loar_r": 1, "lora_alpha": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))
    _ = locate(f"lusifer:{folder}").namespace


WAYS = (
    by_name, by_spec, by_pointer, by_pointers_namespace, by_card, by_adapter, by_policy_of_an_adapter,
    by_trained_adapter, by_release,
)  # fmt: skip
CRAFTED = [(way, kind) for way in WAYS for kind in PLACES]
COUNT = 81
"""Number of crafted files, which docs/reliability.md states."""


def test_the_documentation_counts_the_crafted_files() -> None:
    assert len(CRAFTED) == COUNT
    text = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text("utf-8")
    assert f"{COUNT} crafted files combine {len(WAYS)} kinds of file with {len(PLACES)} kinds of place" in text


@pytest.mark.parametrize(("way", "kind"), CRAFTED, ids=[f"{way.__name__}-{kind}" for way, kind in CRAFTED])
def test_a_place_that_only_a_file_names_is_left_alone(
    way: Callable[[str, Path, Path], None], kind: str, server: Any, place: Callable[[str], str], workdir: Path,
    tiny_model: Path,
) -> None:  # fmt: skip
    text = place(kind)
    opened: list[str] = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if watching and event == "open" else None)
    watching = [True]
    with pytest.raises(XAlignError) as refused:
        way(text, workdir, tiny_model)
    watching.clear()
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert server.connections == []
    assert server.requests == []
    assert not [path for path in opened if path.startswith((str(workdir / "private"), "private"))]


def test_a_registered_name_in_a_file_is_no_folder_that_lies_here(workdir: Path, tiny_model: Path) -> None:
    (workdir / "xalign").mkdir()
    (workdir / "xalign" / "plain__all-MiniLM-L6-v2").symlink_to(tiny_model)
    spec = locate(Claim("xalign/plain__all-MiniLM-L6-v2")).spec
    assert spec is not None
    assert spec.backbone.model == "all-minilm-l6-v2"


def test_a_text_that_only_a_file_names_is_not_read(workdir: Path, write_text: Any, tiny_model: Path) -> None:
    text = write_text(workdir / "text", 9)
    alignment = AlignmentSpec("centered", "centered", corpora=(f"own:{text}",))
    claimed = ModelSpec.from_dict(ModelSpec(BackboneSpec("b", str(tiny_model)), alignment).to_dict())
    named(str(tiny_model))
    with pytest.raises(ModelError, match="A file names 'own:"):
        build(claimed, device="cpu")
    corpora.load(f"own:{text}")
    assert build(claimed, device="cpu") is not None


def test_the_users_own_word_is_remembered_and_the_variable_is_one(workdir: Path, monkeypatch: Any) -> None:
    for text in ("openai:m@http://127.0.0.1:9/v1", "org/name"):
        with pytest.raises(ModelError, match="you have not"):
            named(Claim(text))
        monkeypatch.setenv("XALIGN_ALLOW", f"other/one,{text}")
        assert type(named(Claim(text))) is str
        monkeypatch.delenv("XALIGN_ALLOW")
    with pytest.raises(ModelError, match="you have not"):
        find_source(Claim("openai:m@http://127.0.0.1:9/v1"))
    assert find_source("openai:m@http://127.0.0.1:9/v1") is find_source(Claim("openai:m@http://127.0.0.1:9/v1"))


def test_a_claim_stays_one_where_it_is_copied_or_sent_to_another_process() -> None:
    spec = ModelSpec.from_dict(ModelSpec(BackboneSpec("b", "org/name", llm="org/other")).to_dict())
    for copied in (deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert (type(copied.backbone.model), type(copied.backbone.llm)) == (Claim, Claim)
    assert json.loads(json.dumps(spec.to_dict()))["backbone"]["model"] == "org/name"


@pytest.mark.parametrize("text", ["openai:m@{url}/v1", "stranger/model"])
def test_commands_that_read_results_send_nothing(text: str, server: Any, xalign: Any, workdir: Path) -> None:
    name = text.format(url=server.url)
    path = result(workdir, name, spec_of(name))
    for command in (
        ("leaderboard",), ("leaderboard", "-t", "GettextPrecision", "--format", "markdown"), ("verify",),
        ("leaderboard", "--html", "page"), ("submit", "--check"), ("gate", "--baseline", "b.json", "--update"),
        ("gate", "--baseline", "b.json"), ("reproduce", path),
    ):  # fmt: skip
        xalign(*command)
    assert server.connections == []


def test_ids_of_organisation_and_project_go_to_openai_alone(server: Any) -> None:
    with pytest.raises(ModelError, match="HTTP 400"):
        _ = locate(f"openai:m@{server.url}/v1").namespace
    (_, headers), *_ = server.requests
    sent = {name.lower(): value for name, value in headers.items()}
    assert sent["authorization"] == "Bearer secret"
    assert not {"openai-organization", "openai-project"} & sent.keys()


def test_trust_in_a_model_is_by_name_and_not_in_an_adapters_base(workdir: Path, tiny_model: Path) -> None:
    import shutil

    base = Path(shutil.copytree(tiny_model, workdir / "base"))
    (base / "code.py").write_text("")
    adapter = workdir / "adapter"
    adapter.mkdir()
    settings = {"peft_type": "LORA", "base_model_name_or_path": str(base)}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    named(str(base))
    policy.check(Inspected(base), trust=True)
    with pytest.raises(ModelError, match=r"base has its own code: the file code\.py"):
        policy.check(Inspected(adapter), trust=True)
    commit = "0123456789" * 4
    for trusted in ("org/name", ("a/b", "org/name")):
        spec = locate("org/name", trust_remote_code=trusted).spec
        assert spec is not None
        assert (spec.backbone.trust_remote_code, spec.backbone.revision) == (True, None)
        other = locate("org/other", trust_remote_code=trusted).spec
        assert other is not None
        assert not other.backbone.trust_remote_code
    spec = locate("org/name", trust_remote_code=f"org/name@{commit}").spec
    assert spec is not None
    assert (spec.backbone.trust_remote_code, spec.backbone.revision) == (True, commit)
    for wrong in (True, "org/name@main"):
        with pytest.raises(ModelError, match="--trust-remote-code"):
            locate("org/name", trust_remote_code=wrong)


def test_metadata_of_a_card_ask_nobody(server: Any, workdir: Path, tiny_model: Path) -> None:
    folder = pointer("stranger/model", workdir, tiny_model)
    spec = spec_of("stranger/model")
    spec["backbone"]["mteb_name"] = "stranger/unknown"
    claims = {"spec": spec, "name": "a/b", "content": read_card(folder).content}
    (folder / "xalign.json").write_text(json.dumps(claims))
    assert model_meta(str(folder)).name == "a/b"
    assert server.connections == []
