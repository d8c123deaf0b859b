"""The front: retrieval within a language against retrieval across languages, for all alignments and without a map.

A pool with one answer in every language rewards any even spread of languages; the thinned pool, whose answers are rare
in most languages, does not. :mod:`xalign_models.ranking.pools` adds baselines that change no vector.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, zip_longest
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from mteb.types import PromptType
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from xalign_models import figures
from xalign_models.analysis import Findings, Request
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError, XAlignError
from xalign_models.languages import from_lazada
from xalign_models.linalg.arrays import AnyFloats, Float32, Float64
from xalign_models.models.catalogue import fits
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.names import find_spec
from xalign_models.ranking.graded import TOP, graded_measures
from xalign_models.ranking.pools import mixed, one_target_ranks, quota, z_scores
from xalign_models.ranking.ranks import Adjust, Ranks, average_precision, normalise, one_target_precision, target_counts
from xalign_models.results.significance import design_effect
from xalign_models.specs import ModelSpec
from xalign_tasks.analyses.base import Study, encode_side, slug
from xalign_tasks.lareqa import MLQAR, LAReQA, XQuADR
from xalign_tasks.lareqa.reader import Side
from xalign_tasks.lareqa.task import pool_targets
from xalign_tasks.product_search.layout import load
from xalign_tasks.product_search.task import ProductSearchStandIn

DRAWS = 1000
"""Number of bootstrap samples."""
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
MEASURES = ("same", "other", "share", "ndcg", "map")
LABELS = {"same": "MRR of the answer in the question's language", "other": "MRR of an answer in another language"}


@dataclass(frozen=True)
class Pool:
    """Questions and one pool of candidates in several languages.

    Attributes:
        name: Name in tables.
        metadata: The task's metadata, which selects the prompts.
        questions: n rows of ``text``, ``language`` and ``cluster``, a number that a question's translations share,
            or all queries with the same first title.
        candidates: m rows of ``text`` and ``language``.
        targets: (n, k) rows of the candidates that answer a question; negative where there are fewer than k.
    """

    name: str
    metadata: Any
    questions: pd.DataFrame
    candidates: pd.DataFrame
    targets: Ranks

    @property
    def clusters(self) -> Ranks:
        """(n,) clusters of the questions."""
        return np.asarray(self.questions["cluster"])

    @property
    def ids(self) -> tuple[Ranks, Ranks]:
        """Languages as integers: of the questions (n,) and of the candidates (m,)."""
        number = pd.factorize(pd.concat([self.questions["language"], self.candidates["language"]]))[0]
        return number[: len(self.questions)], number[len(self.questions) :]

    @property
    def in_english(self) -> Ranks:
        """(n,) row of the English translation of each question; the question's own row if there is none."""
        english = {row.cluster: row.Index for row in self.questions.itertuples() if row.language == ENGLISH}
        return np.array([english.get(cluster, row) for row, cluster in enumerate(self.clusters)])


def lareqa_pool(task: LAReQA, rows: int | None = None) -> Pool:
    """The pool of a LAReQA set: the first ``rows`` questions of each language with all sentences of their paragraphs.

    Raises:
        DataError: Files are missing or malformed.
    """
    corpus = task.local_corpus()
    sides = {language: narrowed(corpus.rows(language), rows) for language in task.needs}
    asked = [(text, language, key) for language, side in sides.items() for key, text in side.questions.items()]
    texts = [(text, language) for language, side in sides.items() for text in side.candidates]
    return _pool(task, asked, texts, pool_targets(sides))


def _pool(task: Any, asked: list[tuple[str, str, Any]], texts: list[tuple[str, str]], targets: Ranks) -> Pool:
    """A pool of questions (text, language, a key shared by translations) and candidates (text, language)."""
    questions = pd.DataFrame(asked, columns=["text", "language", "cluster"])
    questions["cluster"] = pd.factorize(questions["cluster"])[0]
    candidates = pd.DataFrame(texts, columns=["text", "language"])
    return Pool(task.metadata.name, task.metadata, questions, candidates, targets)


