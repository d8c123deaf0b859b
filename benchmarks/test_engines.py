"""Encoding by ONNX Runtime and OpenVINO beside ours: the same weights, tokenizer, texts and threads, on a CPU.

Their graphs pad, so their texts are sorted by length and run in the batches that suit them best on this processor.
"""

import time
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import paired_cosine_distances
from torch import nn

from benchmarks.corpus import embedded_model, real_texts
from xalign_models.backbones.graphs import Graph
from xalign_models.backbones.raw import RawEncoder
from xalign_models.ranking.ranks import normalise

E5, PROMPT = "multilingual-e5-small-q4", "query: "
SIZES = (1, 4, 16)
"""Numbers of texts in a batch that are tried for the other engines."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as an ONNX graph in float32."""
    pytest.importorskip("onnx")
    file = tmp_path_factory.mktemp("graph") / "model.onnx"

    class States(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = embedded_model(E5, "cpu")[0].model.eval()
            self.model.set_attn_implementation("eager")

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    ids, names = torch.ones(2, 5, dtype=torch.long), ["input_ids", "attention_mask", "last_hidden_state"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is old; the new one needs another package
        torch.onnx.export(
            States(), (ids, ids), file, input_names=names[:2], output_names=names[2:], dynamo=False,
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in names},
        )  # fmt: skip
    return file


def onnxruntime_int8(file: Path) -> Path:
    pytest.importorskip("onnxruntime")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(file, whole := file.with_name("int8.onnx"), per_channel=True, weight_type=QuantType.QInt8)
    return whole


def onnxruntime(file: Path) -> Path:
    pytest.importorskip("onnxruntime")
    return file


def openvino(file: Path) -> Path:
    library = pytest.importorskip("openvino")
    library.save_model(library.Core().read_model(file), whole := file.with_suffix(".xml"), compress_to_fp16=False)
    return whole


def encoded(graph: Graph, tokenizer: Any, texts: Sequence[str], size: int) -> np.ndarray:
    """Mean-pooled vectors of unit length, (texts, d), from batches of so many texts of similar length."""
    rows = tokenizer([PROMPT + text for text in texts], truncation=True, max_length=512)["input_ids"]
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    means = np.empty((len(rows), graph.config.hidden_size), np.float32)
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        batch = tokenizer.pad({"input_ids": [rows[i] for i in chosen]}, return_tensors="pt")
        states, mask = graph(**batch).last_hidden_state, batch["attention_mask"][..., None]
        means[chosen] = (states * mask).sum(dim=1) / mask.sum(dim=1)
    return normalise(means)


@pytest.mark.parametrize(
    ("engine", "precision", "most"),
    [(onnxruntime, "float32", 1e-5), (openvino, "float32", 1e-5), (onnxruntime_int8, "int8", 0.05)],
    ids=["ONNX Runtime float32", "OpenVINO float32", "ONNX Runtime int8"],
)
def test_engine(compare, note, exported, pytestconfig, engine, precision, most):
    """Equal vectors up to rounding, and the time of each; the other engine runs in its best size of batch."""
    texts, file = real_texts(pytestconfig.getoption("--bench-texts")), engine(exported)
    modules: list[nn.Module] = embedded_model(E5, "cpu")
    tokenizer, other = modules[0].tokenizer, Graph(file.parent, file.name, modules[0].model.config)
    if precision == "int8":
        modules[0].to_int8()

    def seconds(size: int) -> float:
        start = time.process_time()
        encoded(other, tokenizer, texts[:64], size)
        return time.process_time() - start

    size = min(SIZES, key=lambda size: min(seconds(size), seconds(size)))
    name = engine.__name__.partition("_")[0]
    pair = compare(
        lambda: RawEncoder("", lambda: modules, "cpu").encode(texts, PROMPT),
        lambda: encoded(other, tokenizer, texts, size), f"{name} {version(name)}, batches of {size}", 3,
    )  # fmt: skip
    distance = float(paired_cosine_distances(pair.ours, pair.theirs).max())
    assert distance < most
    note(dtype=precision, model=E5, texts=len(texts), batch=size, cosine=1 - distance)
