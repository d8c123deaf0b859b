"""Your own parallel text as a task: a directory of one file per language, or a table with a column each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tasks.precision import PrecisionTask, pair_subsets, precision_metadata
from xalign_models.corpora import Corpus, own
from xalign_models.errors import DataError

VARIABLE = "XALIGN_OWN"


class OwnParallel(PrecisionTask):
    """P@k between the languages of ``path`` (by default ``$XALIGN_OWN``, which ``--data own=DIR`` sets).

    Args:
        seed: mteb's.
        path: A directory with ``deu.txt``, ``eng.txt``, ... or a ``.tsv``, ``.jsonl`` or ``.parquet`` table.
        **kwargs: mteb's.
    """

    corpus_name = "own"
    narrows = False
    metadata = precision_metadata(
        "OwnParallel",
        ("deu-Latn", "eng-Latn"),
        "P@1, P@5 and P@10 of finding a sentence's translation in parallel text of your own.",
        dataset={"path": "local/own", "revision": "local"},
        eval_splits=["test"],
    )

    def __init__(self, seed: int = 42, path: Path | None = None, **kwargs: Any) -> None:
        """Make the task for the languages found at ``path``."""
        value = path or os.environ.get(VARIABLE)
        self._path = Path(value).expanduser() if value else None
        super().__init__(seed, **kwargs)

    def local_corpus(self) -> Corpus:
        """The user's text.

        Raises:
            DataError: No path was given, or what is there is no parallel text.
        """
        if self._path is None:
            raise DataError(f"OwnParallel needs your text: --data own=DIR on the command line, or {VARIABLE}=DIR.")
        self._corpus = own(self._path)
        self.metadata = self.metadata.model_copy(update={"eval_langs": pair_subsets(self._corpus.languages)})
        self.hf_subsets = list(self.metadata.eval_langs)
        return self._corpus

    @property
    def corpus(self) -> Corpus:
        """The user's text, opened once."""
        return self._corpus or self.local_corpus()