def narrowed(side: Side, rows: int | None) -> Side:
    """The first questions of a side and the sentences of their paragraphs."""
    questions = dict([*side.questions.items()][:rows])
    chosen = {side.contexts[side.answers[key]] for key in questions}
    kept = [row for row, context in enumerate(side.contexts) if context in chosen]
    place = {row: index for index, row in enumerate(kept)}
    texts, contexts = ([rows[row] for row in kept] for rows in (side.candidates, side.contexts))
    return Side(questions, texts, {key: place[side.answers[key]] for key in questions}, contexts)


def thinned(pool: Pool, seed: int = 0) -> Pool:
    """Keep one answer per question, in a language with 50% to 1% of the answers, and remove the other ten.

    Questions that share a sentence get the same language. Sentences that answer no question stay in every language.
    """
    languages = sorted(pool.candidates["language"].unique(), key=lambda code: code != ENGLISH)
    shares = 0.01 + 0.49 * 0.45 ** np.arange(len(languages))  # of eleven languages: 50% to 1%
    row, column = np.nonzero(pool.targets >= 0)
    count = 1 + int(pool.clusters.max())
    nodes = count + len(pool.candidates)  # questions, then sentences
    ends = (pool.clusters[row], count + pool.targets[row, column])
    _, group = connected_components(coo_array((np.ones(len(row)), ends), shape=(nodes, nodes)), directed=False)
    drawn = np.random.default_rng(seed).choice(len(languages), nodes, p=shares / shares.sum())
    wanted = np.array(languages)[drawn[group[pool.clusters]]]
    kept = (pool.targets >= 0) & (pool.candidates["language"].to_numpy()[pool.targets] == wanted[:, None])
    left = np.setdiff1d(np.arange(len(pool.candidates)), np.setdiff1d(pool.targets[~kept], pool.targets[kept]))
    place = np.full(len(pool.candidates) + 1, -1)
    place[left] = np.arange(len(left))
    rows = kept.any(axis=1)
    return replace(
        pool,
        name=f"{pool.name} thinned",
        questions=pool.questions[rows].reset_index(drop=True),
        candidates=pool.candidates.iloc[left].reset_index(drop=True),
        targets=place[np.where(kept, pool.targets, -1)][rows],
    )


def product_pool(rows: int | None = None) -> Pool:
    """The queries of all locales of the product-search stand-in, and all their titles.

    Raises:
        DataError: Files are missing or malformed.
    """
    task = ProductSearchStandIn
    items: dict[tuple[str, str], int] = {}
    asked: list[tuple[str, str, int]] = []
    targets: list[list[int]] = []
    for name, locale in load(task.root()).items():
        language = from_lazada(name)
        place = {
            key: items.setdefault((text, locale.item_languages.get(key, task.item_language or language)), len(items))
            for key, text in locale.items.items()
        }
        for key, relevant in [*locale.relevant.items()][:rows]:
            targets.append([place[item] for item in relevant])
            asked.append((locale.queries[key], locale.query_languages.get(key, language), min(targets[-1])))
    return _pool(task, asked, [*items], np.array([*zip_longest(*targets, fillvalue=-1)]).T)


