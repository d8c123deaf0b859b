"""A column of the leaderboard: which subsets its rows share, its cells, and the tests of the whole board."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import repeat
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from xalign_models.results.intervals import Estimate, Sample, estimate, pair_tests, ranks
from xalign_models.results.items import Items
from xalign_models.results.languages import shared, varying, within
from xalign_models.results.reading import Results, TaskScores
from xalign_models.results.significance import ALPHA, holm
from xalign_models.tables.board import Cell, Evidence

SAME = ("same", "one_target_same")
"""Metrics of mixed-language pools for answers in the question's language, the first that a result has."""


@dataclass
class Tested:
    """A cell on its way: its subsets, its outcomes until all pairs are tested, and the test of its difference."""

    cell: Cell
    subsets: frozenset[str]
    score: Sample | None = None
    gain: Estimate | None = None


@dataclass
class Column:
    """A column of the board.

    Attributes:
        name: Its header.
        tables: Scores on its task, by model.
        values: Scores by model and subset, as far as they belong to the column.
        spoken: Languages by subset.
        shared: The subsets over which rows are compared.
        text: Revision and splits of their text.
        common: Models that have them all.
        cells: Cells by model.
        ranked: Cells of the common rows whose pairs are tested; empty if the best of these rows lacks outcomes.
        p_values: p-values of all pairs of them.
    """

    name: str
    metric: str
    tables: Mapping[str, TaskScores]
    values: Mapping[str, Mapping[str, float]]
    spoken: Mapping[str, Collection[str]]
    shared: frozenset[str]
    text: tuple[str | None, str]
    common: Sequence[str]
    cells: dict[str, Tested] = field(default_factory=dict)
    ranked: Sequence[Tested] = ()
    p_values: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(
        cls,
        results: Results,
        name: str,
        task: str,
        pattern: str,
        metric: str,
        models: Sequence[str],
        languages: Collection[str] | None,
    ) -> Column | None:
        """The column with its shared subsets; None if no model has a score."""
        having = [model for model in models if (model, task) in results.tables]
        tables = {model: results.tables[model, task] for model in having}
        matching = {model: _matching(table, metric, pattern) for model, table in tables.items()}
        spoken: dict[str, tuple[str, ...]] = {subset: () for scores in matching.values() for subset in scores}
        for frame in {id(table.frame): table.frame for table in tables.values()}.values():
            spoken |= {subset: codes for subset, codes in frame.languages.items() if subset in spoken}
        left = within(spoken, languages)
        values = {
            model: scores if scores.keys() <= left else {s: value for s, value in scores.items() if s in left}
            for model, scores in matching.items()
        }
        texts = {
            model: frozenset(zip(repeat(tables[model].text), scores)) for model, scores in values.items() if scores
        }
        if not texts:
            return None
        compared = shared(list(texts.values())) if languages is None else _widest(texts.values())
        common = [model for model, subsets in texts.items() if compared <= subsets]
        (text, _), *_ = compared
        return cls(name, metric, tables, values, spoken, frozenset(subset for _, subset in compared), text, common)

    def fill(self, results: Results, items: Items | None) -> None:
        """Make the cells, over the shared subsets or, for a row apart, over those that it and its backbone have.

        All pairs of common rows are tested here, so that the outcomes of one column are in memory at a time.
        """
        for model, table in self.tables.items():
            base = results.tables.get((table.baseline or "", table.task))
            if values := self.values[model]:
                subsets = self.shared
                if model not in self.common:
                    both = values.keys() & base.values(self.metric).keys() if base else set()
                    subsets = next(
                        frozenset(s) for s in (both & subsets, both, values.keys() & subsets, values.keys()) if s
                    )
                self.cells[model] = self._cell(table, base, subsets, items)
                if model not in self.common:
                    own = self.cells[model]
                    names = tuple(varying(self.spoken[s] for s in subsets)) or tuple(sorted(subsets))
                    covered, of = len(subsets & self.shared), len(self.shared)
                    if table.text != self.text:
                        own.cell = replace(own.cell, languages=names, other_text=True)
                    else:
                        own.cell = replace(own.cell, languages=names, covered=covered, of=of)
        self._test_pairs()
        for tested in self.cells.values():
            tested.score = None
        if items:
            items.samples.clear()

    def _test_pairs(self) -> None:
        """Mark the best common rows, and test the pairs of those with outcomes."""
        cells = [self.cells[name] for name in self.common]
        top = max((round(tested.cell.score, 1) for tested in cells), default=0.0)
        for tested in cells:
            tested.cell = replace(tested.cell, best=round(tested.cell.score, 1) == top)
        having = [tested for tested in cells if tested.score]
        samples = [tested.score for tested in having if tested.score]
        same_shape = len({sample.cells.shape for sample in samples}) == 1
        if len(having) > 1 and same_shape and all(tested.score for tested in cells if tested.cell.best):
            self.ranked, self.p_values = having, pair_tests(samples)

    def _cell(self, table: TaskScores, base: TaskScores | None, subsets: frozenset[str], items: Items | None) -> Tested:
        """The cell of a model over some subsets, with its difference to the backbone ``base`` on the same text."""
        values, baseline = table.values(self.metric), base.values(self.metric) if base else {}
        score, gain = items.sample(table, subsets) if items else None, None
        facts: dict[str, Any] = {"score": 100 * fmean([values[s] for s in subsets]), "fitted": table.trained_on}
        if score and (interval := estimate(score)).over_languages:
            facts |= {"score_low": 100 * min(interval.low, 1.0), "score_high": 100 * min(interval.high, 1.0)}
        if base and base.text != table.text:
            facts["other_text"] = bool(subsets & baseline.keys())
        elif base and subsets <= baseline.keys():
            difference = 100 * fmean([values[subset] - baseline[subset] for subset in subsets])
            same = within_language(table, base, subsets, self.metric)
            facts |= {"difference": difference, "test": Evidence.NONE, "same": same}
            other = items.sample(base, subsets) if items else None
            if score and other and score.cells.shape == other.cells.shape:
                gain = estimate(score - other)
                if math.isfinite(gain.low):
                    facts |= {"low": 100 * gain.low, "high": 100 * gain.high}
        return Tested(Cell(**facts), subsets, score, gain)


