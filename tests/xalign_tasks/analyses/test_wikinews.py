"""Articles are paired by event; the lower half begins at the sentence end nearest the middle."""

from __future__ import annotations

import json

import datasets
import pytest

from xalign_models.errors import DataError
from xalign_tasks.analyses.mapping_texts import fingerprint, gather, halves, lower_half, open_wikinews, titles

ROWS = [
    {"pageid": 1, "lang": "en", "title": "Rain", "text": "It rained."},
    {"pageid": 1, "lang": "de", "title": "Regen", "text": ["Es regnete lange.", "Dann nicht mehr."]},
    {"pageid": 1, "lang": "de", "title": "Zweiter", "text": "a. b."},
    {"pageid": 1, "lang": "xx", "title": "no language", "text": ""},
    {"pageid": 2, "lang": "en", "title": "Snow", "text": None},
    {"pageid": 2, "lang": "de", "title": "Schnee", "text": ""},
    {"pageid": 3, "lang": "de", "title": "no English", "text": "a. b."},
]


@pytest.mark.parametrize(
    ("text", "half"),
    [
        ("One two three. Four five six.", "Four five six."),
        ("A. Bb bb bb bb bb. Cc cc cc. D.", "Cc cc cc. D."),  # ends at 2, 17, 27 of 30: 17 is nearest to 15
        ("Only one sentence.", ""),
        ("no end at all", ""),
        ("", ""),
        ('He said "no." Then he left! Why?', "Then he left! Why?"),
        ("第一句话。第二句话。", "第二句话。"),  # no spaces
        ("पहला वाक्य। दूसरा वाक्य।", "दूसरा वाक्य।"),
        ("It costs 3.50 here. That is all.", "That is all."),  # a point within a number ends nothing
    ],
)
def test_lower_half(text, half):
    assert lower_half(text) == half


def test_titles_and_halves_are_paired_by_event():
    news = gather(ROWS)
    assert titles(news, "deu-Latn") == (["Regen", "Schnee"], ["Rain", "Snow"])
    assert halves(news, "deu-Latn") == (["Dann nicht mehr."], ["Rain"])
    assert titles(news, "fra-Latn") == ([], [])
    assert fingerprint(news) == fingerprint(gather(ROWS)) != fingerprint(gather(ROWS[:2]))


def test_a_local_copy_is_read(workdir, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", workdir / "cache")
    with pytest.raises(DataError, match="WikiNews is unavailable: no wikinews/ under XALIGN_DATA, and Fumika"):
        open_wikinews()
    folder = workdir / "data" / "wikinews"
    folder.mkdir()
    lines = [
        json.dumps({**row, "text": row["text"] if isinstance(row["text"], list) else [row["text"] or ""]})
        for row in ROWS
    ]
    (folder / "articles.jsonl").write_text("\n".join(lines))
    assert titles(open_wikinews(), "deu-Latn") == titles(gather(ROWS), "deu-Latn")
    (folder / "articles.jsonl").write_text('{"pageid": 1, "heading": "x"}\n')
    with pytest.raises(DataError, match="has no column lang, text, title"):
        open_wikinews()
