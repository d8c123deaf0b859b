"""Runs exported transformers: a graph for ONNX Runtime or OpenVINO replaces a checkpoint's weights.

Tokenizer, pooling, dense layers and prompts are still the directory's. A graph is data: both libraries run their own
operations only.
"""

import mmap
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from xalign_models.assets.digests import counts
from xalign_models.assets.use import protobuf_fields
from xalign_models.errors import AssetError, ModelError, one_line

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Permitted inputs of a graph, each (texts, tokens)."""
OUTPUTS = ("last_hidden_state", "token_embeddings")
"""Names of an output of token vectors, (texts, tokens, d)."""
_MESSAGES = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external"},
}
"""Messages of onnx.proto that contain tensors: number of a field -> the kind of message in it."""
_POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class Opened:
    """A graph that a library has opened.

    Attributes:
        inputs: Type and shape by name; a dimension that is not an integer may vary.
        outputs: Shapes by name.
        run: Computes an output, given its name and the inputs by name.
    """

    inputs: Mapping[str, tuple[Any, Sequence[Any]]]
    outputs: Mapping[str, Sequence[Any]]
    run: Callable[[str, dict[str, npt.NDArray[Any]]], npt.NDArray[Any]]


class Graph(nn.Module):
    """A graph with the interface that sentence-transformers expects of a transformers model.

    ``name`` is the graph's file, relative to the directory.

    Raises:
        ModelError: The file is missing, the graph is not a transformer for any number and length of texts, or the
            library that runs it is not installed.
    """

    def __init__(self, directory: Path, name: str, config: Any) -> None:
        super().__init__()
        self.name, self.config = name, config
        self.files = _files(directory, name)
        self._graph = _OPENERS[self.files[0].suffix](self.files[0])
        self.output = self._checked()

    @staticmethod
    def is_backend_compatible() -> bool:
        """False: texts cannot be packed for a graph."""
        return False

    def _checked(self) -> str:
        """The name of the output that has the token vectors."""
        inputs, outputs = self._graph.inputs, self._graph.outputs
        if not {*INPUTS[:2]} <= inputs.keys() <= {*INPUTS} or not {kind for kind, _ in inputs.values()} <= {*_WHOLE}:
            raise ModelError(f"{self.name} has inputs {', '.join(inputs)}; expected {', '.join(INPUTS)} as integers.")
        name = next((name for name in OUTPUTS if name in outputs), "")
        if not name:
            raise ModelError(f"{self.name} has outputs {', '.join(outputs)}; expected {' or '.join(OUTPUTS)}.")
        shapes = [*(shape for _, shape in inputs.values()), outputs[name][:2]]
        is_fixed = any(len(shape) != 2 or any(isinstance(size, int) for size in shape) for shape in shapes)
        if len(outputs[name]) != 3 or is_fixed:
            raise ModelError(f"{self.name} has fixed shapes; export it with texts and tokens as dynamic axes.")
        if isinstance(width := outputs[name][2], int) and width != self.config.hidden_size:
            raise ModelError(f"{self.name} has a different width from config.json, {self.config.hidden_size}.")
        return name

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        """``last_hidden_state`` (b, s, d), float32.

        Raises:
            ModelError: The input is not on the CPU, or the graph fails.
        """
        if input_ids.device.type != "cpu":
            raise ModelError(f"{self.name} runs on the CPU only: add --device cpu, or leave --backend out.")
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        given = dict(zip(INPUTS, (input_ids, attention_mask, types), strict=True))
        feeds = {name: given[name].numpy().astype(kind) for name, (kind, _) in self._graph.inputs.items()}
        try:
            states = self._graph.run(self.output, feeds)
        except Exception as error:  # a damaged file can raise anything
            raise ModelError(f"{self.name} cannot be run: {one_line(error)}") from None
        if states.shape != (*input_ids.shape, self.config.hidden_size):
            raise ModelError(f"{self.name} gives {states.shape} for {(*input_ids.shape, self.config.hidden_size)}.")
        return BaseModelOutput(last_hidden_state=torch.from_numpy(states.astype(np.float32, copy=False)))

    def save_pretrained(self, folder: str, **kwargs: Any) -> None:
        """Copy the graph's files and write the configuration."""
        target = (Path(folder) / self.name).parent
        target.mkdir(parents=True, exist_ok=True)
        for file in self.files:
            shutil.copyfile(file, target / file.name)
        self.config.save_pretrained(folder)


