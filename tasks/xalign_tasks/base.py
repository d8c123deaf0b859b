"""Shared code of the tasks: a corpus whose fingerprint is the revision, tagged texts, outcomes by item."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from datasets import Dataset
from mteb.abstasks import AbsTask
from torch.utils.data import DataLoader

from xalign_models import corpora
from xalign_models.corpora import Corpus
from xalign_models.errors import DataError, ModelError, XAlignError
from xalign_models.results.items import save_items

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol
    from mteb.types import EncodeKwargs, PromptType

logger = logging.getLogger(__name__)

__all__ = ["CorpusTask", "StampedTask", "fill_scores", "save_items", "without_normalisation"]


class StampedTask(AbsTask):
    """A task whose data set's revision, in the metadata and so in every result, is the fingerprint of its text.

    Creating a task opens no text; :meth:`identify`, before results are compared, and ``load_data`` do.
    """

    metadata: Any
    dataset: Any
    data_loaded: bool

    def stamp(self, fingerprint: str) -> None:
        """Put the text's fingerprint (hex) into this instance's metadata."""
        dataset = {**self.metadata.dataset, "revision": f"local-{fingerprint[:12]}"}
        self.metadata = self.metadata.model_copy(update={"dataset": dataset})

    def identify(self) -> None:
        """Stamp the text's fingerprint if the text is available; ``load_data`` reports what is missing."""
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
        """Forget the text; the stamped metadata stay, which mteb's own method would drop."""
        metadata = self.metadata
        super().unload_data()
        self.metadata = metadata


class CorpusTask(StampedTask):
    """A task on a corpus of ours, by name: local, on the hub, or embedded.

    Results of other text never count as results of this one.

    Attributes:
        corpus_name: Name for ``xalign_models.corpora.load``.
        narrows: Whether a run's default languages leave out subsets; False where the published protocol fixes them.
        needs: Languages that a model must be fitted for beside a subset's own, e.g. those of a shared pool.
    """

    corpus_name: ClassVar[str]
    narrows: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ()
    _corpus: Corpus | None = None

    @property
    def corpus(self) -> Corpus:
        """The text, opened once.

        Raises:
            DataError: The text is missing; the message names the variable and the publisher.
        """
        if self._corpus is None:
            self._corpus = corpora.load(self.corpus_name)
        return self._corpus

    def fingerprint(self) -> str:
        """Sha256 (hex) of the local corpus.

        Raises:
            DataError: The corpus is missing.
        """
        return self.local_corpus().fingerprint()

    def local_corpus(self) -> Corpus:
        """The corpus, opened without a download.

        Raises:
            DataError: The corpus is not on this machine.
        """
        self._corpus = corpora.load(self.corpus_name, local=True)
        return self._corpus

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Open the corpus and stamp its revision; texts are read language by language when they are scored.

        Raises:
            DataError: The text is missing.
        """
        if not self.data_loaded:
            _ = self.corpus  # downloaded or installed now if need be
            try:
                self.stamp(self.fingerprint())
            except DataError:
                logger.debug("%s is the hub's, of the revision in the metadata.", self.corpus_name)
            self.dataset = dict.fromkeys(self.hf_subsets, dict.fromkeys(self.eval_splits))
            self.data_loaded = True

    def embed(
        self,
        model: EncoderProtocol,
        texts: Sequence[str],
        language: str | Sequence[str],
        *,
        split: str,
        subset: str,
        encode_kwargs: EncodeKwargs,
        prompt_type: PromptType | None = None,
    ) -> npt.NDArray[np.float32]:
        """Vectors (n, d) of texts; the model also gets the language, one for all texts or one per text.

        Raises:
            ModelError: A vector is not finite; comparisons with it are false, which would read as a perfect rank.
        """
        lang = [language] * len(texts) if isinstance(language, str) else list(language)
        dataset = Dataset.from_dict({"text": list(texts), "lang": lang})
        vectors = model.encode(
            DataLoader(dataset, batch_size=encode_kwargs.get("batch_size", 32)),
            task_metadata=self.metadata,
            hf_split=split,
            hf_subset=subset,
            prompt_type=prompt_type,
            **encode_kwargs,
        )
        embedded = np.asarray(vectors, dtype=np.float32)
        if len(bad := np.flatnonzero(~np.isfinite(embedded).all(axis=1))):
            raise ModelError(f"The model's vector of {texts[bad[0]][:80]!r} is not finite; load it in float32.")
        return embedded

    def _calculate_descriptive_statistics_from_split(self, *args: Any, **kwargs: Any) -> dict[str, int]:
        return {"num_samples": 0}  # mteb's statistics are of data sets on the hub

    def _push_dataset_to_hub(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("The corpora belong to their publishers.")


def without_normalisation(model: EncoderProtocol) -> EncoderProtocol:
    """A model of ours without its final Normalize; any other model unchanged."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    unscaled = copy.copy(model)
    if hasattr(unscaled, "tail"):
        unscaled.tail = [module for module in unscaled.tail if not isinstance(module, Normalize)]
    return unscaled


def fill_scores(scores: dict[str, float], main: str) -> dict[str, float]:
    """The scores with mteb's ``main_score``."""
    return {**scores, "main_score": scores[main]}
