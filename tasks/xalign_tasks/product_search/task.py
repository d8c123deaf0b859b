"""mteb tasks of product search: queries in seven locales, item titles to find, nDCG@10 per locale."""

import logging
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytrec_eval
from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData

from xalign_models.errors import DataError
from xalign_models.files import noting
from xalign_models.languages import from_lazada
from xalign_models.paths import data_dir
from xalign_models.results.items import save_items
from xalign_tasks.base import StampedTask, task_metadata
from xalign_tasks.product_search.layout import LOCALES, fingerprint, load

logger = logging.getLogger(__name__)


class ProductSearch(StampedTask, AbsTaskRetrieval):
    """A retrieval task on a local product-search set, one subset for each locale.

    The set is in ``$XALIGN_DATA/<folder>``, in the layout of :mod:`xalign_tasks.product_search.layout`. Queries and
    corpus have a column ``lang``, the canonical code of each row's language, which mteb passes to the encoder.
    The data set's revision in the metadata, and thus in every result, is a fingerprint of the files.

    Attributes:
        folder: The set's folder below ``$XALIGN_DATA``.
        publisher: Owner of the data, for the message if it is missing.
        item_language: Canonical code of titles without a language; None for the locale's language.
    """

    folder: ClassVar[str]
    publisher: ClassVar[str]
    item_language: ClassVar[str | None] = None
    k_values = (1, 10, 1000)  # the last is mteb's depth of search; further values would only fill files

    def fingerprint(self) -> str:
        """Sha256 (hex) over the set's files."""
        return fingerprint(self.root())

    @classmethod
    def root(cls) -> Path:
        """The set's folder.

        Raises:
            DataError: XALIGN_DATA is not set, or has no such folder.
        """
        base = data_dir()
        if base is None or not (base / cls.folder).is_dir():
            reason = "XALIGN_DATA is not set" if base is None else f"XALIGN_DATA={base} has no folder {cls.folder}"
            raise DataError(
                f"{cls.metadata.name}: {reason}; put a folder for each locale with queries.jsonl, corpus.jsonl and "
                f"qrels/test.jsonl into $XALIGN_DATA/{cls.folder}. Publisher: {cls.publisher}."
            )
        return base / cls.folder

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Read the chosen locales of the chosen splits.

        Raises:
            DataError: The data is missing or malformed.
        """
        if self.data_loaded:
            return
        root = self.root()
        with noting({}):
            self.stamp(self.fingerprint())
            self.dataset = {name: {} for name in self.hf_subsets}
            for split in self.eval_splits:
                for name, locale in load(root, split, self.hf_subsets).items():
                    language = from_lazada(name)
                    self.dataset[name][split] = RetrievalSplitData(
                        queries=_rows(locale.queries, locale.query_languages, language),
                        corpus=_rows(locale.items, locale.item_languages, self.item_language or language),
                        relevant_docs=locale.relevant,
                        top_ranked=None,
                    )
        self.data_loaded = True

    def task_specific_scores(
        self, scores: Any, qrels: Any, results: dict[str, dict[str, float]], hf_split: str, hf_subset: str
    ) -> dict[str, float]:
        """``same`` and ``cross``, if titles are in several languages.

        They are nDCG@10 if only titles in the query's language, or only titles in other languages, are relevant, and
        other relevant titles are removed; the mean over the queries that have such titles.
        """
        rows = self.dataset[hf_subset][hf_split]
        asked, titles = (dict(zip(rows[side]["id"], rows[side]["lang"], strict=True)) for side in ("queries", "corpus"))
        found: dict[str, float] = {}
        for name, same in (("same", True), ("cross", False)) if len(set(titles.values())) > 1 else ():
            wanted = {
                query: chosen
                for query, grades in qrels.items()
                if (chosen := {item: grades[item] for item in grades if (titles[item] == asked[query]) == same})
            }
            kept = {
                query: {
                    item: score for item, score in results[query].items() if item in chosen or item not in qrels[query]
                }
                for query, chosen in wanted.items()
            }
            if wanted:
                found[name] = float(np.mean(_gains(kept, wanted)))
        return found

    def _save_task_predictions(
        self,
        predictions: dict[str, dict[str, float]],
        model: Any,
        prediction_folder: Path,
        hf_split: str,
        hf_subset: str,
    ) -> None:
        """Save each query's nDCG@10, in the queries' order."""
        gains = _gains(predictions, self.dataset[hf_subset][hf_split]["relevant_docs"])
        save_items(prediction_folder, self.metadata.name, {hf_subset: np.array(gains, dtype=np.float32)})


def _gains(results: dict[str, dict[str, float]], relevant: dict[str, dict[str, int]]) -> list[float]:
    """nDCG@10 of each query in ``relevant``, by the measure that mteb takes the mean of; 0 for one without results."""
    scores = pytrec_eval.RelevanceEvaluator(relevant, {"ndcg_cut.10"}).evaluate(results)
    return [scores[query]["ndcg_cut_10"] if query in scores else 0.0 for query in relevant]


def _rows(texts: dict[str, str], languages: dict[str, str], default: str) -> Dataset:
    lang = [languages.get(identifier, default) for identifier in texts]
    return Dataset.from_dict({"id": list(texts), "text": list(texts.values()), "lang": lang})


class LazRetrieval(ProductSearch):
    """LazRetrieval of the LiRA paper: e-commerce queries and product titles, 4:1 train and test.

    The paper does not give the language of the titles; the default is the locale's, which a ``lang`` field of an item,
    or ``item_language`` in a subclass, overrides. The paper does not describe the files; convert them to our layout.
    """

    folder = "lazretrieval"
    publisher = "the LiRA paper's authors; no public download was found"
    metadata = task_metadata("LazRetrieval", {name: [from_lazada(name)] for name in LOCALES})


class ProductSearchStandIn(ProductSearch):
    """The stand-in for LazRetrieval: CLDR names and keywords in seven languages as queries, 590 English titles."""

    folder = "product_search_standin"
    publisher = "built from the Unicode Consortium's CLDR annotations; not LazRetrieval and not real queries"
    item_language = "eng-Latn"
    metadata = task_metadata("ProductSearchStandIn", {name: [from_lazada(name), "eng-Latn"] for name in LOCALES})
