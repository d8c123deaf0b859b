"""Precision@k over language pairs: each text is encoded once, every ordered pair is scored from the same vectors."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mteb.abstasks.task_metadata import TaskMetadata

from xalign_models.languages import canonical, to_flores
from xalign_models.ranking.neighbours import NAMES
from xalign_models.ranking.pairs import Sides
from xalign_models.ranking.ranks import AnyRanks, normalise, precision_at
from xalign_tasks.base import JointTask, Scored, Scoring, task_metadata
from xalign_tasks.pairs import RankedSubset, log_path, scored_pairs

MAIN = "precision_at_1"


def pair_subsets(languages: Iterable[str]) -> dict[str, list[str]]:
    """Every ordered pair as a subset, ``deu_Latn-eng_Latn`` (query, then index) -> its two canonical languages."""
    codes = sorted(languages)
    return {pair_name(a, b): [a, b] for a in codes for b in codes if a != b}


def pair_name(query: str, index: str) -> str:
    """``deu_Latn-eng_Latn`` for two canonical languages."""
    return f"{to_flores(query)}-{to_flores(index)}"


def precision_metadata(name: str, languages: Iterable[str], description: str = "", **fields: Any) -> TaskMetadata:
    """Metadata of a precision task over all ordered pairs of ``languages``, canonical codes."""
    own = {"description": description, "main_score": MAIN} if description else {}
    return task_metadata(name, pair_subsets(languages), **own, **fields)


class PrecisionTask(JointTask):
    """P@1, P@5 and P@10 by cosine between the sides of a parallel corpus, for ordered pairs of languages.

    A subset ``deu_Latn-eng_Latn`` looks for the English counterpart of each German sentence among all English ones.
    ``Into X`` is the mean over the pairs that end in X, ``From X`` over the pairs that start with X:
    :func:`xalign_models.results.languages.into_and_from`.
    The same scores also give the measures of neighbourhoods in :data:`xalign_models.ranking.neighbours.NAMES`.

    Ties count against the model; an interrupted run resumes at the next pair.
    """

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Scores of the subsets, and the rank of each sentence's counterpart."""
        ranks, scores = {}, {}
        for subset, rows, measures in self.ranks(scoring, subsets):
            ranks[subset] = rows
            further = {name: float(value) for name, value in zip(NAMES, measures, strict=False) if np.isfinite(value)}
            scores[subset] = {**self.scores(rows), **further}
        return scores, ranks

    def evaluate(self, *args: Any, prediction_folder: Path | None = None, **kwargs: Any) -> dict[str, dict[str, float]]:
        """Scores of the chosen subsets; with ``prediction_folder``, each sentence's ranks are also kept there."""
        scores = super().evaluate(*args, prediction_folder=prediction_folder, **kwargs)
        log_path(prediction_folder, self.metadata.name, remove=True)
        return scores

    def scores(self, ranks: AnyRanks) -> dict[str, float]:
        """P@1, P@5 and P@10 of ranks (n,)."""
        return precision_at(ranks)

    def language(self, code: str) -> str:
        """The corpus' language for a code in a subset's name."""
        return canonical(code)

    def ranks(self, scoring: Scoring, subsets: set[str]) -> Iterator[RankedSubset]:
        """Each subset with the ranks (n,) of its queries' counterparts."""
        codes = sorted({code for subset in subsets for code in subset.split("-")})
        texts = self.corpus.parallel([self.language(code) for code in codes])

        def sides(code: str) -> Sides:
            language = self.language(code)
            return Sides(normalise(self.embed(scoring, texts[language], language, code)))

        shape = (1, len(next(iter(texts.values()))))
        for subset, ranks, measures in scored_pairs(self, scoring, subsets, sides, shape):
            yield subset, ranks[0], measures
