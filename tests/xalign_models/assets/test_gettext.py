"""The gettext corpus from small .po files written here."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from xalign_models.assets import gettext

GERMAN = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

msgid "Please enter your name."
msgstr "Bitte geben Sie Ihren Namen ein."

#, fuzzy
msgid "A fuzzy message here."
msgstr "Eine unscharfe Meldung."

msgid "Not translated at all."
msgstr ""

msgid "%(count)d item selected"
msgid_plural "%(count)d items selected"
msgstr[0] "%(count)d Element gewählt"
msgstr[1] "%(count)d Elemente gewählt"

msgid "Delete"
msgstr "Löschen"

#, python-format
msgid "The <strong>%(name)s</strong> “%(obj)s” was  changed &amp; saved."
msgstr "%(name)s „%(obj)s“ wurde\ngeändert &amp; gespeichert."

msgid "The very same text"
msgstr "The very same text"

msgctxt "first"
msgid "Go back home"
msgstr "Zurück nach Hause"

msgctxt "second"
msgid "Go back home"
msgstr "Heimwärts zurück"

msgid "Return to the house"
msgstr "Zurück nach Hause"

#, python-format
msgid "%(a)s and %(b)s of %(c)s"
msgstr "%(a)s und %(b)s von %(c)s"

msgid "This placeholder %(name)s is broken there"
msgstr "Dieser Platzhalter %(name s ist kaputt"

#~ msgid "An obsolete message here"
#~ msgstr "Eine veraltete Meldung"
"""

JAPANESE = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

msgid "The <strong>%(name)s</strong> \"%(obj)s\" was changed & saved."
msgstr "%(name)s「%(obj)s」を変更しました"

msgid "Please enter your name."
msgstr "名前を入力してください。"
"""


def test_rows_are_parallel_clean_and_unique() -> None:
    rows = gettext.joined([("deu-Latn", gettext.messages(GERMAN)), ("jpn-Jpan", gettext.messages(JAPANESE))])
    assert rows == [
        {"eng-Latn": "Go back home", "deu-Latn": "Zurück nach Hause"},
        {
            "eng-Latn": "Please enter your name.",
            "deu-Latn": "Bitte geben Sie Ihren Namen ein.",
            "jpn-Jpan": "名前を入力してください。",
        },
        {
            "eng-Latn": 'The … "…" was changed & saved.',
            "deu-Latn": "… „…“ wurde geändert & gespeichert.",
            "jpn-Jpan": "…「…」を変更しました",
        },
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%(size)s, %d of {total} and {}", "…, … of … and …"),
        ("%sを選択", "…を選択"),
        ("100%% sure", "100% sure"),
        ("a <a href='x'>link</a>\n  here", "a link here"),
        ("less than %(limit)s.", "less than …"),
        ("<5 items", "<5 items"),
    ],
)
def test_clean(text: str, expected: str) -> None:
    assert gettext.clean(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Delete selected", True),
        ("Delete", False),
        ("A go", False),
        ("Log … out … of it …", True),
        ("Log … out … of …", False),
    ],
)
def test_is_phrase(text: str, expected: bool) -> None:
    assert gettext.is_phrase(text) is expected


def test_build_reads_the_languages_of_the_wheel_but_no_regional_variants(tmp_path: Path) -> None:
    wheel = tmp_path / "django.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for locale, text in {"de": GERMAN, "de_CH": GERMAN, "zh_Hans": JAPANESE, "en": GERMAN}.items():
            archive.writestr(f"django/conf/locale/{locale}/LC_MESSAGES/django.po", text)
            archive.writestr(f"django/conf/locale/{locale}/LC_MESSAGES/djangojs.po", "broken")
        archive.writestr("django-5.dist-info/licenses/LICENSE", "BSD")
    gettext.build({"Django": wheel}, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {language for row in rows for language in row} == {"eng-Latn", "deu-Latn", "zho-Hans"}
    assert all(row.keys() > {"eng-Latn"} for row in rows)
    assert (tmp_path / "LICENSE.txt").read_text() == "BSD"
