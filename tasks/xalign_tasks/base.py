"""Shared code of the tasks: metadata, a corpus whose fingerprint is the revision, tagged texts, outcomes by item."""

import copy
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import numpy.typing as npt
from mteb.abstasks import AbsTask, AbsTaskBitextMining
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import EncoderProtocol
from mteb.types import EncodeKwargs, PromptType
from torch.utils.data import DataLoader

from xalign_models import assets, corpora
from xalign_models.corpora import Corpus
from xalign_models.errors import DataError, ModelError, XAlignError, one_line
from xalign_models.models.borrowed import task_classes
from xalign_models.plugins import code_digest
from xalign_models.results.items import save_items
from xalign_tasks.facts import FACTS, METADATA

logger = logging.getLogger(__name__)

INHERITED = (
    *("date", "domains", "task_subtypes", "license", "annotations_creators", "dialect", "sample_creation"),
    "bibtex_citation",
)
"""Fields of mteb's metadata that a task takes from its source among mteb's tasks."""

Scored = tuple[Mapping[str, dict[str, float]], Mapping[str, npt.NDArray[Any]]]
"""Scores and item data, by subset."""


def task_metadata(name: str, languages: Mapping[str, list[str]] | Iterable[str], **fields: Any) -> TaskMetadata:
    """Metadata of a task, with its facts from :mod:`xalign_tasks.facts`.

    ``languages`` are the canonical codes of each subset, or codes that each form a subset. Other fields of mteb's
    metadata override the defaults, which override the fields of the task's source in :data:`INHERITED`.
    """
    subsets = dict(languages) if isinstance(languages, Mapping) else {code: [code] for code in languages}
    facts = FACTS.get(name)
    listed = {"description": facts.description, "main_score": facts.score} if facts else {}
    defaults: dict[str, Any] = {"type": "BitextMining", "category": "t2t", "eval_splits": ["test"]}
    defaults |= METADATA.get(name, {})
    for source in defaults.get("adapted_from", [])[:1]:
        metadata = task_classes()[source].metadata
        defaults = {field: getattr(metadata, field) for field in INHERITED} | defaults
    return TaskMetadata(**{"name": name, "eval_langs": subsets, **defaults, **listed, **fields})


class StampedTask(AbsTask):
    """A task whose data revision, in the metadata and thus in every result, is the fingerprint of its text.

    For a plug-in's task, the fingerprint includes its code.

    Creating a task opens no text; :meth:`identify`, before results are compared, and ``load_data`` do.
    """

    metadata: Any
    dataset: Any
    data_loaded: bool

    def stamp(self, fingerprint: str) -> None:
        """Put the fingerprint (hex) of the text, and of a plug-in's code, into this instance's metadata."""
        if code := code_digest(type(self)):
            fingerprint = hashlib.sha256(f"{fingerprint} {code}".encode()).hexdigest()
        dataset = {**self.metadata.dataset, "revision": f"local-{fingerprint[:12]}"}
        self.metadata = self.metadata.model_copy(update={"dataset": dataset})

    def identify(self) -> None:
        """Stamp the text's fingerprint if the text is available; ``load_data`` reports missing text."""
        try:
            self.stamp(self.fingerprint())
        except XAlignError as error:
            logger.debug("%s", error)

    def fingerprint(self) -> str:
        """Sha256 (hex) of the local text.

        Raises:
            DataError: The text is missing.
        """
        raise NotImplementedError

    def unload_data(self) -> None:
        """Forget the text; keep the stamped metadata, which mteb's own method would drop."""
        metadata = self.metadata
        super().unload_data()
        self.metadata = metadata


@dataclass(frozen=True)
class Scoring:
    """The model that a task scores, with mteb's settings; without a folder, no item data is kept."""

    model: EncoderProtocol
    split: str
    encode_kwargs: EncodeKwargs
    folder: Path | None = None