def values(pool: Pool, queries: AnyFloats, texts: AnyFloats, adjust: Adjust | None = None) -> dict[str, Float64]:
    """:data:`MEASURES` of each question (n,), in percent; NaN where a question has no such answer.

    ``same`` and ``other`` are the mean reciprocal ranks of an answer in the question's language and in another one,
    without the question's other answers. ``share`` is the share of the first ten in the question's language; ``ndcg``
    (at 10) and ``map`` are over all answers.
    """
    asked, of_pool = pool.ids
    best = np.empty((len(queries), min(TOP, len(texts))), dtype=np.int64)
    counts = target_counts(queries, texts, pool.targets, best, adjust)
    if adjust is None:
        reciprocal = one_target_precision(counts)
    else:
        ranks = one_target_ranks(queries, texts, pool.targets, adjust)
        reciprocal = np.where(ranks > 0, 1 / np.maximum(ranks, 1), np.nan)
    own = (of_pool[pool.targets] == asked[:, None]) & (counts > 0)
    found = {
        "same": np.ma.array(reciprocal, mask=~own).mean(axis=1).filled(np.nan),
        "other": np.ma.array(reciprocal, mask=own | (counts <= 0)).mean(axis=1).filled(np.nan),
        "share": (of_pool[best] == asked[:, None]).mean(axis=1),
        "ndcg": graded_measures(counts, np.ones(counts.shape))[f"ndcg_at_{TOP}"],
        "map": average_precision(counts),
    }
    return {measure: 100 * found[measure] for measure in MEASURES}


def bootstrap(of_questions: Float64, clusters: Ranks, seed: int = 0) -> tuple[float, float, float]:
    """Mean over questions, ignoring NaN, and its 95% interval by resampling clusters of questions (n,).

    Clusters are in the text's order, and neighbours may be alike, such as questions about one paragraph. The interval
    is therefore wider by the root of the clusters' design effect.
    """
    _, cluster = np.unique(clusters, return_inverse=True)
    known = np.isfinite(of_questions)
    if not known.any():
        return float("nan"), float("nan"), float("nan")
    sums, counts = (np.bincount(cluster, side) for side in (np.where(known, of_questions, 0), known))
    draws = np.random.default_rng(seed).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), DRAWS)
    with np.errstate(invalid="ignore"):
        means = (draws @ sums) / (draws @ counts)
    mean = sums.sum() / counts.sum()
    stretch = np.sqrt(design_effect(sums - mean * counts))
    low, high = mean + stretch * (np.nanquantile(means, (0.025, 0.975)) - mean)
    return float(mean), float(low), float(high)


def analyse(request: Request) -> Findings:
    """All measures of each model by pool: plain, with every registered alignment or its own, and without a map.

    Raises:
        ModelError: No model was named, or one is unknown.
        DataError: No pool is available, or one is unknown.
    """
    study, pools = Study(), list[Pool]()
    makers: dict[str, Callable[[], Pool]] = {
        "XQuAD-R": lambda: lareqa_pool(XQuADR(), request.rows),
        "MLQA-R": lambda: lareqa_pool(MLQAR(), request.rows),
        "ProductSearchStandIn": lambda: product_pool(request.rows),
    }
    if unknown := {*request.tasks} - {*makers}:
        raise DataError(f"--tasks: the front has no pool {', '.join(sorted(unknown))}; it has {', '.join(makers)}.")
    for name, make in makers.items():
        if name not in (request.tasks or (name,)):
            continue
        try:
            pools.append(make())
            study.record_task(name)
        except DataError as missing:
            study.notes.append(str(missing))
    if not pools:
        raise DataError(" ".join(study.notes))
    pools[1:1] = [thinned(pool) for pool in pools[:1] if pool.name == "XQuAD-R"]
    for name in request.named():
        model = find_spec(name).name
        for pool in pools:
            found = dict(arms(request, name, pool, study))
            rows = [row for arm in found for row in measured(pool, arm, found)]
            study.add("front", rows, model=model, pool=pool.name)
            if np.isfinite(found["plain"]["same"]).any():  # no product title is in a query's language
                stem = f"{slug(model)}-{pool.name}".replace(" ", "-")
                study.figures[stem] = draw(rows, model.removeprefix("xalign/"), pool.name)
    return study.findings(
        "In percent, with 95% intervals over questions, whose translations are one question, or over the products that "
        "are looked for. `difference` is to plain.",
        "`quota`, `z-scores` and `mixed with English` change no map. The last needs a translation of each question.",
    )


