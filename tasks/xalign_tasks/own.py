"""Shared code of the tasks on the user's own text: its path, its name, and models fitted on it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from xalign_models.claims import named
from xalign_models.corpora import Corpus, load
from xalign_models.corpora.own_text import VARIABLE, own_paths, own_task, split_part
from xalign_models.errors import DataError, ModelError
from xalign_models.results.reading import FITTED
from xalign_models.specs import ModelSpec
from xalign_tasks.base import JointTask

ALLOW = "XALIGN_SCORE_FITTED"
Kind = TypeVar("Kind", bound="OwnTask")


class OwnTask(JointTask):
    """A task on the text at ``path``, by default on the text named ``own`` in ``--data`` or ``$XALIGN_OWN``.

    The text determines the subsets: they are known with a ``path``, else after :meth:`identify` or ``load_data``.

    Models fitted on rows of the text are refused, unless ``$XALIGN_SCORE_FITTED`` is set: fit on ``own:fit:DIR`` and
    score ``--data own=test:DIR``, the two halves of the text.

    Args:
        seed: mteb's seed.
        path: The directory or table; with the prefix ``fit:`` or ``test:``, half of it.
        **kwargs: mteb's options.
    """

    corpus_name = "own"
    narrows = False
    text_name: ClassVar[str] = "own"

    def __init__(self, seed: int = 42, path: Path | None = None, **kwargs: Any) -> None:
        """Make the task."""
        self._place = split_part(str(path)) if path else None
        super().__init__(seed, **kwargs)
        if path:
            self.identify()

    def local_corpus(self) -> Corpus:
        """The user's text, or a DataError if there is no path or no text of this kind."""
        place = self._place or own_paths().get(self.text_name)
        if place is None:
            option = f"--data {self.text_name}=DIR on the command line"
            raise DataError(f"{self.metadata.name} needs your text: {option}, or {VARIABLE}=DIR.")
        part, path = place
        named(f"own:{path}")
        if (task := own_task(self.text_name, path)) != self.metadata.name:
            raise DataError(f"{self.metadata.name} does not accept text such as {path}; score {task}.")
        self._corpus, subsets = self.opened(path, part)
        self.metadata = self.metadata.model_copy(update={"eval_langs": subsets})
        self.hf_subsets = list(subsets)
        return self._corpus

    def opened(self, path: Path, part: str) -> tuple[Corpus, dict[str, list[str]]]:
        """The text, and the languages of each subset."""
        raise NotImplementedError

    def fitted(self, model: Any) -> dict[str, float]:
        """The share of the text that a model was fitted on, as a marker score; empty without such text.

        Raises:
            DataError: There is such text, and ``$XALIGN_SCORE_FITTED`` is not set.
        """
        rows, total = self.fitted_rows(model)
        if rows and not os.environ.get(ALLOW):
            name, remedy = model.mteb_model_meta.name, "fit it on own:fit:DIR and score --data own=test:DIR"
            raise DataError(f"{name} was fitted on {rows} of these rows; {remedy}, or set {ALLOW}=1.")
        return {FITTED: rows / total} if rows else {}

    def fitted_rows(self, model: Any) -> tuple[int, int]:
        """The number of rows that a model was fitted on, and the number of all rows."""
        raise NotImplementedError

    @property
    def corpus(self) -> Corpus:
        """The user's text, opened once."""
        return self._corpus or self.local_corpus()


def fit_text(model: Any) -> Iterator[tuple[Corpus, int | None]]:
    """The existing texts that a model's alignment was fitted on, each with its maximum number of rows."""
    plain = getattr(getattr(model, "mteb_model_meta", None), "loader_kwargs", None) or {}
    alignment = ModelSpec.from_dict(plain["spec"]).alignment if "spec" in plain else None
    for name in alignment.corpora if alignment else ():
        try:
            yield load(name, local=True), alignment.limit if alignment else None
        except (DataError, ModelError):  # the text is gone, or only the model's card names it
            continue


def task_of(kind: type[Kind], attribute: str) -> type[Kind]:
    """The task on the user's text of another name: ``OwnParallel_news``, an attribute of the kind's module.

    Raises:
        AttributeError: The attribute is another one.
    """
    name, _, text = attribute.partition("_")
    if name != kind.__name__ or not text:
        raise AttributeError(f"module {kind.__module__!r} has no attribute {attribute!r}")
    update = {"name": f"{name}-{text}", "dataset": {"path": f"local/{text}", "revision": "local"}}
    fields = {"text_name": text, "metadata": kind.metadata.model_copy(update=update), "__module__": kind.__module__}
    return type(attribute, (kind,), fields)
