"""Exported graphs: the vectors of the model they were exported from, an identity of their own, and what is refused."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from xalign_models.assets import Inspected
from xalign_models.backbones import graphs, policy
from xalign_models.backbones.loading import open_backbone
from xalign_models.backbones.raw import RawEncoder
from xalign_models.errors import ModelError, XAlignError
from xalign_models.models import api
from xalign_models.models.building import load
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.models.saving import save
from xalign_models.specs import GRAPHS, BackboneSpec

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
TEXTS = ["w1 w2 w3", "", *(" ".join(f"w{i}" for i in range(n)) for n in range(1, 60, 3)), "w4"]
BACKENDS = sorted(GRAPHS)


@pytest.fixture(scope="module")
def exported(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with both graphs beside its weights; never change it."""
    from transformers import AutoModel

    folder = tmp_path_factory.mktemp("exported") / "tiny"
    shutil.copytree(tiny_model, folder)

    class States(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids", "last_hidden_state"]
    ids = torch.ones(2, 9, dtype=torch.long)
    target = folder / GRAPHS["onnx"]
    target.parent.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            States(), (ids, ids, 0 * ids), str(target), input_names=names[:3], output_names=names[3:],
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in names}, opset_version=17, dynamo=False,
        )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def converted(exported: Path) -> Path:
    """The same with a graph of OpenVINO's, too."""
    openvino = pytest.importorskip("openvino")
    target = exported / GRAPHS["openvino"]
    target.parent.mkdir(exist_ok=True)
    openvino.save_model(openvino.Core().read_model(exported / GRAPHS["onnx"]), target, compress_to_fp16=False)
    return exported


def encoder(folder: Path, **fields) -> RawEncoder:
    spec = BackboneSpec("tiny", str(folder), **fields)
    return RawEncoder(open_backbone(spec).fingerprint, lambda: open_backbone(spec).modules("cpu"), "cpu")


@pytest.mark.parametrize("backend", BACKENDS)
def test_vectors_are_those_of_the_weights(converted, backend):
    by_torch, by_graph = encoder(converted), encoder(converted, backend=backend)
    np.testing.assert_allclose(by_graph.encode(TEXTS), by_torch.encode(TEXTS), atol=1e-5)
    np.testing.assert_allclose(by_graph.encode(TEXTS, "w9 "), by_torch.encode(TEXTS, "w9 "), atol=1e-5)
    assert by_graph.counts.real_tokens == by_torch.counts.real_tokens
    assert by_graph.counts.computed_tokens < 4 / 3 * by_graph.counts.real_tokens


def test_pooling_is_the_specs(exported):
    fields = {"pooling": "mean", "special_tokens": False, "max_tokens": 8}
    found, wanted = (encoder(exported, backend=one, **fields).encode(TEXTS) for one in ("onnx", "torch"))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_alignment_on_top_is_saved_with_the_graph(converted, backend, workdir, write_text):
    corpus = write_text(workdir / "text", rows=40)
    given = {"corpus": f"own:{corpus}", "device": "cpu"}
    model = api.fit("procrustes", backbone=str(converted), overrides={"backend": backend}, **given)
    inputs = [{"text": text, "lang": "deu"} for text in TEXTS]
    plain = api.fit("procrustes", backbone=str(converted), **given)
    np.testing.assert_allclose(model.encode(inputs), plain.encode(inputs), atol=1e-4)
    save(model, workdir / "saved")
    again = load(str(workdir / "saved"), device="cpu")
    np.testing.assert_allclose(again.encode(inputs), model.encode(inputs), atol=1e-6)
    assert (workdir / "saved" / GRAPHS[backend]).is_file()
    assert not (workdir / "saved" / "model.safetensors").exists()
    with pytest.raises(ModelError, match="--standalone"):
        save(model, workdir / "stock", standalone=True, lang="deu")


