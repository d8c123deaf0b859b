"""Your own parallel text as a task: a directory of one file per language, or a table with a column each."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.precision import PrecisionTask, pair_subsets, precision_metadata
from xalign_models.corpora import Corpus, load, own
from xalign_models.corpora.own_text import split_part
from xalign_models.errors import DataError
from xalign_models.specs import ModelSpec

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

VARIABLE, ALLOW = "XALIGN_OWN", "XALIGN_SCORE_FITTED"


class OwnParallel(PrecisionTask):
    """P@k between the languages of ``path`` (by default ``$XALIGN_OWN``, which ``--data own=DIR`` sets).

    A model that was fitted on rows of it is refused, unless ``$XALIGN_SCORE_FITTED`` is set: fit on ``own:fit:DIR`` and
    score ``--data own=test:DIR``, which are its halves.

    Args:
        seed: mteb's.
        path: A directory with ``deu.txt``, ``eng.txt``, ... or a ``.tsv``, ``.jsonl`` or ``.parquet`` table; with
            ``fit:`` or ``test:`` before it, half of it.
        **kwargs: mteb's.
    """

    corpus_name = "own"
    _path: Path | None
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
        self._part, self._path = ("", None) if not value else split_part(str(value))
        super().__init__(seed, **kwargs)

    def local_corpus(self) -> Corpus:
        """The user's text.

        Raises:
            DataError: No path was given, or what is there is no parallel text.
        """
        if self._path is None:
            raise DataError(f"OwnParallel needs your text: --data own=DIR on the command line, or {VARIABLE}=DIR.")
        self._corpus = own(self._path, self._part)
        self.metadata = self.metadata.model_copy(update={"eval_langs": pair_subsets(self._corpus.languages)})
        self.hf_subsets = list(self.metadata.eval_langs)
        return self._corpus

    def evaluate(self, model: EncoderProtocol, *args: Any, **kwargs: Any) -> dict[str, dict[str, float]]:
        """Scores of the chosen subsets.

        Raises:
            DataError: The model was fitted on rows of the text.
        """
        rows = fitted_rows(model, self.corpus)
        if rows and not os.environ.get(ALLOW):
            raise DataError(
                f"{model.mteb_model_meta.name} was fitted on {rows} of these rows; fit it on own:fit:DIR and score "
                f"--data own=test:DIR, or set {ALLOW}=1."
            )
        return super().evaluate(model, *args, **kwargs)

    @property
    def corpus(self) -> Corpus:
        """The user's text, opened once."""
        return self._corpus or self.local_corpus()


def fitted_rows(model: Any, corpus: Corpus) -> int:
    """How many rows of a corpus an alignment was fitted on, as far as its fit text is own text that is still there."""
    plain = getattr(getattr(model, "mteb_model_meta", None), "loader_kwargs", None) or {}
    alignment = ModelSpec.from_dict(plain["spec"]).alignment if "spec" in plain else None
    if alignment is None:
        return 0
    fitted = 0
    for name in alignment.corpora:
        if not name.startswith("own:"):
            continue
        try:
            other = load(name)
            shared = sorted(set(other.languages) & set(corpus.languages))
            sides = [zip(*text.parallel(shared).values(), strict=True) for text in (other, corpus)]
        except DataError:
            continue
        known = set(islice(sides[0], alignment.limit))
        fitted += sum(row in known for row in sides[1])
    return fitted
