"""Your own parallel text as a task: a directory of one file per language, or a table with a column each."""

import os
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from xalign_models.claims import named
from xalign_models.corpora import Corpus, load, own
from xalign_models.corpora.own_text import TASK, VARIABLE, own_paths, own_task, split_part
from xalign_models.errors import DataError, ModelError
from xalign_models.specs import ModelSpec
from xalign_tasks.base import Scored, Scoring
from xalign_tasks.precision import PrecisionTask, pair_subsets, precision_metadata

ALLOW = "XALIGN_SCORE_FITTED"


class OwnParallel(PrecisionTask):
    """P@k between the languages of ``path``, by default of the text named ``own`` in ``--data`` or ``$XALIGN_OWN``.

    The subsets are those of the text: known with a ``path``, else after :meth:`identify` or ``load_data``.

    Models fitted on rows of the text are refused, unless ``$XALIGN_SCORE_FITTED`` is set: fit on ``own:fit:DIR`` and
    score ``--data own=test:DIR``, the two halves of the text.

    Args:
        seed: mteb's seed.
        path: A directory with ``deu.txt``, ``eng.txt``, ... or a ``.tsv``, ``.csv``, ``.jsonl`` or ``.parquet`` table;
            with ``fit:`` or ``test:`` before it, half of it.
        **kwargs: mteb's options.
    """

    corpus_name = "own"
    narrows = False
    text_name: ClassVar[str] = "own"
    metadata = precision_metadata(TASK, ("deu-Latn", "eng-Latn"))

    def __init__(self, seed: int = 42, path: Path | None = None, **kwargs: Any) -> None:
        """Make the task."""
        self._place = split_part(str(path)) if path else None
        super().__init__(seed, **kwargs)
        if path:
            self.identify()

    def local_corpus(self) -> Corpus:
        """The user's text.

        Raises:
            DataError: No path was given, or the path holds no parallel text.
        """
        place = self._place or own_paths().get(self.text_name)
        if place is None:
            name = self.text_name
            raise DataError(
                f"{self.metadata.name} needs your text: --data {name}=DIR on the command line, or {VARIABLE}=DIR."
            )
        part, path = place
        named(f"own:{path}")
        self._corpus = own(path, part, name=self.text_name)
        self.metadata = self.metadata.model_copy(update={"eval_langs": pair_subsets(self._corpus.languages)})
        self.hf_subsets = list(self.metadata.eval_langs)
        return self._corpus

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Scores of the subsets, and the rank of each sentence's counterpart.

        Raises:
            DataError: The model was fitted on rows of the text.
        """
        rows = fitted_rows(scoring.model, self.corpus)
        if rows and not os.environ.get(ALLOW):
            meta: Any = getattr(scoring.model, "mteb_model_meta", None)
            raise DataError(
                f"{meta.name} was fitted on {rows} of these rows; fit it on own:fit:DIR and score --data own=test:DIR, "
                f"or set {ALLOW}=1."
            )
        return super().score(scoring, subsets)

    @property
    def corpus(self) -> Corpus:
        """The user's text, opened once."""
        return self._corpus or self.local_corpus()


def fitted_rows(model: Any, corpus: Corpus) -> int:
    """Number of rows of a corpus that an alignment was fitted on, if it was fitted on the user's own text."""
    plain = getattr(getattr(model, "mteb_model_meta", None), "loader_kwargs", None) or {}
    alignment = ModelSpec.from_dict(plain["spec"]).alignment if "spec" in plain else None
    if alignment is None:
        return 0
    fitted = 0
    for name in alignment.corpora:
        if not name.startswith("own:"):
            continue
        try:
            fitted_corpus = load(name)
            shared = sorted(set(fitted_corpus.languages) & set(corpus.languages))
            sides = [zip(*text.parallel(shared).values(), strict=True) for text in (fitted_corpus, corpus)]
        except (DataError, ModelError):  # it is gone, or only the model's card names it
            continue
        fitted_on = set(islice(sides[0], alignment.limit))
        fitted += sum(row in fitted_on for row in sides[1])
    return fitted


def __getattr__(name: str) -> type[OwnParallel]:
    """The task on the user's text of another name, such as ``OwnParallel_news``."""
    kind, _, text = name.partition("_")
    if kind != TASK or not text:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    metadata = OwnParallel.metadata.model_copy(
        update={"name": own_task(text), "dataset": {"path": f"local/{text}", "revision": "local"}}
    )
    return type(name, (OwnParallel,), {"text_name": text, "metadata": metadata, "__module__": __name__})
