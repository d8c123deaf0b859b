"""The mteb encoder: pairs each text with its language, chooses its prompt, and encodes it once."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta
from mteb.types import PromptType
from torch import nn
from torch.utils.data import DataLoader

from xalign_models.backbones.inputs import with_side
from xalign_models.backbones.loading import prompt_languages
from xalign_models.backbones.raw import RawEncoder
from xalign_models.errors import LanguageError, ModelError
from xalign_models.languages import canonical, is_canonical


class XAlignEncoder(AbsEncoder):
    """A backbone and the modules after it, as an mteb encoder.

    Args:
        raw: The encoder of raw vectors, with the store.
        tail: The modules after the backbone, such as an alignment and a normalisation, applied to raw vectors at every
            call. If this is a function that returns them, it is called when the first text is encoded.
        prompts: Prompts by language, task name, task type, ``query`` / ``document`` or ``default``; see BackboneSpec.
        languages: The languages of the alignment; None for any language. If prompts are by language, only languages
            with a prompt count.
        meta: Name, revision and other metadata for mteb.
        sides: The sides, ``query`` or ``document``, that the backbone encodes differently from texts without a side.
        needs_language: Whether the alignment needs the language although ``languages`` is None, because it serves
            languages that were not fitted.
        context: Function that names the context of a task's texts, if the backbone chooses its own prompts; see
            :class:`~xalign_models.backbones.sources.Source`.
    """

    def __init__(
        self,
        raw: RawEncoder,
        tail: Sequence[nn.Module] | Callable[[], Sequence[nn.Module]],
        prompts: Mapping[str, str],
        languages: Sequence[str] | None,
        meta: ModelMeta,
        context: Callable[[Any, Any, str, str], str] | None = None,
        sides: Collection[str] = (),
        needs_language: bool = False,
    ) -> None:
        self.raw = raw
        self._tail = tail
        self.prompts = dict(prompts)
        self._by_language = any(map(is_canonical, prompts))
        known_sets = [frozenset(codes) for codes in (languages, prompt_languages(prompts)) if codes is not None]
        self.languages = frozenset.intersection(*known_sets) if known_sets else None
        self._needs_language = needs_language or self.languages is not None or self._by_language
        self._meta = meta
        self._context, self._sides = context, sides
        self.model = None  # mteb expects a wrapped model here; the modules are raw.modules and tail

    @cached_property
    def tail(self) -> Sequence[nn.Module]:
        """The modules after the backbone, built on first use."""
        return self._tail() if callable(self._tail) else self._tail

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Name, revision and other metadata for mteb."""
        return self._meta

    @mteb_model_meta.setter
    def mteb_model_meta(self, meta: ModelMeta) -> None:
        # mteb sets its registry's entry, which computes the revision again at each access
        if vars(meta).get("revision") is not None:
            self._meta = meta

    def measured(self) -> dict[str, Any]:
        """Speeds, share of cut texts and digest of a probe text's tokens, if known, for the record of a run."""
        fit_seconds = next((seconds for module in self.tail if (seconds := getattr(module, "fit_seconds", None))), None)
        counts = self.raw.counts
        costs = {"tokens_per_second": counts.tokens_per_second, "fit_seconds_per_language": fit_seconds}
        costs["share_at_token_limit"] = counts.full / counts.encoded if counts.encoded else None
        tokens = {"tokens_of_probe": counts.tokens} if counts.tokens else {}
        return {name: float(f"{cost:.4g}") for name, cost in costs.items() if cost} | tokens

    def unfitted(self, languages: Iterable[str]) -> list[str]:
        """The ``languages`` (any codes) that the alignment or the prompts lack, canonical and sorted."""
        return [] if self.languages is None else sorted({canonical(code) for code in languages} - self.languages)

    def refusal(self, unfitted: Sequence[str]) -> str:
        """A message that explains why texts in these languages cannot be encoded, and what to do."""
        prompted = prompt_languages(self.prompts)
        if prompted is None or set(unfitted) <= prompted:
            return f"{self.mteb_model_meta.name} is not fitted for {', '.join(unfitted)}"
        return (
            f"{self.mteb_model_meta.name} has no prompt in {', '.join(sorted({*unfitted} - prompted))}; it has one in "
            f"{', '.join(sorted(prompted))}. English prompts (en-prompts) work for every language"
        )

    def prompt_for(self, task: TaskMetadata, prompt_type: PromptType | None = None) -> str:
        """The prompt of the task's name, type or side, in this order, else the default; language prompts precede it."""
        kind = str(getattr(prompt_type, "value", prompt_type or ""))
        kinds = ("document", "passage") if kind in {"document", "passage"} else (kind,)
        keys = (task.name, task.type, *kinds, "default")
        return next((self.prompts[key] for key in keys if key in self.prompts), "")

    def encode(
        self,
        inputs: DataLoader[Any],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> npt.NDArray[np.float32]:
        """Vectors (n, d), float32, of a task's texts.

        A text's language is in the batch's ``lang`` column, or else it is the only language of the subset.

        Raises:
            LanguageError: The alignment needs the language, which is unknown or was not fitted.
            ModelError: A keyword would change the vectors.
        """
        if idle := sorted(kwargs.keys() - {"batch_size", "show_progress_bar"}):
            raise ModelError(
                f"{self.mteb_model_meta.name} takes no {', '.join(idle)} in encode_kwargs. Shorter, int8 and binary "
                'vectors are separate models, e.g. xalign_models.evaluate(..., overrides={"vectors": "int8"}).'
            )
        texts: list[str] = []
        codes: list[str] = []
        for batch in _columns(inputs):
            texts.extend(batch["text"])
            codes.extend(batch.get("lang", ()))
        languages: list[str | None] = [*codes] or [self._language_of(task_metadata, hf_subset)] * len(texts)
        label = f"{task_metadata.name} {hf_subset}"
        if self._context is not None:
            prompt = self._context(task_metadata, prompt_type, hf_split, hf_subset)
        else:
            prompt = self.prompt_for(task_metadata, prompt_type)
        side = str(getattr(prompt_type, "value", prompt_type or ""))
        return self.encode_texts(texts, languages, prompt, label, side)

    def encode_texts(
        self,
        texts: Sequence[str],
        languages: Sequence[str | None],
        prompt: str | None = None,
        progress: str | None = None,
        side: str = "",
    ) -> npt.NDArray[np.float32]:
        """Vectors (n, d), float32, of texts in given languages (any codes; None if no alignment needs one).

        By default the model's default prompt is used; ``""`` means no prompt. The ``side``, ``query`` or ``document``,
        selects the route of a model that has routes.

        Raises:
            LanguageError: A language has no prompt, and there is no default.
            ModelError: The model has routes, but none for these texts.
            AlignmentError: The alignment is not fitted under the prompt.
        """
        if prompt is None:
            prompt = self.prompts.get("default", "")
        side = side if side in self._sides else ""
        lang = None
        if self._needs_language:
            lang = [None if language is None else canonical(language) for language in languages]
        prompted = prompt_languages(self.prompts)  # None if a default prompt serves all others
        chosen: str | list[str] = with_side(side, prompt)
        if lang and self._by_language:
            if prompted is not None and (missing := sorted({str(code) for code in lang} - prompted)):
                raise LanguageError(f"{self.refusal(missing)}.")
            chosen = [with_side(side, self.prompts.get(str(code), prompt)) for code in lang]
        raw = self.raw.encode(texts, chosen, progress)
        # A source that names contexts chooses its own prompts, and a language's prompt serves all texts: one map.
        one = self._context is not None or prompted is not None
        features: dict[str, Any] = {"sentence_embedding": torch.from_numpy(raw), "lang": lang}
        features["prompt"] = "" if one else with_side(side, prompt)
        with torch.inference_mode():
            for module in self.tail:
                features = module(features)
        vectors: npt.NDArray[np.float32] = features["sentence_embedding"].numpy()
        return vectors

    def _language_of(self, task: TaskMetadata, subset: str) -> str | None:
        if not self._needs_language:
            return None
        listed = task.hf_subsets_to_langscripts.get(subset)
        if listed is None:  # a column of a multi-parallel task, named by its language
            try:
                return canonical(subset)
            except LanguageError:
                listed = task.languages
        if len(set(listed)) == 1:
            return canonical(listed[0])
        if self.languages is None:  # the default prompt serves all, or the alignment needs no language
            return None
        raise LanguageError(
            f"{task.name} does not say which language each text of {subset!r} is in, and {self.mteb_model_meta.name} "
            "needs it; use a task with a 'lang' column or one column per language."
        )


class OpenEncoder(XAlignEncoder):
    """An mteb encoder of a SentenceTransformer that handles the languages of texts itself and has no prompts."""

    def __init__(self, model: Any, raw: RawEncoder, meta: ModelMeta) -> None:
        super().__init__(raw, (), {}, None, meta, needs_language=True)
        self._open = model

    def encode_texts(
        self, texts: Sequence[str], languages: Sequence[str | None], *args: Any, **kwargs: Any
    ) -> npt.NDArray[np.float32]:
        """The model's vectors (n, d), of unit length. Raises LanguageError for an unknown code."""
        inputs = [{"text": text, "lang": code} for text, code in zip(texts, languages, strict=True)]
        options = {"device": self.raw.device, "normalize_embeddings": True, "show_progress_bar": False}
        vectors: npt.NDArray[np.float32] = self._open.encode(inputs, **options)
        return vectors


def _columns(inputs: DataLoader[Any]) -> Iterable[Mapping[str, Sequence[str]]]:
    """Texts and languages of all inputs: at once if they are columns of a data set, else batch by batch."""
    dataset: Any = getattr(inputs, "dataset", None)
    names = [name for name in ("text", "lang") if name in (getattr(dataset, "column_names", None) or ())]
    return [dataset.select_columns(names)[:]] if "text" in names else inputs
