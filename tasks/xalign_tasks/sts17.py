"""STS17: the six tracks of the papers, with the language of each side."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from mteb.abstasks import AbsTaskSTS

from xalign_models.corpora import Corpus, file_digest, read_lines
from xalign_models.errors import DataError
from xalign_models.files import noting
from xalign_models.languages import from_sts17
from xalign_models.ranking.correlation import spearman_shares
from xalign_models.results.items import save_items
from xalign_tasks.base import CorpusTask, task_metadata
from xalign_tasks.files import data_folder, present

# subset (mteb's name: languages of sentence1 and 2) -> track; the file's first column is always sentence1
_TRACKS = {
    "ar-ar": "track1.ar-ar",
    "en-ar": "track2.ar-en",  # named ar-en, but its first column is English
    "es-es": "track3.es-es",
    "es-en": "track4a.es-en",
    "en-en": "track5.en-en",
    "en-tr": "track6.tr-en",  # likewise English first; the gold file covers the first 250 of its 500 lines
}


class STS17CrossLingual(CorpusTask, AbsTaskSTS):
    """Spearman (main) and Pearson correlation of cosines with human scores, on the tracks of the published papers."""

    column_names = ({"sentence1": "text", "lang1": "lang"}, {"sentence2": "text", "lang2": "lang"})
    metadata = task_metadata("STS17CrossLingual", {track: list(dict.fromkeys(from_sts17(track))) for track in _TRACKS})

    def local_corpus(self) -> Corpus:
        """The tracks' files, for their fingerprint only."""
        _root()

        def identity(track: str) -> str:
            return hashlib.sha256("".join(map(file_digest, _files(track))).encode()).hexdigest()

        return Corpus("sts17", "pairs", ("STS17", self.metadata.name), tuple(_TRACKS), str, identity)

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Read the chosen tracks from XALIGN_DATA, else from the hub."""
        if self.data_loaded:
            return
        with noting({}):
            try:
                self.stamp(self.local_corpus().fingerprint())
            except DataError as missing:
                rows = {track: self.hub_rows(track, "test", missing) for track in self.hf_subsets}
            else:
                rows = {track: _read(track) for track in self.hf_subsets}
        self.dataset = {track: {"test": _with_languages(track, columns)} for track, columns in rows.items()}
        self.data_loaded = True

    def _save_task_predictions(
        self, predictions: Any, model: Any, prediction_folder: Path, hf_split: str, hf_subset: str
    ) -> None:
        """Keep each pair's share in Spearman's correlation of its cosine with the human score."""
        human = self.dataset[hf_subset][hf_split]["score"]
        shares = spearman_shares(np.asarray(predictions["cosine_scores"]), np.asarray(human))
        save_items(Path(prediction_folder), self.metadata.name, {hf_subset: shares.astype(np.float32)})


def _root() -> Path:
    return data_folder(
        "sts17",
        "STS17 is missing: set XALIGN_DATA to a folder with sts17/ in the layout of SemEval-2017 task 1 "
        "(STS2017.eval.v1.1/ and STS2017.gs/).",
    )


def _files(track: str) -> tuple[Path, Path]:
    root, name = _root(), _TRACKS[track]
    paths = root / "STS2017.eval.v1.1" / f"STS.input.{name}.txt", root / "STS2017.gs" / f"STS.gs.{name}.txt"
    present({track: paths}, "SemEval-2017 task 1")
    return paths


def _read(track: str) -> dict[str, list[Any]]:
    inputs, gold = _files(track)
    scores = [float(line) for line in read_lines(gold) if line.strip()]
    rows = [line.split("\t") for line in read_lines(inputs)][: len(scores)]
    if len(rows) < len(scores) or min(map(len, rows)) < 2:
        raise DataError(f"{inputs} lacks two tab-separated sentences for some of the {len(scores)} scores.")
    return {"sentence1": [row[0] for row in rows], "sentence2": [row[1] for row in rows], "score": scores}


def _with_languages(track: str, columns: Mapping[str, Any]) -> Dataset:
    rows = {name: list(columns[name]) for name in ("sentence1", "sentence2", "score")}
    languages = zip(("lang1", "lang2"), from_sts17(track), strict=True)
    return Dataset.from_dict({**rows, **{name: [code] * len(rows["score"]) for name, code in languages}})