def test_it_is_another_model_and_each_file_one_of_its_own(exported, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(exported, folder)
    shutil.copy(folder / GRAPHS["onnx"], folder / "onnx/model_qint8_avx512.onnx")

    def identity(backend: str) -> tuple[str, str]:
        spec = find_spec(str(folder), backend=backend)
        return Recipe(spec).revision, open_backbone(spec.backbone).fingerprint

    choices = ("torch", "onnx", "onnx/model_qint8_avx512.onnx")
    before = [identity(backend) for backend in choices]
    assert len({*before}) == 3
    assert identity("onnx") == identity(GRAPHS["onnx"])
    assert "graph" not in BackboneSpec("a", "b").encoding_fields()  # revisions from before there was a choice stay
    assert find_spec(str(folder), backend="onnx").name == "xalign/plain__copy-onnx"
    with (folder / GRAPHS["onnx"]).open("ab") as file:
        file.write(b"\x32\x01a")  # a field of documentation
    assert identity("onnx") != before[1]


def made(
    folder: Path,
    inputs=("input_ids", "attention_mask"),
    output: str = "last_hidden_state",
    shape=("texts", "tokens"),
    width: int = 16,
    node: str = "Mul",
    domain: str = "",
) -> onnx.ModelProto:
    """A graph that gives each token its id times a vector, with what a test changes in it."""
    from onnx import TensorProto, helper, numpy_helper

    tensors = [numpy_helper.from_array(np.ones((1, 64, width), np.float32), "weights"),
               numpy_helper.from_array(np.array([2]), "axis")]  # fmt: skip
    nodes = [
        helper.make_node("Cast", [inputs[0]], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float", "axis"], ["column"]),
        helper.make_node("ReduceMean", ["weights"], ["row"], axes=[1], keepdims=1),
        helper.make_node(node, ["column", "row"], [output], domain=domain),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [*shape, width])],
        tensors,
    )
    opsets = [helper.make_opsetid("", 13), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (folder / GRAPHS["onnx"]).write_bytes(model.SerializeToString())
    return model


@pytest.fixture
def changed(exported: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    folder = tmp_path / "changed"
    shutil.copytree(exported, folder, ignore=shutil.ignore_patterns("openvino"))
    return folder


def test_a_made_graph_is_run(changed):
    made(changed)
    vectors = encoder(changed, backend="onnx").encode(["w1 w1", "w1"])
    assert vectors.shape == (2, 16)
    assert np.ptp(vectors, axis=1).max() == 0  # every dimension is the mean of the ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": ("input_ids", "attention_mask", "past_key_values.0.key")}, "past_key_values.0.key"),
        ({"inputs": ("input_ids",)}, "expected input_ids"),
        ({"output": "logits"}, "has outputs logits"),
        ({"shape": (1, 16)}, "fixed shapes"),
        ({"width": 24}, "a different width"),
        ({"node": "Evil", "domain": "evil.ops"}, "Evil"),
    ],
)
def test_another_graph_is_refused_in_one_line(changed, change, message):
    made(changed, **change)
    with pytest.raises(XAlignError, match=message) as caught:
        encoder(changed, backend="onnx").encode(["w1"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be loaded"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS"),
        (b"\x08\x08garbage", "cannot be loaded"),
        (None, "has no onnx/model.onnx; export it first"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(changed, content, message):
    file = changed / GRAPHS["onnx"]
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(XAlignError, match=message) as caught:
        encoder(changed, backend="onnx").encode(["w1"])
    assert "\n" not in str(caught.value)


def test_a_graph_that_is_cut_off_is_refused(changed):
    file = changed / GRAPHS["onnx"]
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(XAlignError, match=r"cannot be loaded"):
        encoder(changed, backend="onnx").encode(["w1"])


def test_the_files_that_are_there_are_named(changed):
    (changed / GRAPHS["onnx"]).rename(changed / "onnx/model_O2.onnx")
    with pytest.raises(ModelError, match=r"--backend may be onnx/model_O2\.onnx"):
        encoder(changed, backend="onnx").encode(["w1"])


def external(folder: Path, location: str, swapped: bool = False) -> bytes:
    """A graph whose weights lie elsewhere; gives them. Swapped, its fields are in an order that no library writes."""
    from onnx.external_data_helper import set_external_data

    model = made(folder)
    tensor = model.graph.initializer[0]
    weights = tensor.raw_data
    set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    content, value = model.SerializeToString(), b"\x12" + bytes([len(location)]) + location.encode()
    assert b"\x0a\x08location" + value in content
    if swapped:
        content = content.replace(b"\x0a\x08location" + value, value + b"\x0a\x08location")
    (folder / GRAPHS["onnx"]).write_bytes(content)
    return weights


def test_weights_beside_the_graph_belong_to_the_model(changed, tmp_path):
    (changed / "onnx/model.onnx_data").write_bytes(external(changed, "model.onnx_data"))
    assert np.isfinite(encoder(changed, backend="onnx").encode(["w1"])).all()
    before = open_backbone(BackboneSpec("tiny", str(changed), backend="onnx")).fingerprint
    save(load(str(changed), device="cpu", backend="onnx"), tmp_path / "saved")
    assert (tmp_path / "saved/onnx/model.onnx_data").is_file()
    (changed / "onnx/model.onnx_data").write_bytes(bytes(16 * 64 * 4))
    assert open_backbone(BackboneSpec("tiny", str(changed), backend="onnx")).fingerprint != before


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("location", ["../model.data", "/etc/passwd", "sub/model.data", "linked.data", "absent.data"])
def test_weights_elsewhere_are_refused(changed, tmp_path, location, swapped):
    weights = external(changed, location, swapped)
    for file in (changed / "model.data", tmp_path / "outside.data"):
        file.write_bytes(weights)
    (changed / "onnx/linked.data").symlink_to(tmp_path / "outside.data")
    if location == "sub/model.data" and swapped:
        pytest.skip("within the directory")
    with pytest.raises(XAlignError):
        encoder(changed, backend="onnx").encode(["w1"])


@pytest.mark.parametrize(
    "fields",
    [
        {"backend": "tensorrt"},
        {"backend": "../model.onnx"},
        {"backend": "/tmp/model.onnx"},
        {"backend": "onnx", "layer": 1},
        {"backend": "onnx", "dtype": "bfloat16"},
        {"backend": "onnx", "precision": "int8"},
    ],
)
def test_what_cannot_be_is_refused(fields):
    with pytest.raises(ModelError, match="--backend"):
        BackboneSpec("a", "b", **fields)


def test_a_directory_may_name_no_graph_outside_of_it(changed):
    path = changed / "sentence_bert_config.json"
    settings = json.loads(path.read_text()) | {"graph": "../../other/model.onnx"}
    path.write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="graph names a file outside"):
        policy.check(Inspected(changed))


def test_weights_of_openvino_are_no_pickle(changed):
    folder = changed / "openvino"
    folder.mkdir()
    (folder / "openvino_model.bin").write_bytes(bytes(64))
    with pytest.raises(ModelError, match="pickled weights"):
        policy.check(Inspected(changed))
    (folder / "openvino_model.xml").write_text("<net/>")
    policy.check(Inspected(changed))
    (folder / "openvino_model.bin").rename(folder / "pytorch_model.bin")
    (folder / "openvino_model.xml").rename(folder / "pytorch_model.xml")
    with pytest.raises(ModelError, match="pickled weights"):
        policy.check(Inspected(changed))


def test_a_damaged_openvino_graph_is_refused_in_one_line(converted, tmp_path):
    for name in ("openvino_model.xml", "openvino_model.bin"):
        folder = tmp_path / name
        shutil.copytree(converted, folder)
        file = folder / "openvino" / name
        file.write_bytes(file.read_bytes()[:500])
        with pytest.raises(XAlignError) as caught:
            encoder(folder, backend="openvino").encode(["w1"])
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "fields", [{"backend": "onnx"}, {"precision": "int8"}, {"max_tokens": 16}, {"dtype": "bfloat16"}]
)
def test_what_a_static_model_cannot_do_is_refused_and_not_ignored(tmp_path, fields):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    static = StaticEmbedding(words, embedding_dim=4)
    SentenceTransformer(modules=[static], device="cpu").save_pretrained(str(tmp_path / "static"))
    (chosen,) = fields.values()
    with pytest.raises(ModelError, match=rf"--{next(iter(fields)).replace('_', '-')} {chosen} is for transformers"):
        encoder(tmp_path / "static", **fields).encode(["a"])


