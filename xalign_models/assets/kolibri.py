"""Fit text in low-resource languages: the interface sentences of Kolibri, a learning platform, from its wheel.

``corpus.jsonl`` is as in :mod:`xalign_models.assets.gettext`. Messages with plural or other choices are left out.
"""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from xalign_models.assets.gettext import clean, english_key, is_phrase, joined, write_corpus
from xalign_models.languages import canonical

_FILE = re.compile(r"kolibri/locale/(?P<locale>\w+)/LC_MESSAGES/.*-messages\.json")
_LEFT_OUT = {"ach_UG", "es_419", "pt_MZ"}  # a translation tool's codes for words; variants beside es_ES and pt_BR
_ARGUMENT = re.compile(r"\{\s*\w+\s*(?:,\s*\w+\s*){0,2}\}")  # {name}, { count, number }


def messages(english: Mapping[str, str], translated: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The cleaned and selected (English, translation) pairs of two languages' messages by key."""
    for key in sorted(english.keys() & translated.keys()):
        source, target = (clean(_ARGUMENT.sub("{x}", side[key])) for side in (english, translated))
        source = english_key(source)
        if target and target != source and is_phrase(source) and not any(mark in source + target for mark in "{}<>"):
            yield source, target


def build(wheels: Mapping[str, Path], target: Path) -> None:
    """Write ``corpus.jsonl`` and Kolibri's licence into ``target`` from its wheel."""
    with zipfile.ZipFile(wheels["kolibri"]) as archive:
        by_locale: dict[str, dict[str, str]] = {}
        for name in sorted(archive.namelist()):
            if match := _FILE.fullmatch(name):
                file = name.rpartition("/")[2]
                texts = json.loads(archive.read(name)).items()
                by_locale.setdefault(match["locale"], {}).update({f"{file} {key}": text for key, text in texts})
        english = by_locale.pop("en")
        rows = joined(
            (canonical(locale if locale == "zh_Hans" else locale.split("_")[0]), messages(english, texts))
            for locale, texts in by_locale.items()
            if locale not in _LEFT_OUT
        )
        write_corpus(rows, archive, "LICENSE", target)
