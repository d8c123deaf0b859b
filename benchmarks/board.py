"""A leaderboard's tasks, cut to a size, ours and mteb's on the same rows: Flores, NTREX, Tatoeba-36, STS17."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTaskBitextMining
from mteb.models.abs_encoder import AbsEncoder
from sentence_transformers import SentenceTransformer

from xalign_models import corpora
from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.languages import canonical, to_flores
from xalign_tasks.precision import PrecisionTask, precision_metadata
from xalign_tasks.sts17 import STS17CrossLingual
from xalign_tasks.tatoeba36 import LANGUAGES as TATOEBA
from xalign_tasks.tatoeba36 import Tatoeba36

Columns = Mapping[str, list[str]]


def without_ties(columns: Columns) -> dict[str, list[str]]:
    """Rows whose text no other row has, in any language and up to what a tokenizer sees.

    Two candidates with equal vectors are told apart by their position in mteb and not at all in ours, so that scores
    could differ where they should.
    """
    seen: set[tuple[str, str]] = set()
    kept = []
    for row in zip(*columns.values(), strict=True):
        forms = {
            (one, " ".join(unicodedata.normalize("NFKC", text).split())) for one, text in zip(columns, row, strict=True)
        }
        if not forms & seen:
            kept.append(row)
            seen |= forms
    return {one: list(texts) for one, texts in zip(columns, zip(*kept, strict=True), strict=True)}


def metadata(name: str, columns: Columns) -> Any:
    return precision_metadata(
        name, columns, "For the benchmark.", dataset={"path": "local/bench", "revision": "bench"}, eval_splits=["test"]
    )


def our_task(columns: Columns, name: str = "OurBench") -> PrecisionTask:
    """Our protocol on these rows."""

    class OurBench(PrecisionTask):
        corpus_name = "bench"

        _corpus = Corpus(
            "bench", "parallel", (), tuple(columns), columns.__getitem__, lambda one: str(len(columns[one]))
        )

        def local_corpus(self) -> Corpus:
            return self._corpus

    OurBench.metadata = metadata(name, columns)
    return OurBench()


def plain_task(columns: Columns, name: str = "PlainBench") -> AbsTaskBitextMining:
    """mteb's own multi-parallel task on the same rows: its loop, its search, its metrics."""

    class PlainBench(AbsTaskBitextMining):
        parallel_subsets = True

        def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
            rows = {one.replace("-", "_"): texts for one, texts in columns.items()}
            self.dataset = DatasetDict(test=Dataset.from_dict(rows))
            self.data_loaded = True

    PlainBench.metadata = metadata(name, columns).model_copy(update={"main_score": "accuracy"})
    return PlainBench()


class PlainEncoder(AbsEncoder):
    """A SentenceTransformer under mteb, told the language of a text or of its column: no more than it needs."""

    def __init__(self, model: SentenceTransformer, meta: Any) -> None:
        self.model, self.mteb_model_meta = model, meta
        self.sentences = 0

    def encode(self, inputs, *, task_metadata, hf_split, hf_subset, prompt_type=None, **kwargs: Any) -> np.ndarray:
        texts = [
            {"text": text, "lang": canonical(language)}
            for batch in inputs
            for text, language in zip(batch["text"], batch.get("lang", [hf_subset] * len(batch["text"])), strict=True)
        ]
        self.sentences += len(texts)
        return self.model.encode(texts, show_progress_bar=False, batch_size=kwargs.get("batch_size", 32))


@dataclass(frozen=True)
class Event:
    """A task of the board.

    Attributes:
        ours: Ours.
        plain: mteb's on the same rows; several where each pair of languages is a data set of its own.
        metrics: Of ours, and of mteb's.
    """

    ours: Any
    plain: list[Any]
    metrics: tuple[str, str] = ("precision_at_1", "accuracy")


def board(languages: list[str], pairs: int, rows: int) -> list[Event]:
    """The four tasks: ``languages`` of Flores and NTREX, English with the first ``pairs`` of Tatoeba, the six tracks.

    Raises:
        DataError: A corpus is not at hand.
    """
    return [
        *(_all_pairs(name, languages, rows) for name in ("flores", "ntrex")),
        _tatoeba([one for one in TATOEBA if one in languages][:pairs], rows),
        _sts17(rows),
    ]


def _all_pairs(name: str, languages: list[str], rows: int) -> Event:
    found = corpora.load(name, local=True).parallel(languages)
    columns = without_ties({one: texts[:rows] for one, texts in found.items()})
    return Event(our_task(columns, f"Our{name.title()}"), [plain_task(columns, f"Plain{name.title()}")])


def _tatoeba(languages: list[str], rows: int) -> Event:
    whole = corpora.load("tatoeba", local=True)
    columns = {}
    for one in languages:
        sides = (side[:rows] for side in whole.pair(one))
        columns[one] = without_ties(dict(zip((one, ENGLISH), sides, strict=True)))

    class OurTatoeba(Tatoeba36):
        _corpus = Corpus("tatoeba", "pairs", (), tuple(columns), lambda one: tuple(columns[one].values()), str)

        def local_corpus(self) -> Corpus:
            return self._corpus

    subsets = {key: value for key, value in Tatoeba36.metadata.eval_langs.items() if {*value} - {ENGLISH} <= {*columns}}
    OurTatoeba.metadata = Tatoeba36.metadata.model_copy(update={"name": "OurTatoeba", "eval_langs": subsets})
    return Event(OurTatoeba(), [plain_task(one, f"PlainTatoeba{to_flores(code)[:3]}") for code, one in columns.items()])


def _sts17(rows: int) -> Event:
    """One class for both sides: it is mteb's own protocol, with the language of each side beside the text."""

    class Cut(STS17CrossLingual):
        def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
            super().load_data(num_proc=num_proc, **kwargs)
            for splits in self.dataset.values():
                splits["test"] = splits["test"].select(range(min(rows, len(splits["test"]))))

    return Event(Cut(), [Cut()], ("cosine_spearman", "cosine_spearman"))
