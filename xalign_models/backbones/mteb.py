"""``mteb:org/name``: a model of mteb's registry as a backbone, with mteb's wrapper and prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import nn
from torch.utils.data import DataLoader

from xalign_models import assets, plugins
from xalign_models.backbones import policy
from xalign_models.backbones.borrowed import missing_requirement
from xalign_models.backbones.checkpoint import opened
from xalign_models.backbones.inputs import prompted
from xalign_models.backbones.sources import Source
from xalign_models.errors import ModelError
from xalign_models.files import walk
from xalign_models.specs import BackboneSpec, digest

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta
    from mteb.types import PromptType

    from xalign_models.backbones.pipeline import Batch

CHUNK = 2_048
"""Texts per call of a wrapper."""
BEHIND_AN_API = "a backbone behind an API; its wrapper reads the key from the environment"
OWN_CODE = "a backbone that runs its own code, with --trust-remote-code"
FIT_TASK = "Tatoeba"
"""Text without a task, such as fit text, is encoded as mteb encodes the text of this task."""
_GENERIC = {"mteb.models.sentence_transformer_wrapper", "mteb.models.instruct_wrapper"}
"""Modules of wrappers that ignore subsets and splits."""


class MtebModel(Source):
    """A model of mteb's registry.

    Raises:
        ModelError: The name is not ``org/name``.
    """

    settable = Source.settable - {"prompts"} | {"trust_remote_code"}
    normalises = False
    mteb_name: str

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.mteb_name = model.partition(":")[2]
        if not re.fullmatch(r"[^/\s]+/[^/\n]+", self.mteb_name):
            raise ModelError(f"{model}: write mteb:org/name, a model of mteb's registry.")
        self._contexts: dict[str, tuple[TaskMetadata, PromptType | None, str, str]] = {}

    @cached_property
    def meta(self) -> ModelMeta:
        """Mteb's entry.

        Raises:
            ModelError: The entry is missing, or the model cannot be a backbone; the message gives the reason.
        """
        import mteb

        known = {str(meta.name): meta for meta in mteb.get_model_metas()}
        if self.mteb_name not in known:
            near = plugins.did_you_mean(self.mteb_name, known)
            raise ModelError(f"{self.model}: mteb's registry has no such model.{near}")
        meta = known[self.mteb_name]
        if reason := why_not(meta):
            raise ModelError(f"{self.model}: {reason}.")
        return meta

    def fingerprint(self) -> str:
        """Identity of weights, arguments and mteb's version, or of a name and revision behind an API."""
        weights = f"{self.meta.revision}" if is_api(self.meta) else self._resolved.fingerprint
        return digest("mteb", version("mteb"), self.mteb_name, self.meta.loader_kwargs, weights)

    def confirm(self, fingerprint: str) -> None:
        """Refuse changed files; a model behind an API has none."""
        if not is_api(self.meta):
            self._resolved.confirm()

    @cached_property
    def _resolved(self) -> assets.ResolvedModel:
        return assets.resolve(self.mteb_name, self.meta.revision)

    def modules(self, spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
        """A module that passes texts to mteb's wrapper.

        Raises:
            ModelError: The model runs its own code, which the user does not trust.
            AssetError: It cannot be loaded.
        """
        from xalign_models.backbones.streamed import Streamed

        meta = self.meta
        if needs_trust(meta) and not spec.trust_remote_code:
            raise ModelError(f"{self.model} runs its own code; if you trust its author, add --trust-remote-code.")
        if not is_api(meta):
            policy.check(self._resolved.files, trust=spec.trust_remote_code)
            if self._resolved.source != "hub":  # a mirror: mteb's loaders accept a path as a name
                meta = meta.model_copy(update={"name": self._resolved.path_or_id, "revision": None})
        with opened(self.model):
            wrapper: Any = meta.load_model(device=device)
        wrapper.mteb_model_meta = self.meta
        return (Streamed(self.model, partial(self._stream, wrapper), CHUNK),)

    def context(self, task: TaskMetadata, kind: PromptType | None, split: str, subset: str) -> str:
        """Name of a task's context: everything besides the text that mteb's wrapper may depend on."""
        generic = getattr(self.meta.loader, "__module__", "") in _GENERIC
        parts = [task.name, task.type, str(getattr(kind, "value", kind or "")), *(() if generic else (split, subset))]
        name = "\n".join(["mteb", *parts])
        self._contexts[name] = (task, kind, split, subset)
        return name

    def facts(self) -> Mapping[str, Any]:
        """The framework and the similarity function of mteb's entry."""
        return {"framework": self.meta.framework, "similarity_fn_name": self.meta.similarity_fn_name}

    def _stream(
        self, wrapper: Any, texts: Sequence[str], prompt: str
    ) -> Iterator[tuple[Batch, npt.NDArray[np.float32]]]:
        import mteb
        from datasets import Dataset

        from xalign_models.backbones.pipeline import Batch

        known = self._contexts.get(prompt)
        task, kind, split, subset = known or (mteb.get_task(FIT_TASK).metadata, None, "test", "default")
        full = list(texts) if known else [prompted(prompt, text) for text in texts]
        for start in range(0, len(full), CHUNK):
            chunk = full[start : start + CHUNK]
            loader: Any = DataLoader(Dataset.from_dict({"text": chunk}), batch_size=32)
            with opened(self.model):
                place = {"task_metadata": task, "hf_split": split, "hf_subset": subset, "prompt_type": kind}
                answer = wrapper.encode(loader, **place, batch_size=32, show_progress_bar=False)
                vectors = np.asarray(answer.cpu() if hasattr(answer, "cpu") else answer, dtype=np.float32)
            if vectors.ndim != 2 or len(vectors) != len(chunk):
                raise ModelError(f"{self.model} gave vectors of shape {vectors.shape}, not one per text: {len(chunk)}.")
            characters = sum(map(len, chunk))
            yield Batch(np.arange(start, start + len(chunk)), {}, characters, characters), vectors


def registry() -> dict[str, str]:
    """Each model of mteb's registry -> why it cannot be a backbone, or its requirement; opens nothing."""
    import mteb

    metas = [meta for meta in mteb.get_model_metas() if not str(meta.name).startswith("xalign/")]
    asks = {str(meta.name): BEHIND_AN_API if is_api(meta) else OWN_CODE if needs_trust(meta) else "" for meta in metas}
    return {str(meta.name): why_not(meta) or asks[str(meta.name)] for meta in metas}


def is_api(meta: ModelMeta) -> bool:
    """Whether a model runs behind an API; its wrapper reads the key from the environment."""
    return "API" in meta.framework


def needs_trust(meta: ModelMeta) -> bool:
    """Whether mteb's entry lets the model run its own code."""
    arguments = [part for part in walk(meta.loader_kwargs) if isinstance(part, Mapping)]
    return any(part.get("trust_remote_code") for part in arguments)


def why_not(meta: ModelMeta) -> str:
    """Why a model of mteb's registry cannot be a backbone, worded for its kind of model; empty if it can."""
    kinds = {str(kind) for kind in meta.model_type}
    if "cross-encoder" in kinds:
        return "a cross-encoder scores pairs of texts and gives no vectors"
    if "late-interaction" in kinds:
        return "late interaction gives many vectors per text, but an alignment maps one"
    if "text" not in meta.modalities:
        return f"it reads no text, only {', '.join(sorted(meta.modalities))}"
    if "dense" not in kinds and "router" not in kinds:
        return f"its vectors are {' and '.join(sorted(kinds))}, but an alignment maps dense ones"
    if meta.loader is None:
        return "mteb has no way to load it"
    if error := missing_requirement(meta):
        named = " ".join(str(error).split()).partition("dependencies: ")[2].partition(". You")[0]
        missing = re.sub(r" *;[^,(]*", "", named)
        return f"its wrapper needs {missing or 'packages that are not installed'}"
    return ""
