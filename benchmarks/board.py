"""The tasks of a small leaderboard, ours and mteb's on the same rows: FLORES, NTREX, Tatoeba-36 and STS17."""

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
    """Rows whose text is unique in every language, after the normalisation that tokenizers apply.

    mteb orders candidates with equal vectors by position, and ours counts them against the model, so their scores would
    rightly differ.
    """
    seen: set[tuple[str, str]] = set()
    kept = []
    for row in zip(*columns.values(), strict=True):
        forms = {
            (language, " ".join(unicodedata.normalize("NFKC", text).split()))
            for language, text in zip(columns, row, strict=True)
        }
        if not forms & seen:
            kept.append(row)
            seen |= forms
    return {language: list(texts) for language, texts in zip(columns, zip(*kept, strict=True), strict=True)}


def metadata(name: str, columns: Columns) -> Any:
    dataset = {"path": "local/bench", "revision": "bench"}
    return precision_metadata(name, columns, "A benchmark's task.", dataset=dataset)


def our_task(columns: Columns, name: str = "OurBench") -> PrecisionTask:
    """Our protocol on these rows."""

    class OurBench(PrecisionTask):
        corpus_name = "bench"

        _corpus = Corpus(
            "bench", "parallel", (), tuple(columns), columns.__getitem__, lambda code: str(len(columns[code]))
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
            rows = {code.replace("-", "_"): texts for code, texts in columns.items()}
            self.dataset = DatasetDict(test=Dataset.from_dict(rows))
            self.data_loaded = True

    PlainBench.metadata = metadata(name, columns).model_copy(update={"main_score": "accuracy"})
    return PlainBench()


class PlainEncoder(AbsEncoder):
    """A SentenceTransformer under mteb that passes on the language of a text or of its column."""

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
    """A task of the board, mteb's on the same rows (several if its languages are data sets), and both metrics."""

    ours: Any
    plain: list[Any]
    metrics: tuple[str, str] = ("precision_at_1", "accuracy")


def board(languages: list[str], pairs: int, rows: int) -> list[Event]:
    """The four tasks: ``languages`` of FLORES and NTREX, the first ``pairs`` of Tatoeba, the six tracks of STS17.

    Raises:
        DataError: A corpus is missing.
    """
    return [
        *(_all_pairs(name, languages, rows) for name in ("flores", "ntrex")),
        _tatoeba([code for code in TATOEBA if code in languages][:pairs], rows),
        _sts17(rows),
    ]


def _all_pairs(name: str, languages: list[str], rows: int) -> Event:
    found = corpora.load(name, local=True).parallel(languages)
    columns = without_ties({code: texts[:rows] for code, texts in found.items()})
    return Event(our_task(columns, f"Our{name.title()}"), [plain_task(columns, f"Plain{name.title()}")])


def _tatoeba(languages: list[str], rows: int) -> Event:
    whole = corpora.load("tatoeba", local=True)
    columns = {}
    for code in languages:
        sides = (side[:rows] for side in whole.pair(code))
        columns[code] = without_ties(dict(zip((code, ENGLISH), sides, strict=True)))

    class OurTatoeba(Tatoeba36):
        _corpus = Corpus("tatoeba", "pairs", (), tuple(columns), lambda code: tuple(columns[code].values()), str)

        def local_corpus(self) -> Corpus:
            return self._corpus

    subsets = {key: value for key, value in Tatoeba36.metadata.eval_langs.items() if {*value} - {ENGLISH} <= {*columns}}
    OurTatoeba.metadata = Tatoeba36.metadata.model_copy(update={"name": "OurTatoeba", "eval_langs": subsets})
    plain = [plain_task(sides, f"PlainTatoeba{to_flores(code)[:3]}") for code, sides in columns.items()]
    return Event(OurTatoeba(), plain)


def _sts17(rows: int) -> Event:
    """The same class for ours and mteb's, since our task is mteb's protocol with the language of each side."""

    class Cut(STS17CrossLingual):
        def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
            super().load_data(num_proc=num_proc, **kwargs)
            for splits in self.dataset.values():
                splits["test"] = splits["test"].select(range(min(rows, len(splits["test"]))))

    return Event(Cut(), [Cut()], ("cosine_spearman", "cosine_spearman"))
