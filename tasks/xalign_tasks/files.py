"""Tasks on published sets that are not corpora to fit on, in files by language or on the hub."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xalign_models.corpora import Corpus
from xalign_models.corpora.base import from_files
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import from_iso639_1
from xalign_models.paths import data_dir
from xalign_tasks.base import JointTask

logger = logging.getLogger(__name__)


def data_folder(name: str, missing: str) -> Path:
    """A folder under XALIGN_DATA.

    Raises:
        DataError: There is no such folder; the message is ``missing``.
    """
    root = data_dir()
    if root is None or not (root / name).is_dir():
        raise DataError(missing)
    return root / name


def files_by_language(folder: str, pattern: str, code: Callable[[Path], str], missing: str) -> dict[str, Path]:
    """The files of a folder under XALIGN_DATA by canonical language, from the two-letter ``code`` of each path.

    Raises:
        DataError: There are no files; the message is ``missing``.
    """
    base, files = data_dir(), dict[str, Path]()
    for path in sorted((base / folder).glob(pattern)) if base else ():
        try:
            files[from_iso639_1(code(path))] = path
        except LanguageError:
            logger.warning("%s: left out, because no language has its code.", path)
    if not files:
        raise DataError(missing)
    return files


def present(files: dict[str, tuple[Path, ...]], publisher: str) -> dict[str, tuple[Path, ...]]:
    """The files of each language, checked to exist.

    Raises:
        DataError: A file is missing; the message says where it is published.
    """
    if absent := [str(path) for paths in files.values() for path in paths if not path.is_file()]:
        raise DataError(f"{absent[0]} is missing; get it from {publisher}.")
    return files


class FilesTask(JointTask):
    """A task that defines where a language's files are under XALIGN_DATA and how to read them."""

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
        """Variable settings of the reader, as part of the text's fingerprint."""
        return ""

    def local_corpus(self) -> Corpus:
        """The files as a corpus, each language read by :meth:`read`."""
        name = self.metadata.name
        return from_files(name, "files", (name,), self.files(), self.read, f" {self.reading()}")

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Read the languages of the chosen subsets, and the languages that every subset needs, into ``dataset``."""
        if not self.data_loaded:
            corpus, of_subset = self.open_corpus(), self.metadata.hf_subsets_to_langscripts
            languages = {*self.needs, *(language for subset in self.hf_subsets for language in of_subset[subset])}
            self.dataset = {language: corpus.rows(language) for language in sorted(languages)}
            self.data_loaded = True

    def hub_corpus(self, missing: DataError) -> Corpus:
        """The corpus from the hub; by default the hub has none.

        Raises:
            DataError: The hub has no copy; ``missing`` says what XALIGN_DATA lacks.
        """
        raise missing

    def open_corpus(self) -> Corpus:
        """The files, whose fingerprint becomes the revision, else the hub's copy.

        Raises:
            DataError: The text is in neither place.
        """
        try:
            corpus = self.local_corpus()
        except DataError as missing:
            return self.hub_corpus(missing)
        self.stamp(corpus.fingerprint())
        return corpus
