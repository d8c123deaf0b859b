"""Tells models the language of each side of mteb's cross-lingual tasks, whose subsets name both languages only.

A task keeps its text, metric, name and revision; the subset's name becomes the language of the texts to encode.
"""

import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import mteb
import numpy as np
from torch.utils.data import DataLoader

from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import canonical
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.mteb import check_task, get_task
from xalign_models.plugins import CORPORA, Part
from xalign_models.recommend import CLASSIFICATION, RETRIEVAL, SIMILARITY, Candidate, Labelled
from xalign_models.recommend.proxies import Scored
from xalign_models.results.items import load_items, outcomes_of

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
        return "the language of each text is unknown, out of several"
    known = metadata.name in SEARCHES or (metadata.type in COMPARES and subset != "default")
    return None if several == 1 or known else "the language of each side is unknown, out of two"


def with_sides(kind: type[Any]) -> type[Any]:
    """A task's class, or a subclass that passes the language of each side of bilingual subsets to models of xalign."""
    languages = kind.metadata.eval_langs
    if issubclass(kind, _Sided) or getattr(kind, "parallel_subsets", False) or not isinstance(languages, dict):
        return kind
    shut = closed(kind)
    if all(subset in shut or len(_codes(codes)) == 1 for subset, codes in languages.items()):
        return kind
    return type(kind.__name__, (_Sided, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__})


class _Sided:
    """A mixin that precedes the class of mteb's task."""

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
        for column, code in zip(("sentence1", "sentence2"), codes, strict=True):
            if list(rows[column]) == texts:
                return code
        raise LanguageError(f"{self.metadata.name} {subset}: its texts are not a column of the data set.")


class _WithLanguages:
    """A model of xalign with the languages of a task."""

    def __init__(self, encoder: XAlignEncoder, task: _Sided) -> None:
        self._encoder, self._task = encoder, task
        self.similarity, self.similarity_pairwise = encoder.similarity, encoder.similarity_pairwise
        self.model = encoder.model

    @property
    def mteb_model_meta(self) -> Any:
        return self._encoder.mteb_model_meta

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


USES = {
    "BitextMining": RETRIEVAL, "Retrieval": RETRIEVAL, "Reranking": RETRIEVAL, "STS": SIMILARITY,
    "Classification": CLASSIFICATION, "PairClassification": CLASSIFICATION,
}  # fmt: skip
"""Kind of use by mteb's type of task."""


def is_task(name: str) -> bool:
    """Whether a name to judge by is a task's and not a corpus's."""
    try:
        check_task(name)
    except DataError:
        return False
    return name not in CORPORA


def labelled(name: str, languages: Collection[str], encoder: Callable[[Candidate], Any]) -> Labelled:
    """A task's subsets in some languages, scored item by item with the encoder of each candidate.

    A subset is across languages if its texts are of more than one; one that lists a single language, if those that it
    needs are.

    Raises:
        DataError: The task is unknown, of another type, or keeps no outcomes of single items.
        LanguageError: No subset is across the languages.
    """
    task: Any = get_task(Part(name))
    getattr(task, "identify", lambda: None)()  # own text has subsets once it is open
    if task.metadata.type not in USES:
        raise DataError(f"--judge {name}: tasks of type {task.metadata.type} do not judge; use {', '.join(USES)}.")
    spoken = {
        subset: {*getattr(task, "needs", ()), *codes}
        for subset, codes in task.metadata.hf_subsets_to_langscripts.items()
    }
    subsets = [subset for subset in task.hf_subsets if spoken[subset] <= {*languages}]
    listed = {subset: [*codes] for subset, codes in task.metadata.eval_langs.items()} if subsets else {}
    within = {
        subset for subset in subsets if len({*(listed[subset] if len(listed[subset]) > 1 else spoken[subset])}) == 1
    }
    if not set(subsets) - within:
        needed = ", ".join(sorted(set.union(*spoken.values())))
        raise LanguageError(f"--judge {name} has no part across {', '.join(sorted(languages))}; it needs {needed}.")

    def score(candidate: Candidate) -> tuple[Scored, Scored]:
        task.hf_subsets = list(subsets)
        with tempfile.TemporaryDirectory() as folder:
            quiet = {"show_progress_bar": False, "co2_tracker": False}
            result = mteb.evaluate(encoder(candidate), task, cache=None, prediction_folder=folder, **quiet)
            items = load_items(Path(folder) / f"{name}.npz")
        parts: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        for row in (row for rows in result.task_results[0].scores.values() for row in rows):
            subset = row["hf_subset"]
            outcomes = outcomes_of(items[subset], row["main_score"]) if subset in items else None
            if outcomes is None:
                raise DataError(f"--judge {name}: it keeps no outcomes of single items, so no test is possible.")
            parts[subset in within][subset] = np.arange(len(outcomes), dtype=np.uint32), outcomes.astype(float)
        return parts

    return Labelled(USES[task.metadata.type], name, score)
