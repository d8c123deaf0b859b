"""Tweet sentiment of XLM-T: negative, neutral or positive in eight languages."""

from pathlib import Path

from xalign_models.corpora import read_lines
from xalign_models.errors import DataError
from xalign_tasks.base import task_metadata
from xalign_tasks.files import data_folder, present
from xalign_tasks.zero_shot.task import TEST, TRAIN, Labelled, ZeroShotTask

LANGUAGES = {
    "arb-Arab": "arabic",
    "deu-Latn": "german",
    "eng-Latn": "english",
    "fra-Latn": "french",
    "hin-Deva": "hindi",
    "ita-Latn": "italian",
    "por-Latn": "portuguese",
    "spa-Latn": "spanish",
}


class TweetSentimentZeroShot(ZeroShotTask):
    """Unified tweet sentiment by the zero-shot protocol: 1,839 English tweets to train on, 870 of every language."""

    configs = LANGUAGES
    metadata = task_metadata("TweetSentimentZeroShot", [*LANGUAGES])

    def files(self) -> dict[str, tuple[Path, ...]]:
        """Texts and labels of the training part, then of the test part, in every language."""
        base = data_folder(
            "xlmt_sentiment/sentiment",
            "The tweets are missing: set XALIGN_DATA to a folder that has xlmt_sentiment/sentiment/ in the layout "
            "of data/sentiment in github.com/cardiffnlp/xlm-t.",
        )
        names = [f"{part}_{kind}.txt" for part in (TRAIN, TEST) for kind in ("text", "labels")]
        files = {code: tuple(base / language / name for name in names) for code, language in LANGUAGES.items()}
        return present(files, "github.com/cardiffnlp/xlm-t")

    def read_part(self, files: tuple[Path, ...], part: str) -> Labelled:
        """The labelled tweets of a part."""
        texts, labels = files[:2] if part == TRAIN else files[2:]
        rows = read_lines(texts), [line.strip() for line in read_lines(labels)]
        if len(rows[0]) != len(rows[1]):
            raise DataError(f"{texts} has {len(rows[0])} lines and {labels} has {len(rows[1])}.")
        return rows
