"""Sentiment: the LSAR paper's Amazon reviews, mteb's with five stars, and the tweets of XLM-T."""

from itertools import compress
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

import pandas as pd

from xalign_models.corpora import read_lines
from xalign_models.errors import DataError
from xalign_models.languages import from_iso639_1
from xalign_tasks.base import task_metadata
from xalign_tasks.files import data_folder, present
from xalign_tasks.zero_shot.task import TEST, TRAIN, Labelled, ZeroShotTask

FOLDERS = {"eng-Latn": "en", "deu-Latn": "de", "fra-Latn": "fr", "jpn-Jpan": "jp"}
CATEGORIES = ("books", "dvd", "music")
PER_STAR = 2000
"""English training reviews per number of stars of the five-star classifier, from the top."""


class AmazonReviewsZeroShot(ZeroShotTask):
    """The reviews of Prettenhofer and Stein (2010) under the zero-shot protocol: good (over three stars) or bad.

    Webis-CLS-10 in its publisher's layout, all three categories together: 6,000 English reviews to train on, 6,000 of
    every language to test. A review is its summary and its text.
    """

    metadata = task_metadata("AmazonReviewsZeroShot", [*FOLDERS])

    def files(self) -> dict[str, tuple[Path, ...]]:
        """The categories' training reviews, then their test reviews, in every language."""
        base = data_folder(
            "cls-acl10-unprocessed",
            "The Amazon reviews are missing: set XALIGN_DATA to a folder that has cls-acl10-unprocessed/ of "
            "Webis-CLS-10 (webis.de/data/webis-cls-10.html).",
        )
        names = [f"{category}/{part}.review" for part in (TRAIN, TEST) for category in CATEGORIES]
        files = {code: tuple(base / folder / name for name in names) for code, folder in FOLDERS.items()}
        return present(files, "Webis-CLS-10")

    def read_part(self, files: tuple[Path, ...], part: str) -> Labelled:
        """The labelled reviews of a part."""
        texts, labels = [], []
        for path in files[: len(CATEGORIES)] if part == TRAIN else files[len(CATEGORIES) :]:
            try:
                for item in ElementTree.parse(path).iter("item"):
                    rating = float(item.findtext("rating", ""))
                    if rating != 3:  # neither good nor bad; the publisher left these out
                        texts.append(" ".join(filter(None, (item.findtext("summary"), item.findtext("text")))))
                        labels.append("good" if rating > 3 else "bad")
            except (ElementTree.ParseError, ValueError) as error:
                raise DataError(f"{path} is not in the layout of Webis-CLS-10 ({error}).") from None
        return texts, labels


class AmazonStarsZeroShot(ZeroShotTask):
    """mteb's Amazon reviews with one to five stars under the zero-shot protocol, trained on 2,000 in English per star.

    These are not the reviews of the LSAR paper; the set is only on the hub.
    """

    configs: ClassVar[dict[str, str]] = {from_iso639_1(code): code for code in "en de es fr ja zh".split()}
    metadata = task_metadata("AmazonStarsZeroShot", [*configs])

    def files(self) -> dict[str, tuple[Path, ...]]:
        """Unsupported: the set has no files.

        Raises:
            DataError: Always.
        """
        raise DataError("AmazonStarsZeroShot reads its reviews from the hub (mteb/AmazonReviewsClassification).")

    def hub_part(self, language: str, part: str, missing: DataError) -> Labelled:
        """The labelled reviews of a part; the first ones of each label of the training part."""
        texts, labels = super().hub_part(language, part, missing)
        if part != TRAIN:
            return texts, labels
        early = pd.Series(labels).groupby(labels).cumcount() < PER_STAR
        return list(compress(texts, early)), list(compress(labels, early))


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
    """Unified tweet sentiment under the zero-shot protocol: 1,839 English tweets to train on, 870 per language."""

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
