"""What a model is, as data: a backbone, an alignment, and the text that the alignment is fitted on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from xalign_models.errors import ModelError


class Pooling(StrEnum):
    """How token vectors become one vector."""

    PUBLISHED = "published"
    """As the checkpoint's own sentence-transformers configuration says; mean where it has none."""
    MEAN = "mean"
    CLS = "cls"
    LAST = "last"


class Dtype(StrEnum):
    """Floating point type of weights and activations."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class Precision(StrEnum):
    """What linear layers multiply."""

    NATIVE = "native"
    """Numbers of the weights' type."""
    INT8 = "int8"
    """Whole numbers of 8 bits, on a CPU: weights scaled by channel, activations by token."""
    TF32 = "tf32"
    """Numbers of float32 without the last 13 bits, on an NVIDIA GPU; sums in float32."""


GRAPHS = {"onnx": "onnx/model.onnx", "openvino": "openvino/openvino_model.xml"}
"""Where sentence-transformers exports a model to."""


COMPILED = "compiled"
"""The backend that is torch with its layers compiled."""


class Vectors(StrEnum):
    """What a backbone's vectors are kept as."""

    FLOAT32 = "float32"
    BINARY = "binary"
    """Their signs."""
    INT8 = "int8"
    """Whole numbers of 8 bits, by the range of each dimension over the fit text."""


@dataclass(frozen=True)
class BackboneSpec:
    """An encoder before any alignment.

    Attributes:
        name: Its part of a model's name, e.g. ``multilingual-e5-small-q4``.
        model: Asset name, local directory or hub id.
        revision: Hub revision; None is the asset's or the hub's default.
        layer: Index of the hidden state that is pooled: 0 is the embeddings, k the output of the k-th layer; None is
            the checkpoint's own last output.
        pooling: How token vectors become one.
        special_tokens: Whether mean pooling includes [CLS], [SEP] and the like (the papers' way).
        max_tokens: Texts are cut at this many tokens; None is the checkpoint's own limit.
        dtype: Of weights and activations.
        precision: Of products in linear layers.
        prompts: (key, prompt). A prompt with ``[TEXT]`` in it surrounds the input, any other is put before it. A key is
            a canonical language code, an mteb task name, a task type, ``query``, ``document`` or ``default``, looked up
            in this order.
        mteb_name: The mteb model whose metadata (training data, languages, licence) holds for it.
        tuned: What its weights were trained with here, e.g. ``contrastive-100``: the first part of a model's name.
        llm: Decoder-only language model that LUSIFER joins to it; asset name, local directory or hub id. Such a model
            is trained before it is used: ``model`` is its directory then, and the encoder until then.
        trust_remote_code: The user's word that the model may run the code that it brings along.
        truncate_dim: Leading dimensions that are kept, for a model that was trained so (Matryoshka); None is all.
        vectors: What the vectors are kept as, after that.
        backend: What computes: ``torch``, ``compiled`` (torch with compiled layers, on a GPU), or an exported graph in
            the model's directory: ``onnx``, ``openvino``, or the file, e.g. ``onnx/model_qint8_avx512.onnx``.
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
        """Check the fields that have limits.

        Raises:
            ModelError: An unknown pooling, type, precision or backend, TF32 of another type than float32, a negative
                layer, a token limit under 2, or what an exported graph cannot do; the message names the CLI's flag.
        """
        for field, choices in (("pooling", Pooling), ("dtype", Dtype), ("vectors", Vectors), ("precision", Precision)):
            value = getattr(self, field)
            if value not in tuple(choices):
                raise ModelError(f"--{field} {value}: not one of {', '.join(choices)}.")
            object.__setattr__(self, field, choices(value))
        if self.precision is Precision.TF32 and self.dtype is not Dtype.FLOAT32:
            raise ModelError(f"--precision tf32 rounds float32, not {self.dtype}: add --dtype float32.")
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise ModelError(f"--truncate-dim {self.truncate_dim}: at least 1 is needed.")
        if self.layer is not None and self.layer < 0:
            raise ModelError(f"--layer {self.layer}: layers count from 0 (the embeddings) upwards.")
        if self.max_tokens is not None and self.max_tokens < 2:
            raise ModelError(f"--max-tokens {self.max_tokens}: at least 2 are needed.")
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
                raise ModelError(f"--{flag} and --backend {graph} exclude each other: the file says how it computes.")

    @property
    def graph(self) -> str | None:
        """The exported graph that computes, below the model's directory; None where torch does."""
        return None if self.backend in ("torch", COMPILED) else GRAPHS.get(self.backend, self.backend)

    @property
    def whole(self) -> BackboneSpec:
        """The same with vectors that are neither cut nor rounded: what is stored."""
        return dataclasses.replace(self, truncate_dim=None, vectors=Vectors.FLOAT32)

    def encoding_fields(self) -> dict[str, Any]:
        """What, beside the weights, determines a prompted text's vector."""
        fields = ("layer", "pooling", "special_tokens", "max_tokens", "dtype")
        products = {"precision": self.precision} if self.precision is not Precision.NATIVE else {}
        trusted = {"trust_remote_code": True} if self.trust_remote_code else {}  # the same files as other modules
        graph = {"graph": self.graph} if self.graph else {}
        compiled = {"backend": COMPILED} if self.backend == COMPILED else {}  # which may round in another order
        return {**{field: getattr(self, field) for field in fields}, **products, **trusted, **graph, **compiled}


