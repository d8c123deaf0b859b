"""The texts of the linear-mapping study: pairs of English and another language, to fit and test maps on."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from xalign_models import assets, corpora
from xalign_models.corpora import ENGLISH, Corpus
from xalign_models.corpora.base import from_files, join_lines
from xalign_models.corpora.publishers import PUBLISHERS
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import from_iso639_1
from xalign_models.paths import data_dir
from xalign_models.specs import digest

HUB = "Fumika/Wikinews-multilingual"
FOLDER = "wikinews"
PARTS = 5
"""One in ``PARTS`` pairs of a text for fitting is held out."""
Sides = tuple[list[str], list[str]]
_SENTENCE_END = re.compile(r"""[.!?…]["'”’»)\]]*(?=\s)|[。！？।۔]["'”’»」』）]*""")


News = Mapping[Any, Mapping[str, tuple[str, str]]]
"""Articles: event (pageid) to canonical code to (title, text); the text may be empty."""


def titles(news: News, language: str) -> Sides:
    """Titles of the same events in the language and in English, row by row: the paper's WN."""
    return _sides([(event[language][0], event[ENGLISH][0]) for event in _in_both(news, language)])


def halves(news: News, language: str) -> Sides:
    """Lower halves of the articles in the language, and their English titles: the paper's WN-text.

    Articles without text, or with a single sentence, are left out.
    """
    rows = ((lower_half(event[language][1]), event[ENGLISH][0]) for event in _in_both(news, language))
    return _sides([row for row in rows if row[0]])


def _in_both(news: News, language: str) -> list[Mapping[str, tuple[str, str]]]:
    return [event for event in news.values() if ENGLISH in event and language in event]


def fingerprint(news: News) -> str:
    """Sha256 (hex) of all titles and texts."""
    return digest(sorted((str(event), sorted(by_code.items())) for event, by_code in news.items()))


def lower_half(text: str) -> str:
    """The text after the sentence end nearest to the middle; empty if there is only one sentence."""
    text = text.strip()
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if match.end() < len(text)]
    return text[min(ends, key=lambda end: abs(2 * end - len(text))) :].strip() if ends else ""


def gather(rows: Iterable[Mapping[str, Any]]) -> News:
    """Articles from rows with ``pageid``, ``lang`` (Wikipedia's code), ``title`` and ``text`` (one or its paragraphs).

    The first article of an event in a language counts; languages without a two-letter code are left out.
    """
    articles: dict[Any, dict[str, tuple[str, str]]] = {}
    for row in rows:
        try:
            language = from_iso639_1(row["lang"])
        except LanguageError:
            continue
        text = row["text"] or ""
        joined = " ".join(text if isinstance(text, str) else map(str, text))
        if row["title"]:
            articles.setdefault(row["pageid"], {}).setdefault(language, (row["title"], joined))
    return articles


def open_wikinews() -> News:
    """The published data set: from ``wikinews/`` under ``$XALIGN_DATA`` (its json or parquet files), else the hub's.

    Raises:
        DataError: The data set is in neither place, or lacks a column.
    """
    import datasets

    root = data_dir()
    local = root / FOLDER if root else None
    source = str(local) if local and local.is_dir() else HUB
    try:
        with assets.hub_or_cache(HUB) if source == HUB else nullcontext():
            table = datasets.load_dataset(source, split="train")
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"WikiNews is unavailable: no {FOLDER}/ under XALIGN_DATA, and {source} did not load "
            f"({type(error).__name__})."
        ) from None
    if missing := {"pageid", "lang", "title", "text"} - set(table.column_names):
        raise DataError(f"{source} has no column {', '.join(sorted(missing))}; it is not {HUB}.")
    return gather(table)


@dataclass(frozen=True)
class MappingText:
    """Pairs of English and other languages; ``read`` returns a language's texts and the English ones."""

    name: str
    languages: frozenset[str]
    read: Callable[[str], Sides]
    fitted_on: bool
    fingerprint: str

    def sides(self, language: str, rows: int | None) -> tuple[Sides, Sides]:
        """(texts, English) to fit on and to test on, from the first ``rows`` pairs.

        The split depends on the hash of the English side, so all translations of a sentence are on the same side.
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
    """The available texts, those for fitting first, and a note on each missing text."""
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
    languages = frozenset[str]().union(*news.values()) - {ENGLISH}
    readers, identity = {"WN": partial(titles, news), "WN-text": partial(halves, news)}, fingerprint(news)
    return [MappingText(name, languages, read, False, identity) for name, read in readers.items()]


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
    paired: dict[str, tuple[Path, ...]] = {}
    for language, path in ((code, path) for code in files if code != ENGLISH for path in files[code]):
        if (english := path.with_suffix(".en")).is_file():
            paired[language] = (*paired.get(language, ()), path, english)
    if not paired:
        raise DataError(f"newstest needs {publisher.folder}/ under XALIGN_DATA, in the layout of {publisher.where}.")
    return from_files("newstest_pairs", "pairs", publisher.trains, paired, _read_pairs)


def _read_pairs(files: tuple[Path, ...]) -> Sides:
    side, english = join_lines(files[::2]), join_lines(files[1::2])
    if len(side) != len(english):
        raise DataError(f"{files[0].parent}: the {files[0].suffix} and .en files differ in their number of lines.")
    return _sides([pair for pair in zip(side, english, strict=True) if all(text.strip() for text in pair)])
