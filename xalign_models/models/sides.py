"""Tells models the language of each side of mteb's cross-lingual tasks, whose subsets name only the pair.

A task keeps its text, metric, name and revision. For models of xalign, the subset's name is replaced by the language of
the texts to encode.
"""

from collections.abc import Sequence
from typing import Any

from torch.utils.data import DataLoader

from xalign_models.errors import LanguageError
from xalign_models.languages import canonical
from xalign_models.models.encoder import XAlignEncoder

SEARCHES = {
    "BelebeleRetrieval": ("document", "query"),
    "CUREv1": ("query", "document"),
    "CrossLingualSemanticDiscriminationWMT19": ("query", "document"),
    "CrossLingualSemanticDiscriminationWMT21": ("query", "document"),
    "MLQARetrieval": ("document", "query"),
    "mFollowIRCrossLingual": ("query", "document"),
}
"""Retrieval task in two languages -> sides in the order of a subset's languages, which mteb does not record."""
COMPARES = {"BitextMining", "STS"}
"""Task types with two columns of text, in the order of the languages in a subset's name."""


def closed(kind: type[Any]) -> dict[str, str]:
    """Subsets of a task that a language-dependent model cannot encode -> the reason."""
    metadata = kind.metadata
    subsets = metadata.eval_langs if isinstance(metadata.eval_langs, dict) else {"default": metadata.eval_langs}
    named = not getattr(kind, "parallel_subsets", False)  # otherwise columns are named after their language
    reasons = {subset: _reason(metadata, subset, codes) for subset, codes in subsets.items() if named}
    return {subset: reason for subset, reason in reasons.items() if reason}


def _reason(metadata: Any, subset: str, codes: Sequence[str]) -> str | None:
    try:
        several = len(_codes(codes))
    except LanguageError:
        return "some of its text is not in a natural language"
    if several > 2:
        return "the language of each text, one of several, is unknown"
    known = metadata.name in SEARCHES or (metadata.type in COMPARES and subset != "default")
    return None if several == 1 or known else "the language of each side, one of two, is unknown"


def with_sides(kind: type[Any]) -> type[Any]:
    """A task's class, or a subclass that tells xalign's models the language of each side of bilingual subsets."""
    languages = kind.metadata.eval_langs
    if issubclass(kind, _Sided) or getattr(kind, "parallel_subsets", False) or not isinstance(languages, dict):
        return kind
    shut = closed(kind)
    if all(subset in shut or len(_codes(codes)) == 1 for subset, codes in languages.items()):
        return kind
    return type(kind.__name__, (_Sided, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__})


class _Sided:
    """A mixin that comes before the class of mteb's task."""

    metadata: Any
    dataset: Any

    def evaluate(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Evaluate as mteb does; models of xalign get the language of each side."""
        sided = _WithLanguages(model, self) if isinstance(model, XAlignEncoder) else model
        return super().evaluate(sided, *args, **kwargs)  # type: ignore[misc]

    def language_of(self, texts: Sequence[str], split: str, subset: str, prompt_type: Any) -> str | None:
        """The canonical language of one side's texts; None in a subset of one language."""
        codes = _codes(self.metadata.eval_langs[subset])
        if len(codes) == 1:
            return None
        if roles := SEARCHES.get(self.metadata.name):
            return codes[roles.index(str(getattr(prompt_type, "value", prompt_type)))]
        rows = self.dataset[subset][split]
        columns = getattr(self, "column_names", ("sentence1", "sentence2"))  # a task of STS may have its own
        for column, code in zip(columns, codes, strict=True):
            if list(rows[column]) == texts:
                return code
        raise LanguageError(f"{self.metadata.name} {subset}: its texts are not a column of the data set.")


class _WithLanguages:
    """A model of xalign with the languages of a task."""

    def __init__(self, encoder: XAlignEncoder, task: _Sided) -> None:
        self._encoder, self._task = encoder, task
        self.similarity, self.similarity_pairwise = encoder.similarity, encoder.similarity_pairwise
        self.model, self.mteb_model_meta = encoder.model, encoder.mteb_model_meta

    def encode(
        self, inputs: DataLoader[Any], *, hf_split: str, hf_subset: str, prompt_type: Any = None, **kwargs: Any
    ) -> Any:
        batches = list(inputs)
        texts = [text for batch in batches for text in batch["text"]]
        language = self._task.language_of(texts, hf_split, hf_subset, prompt_type)
        kwargs |= {"hf_split": hf_split, "hf_subset": language or hf_subset, "prompt_type": prompt_type}
        return self._encoder.encode(batches, **kwargs)  # type: ignore[arg-type]


def _codes(codes: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(canonical, codes)))
