"""Tasks on a published set that lies in files by language, or on the hub, and is no corpus to fit on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from datasets import Dataset, load_dataset
from mteb.abstasks import AbsTaskBitextMining

from tasks.base import CorpusTask, save_items
from xalign_models.corpora import Corpus, file_digest
from xalign_models.errors import DataError

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol
    from mteb.timing import TimingStack
    from mteb.types import EncodeKwargs

Scored = tuple[Mapping[str, dict[str, float]], Mapping[str, npt.NDArray[Any]]]
"""Scores and outcomes item by item, by subset."""


class FilesTask(CorpusTask, AbsTaskBitextMining):
    """A task that says which files under XALIGN_DATA are a language's and how they are read.

    Its subsets have text in common, so that they are scored together: mteb hands over all at once to tasks of its
    bitext class alone, which is why this is one.
    """

    abstask_prompt = ""

    def files(self) -> dict[str, tuple[Path, ...]]:
        """Canonical code -> the language's files.

        Raises:
            DataError: They are not there; the message names the folder and the publisher.
        """
        raise NotImplementedError

    def read(self, files: tuple[Path, ...]) -> Any:
        """What is in a language's files.

        Raises:
            DataError: They are malformed.
        """
        raise NotImplementedError

    def reading(self) -> str:
        """How the files are read, as far as it may change: a part of the text's fingerprint."""
        return ""

    def local_corpus(self) -> Corpus:
        """The files; a language's rows are what :meth:`read` makes of its own.

        Raises:
            DataError: They are not under XALIGN_DATA.
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
        """The same from the hub; a task whose set is not there has none.

        Raises:
            DataError: It is not there; ``missing`` says what is lacking under XALIGN_DATA.
        """
        raise missing

    def open_corpus(self) -> Corpus:
        """The files, whose fingerprint becomes the revision, or else the hub's copy.

        Raises:
            DataError: It is in neither.
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
            DataError: The hub does not give it.
        """
        try:
            return load_dataset(**self.metadata.dataset, name=config, split=split)
        except (OSError, ValueError) as error:
            raise DataError(f"{missing} The hub's copy cannot be had either ({type(error).__name__}).") from None

    def score(self, model: EncoderProtocol, subsets: set[str], split: str, encode_kwargs: EncodeKwargs) -> Scored:
        """Score subsets; those that are not asked for may be there too."""
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
        wanted = set(self.hf_subsets) & set(self.hf_subsets if subsets_to_run is None else subsets_to_run)
        scores, items = self.score(model, wanted, split, encode_kwargs)
        if prediction_folder is not None:
            save_items(
                Path(prediction_folder), self.metadata.name, {subset: items[subset] for subset in sorted(wanted)}
            )
        return {subset: scores[subset] for subset in sorted(wanted)}