def arms(request: Request, name: str, pool: Pool, study: Study) -> Iterator[tuple[str, dict[str, Float64]]]:
    """Name and values of plain, of the methods without a map, and of each alignment; notes unfittable alignments."""
    spec = find_spec(name)
    queries, texts = vectors(request.load(ModelSpec(spec.backbone)), pool)
    yield "plain", values(pool, queries, texts)
    asked, of_pool = pool.ids
    yield "quota", values(pool, queries, texts, quota(of_pool))
    yield "z-scores", values(pool, queries, texts, z_scores(queries, texts, asked, of_pool))
    if (pool.in_english != np.arange(len(queries))).any():
        yield "mixed with English", values(pool, mixed(queries, queries[pool.in_english]), texts)
    chosen = {spec.alignment.label: spec.alignment} if spec.alignment else fits()[spec.data]
    shift = chosen.get("shift")
    curve = {
        f"shift {a:g}": replace(shift, label=f"shift-{a:g}", params=(("strength", a),)) for a in STRENGTHS if shift
    }
    for label, alignment in (chosen | curve).items():
        try:
            yield label, values(pool, *vectors(request.load(ModelSpec(spec.backbone, alignment, spec.data)), pool))
            study.record_corpora(alignment.corpora)
        except XAlignError as error:
            study.notes.append(f"{pool.name}, {label}: {error}")


def vectors(encoder: XAlignEncoder, pool: Pool) -> tuple[Float32, Float32]:
    """Unit vectors of the questions (n, d) and of the candidates (m, d), each under its side's prompt."""

    def encoded(kind: PromptType, table: pd.DataFrame) -> Float32:
        texts, codes = table["text"].tolist(), table["language"].tolist()
        return normalise(encode_side(encoder, texts, codes, pool.metadata, kind))

    return encoded(PromptType.query, pool.questions), encoded(PromptType.document, pool.candidates)


def measured(pool: Pool, arm: str, found: dict[str, dict[str, Float64]]) -> list[dict[str, Any]]:
    """A row for each measure of an arm: mean and interval, also of the difference to plain."""
    rows, names = [], "value low high difference difference_low difference_high".split()
    for measure, mine in found[arm].items():
        numbers = [bootstrap(side, pool.clusters) for side in (mine, mine - found["plain"][measure])]
        rounded = dict(zip(names, np.round(numbers, 2).ravel(), strict=True))
        rows.append({"method": arm, "measure": measure, **rounded})
    return rows


def draw(rows: list[dict[str, Any]], model: str, pool: str) -> Figure:
    """``same`` over ``other``, a numbered point for each method, and the curve of SHIFT's strengths.

    Methods more than ten points below plain on a side are left out, because they would squeeze the others.
    """
    table = pd.DataFrame(rows).pivot_table(index="method", columns="measure", values="value", sort=False)
    table = table[(table[[*LABELS]] > table.loc["plain", [*LABELS]] - 10).all(axis=1)]
    labels = (f"{LABELS[measure]}, %" for measure in ("other", "same"))
    figure, axis = figures.plot(f"{model} on {pool}", *labels, width=9.0, height=5.5)
    curved = table.index.str.startswith("shift ")
    single, curve = table[~curved].sort_values("other", kind="stable"), table[curved]
    figures.draw_points(axis, single["other"], single["same"])
    figures.name_points(axis, zip(map(str, count(1)), single["other"], single["same"], strict=False))
    names = [Line2D([], [], linestyle="", label=f"{place}  {name}") for place, name in enumerate(single.index, 1)]
    if len(curve):
        lines = {"shift, strength 0 to 1": (curve["other"], curve["same"])}
        figures.draw_lines(axis, lines, color=figures.COLOURS[1])
    axis.legend(handles=[*names, *axis.lines], loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.2)
    return figure
