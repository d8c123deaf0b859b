"""The STS benchmark in nine languages: within each language, and across every pair of them."""

import csv
from collections.abc import Iterable
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.stats import pearsonr, spearmanr

from xalign_models.corpora import read_lines
from xalign_models.errors import DataError
from xalign_models.languages import from_iso639_1, from_sts17
from xalign_models.linalg.arrays import Float32
from xalign_models.ranking.correlation import spearman_shares
from xalign_models.ranking.ranks import normalise
from xalign_tasks.base import Scored, Scoring, task_metadata
from xalign_tasks.files import FilesTask, data_folder, present

HOME = "github.com/PhilipMay/stsb-multi-mt"
CODES = "de en es fr it ja pt ru zh".split()
Rows = tuple[list[str], list[str], list[float]]
"""First sentences, second sentences and human scores."""


def _subsets(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    return {f"{a}-{b}": list(dict.fromkeys(map(from_iso639_1, (a, b)))) for a, b in pairs}


class STSBSameLanguage(FilesTask):
    """Spearman (main) and Pearson correlation of cosines with human scores, both sentences in one language.

    The text is the test part of the STS benchmark, machine-translated from English; a row is the same pair of
    sentences in every language. The first code of a subset, ``de-en``, is the language of the first sentences.
    """

    metadata = task_metadata("STSBSameLanguage", _subsets(zip(CODES, CODES, strict=True)))

    def files(self) -> dict[str, tuple[Path, ...]]:
        """The test rows of every language."""
        base = data_folder(
            "stsb_multi_mt/data",
            f"The STS benchmark is missing: set XALIGN_DATA to a folder that has stsb_multi_mt/data/ of {HOME}.",
        )
        return present({from_iso639_1(code): (base / f"stsb-{code}-test.csv",) for code in CODES}, HOME)

    def read(self, files: tuple[Path, ...]) -> Rows:
        """The rows of a language."""
        try:
            rows = [(first, second, float(score)) for first, second, score in csv.reader(read_lines(files[0]))]
        except ValueError as error:
            raise DataError(f"{files[0]} does not have two sentences and a score in each row ({error}).") from None
        firsts, seconds, scores = map(list, zip(*rows, strict=True))
        return firsts, seconds, scores

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Correlations of the subsets, and each pair's share in Spearman's.

        Raises:
            DataError: Two languages have different human scores, so their rows do not align.
        """

        @cache
        def vectors(language: str, side: int) -> Float32:
            return normalise(self.embed(scoring, self.dataset[language][side], language, language))

        scores, items = {}, {}
        for subset in sorted(subsets):
            first, second = from_sts17(subset)
            human = np.array(self.dataset[first][2])
            if self.dataset[second][2] != human.tolist():
                raise DataError(f"{self.metadata.name}: the human scores of {subset} differ; the rows must align.")
            cosines = np.einsum("ij,ij->i", vectors(first, 0), vectors(second, 1))
            correlations = {"spearman": spearmanr(cosines, human), "pearson": pearsonr(cosines, human)}
            scores[subset] = {f"cosine_{name}": float(value.statistic) for name, value in correlations.items()}
            items[subset] = spearman_shares(cosines, human).astype(np.float32)
        return scores, items


class STSBCrossLingual(STSBSameLanguage):
    """The same, with the first sentences in one language and the second sentences in another."""

    metadata = task_metadata("STSBCrossLingual", _subsets(combinations(CODES, 2)))
