"""Specifications of models as data: a backbone, an alignment, and the text that the alignment is fitted on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Literal

from xalign_models.claims import Claim
from xalign_models.errors import ModelError

Unknown = Literal["error", "related", "mean", "unaligned"]
"""Treatments of texts in languages that an alignment was not fitted on."""


class Pooling(StrEnum):
    """How token vectors become one vector."""

    PUBLISHED = "published"
    """The pooling of the checkpoint's sentence-transformers configuration; mean if there is none."""
    MEAN = "mean"
    CLS = "cls"
    LAST = "last"


class Dtype(StrEnum):
    """Floating-point type of weights and activations."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class Precision(StrEnum):
    """Number format of the products in linear layers."""

    NATIVE = "native"
    """The type of the weights."""
    INT8 = "int8"
    """8-bit integers, on a CPU: weights are scaled by channel, activations by token."""
    TF32 = "tf32"
    """float32 without its last 13 bits, on an NVIDIA GPU; sums are float32."""


GRAPHS = {"onnx": "onnx/model.onnx", "openvino": "openvino/openvino_model.xml"}
"""File that sentence-transformers exports a model to, by backend."""
COMPILED = "compiled"
"""Name of the backend that runs compiled torch layers."""


class Vectors(StrEnum):
    """Number format of a backbone's output vectors."""

    FLOAT32 = "float32"
    """The model's own numbers, before it brings vectors to unit length."""
    UNIT = "unit"
    """float32 at unit length, as most indexes keep them."""
    BINARY = "binary"
    """The signs of the components."""
    INT8 = "int8"
    """8-bit integers, scaled by the range of each dimension on the fit text."""


@dataclass(frozen=True)
class BackboneSpec:
    """An encoder before any alignment.

    Attributes:
        name: Part of a model's name, e.g. ``multilingual-e5-small-q4``.
        model: Asset name, local directory or hub id.
        revision: Hub revision; None for the default of the asset or the hub.
        layer: Index of the hidden state to pool: 0 for the embeddings, k for the output of the k-th layer; None for the
            checkpoint's own output.
        pooling: How token vectors become one vector.
        special_tokens: Whether mean pooling includes [CLS], [SEP] and the like, as in the papers.
        max_tokens: Maximum number of tokens of a text, which is truncated there; None for the checkpoint's own limit.
        dtype: Type of weights and activations.
        precision: Number format of the products in linear layers.
        prompts: (key, prompt) pairs. A prompt that contains ``[TEXT]`` surrounds the input; any other precedes it. A
            key is a canonical language code, an mteb task name, a task type, ``query``, ``document`` or ``default``,
            looked up in this order.
        mteb_name: Name of the mteb model whose metadata (training data, languages, licence) applies.
        tuned: How its weights were trained here, e.g. ``contrastive-100``: the first part of a model's name.
        llm: Decoder-only language model that LUSIFER joins to the encoder: asset name, local directory or hub id. Such
            a model must be trained before use; ``model`` is the encoder until then and the trained directory after.
        trust_remote_code: Whether the user allows the model to run its own code, except that of an adapter's base.
        truncate_dim: Number of leading dimensions to keep of a Matryoshka model; None for all.
        vectors: Number format of the vectors after truncation.
        backend: Engine that computes: ``torch``, ``compiled`` (torch with compiled layers, on a GPU), or an exported
            graph in the model's directory: ``onnx``, ``openvino``, or a file such as ``onnx/model_qint8_avx512.onnx``.
    """

    name: str
    model: str
    revision: str | None = None
    layer: int | None = None
    pooling: Pooling = Pooling.PUBLISHED
    special_tokens: bool = True
    max_tokens: int | None = None
    dtype: Dtype = Dtype.FLOAT32
    precision: Precision = Precision.NATIVE
    prompts: tuple[tuple[str, str], ...] = ()
    mteb_name: str | None = None
    tuned: str = ""
    llm: str | None = None
    trust_remote_code: bool = False
    truncate_dim: int | None = None
    vectors: Vectors = Vectors.FLOAT32
    backend: str = "torch"

    def __post_init__(self) -> None:
        """Check the fields that have limits; a ModelError names the CLI's flag."""
        for field, choices in (("pooling", Pooling), ("dtype", Dtype), ("vectors", Vectors), ("precision", Precision)):
            value = getattr(self, field)
            if value not in tuple(choices):
                raise ModelError(f"--{field} {value} is unknown; choose one of {', '.join(choices)}.")
            object.__setattr__(self, field, choices(value))
        if self.precision is Precision.TF32 and self.dtype is not Dtype.FLOAT32:
            raise ModelError(f"--precision tf32 rounds float32, not {self.dtype}: add --dtype float32.")
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise ModelError(f"--truncate-dim {self.truncate_dim}: give a number of at least 1.")
        if self.layer is not None and self.layer < 0:
            raise ModelError(f"--layer {self.layer}: layers are numbered from 0, the embeddings.")
        if self.max_tokens is not None and self.max_tokens < 2:
            raise ModelError(f"--max-tokens {self.max_tokens}: give a number of at least 2.")
        if self.graph:
            self._check_graph(self.graph)

    def _check_graph(self, graph: str) -> None:
        path = PurePosixPath(graph)
        if path.suffix not in {".onnx", ".xml"} or path.is_absolute() or ".." in path.parts:
            raise ModelError(
                f"--backend {graph}: give torch, {COMPILED}, {', '.join(GRAPHS)}, or the model's .onnx or .xml file."
            )
        for field in ("layer", "dtype", "precision", "llm", "trust_remote_code"):
            if getattr(self, field) != BackboneSpec.__dataclass_fields__[field].default:
                flag = field.replace("_", "-")
                raise ModelError(
                    f"--{flag} has no effect on the exported graph of --backend {graph}; leave one of them out."
                )

    @property
    def graph(self) -> str | None:
        """Path of the exported graph in the model's directory; None if torch computes."""
        return None if self.backend in ("torch", COMPILED) else GRAPHS.get(self.backend, self.backend)

    @property
    def whole(self) -> BackboneSpec:
        """The same spec without truncation or rounding of the vectors, which the store keeps whole."""
        return dataclasses.replace(self, truncate_dim=None, vectors=Vectors.FLOAT32)

    def encoding_fields(self) -> dict[str, Any]:
        """Fields that, with the weights, determine the vector of a prompted text."""
        fields = ("layer", "pooling", "special_tokens", "max_tokens", "dtype")
        products = {"precision": self.precision} if self.precision is not Precision.NATIVE else {}
        trusted = {"trust_remote_code": True} if self.trust_remote_code else {}  # the same files as other modules
        graph = {"graph": self.graph} if self.graph else {}
        compiled = {"backend": COMPILED} if self.backend == COMPILED else {}  # it may round in another order
        return {**{field: getattr(self, field) for field in fields}, **products, **trusted, **graph, **compiled}