def test_the_parser_knows_every_way_to_a_tensor():
    """ONNX' own description of its messages is the oracle."""
    onnx = pytest.importorskip("onnx")
    names = {
        "model": onnx.ModelProto, "training": onnx.TrainingInfoProto, "function": onnx.FunctionProto,
        "graph": onnx.GraphProto, "node": onnx.NodeProto, "attribute": onnx.AttributeProto,
        "sparse": onnx.SparseTensorProto, "tensor": onnx.TensorProto,
    }  # fmt: skip
    kinds = {kind.DESCRIPTOR.full_name: name for name, kind in names.items()}
    for name, kind in names.items():
        fields = [field for field in kind.DESCRIPTOR.fields if field.message_type is not None]
        ways = {
            field.number: kinds[field.message_type.full_name]
            for field in fields
            if field.message_type.full_name in kinds
        }
        if name == "tensor":
            ways[kind.DESCRIPTOR.fields_by_name["external_data"].number] = "external"
        assert graphs._MESSAGES[name] == ways


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("location", ["w", "." + "w" * 150, "README.md", "w/w"])
def test_names_of_weights_are_found_however_they_are_written(location, swapped):
    def field(number, content):
        size = len(content)
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        return bytes([number << 3 | 2]) + length + content

    pair = [field(1, b"location"), field(2, location.encode())]
    tensor = field(13, b"".join(pair[::-1] if swapped else pair))
    assert graphs.external_weights(field(7, field(5, tensor)), "x") == {location}
