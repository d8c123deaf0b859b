"""Whether an embedding space clusters by language: k-means against the language labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.abstasks.task_metadata import TaskMetadata
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from xalign_models.corpora import ENGLISH
from xalign_models.languages import from_iso639_1
from xalign_models.ranking.ranks import normalise
from xalign_tasks.base import CorpusTask, fill_scores, save_items
from xalign_tasks.tatoeba36 import LANGUAGES

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol
    from mteb.types import EncodeKwargs

SENTENCES = 200
"""Sentences per language, from the top of its file, so that languages have equal weight."""
N_INIT, SEED = 10, 0
COMMON = tuple(from_iso639_1(code) for code in "ar bn de es fr hi id it ja pt ru th tl tr ur vi zh".split())
"""Languages of all usual fit corpora, so that every alignment can be scored."""


class LanguageIdentity(CorpusTask):
    """1 - NMI between k-means clusters and languages, k the number of languages; a mixed space scores near 1.

    Text: the first 200 Tatoeba sentences of each language, and of English (German's side). k-means on unit vectors,
    10 starts, seed 0; NMI with arithmetic normalisation.
    """

    abstask_prompt = ""
    corpus_name = "tatoeba"
    narrows = False
    metadata = TaskMetadata(
        name="LanguageIdentity",
        description="How little k-means clusters of a multilingual pool tell about its languages (1 - NMI).",
        type="Clustering",
        category="t2c",
        dataset={"path": "mteb/tatoeba-bitext-mining", "revision": "69e8f12da6e31d59addadda9a9c8a2e601a0e282"},
        eval_splits=["test"],
        eval_langs={"tatoeba37": [ENGLISH, *LANGUAGES], "common18": [ENGLISH, *COMMON]},
        main_score="one_minus_nmi",
        reference="https://github.com/facebookresearch/LASER/tree/main/data/tatoeba/v1",
        license="cc-by-2.0",
        adapted_from=["Tatoeba"],
    )

    def _evaluate_subset(
        self,
        model: EncoderProtocol,
        data_split: Any,
        *,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: EncodeKwargs,
        prediction_folder: Path | None = None,
        **kwargs: Any,
    ) -> dict[str, float]:
        texts: list[str] = []
        labels: list[str] = []
        for language in self.metadata.hf_subsets_to_langscripts[hf_subset]:
            side = self.corpus.pair("deu-Latn")[1] if language == ENGLISH else self.corpus.texts(language)
            texts += side[:SENTENCES]
            labels += [language] * len(side[:SENTENCES])
        vectors = normalise(
            self.embed(model, texts, labels, split=hf_split, subset=hf_subset, encode_kwargs=encode_kwargs)
        )
        clusters = KMeans(len(set(labels)), n_init=N_INIT, random_state=SEED).fit_predict(vectors)
        if prediction_folder is not None:
            save_items(Path(prediction_folder), self.metadata.name, {hf_subset: clusters.astype(np.uint16)})
        nmi = float(normalized_mutual_info_score(labels, clusters))
        return fill_scores({"one_minus_nmi": 1 - nmi, "nmi": nmi}, "one_minus_nmi")
