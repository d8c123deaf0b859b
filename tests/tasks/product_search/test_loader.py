"""The loader: every layout gives the same records, every defect is named. All rows are made up here."""

from __future__ import annotations

import hashlib
import json
import logging
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tasks.product_search.fields import LOCALES, QUERY_IDS
from tasks.product_search.loader import Locale, fingerprint, load
from tasks.product_search.rows import rows
from xalign_models.errors import DataError

Rows = list[dict[str, Any]]

QUERIES = {name: {f"{name}-q{i}": f"made-up query {i} of {name}" for i in range(3)} for name in ("bd", "vn")}
ITEMS = {name: {f"{name}-i{i}": f"made-up title {i} é of {name}" for i in range(4)} for name in ("bd", "vn")}
GRADES = [("q0", "i0", 1), ("q0", "i1", 2), ("q1", "i2", 1), ("q2", "i3", 1), ("q2", "i0", 0)]
EXPECTED = {
    name: Locale(
        queries=QUERIES[name],
        items=ITEMS[name],
        relevant={
            f"{name}-q0": {f"{name}-i0": 1, f"{name}-i1": 2},
            f"{name}-q1": {f"{name}-i2": 1},
            f"{name}-q2": {f"{name}-i3": 1},
        },
    )
    for name in ("bd", "vn")
}


def tables(name: str, **extra: str) -> dict[str, Rows]:
    return {
        "query": [{"query_id": key, "query": text, **extra} for key, text in QUERIES[name].items()],
        "item": [{"item_id": key, "title": text, **extra} for key, text in ITEMS[name].items()],
        "pairs_info": [
            {"query_id": f"{name}-{query}", "item_id": f"{name}-{item}", "label": grade, **extra}
            for query, item, grade in GRADES
        ],
    }


def as_list(records: Rows) -> str:
    return json.dumps(records)


def as_map(records: Rows) -> str:
    ids = ("query_id", "item_id")
    if "label" in records[0]:
        return json.dumps({f"pair{i}": record for i, record in enumerate(records)}, indent=1)
    return json.dumps(
        {record[ids["title" in record]]: {k: v for k, v in record.items() if k not in ids} for record in records}
    )


def as_bare_map(records: Rows) -> str:
    if "label" in records[0]:
        grades: dict[str, dict[str, int]] = {}
        for record in records:
            grades.setdefault(record["query_id"], {})[record["item_id"]] = record["label"]
        return json.dumps(grades)
    return json.dumps(dict(list(record.values())[:2] for record in records))


def as_lines(records: Rows) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def as_crlf_lines(records: Rows) -> str:
    return as_lines(records).replace("\n", "\r\n") + "\r\n"


def renamed(names: dict[str, str]) -> Callable[[Rows], str]:
    return lambda records: as_list([{names.get(k, k): v for k, v in record.items()} for record in records])