@dataclass(frozen=True)
class AlignmentSpec:
    """An alignment and the text that it is fitted on.

    Attributes:
        label: Part of a model's name, e.g. ``lir-15``.
        method: One of ``xalign_models.alignments.METHODS``.
        params: (name, value) pairs of the method's hyperparameters.
        corpora: Names for ``xalign_models.corpora.load``; monolingual methods join the text of all of them.
        limit: Maximum number of rows per language and corpus, from the top; None for all.
        languages: Canonical codes of the languages to fit; None for every language of the corpora.
    """

    label: str
    method: str
    params: tuple[tuple[str, Any], ...] = ()
    corpora: tuple[str, ...] = ()
    limit: int | None = None
    languages: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ModelSpec:
    """A model: a backbone, with or without an alignment.

    Attributes:
        backbone: The encoder.
        alignment: The alignment; None for the plain backbone.
        data: Last part of the name if the fit text is not the method's default.
    """

    backbone: BackboneSpec
    alignment: AlignmentSpec | None = None
    data: str = ""

    @property
    def name(self) -> str:
        """``xalign/<alignment>__<backbone>[__<data>]``, with ``plain`` for an unaligned backbone.

        Training counts as an alignment: ``contrastive-100``, or ``contrastive-100+procrustes`` with an alignment.
        """
        labels = (self.backbone.tuned, self.alignment.label if self.alignment else "")
        label = "+".join(filter(None, labels)) or "plain"
        return f"xalign/{label}__{self.backbone.name}" + (f"__{self.data}" if self.data else "")

    @property
    def baseline(self) -> str:
        """Name of the same backbone, neither tuned nor aligned; for LUSIFER the name of its encoder."""
        name = self.backbone.name.partition("__")[0] if self.backbone.llm else self.backbone.name
        return ModelSpec(dataclasses.replace(self.backbone, name=name, tuned="")).name

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModelSpec:
        """Inverse of :meth:`to_dict`, also after a round trip through JSON, except for what only the user can grant.

        Anyone may have written a card, pointer or result: models and texts are claims, and code is not trusted.
        """
        from xalign_models.configuration import from_mapping  # imports pydantic, which lists of names do not need

        spec = from_mapping(cls, data)
        fields: dict[str, Any] = {"model": Claim(spec.backbone.model), "trust_remote_code": False}
        backbone = dataclasses.replace(spec.backbone, **fields, llm=spec.backbone.llm and Claim(spec.backbone.llm))
        texts = tuple(map(Claim, spec.alignment.corpora)) if spec.alignment else ()
        alignment = dataclasses.replace(spec.alignment, corpora=texts) if spec.alignment else None
        return dataclasses.replace(spec, backbone=backbone, alignment=alignment)


def digest(*parts: Any) -> str:
    """Sha256 (hex) of JSON-serialisable parts, independent of the order of dictionaries."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
