"""Wrappers come off, what is no translation is named, and ordinary translations stay as they are."""

from __future__ import annotations

import pytest

from xalign_models.generation.translators.base import clean, looks_english, unwrap

GOOD = "The ferry leaves at six, and we are late."
SOURCE = "Die Fähre geht um sechs, und wir sind spät dran."


@pytest.mark.parametrize(
    "written",
    [
        GOOD,
        f"  {GOOD}\n",
        f"Sure, here is the translation: {GOOD}",
        f"Sure! Here's the translated sentence:\n\n{GOOD}",
        f"Here is the English translation of the text:\n{GOOD}",
        f"Of course!\n{GOOD}",
        f"Translation: {GOOD}",
        f"The translation into English is: {GOOD}",
        f"English: {GOOD}",
        f'"{GOOD}"',
        f"“{GOOD}”",
        f'Sure, here is the translation: "{GOOD}"',
        f"```\n{GOOD}\n```",
        f"<think>It is a ferry, I think.</think>\n\n{GOOD}",
        f"Okay, a ferry. Let me see.\n</think>\n\n{GOOD}",
        f"{GOOD}\n\nIf you need any other help, I'm glad to help you.",
        f"{GOOD}\nNote: 'ferry' may also be a boat.",
        f"Sure, here is the translated sentence:\n{GOOD}\nLet me know if you need anything else!",
    ],
)
def test_wrappers_come_off(written: str) -> None:
    assert clean(written, SOURCE, "deu-Latn") == (GOOD, "")


@pytest.mark.parametrize(
    "text",
    [
        "Here is the house that we bought last year.",
        "Sure is hot today.",
        'He said "no" and left, and then "yes".',
        "This is a sentence: short and to the point.",
        "Let me know when you get there, she wrote, and then nothing more was heard of her.",
        "We are late. Let me know when you get there.",
        "Yes, I will come.",
        "Yes",
        "42",
        "Wi-Fi 6E (802.11ax)",
    ],
)
def test_ordinary_translations_stay(text: str) -> None:
    assert clean(text, SOURCE, "deu-Latn") == (text, "")


def test_quotes_of_the_source_stay() -> None:
    assert unwrap('"Come in!"', "„Komm herein!“") == '"Come in!"'
    assert unwrap('"Come in!"', "Komm herein!") == "Come in!"


@pytest.mark.parametrize(
    ("written", "finished", "problem"),
    [
        ("", True, "empty"),
        (" \n ", True, "empty"),
        ("Sure, here is the translation:", True, "empty"),
        ('""', True, "empty"),
        (GOOD, False, "endless"),
        ("and then and then " * 20, True, "endless"),
        ("ha " * 6, True, "endless"),
        (SOURCE, True, "untranslated"),
        (f"Translation: {SOURCE.upper()}", True, "untranslated"),
        ("Паром отходит в шесть, и мы опаздываем.", True, "not English"),
        ("เรือเฟอร์รี่ออกหกโมง", True, "not English"),
        ("Le bac part demain matin vers six heures, nous sommes très pressés maintenant", True, "not English"),
    ],
)
def test_what_is_no_translation_is_named(written: str, finished: bool, problem: str) -> None:
    assert clean(written, SOURCE, "deu-Latn", finished=finished).problem == problem


def test_names_and_english_itself_may_stay_as_they_were() -> None:
    assert clean("iPhone 15 Pro", "iPhone 15 Pro", "deu-Latn").problem == ""
    assert clean(GOOD, GOOD, "eng-Latn").problem == ""
    assert looks_english("😀 42 !") and looks_english("")