@dataclass(frozen=True)
class AlignmentSpec:
    """An alignment and what it is fitted on.

    Attributes:
        label: Its part of a model's name, e.g. ``lir-15``.
        method: One of ``xalign_models.alignments.METHODS``.
        params: (name, value) of the method's hyperparameters.
        corpora: Names for ``xalign_models.corpora.load``; monolingual methods take the text of all of them together.
        limit: Rows per language and corpus, from the top; None is all.
        languages: Canonical codes to fit; None is every language that the corpora have.
    """

    label: str
    method: str
    params: tuple[tuple[str, Any], ...] = ()
    corpora: tuple[str, ...] = ()
    limit: int | None = None
    languages: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ModelSpec:
    """A model: a backbone, and an alignment unless it is the plain backbone.

    Attributes:
        backbone: The encoder.
        alignment: None is the unaligned backbone.
        data: Last part of the name, when the fit text is not the method's default.
    """

    backbone: BackboneSpec
    alignment: AlignmentSpec | None = None
    data: str = ""

    @property
    def name(self) -> str:
        """``xalign/<alignment>__<backbone>[__<data>]``; the plain backbone's alignment is called ``plain``.

        A tuned backbone's training counts as one: ``contrastive-100``, or ``contrastive-100+procrustes`` when aligned.
        """
        labels = (self.backbone.tuned, self.alignment.label if self.alignment else "")
        label = "+".join(filter(None, labels)) or "plain"
        return f"xalign/{label}__{self.backbone.name}" + (f"__{self.data}" if self.data else "")

    @property
    def baseline(self) -> str:
        """Name of the same backbone, neither tuned nor aligned; of LUSIFER's two parts the first one."""
        name = self.backbone.name.partition("__")[0] if self.backbone.llm else self.backbone.name
        return ModelSpec(dataclasses.replace(self.backbone, name=name, tuned="")).name

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModelSpec:
        """Inverse of :meth:`to_dict`, also after a trip through JSON, but for ``trust_remote_code``.

        Data come from cards, pointers and results, which anybody may have written: trust is the user's to say anew.
        """
        from xalign_models.configuration import from_mapping  # pydantic, which names and lists do without

        spec = from_mapping(cls, data)
        return dataclasses.replace(spec, backbone=dataclasses.replace(spec.backbone, trust_remote_code=False))


def digest(*parts: Any) -> str:
    """Sha256 (hex) of parts that JSON can write, independent of dictionary order."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