class CorpusTask(StampedTask):
    """A task on one of xalign's corpora, by name: local, on the hub, or embedded.

    Attributes:
        corpus_name: Name for ``xalign_models.corpora.load``.
        narrows: Whether a run's default languages leave out subsets; False if the published protocol fixes them.
        needs: Languages that a model must be fitted for besides a subset's own, e.g. the languages of a shared pool.
    """

    corpus_name: ClassVar[str]
    narrows: ClassVar[bool] = True
    needs: tuple[str, ...] = ()
    _corpus: Corpus | None = None

    @property
    def corpus(self) -> Corpus:
        """The text, opened once."""
        if self._corpus is None:
            try:
                self._corpus = self.local_corpus()  # which a task may override
            except DataError:
                self._corpus = corpora.load(self.corpus_name)
        return self._corpus

    def fingerprint(self) -> str:
        """Sha256 (hex) of the local corpus."""
        return self.local_corpus().fingerprint()

    def local_corpus(self) -> Corpus:
        """The corpus, opened without a download.

        Raises:
            DataError: The corpus is not on this machine.
        """
        self._corpus = corpora.load(self.corpus_name, local=True)
        return self._corpus

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Open the corpus and stamp its revision; texts are read language by language when they are scored."""
        if not self.data_loaded:
            _ = self.corpus  # downloaded or installed now if necessary
            try:
                self.stamp(self.fingerprint())
            except DataError:
                logger.debug("%s comes from the hub, with the revision in the metadata.", self.corpus_name)
            self.dataset = dict.fromkeys(self.hf_subsets, dict.fromkeys(self.eval_splits))
            self.data_loaded = True

    def hub_rows(self, config: str, split: str, missing: DataError) -> datasets.Dataset:
        """A table of the data set in the metadata.

        Raises:
            DataError: The hub's copy is unavailable; ``missing`` says what XALIGN_DATA lacks.
        """
        try:
            with assets.hub_or_cache(self.metadata.dataset["path"]):
                return datasets.load_dataset(**self.metadata.dataset, name=config, split=split)
        except (OSError, ValueError) as error:
            raise DataError(f"{missing} The hub's copy is unavailable too ({type(error).__name__}).") from None

    def embed(
        self,
        scoring: Scoring,
        texts: Sequence[str],
        language: str | Sequence[str],
        subset: str,
        split: str | None = None,
        prompt_type: PromptType | None = None,
    ) -> npt.NDArray[np.float32]:
        """Vectors (n, d) of texts; the model also gets the language, one for all texts or one per text.

        Raises:
            ModelError: The vectors are not a matrix of numbers with a row per text, or one is not finite; comparisons
                with it are false, which would look like a perfect rank.
        """
        lang = [language] * len(texts) if isinstance(language, str) else list(language)
        dataset = datasets.Dataset.from_dict({"text": list(texts), "lang": lang})
        vectors = scoring.model.encode(
            DataLoader(dataset, batch_size=scoring.encode_kwargs.get("batch_size", 32)),
            task_metadata=self.metadata,
            hf_split=split or scoring.split,
            hf_subset=subset,
            prompt_type=prompt_type,
            **scoring.encode_kwargs,
        )
        embedded = _rows(vectors, len(texts))
        if len(bad := np.flatnonzero(~np.isfinite(embedded).all(axis=1))):
            raise ModelError(f"The model's vector of {texts[bad[0]][:80]!r} is not finite; load it in float32.")
        return embedded

    def _push_dataset_to_hub(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("The corpora belong to their publishers.")


def _rows(vectors: Any, count: int) -> npt.NDArray[np.float32]:
    """A model's vectors (an array, a tensor of any type, or a list of them) as a matrix with ``count`` rows."""

    def plain(part: Any) -> Any:
        return part.detach().cpu().to_dense().float().numpy() if hasattr(part, "detach") else part

    try:
        listed = [*map(plain, vectors)] if isinstance(vectors, list | tuple) else plain(vectors)
        matrix = np.asarray(listed, dtype=np.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"The model's vectors are not a matrix of numbers: {one_line(error)}.") from None
    if matrix.ndim != 2 or len(matrix) != count:
        raise ModelError(f"The model returned vectors of shape {matrix.shape}; return one per text ({count}).")
    return matrix


class Reader:
    """An encoder that records its texts; its vectors (n, 8) are meaningless."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, inputs: Iterable[Mapping[str, Any]], **kwargs: Any) -> npt.NDArray[np.float32]:
        """Standard normal vectors, float32."""
        texts = [text for batch in inputs for text in batch["text"]]
        self.texts += texts
        return np.random.default_rng(len(self.texts)).standard_normal((len(texts), 8), dtype=np.float32)


class JointTask(CorpusTask, AbsTaskBitextMining):
    """A task whose subsets are scored together, because most share text."""

    abstask_prompt = ""
    parallel_subsets = True  # the model gets each text's language from `embed`

    def calculate_descriptive_statistics(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Statistics of the texts that a model gets, by split and subset; mteb's own folder stays unchanged.

        Raises:
            DataError: The text is missing.
        """
        found = {}
        for split in self.eval_splits:
            subsets = {subset: self._statistics(split, [subset]) for subset in self.hf_subsets}
            found[split] = {**self._statistics(split, self.hf_subsets), "hf_subset_descriptive_stats": subsets}
        return found

    def _statistics(self, split: str, subsets: Sequence[str]) -> dict[str, float]:
        model: Any = Reader()
        self.evaluate(model, split, list(subsets), encode_kwargs={})
        lengths = np.array([len(text) for text in model.texts])
        return {
            "num_samples": len(lengths),
            "number_of_characters": int(lengths.sum()),
            "min_text_length": int(lengths.min()),
            "average_text_length": float(lengths.mean()),
            "max_text_length": int(lengths.max()),
            "unique_texts": len(set(model.texts)),
        }

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Scores and item data of the subsets; some may be left out, and scores of other subsets may be included."""
        raise NotImplementedError

    def evaluate(
        self,
        model: EncoderProtocol,
        split: str = "test",
        subsets_to_run: list[str] | None = None,
        *,
        encode_kwargs: EncodeKwargs,
        prediction_folder: Path | None = None,
        **kwargs: Any,
    ) -> dict[str, dict[str, float]]:
        """Scores of the chosen subsets; with ``prediction_folder``, their item data is kept there."""
        if not self.data_loaded:
            self.load_data()
        subsets = set(self.hf_subsets) & set(self.hf_subsets if subsets_to_run is None else subsets_to_run)
        folder = None if prediction_folder is None else Path(prediction_folder)
        scores, items = self.score(Scoring(model, split, encode_kwargs, folder), subsets)
        if folder is not None:
            save_items(folder, self.metadata.name, {name: rows for name, rows in items.items() if name in subsets})
        main = self.metadata.main_score
        return {name: {**scores[name], "main_score": scores[name][main]} for name in sorted(subsets & scores.keys())}


def without_normalisation(model: EncoderProtocol) -> EncoderProtocol:
    """An xalign model without its final Normalize; any other model unchanged."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    unscaled = copy.copy(model)
    if hasattr(unscaled, "tail"):
        unscaled.tail = [module for module in unscaled.tail if not isinstance(module, Normalize)]
    return unscaled