def _files(directory: Path, name: str) -> list[Path]:
    graph = directory / name
    if not graph.is_file():
        have = [path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.suffix in _OPENERS]
        other = f"--backend may be {', '.join(sorted(have))}." if have else "export it first."
        raise ModelError(f"{directory} has no {name}; {other}")
    with graph.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise ModelError(f"{graph} is a Git LFS pointer, not the file itself; run: git lfs pull.")
        if graph.suffix == ".xml":
            file.seek(0)
            if not file.read(1 << 10).lstrip().startswith(b"<"):  # OpenVINO looks at the content
                raise ModelError(f"{graph} is not XML, the format of OpenVINO's graphs.")
            weights = {graph.with_suffix(".bin").name}
        else:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                weights = external_weights(content, str(graph))
    for weight in weights:
        is_name = Path(weight).name == weight and "\0" not in weight and counts(weight)
        if not is_name or not (graph.parent / weight).is_file():
            raise ModelError(f"{graph} has weights in {weight[:200]!r}; expected a file next to the graph.")
    return [graph, *(graph.parent / weight for weight in sorted(weights))]


def external_weights(content: bytes | mmap.mmap, name: str) -> set[str]:
    """Names of the files in which an ONNX model keeps tensors; ``name`` is the model's own, for messages.

    Raises:
        ModelError: The content is not protobuf.
    """
    names, pending = set(), [("model", 0, len(content))]
    try:
        while pending:
            kind, start, end = pending.pop()
            fields = list(protobuf_fields(content, start, end))
            if kind != "external":
                inner = _MESSAGES[kind]
                pending += [(inner[number], first, last) for number, first, last in fields if number in inner]
                continue
            pair = {number: content[first:last] for number, first, last in fields}
            if pair.get(1) == b"location":
                names.add(pair.get(2, b"").decode("utf-8", "surrogateescape"))
    except AssetError:
        raise ModelError(f"{name} cannot be loaded: it is damaged, or not an ONNX model.") from None
    return names


def _onnx(file: Path) -> Opened:
    try:
        import onnxruntime
    except ImportError:
        raise ModelError(f"{file.name} needs ONNX Runtime; run: pip install 'xalign[onnx]'.") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.log_severity_level = 4  # errors are raised as well
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    inputs = {node.name: (_ONNX_TYPES.get(node.type, node.type), node.shape) for node in session.get_inputs()}
    outputs = {node.name: node.shape for node in session.get_outputs()}
    return Opened(inputs, outputs, lambda name, feeds: session.run([name], feeds)[0])


def _openvino(file: Path) -> Opened:
    try:
        import openvino
    except ImportError:
        raise ModelError(f"{file.name} needs OpenVINO; run: pip install 'xalign[openvino]'.") from None
    # By default it computes in bfloat16 if the processor can.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = openvino.Core().compile_model(file, "CPU", settings)
    request = compiled.create_infer_request()

    def shape(port: Any) -> list[Any]:
        return [size.get_length() if size.is_static else None for size in port.get_partial_shape()]

    inputs = {port.get_any_name(): (port.get_element_type().to_dtype(), shape(port)) for port in compiled.inputs}
    outputs = {name: shape(port) for port in compiled.outputs for name in port.get_names()}
    return Opened(inputs, outputs, lambda name, feeds: request.infer(feeds)[name])


_WHOLE = (np.dtype(np.int64), np.dtype(np.int32))
_ONNX_TYPES = dict(zip(("tensor(int64)", "tensor(int32)"), _WHOLE, strict=True))
_OPENERS = {".onnx": _onnx, ".xml": _openvino}
