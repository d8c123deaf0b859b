"""Your own parallel text as a task: a directory with a file per language, or a table with a column per language."""

from itertools import islice
from pathlib import Path
from typing import Any

from xalign_models.corpora import Corpus
from xalign_models.corpora.own_text import TASK, own
from xalign_models.errors import DataError
from xalign_tasks.base import Scored, Scoring
from xalign_tasks.own import OwnTask, fit_text, task_of
from xalign_tasks.precision import PrecisionTask, pair_subsets, precision_metadata


class OwnParallel(OwnTask, PrecisionTask):
    """P@k between the languages of your parallel text: ``deu.txt``, ``eng.txt``, ... or a table."""

    metadata = precision_metadata(TASK, ("deu-Latn", "eng-Latn"))

    def opened(self, path: Path, part: str) -> tuple[Corpus, dict[str, list[str]]]:
        """The text, and every ordered pair of languages."""
        corpus = own(path, part, name=self.text_name)
        return corpus, pair_subsets(corpus.languages)

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Scores of the subsets, and the rank of each sentence's counterpart.

        Raises:
            DataError: The model was fitted on rows of the text.
        """
        fitted = self.fitted(scoring.model)
        scores, items = super().score(scoring, subsets)
        return {subset: {**values, **fitted} for subset, values in scores.items()}, items

    def fitted_rows(self, model: Any) -> tuple[int, int]:
        """The number of rows that a model was fitted on (all texts must be equal), and the number of all rows."""
        fitted: set[int] = set()
        for corpus, limit in fit_text(model):
            try:
                shared = sorted(set(corpus.languages) & set(self.corpus.languages))
                sides = [zip(*text.parallel(shared).values(), strict=True) for text in (corpus, self.corpus)]
            except DataError:  # the text of the fit is not parallel
                continue
            fitted_on = set(islice(sides[0], limit))
            fitted |= {number for number, row in enumerate(sides[1]) if row in fitted_on}
        return len(fitted), len(self.corpus.texts(self.corpus.languages[0]))


def __getattr__(name: str) -> type[OwnParallel]:
    """The task on the user's text of another name, such as ``OwnParallel_news``."""
    return task_of(OwnParallel, name)
