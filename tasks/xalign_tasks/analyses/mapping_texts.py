"""The texts of the linear-mapping study: pairs of English and another language, to fit maps on and to test them on."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xalign_models import corpora
from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.corpora.base import from_files, join_lines
from xalign_models.corpora.publishers import PUBLISHERS
from xalign_models.errors import DataError
from xalign_models.paths import data_dir
from xalign_tasks.analyses.wikinews import open_wikinews

PARTS = 5
"""One in ``PARTS`` pairs of a text for fitting is held out."""

Sides = tuple[list[str], list[str]]


@dataclass(frozen=True)
class MappingText:
    """Pairs of English and other languages; ``read`` maps a canonical code to its texts and their English counterparts.

    Where maps are fitted on the text, a part of it is held out.
    """

    name: str
    languages: frozenset[str]
    read: Callable[[str], Sides]
    fitted_on: bool
    fingerprint: str

    def sides(self, language: str, rows: int | None) -> tuple[Sides, Sides]:
        """(texts, English) to fit on and to test on, of the first ``rows`` pairs.

        The split depends on the hash of the English side, so that all translations of a sentence are on the same side.
        """
        pairs = list(zip(*self.read(language), strict=True))[:rows]
        fit = [pair for pair in pairs if self.fitted_on and not held_out(pair[1])]
        test = [pair for pair in pairs if not self.fitted_on or held_out(pair[1])]
        return _sides(fit), _sides(test)


def _sides(pairs: list[tuple[str, str]]) -> Sides:
    return [a for a, _ in pairs], [b for _, b in pairs]


def held_out(english: str) -> bool:
    """Whether pairs with this English sentence are for testing: one in five, by its hash."""
    return hashlib.sha256(english.encode()).digest()[0] % PARTS == 0


def open_texts() -> tuple[list[MappingText], list[str]]:
    """The available texts, those for fitting first, and a note on each missing text.

    Raises:
        DataError: Tatoeba's pairs, which the study is about, are missing.
    """
    texts, notes = [_of_corpus("Tatoeba", corpora.load("tatoeba_pairs"), fitted_on=True)], []
    others: tuple[Callable[[], list[MappingText]], ...] = (
        lambda: [_of_corpus("newstest", newstest_pairs(), fitted_on=True)],
        lambda: [_of_corpus("Flores", corpora.load("flores"), fitted_on=False)],
        _news_texts,
    )
    for open_some in others:
        try:
            texts += open_some()
        except DataError as error:
            notes.append(f"Left out: {error}")
    return texts, notes


def _news_texts() -> list[MappingText]:
    news = open_wikinews()
    languages = frozenset(code for by_code in news.articles.values() for code in by_code) - {ENGLISH}
    readers = {"WN": news.titles, "WN-text": news.halves}
    return [MappingText(name, languages, read, False, news.fingerprint) for name, read in readers.items()]


def _of_corpus(name: str, corpus: Corpus, *, fitted_on: bool) -> MappingText:
    return MappingText(name, frozenset(corpus.languages) - {ENGLISH}, corpus.pair, fitted_on, corpus.fingerprint())


def newstest_pairs() -> Corpus:
    """WMT's news tests as pairs: each language's files with an English counterpart.

    Raises:
        DataError: There are no such files.
    """
    publisher = PUBLISHERS["newstest"]
    root = data_dir()
    files = publisher.layout(root / publisher.folder) if root else {}
    paired = {
        language: tuple(file for path in paths if _english(path).is_file() for file in (path, _english(path)))
        for language, paths in files.items()
        if language != ENGLISH
    }
    paired = {language: paths for language, paths in paired.items() if paths}
    if not paired:
        raise DataError(f"newstest needs {publisher.folder}/ under XALIGN_DATA, in the layout of {publisher.where}.")
    return from_files("newstest_pairs", "pairs", publisher.trains, paired, _read_pairs)


def _english(path: Path) -> Path:
    return path.with_suffix(".en")


def _read_pairs(files: tuple[Path, ...]) -> Sides:
    side, english = join_lines(files[::2]), join_lines(files[1::2])
    if len(side) != len(english):
        raise DataError(f"{files[0].parent}: the {files[0].suffix} and .en files differ in their number of lines.")
    return _sides([pair for pair in zip(side, english, strict=True) if all(text.strip() for text in pair)])
