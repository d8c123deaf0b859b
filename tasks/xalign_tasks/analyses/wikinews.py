"""WikiNews: articles of one event in many languages, published with the linear-mapping paper (its Appendix B)."""

import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from xalign_models import assets
from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import from_iso639_1
from xalign_models.paths import data_dir
from xalign_models.specs import digest

HUB = "Fumika/Wikinews-multilingual"
FOLDER = "wikinews"
_SENTENCE_END = re.compile(r"""[.!?…]["'”’»)\]]*(?=\s)|[。！？।۔]["'”’»」』）]*""")


@dataclass(frozen=True)
class WikiNews:
    """Articles by event and language.

    Attributes:
        articles: Event (pageid) to canonical code to (title, text); the text may be empty.
    """

    articles: Mapping[Any, Mapping[str, tuple[str, str]]]

    def titles(self, language: str) -> tuple[list[str], list[str]]:
        """Titles of the same events in the language and in English, row by row: the paper's WN."""
        rows = [(event[language][0], event[ENGLISH][0]) for event in self._in_both(language)]
        return [title for title, _ in rows], [english for _, english in rows]

    def halves(self, language: str) -> tuple[list[str], list[str]]:
        """Lower halves of the articles in the language, and their English titles: the paper's WN-text.

        Articles without text, or with a single sentence, are left out.
        """
        rows = [(lower_half(event[language][1]), event[ENGLISH][0]) for event in self._in_both(language)]
        return [half for half, _ in rows if half], [english for half, english in rows if half]

    def _in_both(self, language: str) -> list[Mapping[str, tuple[str, str]]]:
        return [event for event in self.articles.values() if ENGLISH in event and language in event]

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 (hex) of all titles and texts."""
        return digest(sorted((str(event), sorted(by_code.items())) for event, by_code in self.articles.items()))


def lower_half(text: str) -> str:
    """The text after the sentence end nearest to the middle; empty if there is only one sentence."""
    text = text.strip()
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if match.end() < len(text)]
    return text[min(ends, key=lambda end: abs(2 * end - len(text))) :].strip() if ends else ""


def gather(rows: Iterable[Mapping[str, Any]]) -> WikiNews:
    """Articles from rows with ``pageid``, ``lang`` (Wikipedia's code), ``title`` and ``text`` (one or its paragraphs).

    The first article of an event in a language counts; languages that have no two-letter code are left out.
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
    return WikiNews(articles)


def open_wikinews() -> WikiNews:
    """The published data set: from ``wikinews/`` under ``$XALIGN_DATA`` (its json or parquet files), else the hub's.

    Raises:
        DataError: The data set is in neither place, or has other columns.
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
