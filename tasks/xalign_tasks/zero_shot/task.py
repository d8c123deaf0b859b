"""The zero-shot protocol of the Amazon reviews: a classifier trained on English embeddings, tested on all languages."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.errors import DataError
from xalign_tasks.base import Scored, Scoring
from xalign_tasks.files import FilesTask

Labelled = tuple[list[str], list[str]]
"""Texts and their labels."""
ReadPart = Callable[[str], Labelled]
"""``train`` or ``test`` to its texts."""

TRAIN, TEST = "train", "test"
STRENGTHS = np.logspace(-4, 4, 10)
"""Candidate inverse strengths of the L2 penalty."""
FOLDS, SEED = 5, 0


def classifier() -> Pipeline:
    """Z-scores with the training text's mean and deviation, then a logistic regression.

    The penalty's strength is chosen from :data:`STRENGTHS` by 5-fold cross-validated accuracy on the training text.
    """
    regression = LogisticRegressionCV(
        Cs=STRENGTHS,
        cv=FOLDS,
        scoring="accuracy",
        l1_ratios=(0,),
        max_iter=50_000,
        random_state=SEED,
        use_legacy_attributes=False,
    )
    return make_pipeline(StandardScaler(), regression)


class ZeroShotTask(FilesTask):
    """Accuracy (main) and macro F1 in each language (a subset) of a classifier trained only on English.

    Attributes:
        configs: Canonical code -> the hub's name of the language; empty if the set is not on the hub.
        label_column: The hub's column of labels.
    """

    needs = (ENGLISH,)
    configs: ClassVar[Mapping[str, str]] = {}
    label_column: ClassVar[str] = "label"

    def read(self, files: tuple[Path, ...]) -> ReadPart:
        """A function that reads a part of a language's files."""
        return partial(self.read_part, files)

    def read_part(self, files: tuple[Path, ...], part: str) -> Labelled:
        """The labelled texts of a part of a language's files.

        Raises:
            DataError: A file is malformed.
        """
        raise NotImplementedError

    def hub_corpus(self, missing: DataError) -> Corpus:
        """The corpus from the hub, if the set is there."""
        if not self.configs:
            raise missing
        name = self.metadata.name

        def rows(language: str) -> ReadPart:
            return lambda part: self.hub_part(language, part, missing)

        return Corpus(name, "files", (name,), tuple(self.configs), rows, str)

    def hub_part(self, language: str, part: str, missing: DataError) -> Labelled:
        """The labelled texts of a part on the hub."""
        table = self.hub_rows(self.configs[language], part, missing)
        return list(table["text"]), list(map(str, table[self.label_column]))

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Read the English training text and the chosen languages' test text."""
        if not self.data_loaded:
            corpus = self.open_corpus()
            self.dataset = {language: {TEST: corpus.rows(language)(TEST)} for language in self.hf_subsets}
            self.dataset.setdefault(ENGLISH, {})[TRAIN] = corpus.rows(ENGLISH)(TRAIN)
            self.data_loaded = True

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Scores of the subsets by one classifier, and (n, 2) per subset: each text's predicted and true label."""

        def vectors(language: str, part: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.str_]]:
            texts, labels = self.dataset[language][part]
            embedded = self.embed(scoring, texts, language, language, split=part)
            return embedded.astype(np.float64), np.array(labels)

        x, y = vectors(ENGLISH, TRAIN)
        # folds use each label's texts in turn, and files may be sorted
        order = np.random.default_rng(SEED).permutation(len(y))
        trained = classifier().fit(x[order], y[order])
        scores, items = {}, {}
        for language in sorted(subsets):
            x, y = vectors(language, scoring.split)
            predicted = trained.predict(x)
            f1 = f1_score(y, predicted, average="macro", zero_division=0)
            scores[language] = {"accuracy": float(accuracy_score(y, predicted)), "macro_f1": float(f1)}
            items[language] = np.stack([predicted, y], axis=1)
        return scores, items
