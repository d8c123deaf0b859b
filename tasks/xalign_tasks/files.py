"""Tasks on a published set in files by language, or on the hub, that is no corpus to fit on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from datasets import Dataset, load_dataset
from mteb.abstasks import AbsTaskBitextMining

from xalign_models import assets
from xalign_models.corpora import Corpus, file_digest
from xalign_models.errors import DataError
from xalign_tasks.base import CorpusTask, save_items

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol
    from mteb.timing import TimingStack
    from mteb.types import EncodeKwargs

Scored = tuple[Mapping[str, dict[str, float]], Mapping[str, npt.NDArray[Any]]]
"""Scores and outcomes item by item, by subset."""


class FilesTask(CorpusTask, AbsTaskBitextMining):
    """A task that defines the files of a language under XALIGN_DATA and how to read them.

    Its subsets share text and are scored together. mteb passes all subsets at once to tasks of its bitext class only,
    therefore this is one.
    """

    abstask_prompt = ""

    def files(self) -> dict[str, tuple[Path, ...]]:
        """Canonical code -> the language's files.

        Raises:
            DataError: The files are missing; the message names the folder and the publisher.
        """
        raise NotImplementedError

    def read(self, files: tuple[Path, ...]) -> Any:
        """Read a language's files.

        Raises:
            DataError: A file is malformed.
        """
        raise NotImplementedError

    def reading(self) -> str:
        """Settings of the reading that may change, as a part of the text's fingerprint."""
        return ""

    def local_corpus(self) -> Corpus:
        """The files as a corpus, each language read by :meth:`read`.

        Raises:
            DataError: The files are not under XALIGN_DATA.
        """
        name, files = self.metadata.name, self.files()

        def identity(language: str) -> str:
            return " ".join((*map(file_digest, files[language]), self.reading()))

        def rows(language: str) -> Any:
            if language not in files:
                raise DataError(f"{name} has no files of {language}; it has {', '.join(files)}.")
            return self.read(files[language])

        return Corpus(name, "files", (name,), tuple(files), rows, identity)

    def hub_corpus(self, missing: DataError) -> Corpus:
        """The corpus from the hub; by default there is none.

        Raises:
            DataError: The hub has no copy; ``missing`` says what XALIGN_DATA lacks.
        """
        raise missing

    def open_corpus(self) -> Corpus:
        """The files, whose fingerprint becomes the revision, or else the hub's copy.

        Raises:
            DataError: The text is in neither place.
        """
        try:
            corpus = self.local_corpus()
        except DataError as missing:
            return self.hub_corpus(missing)
        self.stamp(corpus.fingerprint())
        return corpus

    def hub_rows(self, config: str, split: str, missing: DataError) -> Dataset:
        """A table of the data set in the metadata.

        Raises:
            DataError: The hub's copy is unavailable.
        """
        try:
            with assets.hub_or_cache(self.metadata.dataset["path"]):
                return load_dataset(**self.metadata.dataset, name=config, split=split)
        except (OSError, ValueError) as error:
            raise DataError(f"{missing} The hub's copy is unavailable too ({type(error).__name__}).") from None

    def score(self, model: EncoderProtocol, subsets: set[str], split: str, encode_kwargs: EncodeKwargs) -> Scored:
        """Score subsets; the result may include others."""
        raise NotImplementedError

    def evaluate(
        self,
        model: EncoderProtocol,
        split: str = "test",
        subsets_to_run: list[str] | None = None,
        *,
        encode_kwargs: EncodeKwargs,
        prediction_folder: Path | None = None,
        num_proc: int | None = None,
        timer: TimingStack | None = None,
        **kwargs: Any,
    ) -> dict[str, dict[str, float]]:
        """Scores of the chosen subsets; with ``prediction_folder`` the outcomes item by item are kept there."""
        if not self.data_loaded:
            self.load_data(num_proc=num_proc)
        subsets = set(self.hf_subsets) & set(self.hf_subsets if subsets_to_run is None else subsets_to_run)
        scores, items = self.score(model, subsets, split, encode_kwargs)
        if prediction_folder is not None:
            save_items(
                Path(prediction_folder), self.metadata.name, {subset: items[subset] for subset in sorted(subsets)}
            )
        return {subset: scores[subset] for subset in sorted(subsets)}
