"""Whether an embedding space clusters by language: k-means against the language labels."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from xalign_models.corpora import ENGLISH
from xalign_models.languages import from_iso639_1
from xalign_models.ranking.ranks import normalise
from xalign_tasks.base import JointTask, Scored, Scoring, task_metadata
from xalign_tasks.tatoeba36 import LANGUAGES

SENTENCES = 200
"""Sentences per language, from the top of its file, so that languages have equal weight."""
N_INIT, SEED = 10, 0
COMMON = tuple(from_iso639_1(code) for code in "ar bn de es fr hi id it ja pt ru th tl tr ur vi zh".split())
"""Languages that all common fit corpora share, so that every alignment can be scored."""


class LanguageIdentity(JointTask):
    """1 - NMI between k-means clusters and languages, k the number of languages; a mixed space scores near 1.

    Text: the first 200 Tatoeba sentences of each language, and of English (German's side). k-means on unit vectors,
    10 starts, seed 0; NMI with arithmetic normalisation.
    """

    corpus_name = "tatoeba"
    narrows = False
    metadata = task_metadata("LanguageIdentity", {"tatoeba37": [ENGLISH, *LANGUAGES], "common18": [ENGLISH, *COMMON]})

    def score(self, scoring: Scoring, subsets: set[str]) -> Scored:
        """1 - NMI and NMI of the subsets, and the cluster of each sentence."""
        scores, items = {}, {}
        for subset in sorted(subsets):
            texts: list[str] = []
            labels: list[str] = []
            for language in self.metadata.hf_subsets_to_langscripts[subset]:
                side = self.corpus.pair("deu-Latn")[1] if language == ENGLISH else self.corpus.texts(language)
                texts += side[:SENTENCES]
                labels += [language] * len(side[:SENTENCES])
            vectors = normalise(self.embed(scoring, texts, labels, subset))
            clusters = KMeans(len(set(labels)), n_init=N_INIT, random_state=SEED).fit_predict(vectors)
            nmi = float(normalized_mutual_info_score(labels, clusters))
            scores[subset] = {"one_minus_nmi": 1 - nmi, "nmi": nmi}
            items[subset] = clusters.astype(np.uint16)
        return scores, items
