"""The layout of a set: what is read, what is refused and where, and the stand-in's own files as the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xalign_models.errors import DataError
from xalign_tasks.product_search import fingerprint, load

QUERIES = [{"id": "q1", "text": " red shoes "}, {"id": 2, "text": "schoen", "lang": "de"}, {"id": "q3", "text": "tea"}]
CORPUS = [{"id": "i1", "text": "shoes, red"}, {"id": "i2", "text": "boots"}]
QRELS = [
    {"query-id": "q1", "corpus-id": "i1", "score": 2},
    {"query-id": "q1", "corpus-id": "i1", "score": 1},
    {"query-id": 2, "corpus-id": "i2"},
    {"query-id": "q3", "corpus-id": "i2", "score": 0},
]


def write(root: Path, split: str = "test", **tables: list[Any]) -> Path:
    folder = root / "vn"
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    rows = {"queries": QUERIES, "corpus": CORPUS, f"qrels/{split}": QRELS, **tables}
    for name, table in rows.items():
        lines = (row if isinstance(row, str) else json.dumps(row) for row in table)
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return root


def test_texts_languages_and_the_highest_grades_above_zero(tmp_path: Path) -> None:
    (name, locale), *others = load(write(tmp_path)).items()
    assert (name, others) == ("vn", [])
    assert locale.queries == {"q1": "red shoes", "2": "schoen", "q3": "tea"}
    assert locale.items == {"i1": "shoes, red", "i2": "boots"}
    assert locale.relevant == {"q1": {"i1": 2}, "2": {"i2": 1}}
    assert (locale.query_languages, locale.item_languages) == ({"2": "deu-Latn"}, {})


def test_a_split_has_qrels_of_its_own(tmp_path: Path) -> None:
    write(write(tmp_path), "train", **{"qrels/train": QRELS[:1]})
    assert load(tmp_path, "train")["vn"].relevant == {"q1": {"i1": 2}}
    assert len(load(tmp_path)["vn"].relevant) == 2


def test_the_stand_in_s_files_are_read_as_the_same_rows(tmp_path: Path) -> None:
    folder = tmp_path / "vn"
    folder.mkdir()
    files = {
        "query": {"q1": {"query": "red shoes"}, "2": {"query": "schoen"}, "q3": {"query": "tea"}},
        "item": {row["id"]: {"title": row["text"], "category": "x"} for row in CORPUS},
        "pairs_info": [{"query_id": "q1", "item_id": "i1", "label": 2}, {"query_id": "2", "item_id": "i2", "label": 1}],
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    stand_in = load(tmp_path)["vn"]
    plain = load(write(tmp_path / "plain"))["vn"]
    for field in ("queries", "items", "relevant"):
        assert getattr(stand_in, field) == getattr(plain, field)
    (folder / "item.json").write_text("[]")
    with pytest.raises(DataError, match="are not in the stand-in's layout"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("table", "row", "why"),
    [
        ("queries", "{", "not JSON"),
        ("queries", "[]", "an object was expected"),
        ("queries", {"text": "a"}, "no id in the field 'id'; the fields are text"),
        ("queries", {"id": True, "text": "a"}, "the id 'True' in the field 'id' is neither text nor a whole number"),
        ("queries", {"id": "q1", "text": " "}, "no text in the field 'text'"),
        ("queries", {"id": "q1", "text": "other"}, "'q1' is repeated"),
        ("corpus", {"id": "i1", "title": "a"}, "no text in the field 'text'"),
        ("corpus", {"id": "i9", "text": "a", "lang": "klingonese"}, "klingonese"),
        ("qrels/test", {"query-id": "q1"}, "no id in the field 'corpus-id'"),
        ("qrels/test", {"query-id": "q1", "corpus-id": "i9"}, "'i9' is neither a query nor an item"),
        ("qrels/test", {"query-id": "q1", "corpus-id": "i1", "score": 0.5}, "score 0.5 is not a whole number"),
    ],
)
def test_a_bad_row_is_an_error_that_says_where(tmp_path: Path, table: str, row: Any, why: str) -> None:
    good = {"queries": QUERIES, "corpus": CORPUS, "qrels/test": QRELS}[table]
    with pytest.raises(DataError, match=f"{table}.jsonl, line 1.*{why}|{table}.jsonl, line {len(good) + 1}.*{why}"):
        load(write(tmp_path, **{table: [row, *good] if isinstance(row, str) else [*good, row]}))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder of a locale \(bd, id"):
        load(tmp_path)
    write(tmp_path)
    with pytest.raises(DataError, match="no locale th; it has vn"):
        load(tmp_path, locales=["th"])
    with pytest.raises(DataError, match=r"train.jsonl is missing; each locale needs"):
        load(tmp_path, "train")
    with pytest.raises(DataError, match="no query has a relevant item"):
        load(write(tmp_path, **{"qrels/test": QRELS[-1:]}))


def test_the_fingerprint_is_of_the_set_s_files(tmp_path: Path) -> None:
    before = fingerprint(write(tmp_path))
    (tmp_path / "README.md").write_text("notes")
    (tmp_path / "vn" / "notes.txt").write_text("notes")
    assert fingerprint(tmp_path) == before
    write(tmp_path, queries=QUERIES[:2])
    assert fingerprint(tmp_path) != before
