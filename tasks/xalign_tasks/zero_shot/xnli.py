"""XNLI by an English classifier: entailment, neutral or contradiction, from the vectors of premise and hypothesis."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from xalign_models.corpora import ENGLISH, read_lines
from xalign_models.errors import DataError
from xalign_models.languages import from_iso639_1
from xalign_models.linalg.arrays import Float32
from xalign_models.ranking.ranks import normalise
from xalign_tasks.base import Scored, Scoring, task_metadata
from xalign_tasks.files import FilesTask, data_folder, present

LANGUAGES = {from_iso639_1(code): code for code in "ar de en es fr hi ru sw th tr ur vi zh".split()}
Rows = tuple[list[str], list[str], list[str]]
"""Premises, hypotheses and labels."""


class XNLIZeroShot(FilesTask):
    """Accuracy in each language (a subset) of a pair classifier trained only on English.

    The text is XNLI's development part, whose rows are translations of each other. Every second premise, with its
    hypotheses, belongs to the second half. A logistic regression (scikit-learn's, C = 1) on :func:`pair_features` is
    trained on one half in English and scored on the other half in every language, both ways.
    """

    needs = (ENGLISH,)
    metadata = task_metadata("XNLIZeroShot", [*LANGUAGES])

    def files(self) -> dict[str, tuple[Path, ...]]:
        """The development rows of every language."""
        base = data_folder(
            "xnli/dev",
            "XNLI is missing: set XALIGN_DATA to a folder that has xnli/dev/dev-en.tsv and such a file for each of "
            f"{', '.join(LANGUAGES.values())} (premise, hypothesis, label), as XTREME writes XNLI.",
        )
        return present({language: (base / f"dev-{code}.tsv",) for language, code in LANGUAGES.items()}, "XTREME's XNLI")

    def read(self, files: tuple[Path, ...]) -> Rows:
        """The rows of a language."""
        rows = [line.split("\t") for line in read_lines(files[0])]
        if bad := next((number for number, row in enumerate(rows, 1) if len(row) != 3), 0):
            raise DataError(f"{files[0]}, line {bad}: expected premise, hypothesis and label, separated by tabs.")
        premises, hypotheses, labels = map(list, zip(*rows, strict=True))
        return premises, hypotheses, labels

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Accuracies of the subsets, and (n, 2) per subset: each row's predicted and true label.

        Raises:
            DataError: A language's labels differ from the English labels, row by row.
        """
        labels = np.array(self.dataset[ENGLISH][2])
        halves = second_half(self.dataset[ENGLISH][0])

        def features(language: str) -> Float32:
            if self.dataset[language][2] != labels.tolist():
                raise DataError(f"XNLI: the labels of {language} differ from those of English; the rows must align.")
            u, v = (normalise(self.embed(scoring, texts, language, language)) for texts in self.dataset[language][:2])
            return pair_features(u, v)

        english = features(ENGLISH)
        heads = [
            LogisticRegression(max_iter=5000).fit(english[halves != half], labels[halves != half])
            for half in (False, True)
        ]
        scores, items = {}, {}
        for language in sorted(subsets):
            x = english if language == ENGLISH else features(language)
            predicted = np.where(halves, heads[1].predict(x), heads[0].predict(x))
            scores[language] = {"accuracy": float(np.mean(predicted == labels))}
            items[language] = np.stack([predicted, labels], axis=1)
        return scores, items


def second_half(premises: list[str]) -> npt.NDArray[np.bool_]:
    """Whether each row (n,) is in the second half: premises alternate, and rows of one premise stay together."""
    order = {premise: place for place, premise in enumerate(dict.fromkeys(premises))}
    return np.array([order[premise] % 2 == 1 for premise in premises])


def pair_features(u: Float32, v: Float32) -> Float32:
    """[u, v, abs(u - v), u v], (n, 4 d), of unit rows (n, d): the features of InferSent (arXiv 1705.02364)."""
    return np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