def _matching(table: TaskScores, metric: str, pattern: str) -> Mapping[str, float]:
    values = table.values(metric)
    return values if pattern == "*" else {s: value for s, value in values.items() if fnmatchcase(s, pattern)}


def _widest(texts: Collection[frozenset[tuple[Any, str]]]) -> frozenset[tuple[Any, str]]:
    """All subsets of the text that most rows have."""
    revisions = Counter(revision for subsets in texts for revision in {revision for revision, _ in subsets})
    (most, _), *_ = revisions.most_common()
    return frozenset(pair for subsets in texts for pair in subsets if pair[0] == most)


def within_language(table: TaskScores, base: TaskScores, subsets: Collection[str], metric: str) -> float | None:
    """The difference within a language, in points: what a gain across languages costs; None if it is not measured.

    It is that of the metric for answers in the question's language alone, or of the subsets of a single language where
    others are pairs.
    """
    spoken = table.frame.languages
    alone = [subset for subset in subsets if len(set(spoken.get(subset, ()))) == 1]
    measured = [(name, subsets) for name in SAME] + ([(metric, alone)] if 0 < len(alone) < len(subsets) else [])
    for name, chosen in measured:
        values, baseline = table.values(name), base.values(name)
        if both := set(chosen) & values.keys() & baseline.keys():
            return 100 * fmean([values[subset] - baseline[subset] for subset in both])
    return None


def judge(cells: Sequence[Tested]) -> None:
    """Judge all differences of the board, with Holm's correction for their number."""
    tested = [cell for cell in cells if cell.gain]
    for cell, p in zip(tested, holm([cell.gain.p for cell in tested if cell.gain]), strict=True):
        holds = Evidence.HOLDS if cell.gain and cell.gain.over_languages else Evidence.FIXED
        cell.cell = replace(cell.cell, test=holds if p < ALPHA else Evidence.CHANCE)


def rank(columns: Sequence[Column]) -> None:
    """Give the tested rows their intervals of ranks, with Holm's correction over the board."""
    adjusted = holm(np.concatenate([column.p_values for column in columns]))
    ends = np.cumsum([len(column.p_values) for column in columns])
    for column, p_values in zip(columns, np.split(adjusted, ends[:-1]), strict=True):
        spans = ranks([tested.cell.score for tested in column.ranked], p_values)
        for tested, span in zip(column.ranked, spans, strict=True):
            tested.cell = replace(tested.cell, ranks=span)