def write(folder: Path, files: dict[str, Rows], form: Callable[[Rows], str] = as_list, suffix: str = ".json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in files.items():
        (folder / f"{name}{suffix}").write_text(form(records), encoding="utf-8", newline="")
    return folder


def merged(*parts: dict[str, Rows]) -> dict[str, Rows]:
    return {name: [record for part in parts for record in part[name]] for name in parts[0]}


FORMS = {
    "list": as_list,
    "map": as_map,
    "bare map": as_bare_map,
    "lines": as_lines,
    "lines, CRLF": as_crlf_lines,
    "list, BOM": lambda records: "\ufeff" + as_list(records),
    "map, BOM": lambda records: "\ufeff" + as_map(records),
    "lines, BOM": lambda records: "\ufeff" + as_lines(records),
    "aliases qid, text, iid, item": renamed(
        {"query_id": "qid", "query": "text", "item_id": "iid", "title": "item", "label": "relevance"}
    ),
    "label as a string": lambda records: as_list(
        [{**record, "label": str(record["label"])} if "label" in record else record for record in records]
    ),
}


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_records(tmp_path: Path, form: Callable[[Rows], str], suffix: str) -> None:
    for name in EXPECTED:
        write(tmp_path / name, tables(name), form, suffix)
    assert load(tmp_path) == EXPECTED


def test_id_and_name_are_aliases(tmp_path: Path) -> None:
    files = tables("bd")
    write(tmp_path / "bd", {"query": files["query"]}, renamed({"query_id": "id", "query": "title"}))
    write(tmp_path / "bd", {"item": files["item"]}, renamed({"item_id": "id", "title": "name"}))
    write(tmp_path / "bd", {"pairs_info": files["pairs_info"]}, renamed({"label": "score"}))
    assert load(tmp_path) == {"bd": EXPECTED["bd"]}


@pytest.mark.parametrize("field", ["locale", "country", "lang"])
@pytest.mark.parametrize("codes", [("bd", "vn"), ("BD", "VN"), ("bn", "vi"), ("ben-Beng", "vie-Latn")])
def test_a_locale_field_replaces_folders(tmp_path: Path, field: str, codes: tuple[str, str]) -> None:
    write(tmp_path, merged(tables("bd", **{field: codes[0]}), tables("vn", **{field: codes[1]})), as_lines)
    assert load(tmp_path) == EXPECTED
    assert load(tmp_path, locales=["vn"]) == {"vn": EXPECTED["vn"]}


def test_pairs_need_no_locale_while_ids_are_unique(tmp_path: Path) -> None:
    files = merged(tables("bd", locale="bd"), tables("vn", locale="vn"))
    files["pairs_info"] = [*tables("bd")["pairs_info"], *tables("vn")["pairs_info"]]
    write(tmp_path, files)
    assert load(tmp_path) == EXPECTED
    assert load(tmp_path, locales=["bd"]) == {"bd": EXPECTED["bd"]}
    for kind in ("query", "item"):
        files[kind] += [{**record, "locale": "vn"} for record in tables("bd")[kind]]
    write(tmp_path, files)
    with pytest.raises(DataError, match=r"occur in locales bd, vn; name the pair's"):
        load(tmp_path)


@pytest.mark.parametrize("pattern", ["{split}/{locale}", "{locale}/{split}"])
def test_published_split_folders_win_over_the_hash(tmp_path: Path, pattern: str) -> None:
    for split, name in (("train", "vn"), ("test", "bd")):
        write(tmp_path / pattern.format(split=split, locale=name), tables(name))
    assert load(tmp_path, hash_split=True) == {"bd": EXPECTED["bd"]}
    assert load(tmp_path, "train", hash_split=True) == {"vn": EXPECTED["vn"]}


def test_a_split_field_wins_over_the_hash(tmp_path: Path) -> None:
    files = tables("bd")
    for record in files["query"]:
        record["split"] = "train" if record["query_id"] == "bd-q1" else "test"
    write(tmp_path / "bd", files)
    test, train = (load(tmp_path, split, hash_split=True)["bd"] for split in ("test", "train"))
    assert (set(test.queries), set(train.queries)) == ({"bd-q0", "bd-q2"}, {"bd-q1"})
    assert train.relevant == {"bd-q1": {"bd-i2": 1}}
    assert test.items == train.items == ITEMS["bd"]


def test_hash_split_is_by_text_and_complementary(tmp_path: Path) -> None:
    texts = {f"q{i}": f"made-up {i // 2}" for i in range(400)}  # every text twice
    write(
        tmp_path / "th",
        {
            "query": [{"qid": key, "text": text} for key, text in texts.items()],
            "item": [{"iid": "i", "title": "made-up"}],
            "pairs_info": [{"qid": key, "iid": "i"} for key in texts],
        },
    )
    test, train = (set(load(tmp_path, split, hash_split=True)["th"].queries) for split in ("test", "train"))
    assert test == {key for key, text in texts.items() if int(hashlib.sha256(text.encode()).hexdigest(), 16) % 5 == 0}
    assert test | train == set(texts)
    assert not test & train
    assert {texts[key] for key in test}.isdisjoint(texts[key] for key in train)
    assert set(load(tmp_path)["th"].queries) == set(texts)
    with pytest.raises(DataError, match=r"no query has a relevant item in split 'train'"):
        load(tmp_path, "train")


def test_a_row_may_name_its_own_language(tmp_path: Path) -> None:
    files = tables("bd")
    files["item"][0]["lang"], files["item"][1]["lang"], files["query"][0]["lang"] = "en", "bn", "eng-Latn"
    locale = load(write(tmp_path / "bd", files).parent)["bd"]
    assert (locale.item_languages, locale.query_languages) == ({"bd-i0": "eng-Latn"}, {"bd-q0": "eng-Latn"})


def test_repeated_rows_collapse_and_the_highest_grade_counts(tmp_path: Path) -> None:
    files = merged(tables("bd"), tables("bd"))
    files["pairs_info"].append({"query_id": "bd-q1", "item_id": "bd-i2", "label": 3})
    locale = load(write(tmp_path / "bd", files).parent)["bd"]
    assert (locale.queries, locale.items) == (QUERIES["bd"], ITEMS["bd"])
    assert locale.relevant["bd-q1"] == {"bd-i2": 3}


def test_empty_texts_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = tables("bd")
    files["query"][1]["query"], files["item"][0]["title"] = None, " \t"
    write(tmp_path / "bd", files)
    with caplog.at_level(logging.WARNING):
        locale = load(tmp_path)["bd"]
    assert set(locale.queries) == {"bd-q0", "bd-q2"}
    assert set(locale.items) == {"bd-i1", "bd-i2", "bd-i3"}
    assert locale.relevant == {"bd-q0": {"bd-i1": 2}, "bd-q2": {"bd-i3": 1}}
    assert "left out 2 queries or items without text, and 2 pairs" in caplog.text


def broken(kind: str, record: dict[str, Any]) -> dict[str, Rows]:
    files = tables("bd")
    files[kind].append(record)
    return files


BROKEN = {
    r"unknown locale 'xx'; allowed are bd, id, my, pk, th, ph, vn": broken(
        "query", {"query_id": "q", "query": "made-up", "locale": "xx"}
    ),
    r"locale 'vn' in the folder 'bd'": broken("item", {"item_id": "i", "title": "made-up", "locale": "vn"}),
    r"unknown split 'dev'; allowed are train, test": broken("query", {"qid": "q", "query": "made-up", "split": "dev"}),
    r"query id 'bd-q0' has two different texts": broken("query", {"query_id": "bd-q0", "query": "made-up other"}),
    r"item id 'bd-i0' has two different texts": broken("item", {"item_id": "bd-i0", "title": "made-up other"}),
    r"no id in item_id, iid, id; the record's fields are sku, title": broken("item", {"sku": "i", "title": "made-up"}),
    r"no text in query, text, title; the record's fields are query_id, body": broken(
        "query", {"query_id": "q", "body": "made-up"}
    ),
    r"the text is a list": broken("item", {"item_id": "i", "title": ["made-up"]}),
    r"grade 0\.5 is not a whole number": broken("pairs_info", {"qid": "bd-q0", "iid": "bd-i0", "label": 0.5}),
    r"bd.*Unknown.*language code 'xyzzy'": broken("item", {"item_id": "i", "title": "made-up", "lang": "xyzzy"}),
}


@pytest.mark.parametrize("message", BROKEN)
def test_defects_are_named(tmp_path: Path, message: str) -> None:
    write(tmp_path / "bd", BROKEN[message])
    with pytest.raises(DataError, match=message):
        load(tmp_path)


def test_dangling_pairs_are_counted_and_the_first_three_named(tmp_path: Path) -> None:
    files = tables("bd")
    files["pairs_info"] += [{"query_id": "bd-q0", "item_id": f"gone{i}"} for i in range(4)]
    files["pairs_info"] += [{"query_id": "gone", "item_id": "bd-i0"}]
    write(tmp_path / "bd", files)
    with pytest.raises(DataError, match=r"5 pairs .* first: bd-q0 -> gone0; bd-q0 -> gone1; bd-q0 -> gone2\."):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"[{]", "is not JSON"),
        (b'{"q": {"query": "made-up"', "is not JSON"),
        (b'{"qid": "a", "query": "made-up"}\n{"qid": ', "line 2 is not JSON"),
        (b'["made-up"]', r"row 1 holds a str; it must be an object"),
        (b'[{"qid": "a", "query": "\xff"}]', "is not JSON in UTF-8"),
        (b'{"qid": "a", "query": "b"}\n{"qid": "c", "query": "\xff"}', "is not JSON in UTF-8"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    write(tmp_path / "bd", tables("bd"))
    (tmp_path / "bd" / "query.json").write_bytes(content)
    with pytest.raises(DataError, match=rf"query\.json.*{message}"):
        load(tmp_path)


def test_missing_and_unknown_folders_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no files query, item, pairs_info"):
        load(tmp_path)
    write(tmp_path / "bd", tables("bd"))
    with pytest.raises(DataError, match=r"of th; usable: bd"):
        load(tmp_path, locales=["bd", "th"])
    with pytest.raises(DataError, match="unknown locale 'de'"):
        load(tmp_path, locales=["de"])
    write(tmp_path / "bd", {"item": tables("bd")["item"]}, as_lines, ".jsonl")
    with pytest.raises(DataError, match=r"has 2 of item\.json and item\.jsonl"):
        load(tmp_path)
    write(tmp_path / "sg", tables("bd"))
    with pytest.raises(DataError, match="unknown locale or split folder 'sg'"):
        load(tmp_path)
    files = tables("bd")
    write(tmp_path / "set", {"query": files["query"], "item": files["item"], "pairs_info": files["pairs_info"]})
    with pytest.raises(DataError, match="no locale; name it by a folder or by a field"):
        load(tmp_path / "set")


def test_fingerprint_follows_the_files_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "a" / "bd", tables("bd"))
    write(tmp_path / "b" / "bd", tables("bd"))
    (tmp_path / "b" / "NOTES.md").write_text("not data")
    before = fingerprint(tmp_path / "a")
    assert before == fingerprint(tmp_path / "b")
    write(tmp_path / "b" / "bd", merged(tables("bd"), tables("bd")))
    assert before != fingerprint(tmp_path / "b")


def made_up_lines(number: int) -> Iterable[str]:
    return (f'{{"query_id": "q{i}", "query": "a made-up query, the {i}th of many of them"}}\n' for i in range(number))


@pytest.mark.parametrize("form", ["lines", "list", "map"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, form: str) -> None:
    number = 200_000 if form == "lines" else 20_000
    path = tmp_path / "query.json"
    with path.open("w") as stream:
        if form == "lines":
            stream.writelines(made_up_lines(number))
        else:
            start, end = "[]" if form == "list" else "{}"
            keys = (f'"q{i}": ' if form == "map" else "" for i in range(number))
            stream.write(start)
            stream.writelines(
                f"{',' if i else ''}{key}{line}"
                for i, (key, line) in enumerate(zip(keys, made_up_lines(number), strict=True))
            )
            stream.write(end)
    tracemalloc.start()
    try:
        count = sum(1 for _ in rows(path, QUERY_IDS))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == number
    assert peak < 700_000 < path.stat().st_size / 2


def test_locales_are_lazadas() -> None:
    assert LOCALES == ("bd", "id", "my", "pk", "th", "ph", "vn")
