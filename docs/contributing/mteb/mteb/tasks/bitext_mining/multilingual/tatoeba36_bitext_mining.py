from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.abstasks.text.bitext_mining import AbsTaskBitextMining

from .tatoeba_bitext_mining import _LANGUAGES as _TATOEBA
from .tatoeba_bitext_mining import TatoebaBitextMining

if TYPE_CHECKING:
    from mteb.abstasks.text.bitext_mining import BitextMiningMetrics

_CODES = (
    "afr ara ben bul cmn deu ell est eus fin fra heb hin hun ind ita jav jpn kat kaz kor mal mar nld pes por rus spa "
    "swh tam tel tgl tha tur urd vie"
).split()
"""XTREME's 36 languages."""
_COLUMNS = {_TATOEBA[f"{code}-eng"][0].replace("-", "_"): code for code in _CODES}
_ENGLISH = "eng_Latn"
_LANGUAGES = {
    f"{first}-{second}": [first.replace("_", "-"), second.replace("_", "-")]
    for column in _COLUMNS
    for first, second in ((column, _ENGLISH), (_ENGLISH, column))
}


class Tatoeba36BitextMining(AbsTaskBitextMining):
    """Tatoeba in both directions, with each side encoded under its own language, as the columns of parallel tasks are.

    A model that depends on the language gets it as ``hf_subset``. ``Tatoeba`` passes the pair's name for both sides.
    """

    metadata = TaskMetadata(
        name="Tatoeba36BitextMining",
        dataset=TatoebaBitextMining.metadata.dataset,
        description="XTREME's 36 languages of Tatoeba with English, up to 1,000 pairs each, in both directions.",
        reference="https://arxiv.org/abs/2003.11080",
        type="BitextMining",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=_LANGUAGES,
        main_score="accuracy",
        date=TatoebaBitextMining.metadata.date,
        domains=["Written"],
        task_subtypes=[],
        license="cc-by-2.0",
        annotations_creators="human-annotated",
        dialect=[],
        sample_creation="found",
        bibtex_citation=TatoebaBitextMining.metadata.bibtex_citation,
        adapted_from=["Tatoeba"],
    )

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        if self.data_loaded:
            return
        self.dataset = {}
        for subset in self.hf_subsets:
            first, second = subset.split("-")
            code = _COLUMNS[second if first == _ENGLISH else first]
            rows = datasets.load_dataset(
                name=f"{code}-eng",
                split="test",
                num_proc=num_proc,
                **self.metadata.dataset,
            )
            if first == _ENGLISH:
                rows = datasets.Dataset.from_dict({"sentence1": rows["sentence2"], "sentence2": rows["sentence1"]})
            self.dataset[subset] = {"test": rows}
        self.data_loaded = True

    def _get_pairs(self, parallel: bool) -> list[tuple[str, str]]:
        return [self._pair] if parallel else self._DEFAULT_PAIR

    def _evaluate_subset(  # type: ignore[override]
        self, model: Any, data_split: datasets.Dataset, *, hf_subset: str, parallel: bool = False, **kwargs: Any
    ) -> BitextMiningMetrics:
        self._pair = first, second = tuple(hf_subset.split("-"))
        columns = data_split.rename_columns({"sentence1": first, "sentence2": second})
        scores: Any = super()._evaluate_subset(model, columns, hf_subset="parallel", parallel=True, **kwargs)
        return scores[hf_subset]
