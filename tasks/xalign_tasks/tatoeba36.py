"""Tatoeba-36, XTREME's retrieval task on LASER's Tatoeba test: English and 36 languages, in both directions."""

from collections.abc import Iterator

import numpy as np

from xalign_models.corpora import ENGLISH
from xalign_models.languages import canonical, to_flores
from xalign_models.progress import live
from xalign_models.ranking.neighbours import measured_ranks
from xalign_models.ranking.ranks import normalise
from xalign_tasks.base import Scoring, task_metadata
from xalign_tasks.pairs import RankedSubset, directions
from xalign_tasks.precision import PrecisionTask, pair_name

LANGUAGES = tuple(
    canonical(code)
    for code in "afr ara bul ben deu ell spa est eus pes fin fra heb hin hun ind ita jpn jav kat kaz kor mal mar nld "
    "por rus swh tam tel tha tgl tur urd vie cmn".split()
)
"""The 36 languages of the LSAR paper, in its order."""


class Tatoeba36(PrecisionTask):
    """Accuracy of the nearest neighbour by cosine, per language and direction, with P@5 and P@10.

    ``eng_Latn-deu_Latn`` has English queries and German candidates: the LSAR paper's direction. Accuracy is P@1. Every
    language has its own English side, so English differs between subsets.
    """

    corpus_name = "tatoeba"
    narrows = False
    metadata = task_metadata(
        "Tatoeba36",
        {pair_name(a, b): [a, b] for language in LANGUAGES for a, b in ((ENGLISH, language), (language, ENGLISH))},
    )

    def ranks(self, scoring: Scoring, subsets: set[str]) -> Iterator[RankedSubset]:
        """Each subset with the ranks (n,) of its queries' counterparts, both directions of a language together."""
        english = to_flores(ENGLISH)
        codes = sorted({code for subset in subsets for code in subset.split("-")} - {english})
        for code in live(codes, desc=self.metadata.name):
            language = canonical(code)
            a, b = (
                normalise(self.embed(scoring, texts, lang, f"{english}-{code}"))
                for texts, lang in zip(self.corpus.pair(language), (language, ENGLISH), strict=True)
            )
            small = np.min_scalar_type(len(a))
            forward, backward, measures = measured_ranks(a, b)
            yield from directions((code, english), (forward.astype(small), backward.astype(small)), measures, subsets)
