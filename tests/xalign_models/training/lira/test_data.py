"""The data of both stages: rows held out in every language, pairs across languages, documents by content."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_models.languages import TaggedText
from xalign_models.training.lira.config import ArcaConfig, LasrConfig
from xalign_models.training.lira.data import MEASURED, Rated, Search, document_id, foreign_texts, rated, searches

arca = partial(ArcaConfig, text="own:text", held_out=0.0)
lasr = partial(LasrConfig, held_out=0.0)


@pytest.fixture
def columns(workdir: Path, write_text: Callable[..., Path]) -> dict[str, list[str]]:
    """``own:text``: 20 rows; the fifth is empty in French, the sixth the same as the seventh in English."""
    root = write_text(workdir / "text", 20)
    found = {}
    for code, name in (("deu", "deu-Latn"), ("eng", ENGLISH), ("fra", "fra-Latn")):
        lines = (root / f"{code}.txt").read_text().splitlines()
        lines[4] = "" if code == "fra" else lines[4]
        lines[5] = lines[6] if code == "eng" else lines[5]
        (root / f"{code}.txt").write_text("\n".join(lines) + "\n")
        found[name] = lines
    return found


def test_texts_are_of_all_languages_but_english_and_held_out_by_row(columns: dict[str, list[str]]) -> None:
    found = foreign_texts(arca(samples=20, held_out=0.25))
    assert {one.lang for one in found.train} == {"deu-Latn", "fra-Latn"}
    for language in ("deu-Latn", "fra-Latn"):
        own = [one.text for one in found.train if one.lang == language]
        kept = [one.text for one in found.held_out if one.lang == language]
        assert own == [text for text in columns[language][:15] if text] and kept == columns[language][15:]
    assert len(foreign_texts(arca(languages=("deu-Latn",), samples=8, held_out=0.0)).train) == 8
    assert "OwnParallel" in found.datasets
    with pytest.raises(DataError, match="has none of tha-Thai"):
        foreign_texts(arca(languages=("tha-Thai",), samples=8))


def test_languages_that_no_source_has_are_named(
    columns: dict[str, list[str]], stsb: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign_texts(arca(languages=("deu-Latn", "fra-Latn")))
    searches(lasr(retrieval="own:text", languages=("deu-Latn", "fra-Latn")))
    rated(lasr(ranking="stsb_multi_mt", languages=("deu-Latn", ENGLISH)))
    assert not caplog.records
    some = ("deu-Latn", "ita-Latn", "tha-Thai")
    foreign_texts(arca(languages=some))
    searches(lasr(retrieval="own:text", languages=some))
    rated(lasr(ranking="stsb_multi_mt", languages=some))
    assert [record.message.split(",")[0] for record in caplog.records] == [
        f"{field}: there is no text in ita-Latn" for field in ("arca.text", "lasr.retrieval", "lasr.ranking")
    ]
    assert all("tha-Thai, so training uses only other languages." in record.message for record in caplog.records)


def test_only_rows_that_are_drawn_and_as_many_held_out_are_kept(columns: dict[str, list[str]]) -> None:
    whole, few = arca(samples=20, held_out=0.25), arca(samples=20, held_out=0.25, max_steps=2, batch_size=3)
    everything, found = foreign_texts(whole), foreign_texts(few)
    assert len(found.train) == 6 and set(found.train) < set(everything.train)
    assert 0 < len(found.held_out) <= 6 and set(found.held_out) < set(everything.held_out)
    assert foreign_texts(few).train == found.train != foreign_texts(dataclasses.replace(few, seed=1)).train
    assert foreign_texts(dataclasses.replace(few, max_steps=1000)).train == everything.train


def test_queries_meet_their_translations_both_ways(columns: dict[str, list[str]]) -> None:
    found = searches(lasr(retrieval="own:text", samples=20, held_out=0.25))
    rows = {(one.query.lang == ENGLISH) for one in found.train}
    assert rows == {True, False}
    for one in found.train:
        language = one.query.lang if one.document.lang == ENGLISH else one.document.lang
        texts = {one.query.lang: one.query.text, one.document.lang: one.document.text}
        assert (texts[language], texts[ENGLISH]) in zip(columns[language], columns[ENGLISH], strict=True)
    assert searches(lasr(retrieval="own:text", samples=20, held_out=0.25)).train == found.train
    assert searches(lasr(retrieval="own:text", samples=20, held_out=0.25, seed=1)).train != found.train
    trained = {one.text for row in found.train for one in row if one.lang != ENGLISH}
    assert trained.isdisjoint(text for language in ("deu-Latn", "fra-Latn") for text in columns[language][15:])


def test_equal_documents_are_one() -> None:
    one, same, other = TaggedText("a b", "eng-Latn"), TaggedText("a b", "eng-Latn"), TaggedText("a b", "deu-Latn")
    assert document_id(one) == document_id(same) != document_id(other)


def write_lines(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file:{path}"


def test_files_of_pairs_and_of_queries_are_read(tmp_path: Path) -> None:
    pairs = [{"text1": f"a{i}", "lang1": "de", "text2": f"b{i}", "lang2": "eng", "score": i} for i in range(4)]
    found = rated(lasr(ranking=write_lines(tmp_path / "p.jsonl", pairs), held_out=0.25))
    assert found.train[0] == Rated(TaggedText("a0", "deu-Latn"), TaggedText("b0", "eng-Latn"), 0.0)
    assert [one.score for one in found.held_out] == [3.0]
    lines = [{"query": "q", "query_lang": "th", "document": "d", "document_lang": "en"}]
    one = searches(lasr(retrieval=write_lines(tmp_path / "q.jsonl", lines))).train[0]
    assert one == Search(TaggedText("q", "tha-Thai"), TaggedText("d", "eng-Latn"))


PAIR = {"text1": "a", "lang1": "de", "text2": "b", "lang2": "de"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text1": "a", "lang1": "de", "text2": "b"}, r"x\.jsonl, line 1: .* text1, text2, lang1, lang2"),
        ({"text1": "a", "lang1": "xyzzy", "text2": "b", "lang2": "de"}, r"line 1.*Unknown"),
        ({"text1": "a", "lang1": "de", "text2": "b", "lang2": "de", "score": "high"}, r"line 1.*score .*'high'"),
        *(({**PAIR, name: value}, f"line 1.*{name} is not a string") for name in PAIR for value in (None, 3, ["a"])),
        *(
            ({**PAIR, "score": score}, "line 1.*score")
            for score in (*(float(x) for x in ("nan", "inf")), "nan", 10**400)
        ),
        *(({**PAIR, "score": score}, "line 1.*score") for score in (None, True, [1])),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, row: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        rated(lasr(ranking=write_lines(tmp_path / "x.jsonl", [row])))


def test_missing_sources_are_named(workdir: Path) -> None:
    with pytest.raises(DataError, match="stsb_multi_mt is missing.*PhilipMay"):
        rated(lasr(ranking="stsb_multi_mt"))
    with pytest.raises(DataError, match=r"write stsb_multi_mt or file:PATH"):
        rated(lasr(ranking="sts"))
    with pytest.raises(DataError, match="There is no file"):
        searches(lasr(retrieval="file:nowhere.jsonl"))


@pytest.fixture
def stsb(workdir: Path) -> Path:
    """Two languages of made-up pairs in the publisher's layout: quoted, with CRLF."""
    root = workdir / "data" / "stsb_multi_mt" / "data"
    root.mkdir(parents=True)
    for part, rows in (("train", 12), ("dev", 6)):
        for code in ("de", "en"):
            with (root / f"stsb-{code}-{part}.csv").open("w", newline="", encoding="utf-8") as handle:
                writer = csv.writer(handle, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
                writer.writerows([f"{code}, {part} {i}", f'{code} "{part}" {i}', f"{i / 3:.3f}"] for i in range(rows))
    return root


def test_stsb_is_taken_within_and_across_languages(stsb: Path) -> None:
    found = rated(lasr(ranking="stsb_multi_mt", ranking_samples=100, held_out=0.5))
    assert (len(found.train), len(found.held_out)) == (12, 6)
    assert {(one.first.lang, one.second.lang) for one in found.train} == {
        (a, b) for a in ("deu-Latn", "eng-Latn") for b in ("deu-Latn", "eng-Latn")
    }
    for i, one in enumerate(found.train):
        short = {"deu-Latn": "de", "eng-Latn": "en"}
        assert one.first.text == f"{short[one.first.lang]}, train {i}"
        assert one.second.text == f'{short[one.second.lang]} "train" {i}'
        assert one.score == pytest.approx(i / 3, abs=1e-3)
    assert all("dev" in one.first.text for one in found.held_out)
    only = rated(lasr(ranking="stsb_multi_mt", languages=("deu-Latn",), ranking_samples=5))
    assert len(only.train) == 5 and {one.second.lang for one in only.train} == {"deu-Latn"}
    for content in (b"\xff,two,3\n", b"one," + b"w" * 200_000 + b",3\n"):
        (stsb / "stsb-de-train.csv").write_bytes(content)
        with pytest.raises(DataError, match="stsb-de-train.csv cannot be read: "):
            rated(lasr(ranking="stsb_multi_mt", ranking_samples=5))
    (stsb / "stsb-de-train.csv").write_text("one,two,3\n")
    with pytest.raises(DataError, match="differ in their number of rows"):
        rated(lasr(ranking="stsb_multi_mt", ranking_samples=5))


@pytest.mark.realdata
@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "stsb_multi_mt").is_dir(), reason="XALIGN_DATA has no stsb_multi_mt"
)
def test_the_published_stsb_has_its_rows() -> None:
    found = rated(lasr(ranking="stsb_multi_mt", ranking_samples=10_000))
    assert (len(found.train), len(found.held_out)) == (5749, MEASURED)
    assert {one.first.lang for one in found.train} >= {"deu-Latn", "eng-Latn", "zho-Hans"}
    assert {0 <= one.score <= 5 for one in found.train} == {True}
