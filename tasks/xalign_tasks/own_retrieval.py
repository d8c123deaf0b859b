"""Your own queries, documents and judgements, in BEIR's layout, as a task."""

from pathlib import Path
from typing import Any

import numpy as np
from mteb.types import PromptType

from xalign_models.corpora import Corpus
from xalign_models.corpora.collection import Collection, read_collection
from xalign_models.corpora.own_text import RETRIEVAL
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.ranking.graded import TOP, graded_measures, ranks_without
from xalign_models.ranking.ranks import TIE, normalise, target_counts
from xalign_tasks.base import Scored, Scoring, task_metadata
from xalign_tasks.own import OwnTask, fit_text, task_of
from xalign_tasks.precision import pair_name


class OwnRetrieval(OwnTask):
    """nDCG@10, recall@1, 10 and 100 and MRR of your own queries against all your documents, in one pool.

    A subset ``deu_Latn-eng_Latn`` has the German queries with relevant English documents; their other relevant
    documents are removed from the pool. Scores are cosines, and ties count against the model. Every subset has

    - ``ndcg_at_10`` (main), ``recall_at_1``, ``recall_at_10``, ``recall_at_100``, ``mrr``: means over its queries;
    - ``same`` if both languages are the same, else ``cross``: nDCG@10;
    - ``language_in_top_10`` and ``language_of_relevant``: the share of the documents' language among the ten best of
      all queries in the queries' language, and among their relevant documents; equal shares show no preference;
    - ``ndcg_at_10_all_languages``: nDCG@10 over all queries and relevant documents, equal in every subset.

    Models may be fitted on documents, because an index is known before its queries; a model fitted on queries of the
    task is refused.
    """

    metadata = task_metadata(RETRIEVAL, {pair_name(q, "eng-Latn"): [q, "eng-Latn"] for q in ("deu-Latn", "eng-Latn")})
    collection: Collection

    def opened(self, path: Path, part: str) -> tuple[Corpus, dict[str, list[str]]]:
        """The text, and the pairs of languages of queries and their relevant documents."""
        self.collection = collection = read_collection(path, part)
        self.needs = tuple(sorted({language for _, language in collection.documents.values()}))
        pairs = {
            (collection.queries[query][1], collection.documents[document][1])
            for query, grades in collection.relevant.items()
            for document in grades
        }
        return collection.corpus(self.text_name), {pair_name(*pair): [*pair] for pair in sorted(pairs)}

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """Scores of the subsets, and the nDCG@10 of each query; a model fitted on the queries is a DataError."""
        _, collection, fitted = self.corpus, self.collection, self.fitted(scoring.model)
        relevant = list(collection.relevant.values())
        place = {document: row for row, document in enumerate(collection.documents)}
        targets = np.full((len(relevant), max(map(len, relevant))), -1)
        gains = np.ones(targets.shape)
        for row, grades in enumerate(relevant):
            targets[row, : len(grades)] = [place[document] for document in grades]
            gains[row, : len(grades)] = list(grades.values())

        def sides(texts: Any, kind: PromptType) -> tuple[AnyFloats, Any]:
            rows, codes = zip(*texts.values(), strict=True)
            return normalise(self.embed(scoring, rows, codes, kind.value, prompt_type=kind)), np.array(codes)

        pool, of_pool = sides(collection.documents, PromptType.document)
        queries, of_queries = sides(collection.queries, PromptType.query)

        def tied(scores: AnyFloats, rows: slice) -> AnyFloats:
            """Lower the targets a little, because equal scores differ by rounding."""
            query, column = np.nonzero(targets[rows] >= 0)
            scores[query, targets[rows][query, column]] -= TIE
            return scores

        best = np.empty((len(queries), min(TOP, len(pool))), dtype=np.int64)
        counts = target_counts(queries, pool, targets, best, adjust=tied)
        overall = graded_measures(ranks_without(counts, targets >= 0), gains)["ndcg_at_10"].mean()
        scores, items = {}, {}
        for subset in sorted(subsets):
            query, document = self.metadata.eval_langs[subset]
            spoken, kept = of_queries == query, (of_pool[targets] == document) & (targets >= 0)
            asked = spoken & kept.any(axis=1)
            measures = graded_measures(ranks_without(counts[asked], kept[asked]), gains[asked])
            items[subset] = measures["ndcg_at_10"].astype(np.float32)
            means = {name: float(values.mean()) for name, values in measures.items()}
            means["same" if query == document else "cross"] = means["ndcg_at_10"]
            means["language_in_top_10"] = float((of_pool[best[spoken]] == document).mean())
            shares = kept[spoken].sum(axis=1) / (targets[spoken] >= 0).sum(axis=1)
            means["language_of_relevant"] = float(shares.mean())
            scores[subset] = {**means, "ndcg_at_10_all_languages": float(overall), **fitted}
        return scores, items

    def fitted_rows(self, model: Any) -> tuple[int, int]:
        """The number of queries in the text that a model was fitted on, and the number of all queries."""
        queries = set(self.collection.queries.values())
        fitted: set[tuple[str, str]] = set()
        for corpus, limit in fit_text(model):
            shared = {code for _, code in queries} & {*corpus.languages}
            fitted |= queries & {(text, code) for code in shared for text in corpus.texts(code)[:limit]}
        return len(fitted), len(queries)


def __getattr__(name: str) -> type[OwnRetrieval]:
    """The task on the user's text of another name, such as ``OwnRetrieval_support``."""
    return task_of(OwnRetrieval, name)
