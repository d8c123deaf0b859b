"""Corpora: every layout gives the same rows, and what is wrong with one is said by name and number."""

from __future__ import annotations

import contextlib
import csv as csv_module
import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xalign_models import assets
from xalign_models.corpora import ENGLISH, GETTEXT_LANGUAGES, Corpus, load, own, read_lines
from xalign_models.corpora.base import half
from xalign_models.corpora.checks import warn_once
from xalign_models.corpora.publishers import PUBLISHERS
from xalign_models.corpora.registry import texts_of
from xalign_models.errors import DataError, LanguageError
from xalign_models.plugins import TASKS

TEXT = {"deu-Latn": ["eins", "zwei, drei", '"vier"'], ENGLISH: ["one", "two, three", '"four"']}
DATA = os.environ.get("XALIGN_DATA")
realdata = pytest.mark.skipif(not DATA, reason="XALIGN_DATA is not set: it names the folder of published corpora")


@pytest.fixture(autouse=True)
def _unsaid() -> None:
    """Folders of earlier tests may have had the same names."""
    warn_once.cache_clear()


def directory(path: Path) -> Path:
    path.mkdir()
    (path / "deu_Latn.txt").write_text("\n".join(TEXT["deu-Latn"]) + "\n", encoding="utf-8")
    (path / "en.txt").write_text("\n".join(TEXT[ENGLISH]), encoding="utf-8")
    return path


def tsv(path: Path) -> Path:
    rows = [("de", "eng"), *zip(*TEXT.values(), strict=True)]
    path.with_suffix(".tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path.with_suffix(".tsv")


def jsonl(path: Path) -> Path:
    rows = [{"deu-Latn": german, "eng": english} for german, english in zip(*TEXT.values(), strict=True)]
    path.with_suffix(".jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path.with_suffix(".jsonl")


def parquet(path: Path) -> Path:
    pq.write_table(pa.table({"deu": TEXT["deu-Latn"], "en": TEXT[ENGLISH]}), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def csv(path: Path) -> Path:
    rows = [("de", "eng"), *zip(*TEXT.values(), strict=True)]
    text = "".join(",".join('"{}"'.format(cell.replace('"', '""')) for cell in row) + "\n" for row in rows)
    path.with_suffix(".csv").write_text(text, encoding="utf-8")
    return path.with_suffix(".csv")


def table_in_a_directory(path: Path) -> Path:
    path.mkdir()
    return tsv(path / "table").parent


@pytest.mark.parametrize("write", [directory, tsv, csv, jsonl, parquet, table_in_a_directory])
def test_every_layout_of_an_own_corpus_gives_the_same_rows(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / "mine")
    for corpus in (own(path), load("own", path), load(f"own:{path}")):
        assert corpus.languages == tuple(TEXT)
        assert corpus.parallel(TEXT) == TEXT
        assert corpus.pair("deu-Latn") == tuple(TEXT.values())


@pytest.mark.parametrize("stem", ["deu", "de", "deu_Latn", "deu-Latn", "ger", "de-AT"])
def test_files_are_named_by_any_code_of_their_language(tmp_path: Path, stem: str) -> None:
    (tmp_path / f"{stem}.txt").write_text("eins\n")
    (tmp_path / "eng.txt").write_text("one\n")
    assert own(tmp_path).languages == ("deu-Latn", ENGLISH)


def test_rows_that_are_not_aligned_are_counted(tmp_path: Path) -> None:
    directory(tmp_path / "mine")
    (tmp_path / "mine" / "tr.txt").write_text("bir\niki\n")
    with pytest.raises(DataError, match=r"deu-Latn 3, eng-Latn 3, tur-Latn 2"):
        own(tmp_path / "mine").parallel(["deu-Latn", ENGLISH, "tur-Latn"])
    with pytest.raises(DataError, match="tur-Latn has 2 rows and eng-Latn 3"):
        own(tmp_path / "mine").pair("tur-Latn")


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=8)))
def test_lines_end_at_newlines_only(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.mktemp("lines") / "deu.txt"
    expected = lines if lines != [""] else []
    for bom in (b"", b"\xef\xbb\xbf"):
        for end in ("\n", "\r\n"):
            path.write_bytes(bom + "".join(line + end for line in lines).encode())
            assert read_lines(path) == lines
            path.write_bytes(bom + end.join(lines).encode())  # without a final line end
            assert read_lines(path) == (expected if not lines or lines[-1] else lines[:-1])


def test_a_carriage_return_within_a_line_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "deu.txt").write_bytes("a\rb\u2028c\x85d\r\ne\n".encode())
    assert read_lines(tmp_path / "deu.txt") == ["a\rb\u2028c\x85d", "e"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", b"deu\teng\neins\tone\nzwei\n", "line 3: expected 2 columns"),
        ("t.tsv", b"deu\tdeu\neins\tone\n", "two of the columns .* have the same name"),
        ("t.tsv", b"deu\teng\tde\neins\tone\tein\n", "t.tsv: deu, de name the same language; keep one"),
        ("t.tsv", b"deu\tklingonese\neins\tone\n", "'klingonese' does not name a language"),
        ("t.tsv", b"deu\teng\n", "has no rows"),
        ("t.tsv", b"", "has no rows"),
        ("t.tsv", b"deu\teng\neins\t\xff\n", "is not UTF-8"),
        ("t.jsonl", b'{"deu": "eins", "eng": "one"}\n{"deu": "zwei"}\n', "row 2 of column 'eng' is not text"),
        ("t.jsonl", b'{"deu": "eins"}\n{"deu": "zwei", "eng": "two"}\n', "row 1 of column 'eng' is not text"),
        ("t.jsonl", b'{"deu": "eins", "eng": 1}\n{"deu": "zwei", "eng": "two"}\n', "row 1 of column 'eng' is not text"),
        ("t.jsonl", b'{"deu": "eins"\n', "line 1 is damaged: not JSON"),
        ("t.jsonl", b"[1]\n", "line 1 is damaged: an object was expected"),
        ("t.jsonl", b"", "has no rows"),
        ("t.parquet", b"not parquet", "is not a readable parquet file"),
        ("t.csv", b"deu,eng\neins,one,two\n", "line 2: expected 2 columns"),
        ("t.tsv", b"id\tdeu\teng\n1\teins\tone\n2\tzwei\ttwo\n", "column 'id' has no words; remove it"),
        ("t.csv", b"deu,eng,no\neins,one,1.\nzwei,two,2.\n", "column 'no' has no words; remove it"),
        ("t.jsonl", b'{"id": 1, "deu": "eins", "eng": "one"}\n', "column 'id' has no words; remove it"),
        ("t.tsv", b"deu\neins\nzwei\n", "needs at least two columns named by language"),
        ("t.jsonl", b'{"deu": "eins"}\n', "needs at least two columns named by language"),
        ("t.csv", b'deu,eng\n"eins\nzwei","one\ntwo"\n\ndrei\n', "line 5: expected 2 columns"),
        ("t.csv", b'deu,eng\n"eins\nzwei",one\n"drei" x,three\n', r"not a readable CSV file \(line 4: "),
        ("t.csv", b'deu,eng\n"' + b"a\n" * 600_000 + b'",one\n', r"not a readable CSV file \(line \d+: field larger"),
        ("t.xls", b"", r"t.xls is not a table; tables end in \.tsv, \.csv, \.jsonl, \.parquet"),
    ],
)
def test_a_broken_table_is_an_error_that_says_where(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        own(tmp_path / name)
    assert name in str(caught.value)


def test_a_column_of_row_numbers_is_no_language(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "deu": ["eins", "zwei"], "eng": ["one", "two"]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="column 'id' has no words; remove it"):
        own(tmp_path / "t.parquet")
    (tmp_path / "t.tsv").write_text("hin\teng\nनमस्ते\t1\n२\ttwo\n\t3\n", encoding="utf-8")
    assert own(tmp_path / "t.tsv").languages == (ENGLISH, "hin-Deva")


def test_a_broken_directory_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        own(tmp_path / "nowhere")
    with pytest.raises(DataError, match="at least two files named by language"):
        own(tmp_path)
    directory(tmp_path / "mine")
    (tmp_path / "mine" / "deu.txt").write_text("eins\n")
    with pytest.raises(DataError, match="mine: deu.txt, deu_Latn.txt name the same language; keep one"):
        own(tmp_path / "mine")
    with pytest.raises(DataError, match="needs a directory"):
        load("own")


@pytest.mark.parametrize("second", ["en.txt", "b.csv"])
def test_text_in_two_forms_is_refused(tmp_path: Path, second: str) -> None:
    tsv(tmp_path / "a")
    (tmp_path / second).write_text("deu,eng\n")
    with pytest.raises(DataError, match=f"more than one form .*{second}.*name one"):
        own(tmp_path)


def test_own_texts_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "mine")
    monkeypatch.setenv("XALIGN_OWN", f"news={path},own={path}")
    assert load("news").texts("deu-Latn") == load("own").texts("deu-Latn") == TEXT["deu-Latn"]
    assert load("news").trains == ("OwnParallel-news",)
    assert load("news").fingerprint() != load("own").fingerprint()
    for value, why in (
        ("flores=.", "the name of another corpus"),
        ("a-b=.", "is not a valid name"),
        (".,own=.", "is used twice"),
    ):
        monkeypatch.setenv("XALIGN_OWN", value)
        with pytest.raises(DataError, match=why):
            load("news")


def test_a_language_that_a_corpus_lacks(tmp_path: Path) -> None:
    with pytest.raises(LanguageError, match="has no tur-Latn; it has deu-Latn, eng-Latn"):
        own(directory(tmp_path / "mine")).texts("tur-Latn")


def test_the_fingerprint_follows_the_rows_of_the_languages(tmp_path: Path) -> None:
    path = directory(tmp_path / "mine")
    before, german = own(path).fingerprint(), own(path).fingerprint(["deu-Latn"])
    assert before != german
    (path / "en.txt").write_text("changed")
    assert own(path).fingerprint() != before
    assert own(path).fingerprint(["deu-Latn"]) == german


@pytest.mark.parametrize("name", ["tatoeba_pairs", "lingua", "newstest"])
@pytest.mark.parametrize("folder", [None, "empty"])
def test_missing_data_names_the_variable_and_the_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: str | None
) -> None:
    monkeypatch.delenv("XALIGN_DATA", raising=False)
    if folder:
        (tmp_path / folder).mkdir()
        monkeypatch.setenv("XALIGN_DATA", str(tmp_path / folder))
    with pytest.raises(DataError, match=r"set XALIGN_DATA to a folder that has \w+/ in the layout of .*\.(com|org)"):
        load(name)


def test_missing_data_under_a_path_of_the_user_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="XALIGN_DATA.*FLORES-200"):
        load("flores", tmp_path / "nowhere")


def test_an_unknown_corpus_is_told_the_nearest_and_where_they_are_listed() -> None:
    with pytest.raises(DataError, match="Unknown corpus 'flroes'. Did you mean flores.*`xalign corpora` lists them"):
        load("flroes")


class TestPublishersLayouts:
    """The files of a few publishers, two made-up rows each."""

    @pytest.fixture
    def data(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
        monkeypatch.setenv("XALIGN_DATA", str(tmp_path))

        def write(path: str, text: str) -> None:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")

        return write

    def test_flores(self, data: Callable[[str, str], None]) -> None:
        for code in ("deu_Latn", "eng_Latn", "zho_Hant"):
            data(f"flores200_dataset/devtest/{code}.devtest", f"1 {code}\n2 {code}\n")
        corpus = load("flores")
        assert corpus.languages == ("deu-Latn", ENGLISH, "zho-Hant")
        assert corpus.pair("zho-Hant") == (["1 zho_Hant", "2 zho_Hant"], ["1 eng_Latn", "2 eng_Latn"])

    def test_flores_full_has_dev_before_devtest_where_dev_is_at_hand(self, data: Callable[[str, str], None]) -> None:
        for code in ("deu_Latn", "eng_Latn"):
            data(f"flores200_dataset/devtest/{code}.devtest", f"1 {code}\n")
        plain, before = load("flores"), load("flores_full")
        assert before.pair("deu-Latn") == plain.pair("deu-Latn")
        data("flores200_dataset/dev/deu_Latn.dev", "dev 1 deu_Latn\ndev 2 deu_Latn\n")
        with pytest.raises(DataError, match="deu-Latn has 3 rows and eng-Latn 1"):
            load("flores_full").pair("deu-Latn")
        data("flores200_dataset/dev/eng_Latn.dev", "dev 1 eng_Latn\ndev 2 eng_Latn\n")
        assert load("flores_full").texts("deu-Latn") == ["dev 1 deu_Latn", "dev 2 deu_Latn", "1 deu_Latn"]
        assert load("flores_full").fingerprint() != before.fingerprint()
        assert load("flores").fingerprint() == plain.fingerprint()

    def test_ntrex_takes_the_plain_code_before_its_regions_and_the_english_source(
        self, data: Callable[[str, str], None]
    ) -> None:
        for code in ("por-BR", "por", "zho-CN", "eng-GB", "fra-CA"):
            data(f"ntrex/NTREX-128/newstest2019-ref.{code}.txt", f"{code}\n")
        data("ntrex/NTREX-128/newstest2019-src.eng.txt", "source\n")
        corpus = load("ntrex")
        assert {language: corpus.texts(language) for language in corpus.languages} == {
            ENGLISH: ["source"],
            "fra-Latn": ["fra-CA"],
            "por-Latn": ["por"],
            "zho-Hans": ["zho-CN"],
        }

    def test_tatoeba_has_an_english_side_for_each_language(self, data: Callable[[str, str], None]) -> None:
        for code in ("deu", "cmn"):
            data(f"tatoeba/v1/tatoeba.{code}-eng.{code}", f"{code}\n")
            data(f"tatoeba/v1/tatoeba.{code}-eng.eng", f"English of {code}\n")
        corpus = load("tatoeba")
        assert corpus.pair("zho-Hans") == (["cmn"], ["English of cmn"])
        assert corpus.texts("deu-Latn") == ["deu"]
        with pytest.raises(DataError, match="is not parallel"):
            corpus.parallel(["deu-Latn"])

    def test_tatoeba_pairs(self, data: Callable[[str, str], None]) -> None:
        data("tatoeba_pairs/eng-deu.tsv", "one\teins\ttaken from somewhere\n")
        assert load("tatoeba_pairs").pair("deu-Latn") == (["eins"], ["one"])
        data("tatoeba_pairs/eng-tur.tsv", "one\tbir\ntwo\n")
        with pytest.raises(DataError, match=r"eng-tur\.tsv, line 2: expected two columns"):
            load("tatoeba_pairs").pair("tur-Latn")

    def test_a_languages_own_code_comes_before_a_macrolanguages(self, data: Callable[[str, str], None]) -> None:
        for code in ("hbs", "hrv", "msa"):
            data(f"tatoeba_pairs/eng-{code}.tsv", f"one\t{code}\n")
        corpus = load("tatoeba_pairs")
        assert (corpus.texts("hrv-Latn"), corpus.texts("zsm-Latn")) == (["hrv"], ["msa"])
        data("tatoeba_pairs/eng-mly.tsv", "one\tmly\n")
        with pytest.raises(DataError, match=r"eng-mly\.tsv and eng-msa\.tsv are both zsm-Latn; keep one"):
            load("tatoeba_pairs")

    def test_columns_of_the_hub_that_are_no_languages_are_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """``id`` is Indonesian, and ``url`` a language of its own."""
        import datasets

        columns = {"ind_Latn": ["satu"], "eng_Latn": ["one"], "id": ["1"], "url": ["u"]}
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_dict(columns))
        monkeypatch.delenv("XALIGN_DATA", raising=False)
        corpus = load("flores")
        assert corpus.languages == (ENGLISH, "ind-Latn")
        assert corpus.texts("ind-Latn") == ["satu"]

    def test_a_hub_that_goes_away_between_two_languages_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import datasets

        def away(*_: object, **__: object) -> None:
            raise ConnectionError

        monkeypatch.setattr(datasets, "get_dataset_config_names", lambda *_, **__: ["deu-eng"])
        monkeypatch.setattr(datasets, "load_dataset", away)
        monkeypatch.delenv("XALIGN_DATA", raising=False)
        corpus = load("tatoeba")
        assert corpus.languages == ("deu-Latn",)
        with pytest.raises(DataError, match=r"tatoeba-bitext-mining is unavailable too \(ConnectionError\)"):
            corpus.texts("deu-Latn")

    def test_monolingual_text_has_no_translations_and_no_empty_lines(self, data: Callable[[str, str], None]) -> None:
        data("lingua_sentences/sentences/de.txt", "eins\n\nzwei\n")
        corpus = load("lingua")
        assert corpus.texts("deu-Latn") == ["eins", "zwei"]
        with pytest.raises(DataError, match="has no translations"):
            corpus.pair("deu-Latn")


def test_the_halves_of_own_text_are_disjoint_seeded_and_keep_equal_rows_together(tmp_path: Path) -> None:
    texts = [f"w{i % 30}" for i in range(60)]
    for language in ("deu", "eng"):
        (tmp_path / f"{language}.txt").write_text("".join(f"{language} {text}\n" for text in texts))
    whole, fit, test = (load(f"own:{part}{tmp_path}") for part in ("", "fit:", "test:"))
    halves = [corpus.texts("deu-Latn") for corpus in (fit, test)]
    assert all(len(half) > 10 for half in halves)
    assert sorted(halves[0] + halves[1]) == sorted(whole.texts("deu-Latn"))
    assert not set(halves[0]) & set(halves[1])
    assert [row.split()[1] for row in fit.texts(ENGLISH)] == [row.split()[1] for row in halves[0]]
    assert len({corpus.fingerprint() for corpus in (whole, fit, test)}) == 3
    assert load("own:fit", tmp_path).fingerprint() == fit.fingerprint()
    for language in ("deu", "eng"):
        (tmp_path / f"{language}.txt").write_text("one\n" * 2)
    with pytest.raises(DataError, match="the (fit|test) half has no rows; give more different rows"):
        [own(tmp_path, part) for part in ("fit", "test")]
    (tmp_path / "deu.txt").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "eng.txt").write_text("yes\n" * len(texts))
    with pytest.raises(
        DataError, match="has no rows, as rows that share a text in a language stay together; give more"
    ):
        [own(tmp_path, part) for part in ("fit", "test")]


CELLS = st.integers(-10, 40).map(lambda i: f"w{i}" if i >= 0 else " " * -i)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=2, max_size=60))
def test_no_text_of_any_language_is_in_both_halves(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path, key = tmp_path_factory.mktemp("own"), [f"row {i}" for i in range(len(rows))]
    for language, side in zip(("deu", "eng", "fra"), zip(*rows, strict=True), strict=True):
        (path / f"{language}.txt").write_text("x\n" + "".join(f"{text}\n" for text in side))
    (path / "zul.txt").write_text("x\n" + "".join(f"{text}\n" for text in key))
    found: dict[str, list[str]] = {}
    texts: dict[str, set[tuple[str, str]]] = {}
    for part in ("fit", "test"):
        with contextlib.suppress(DataError):  # a half without rows
            corpus = own(path, part)
            found[part] = corpus.texts("zul-Latn")
            texts[part] = {(code, text) for code in corpus.languages for text in corpus.texts(code) if text.strip()}
    assert sorted(text for part in found.values() for text in part) == sorted(["x", *key])
    assert len(texts) < 2 or not texts["fit"] & texts["test"]


def test_halves_without_repeats_are_by_the_first_languages_text(tmp_path: Path) -> None:
    texts = [f"Satz {i}" for i in range(200)]
    for language, divisor in (("deu", 1), ("eng", 1), ("fra", 2)):
        rows = [f"Satz {i // divisor}" for i in range(200)]
        (tmp_path / f"{language}.txt").write_text("".join(f"{row}\n" for row in rows))
    repeated = own(tmp_path, "fit")
    (tmp_path / "fra.txt").unlink()
    assert own(tmp_path, "fit").texts("deu-Latn") == [text for text in texts if half(text) == "fit"]
    whole = own(tmp_path).fingerprint()
    assert own(tmp_path, "fit").identity("deu-Latn") == f"{whole} fit 0"
    assert repeated.identity("deu-Latn").endswith(" fit 1")


def test_blank_cells_do_not_decide_the_half(tmp_path: Path) -> None:
    (tmp_path / "deu.txt").write_text("eins\n" + "\n" * 99)
    (tmp_path / "eng.txt").write_text("".join(f"{i}\n" for i in range(100)))
    assert all(len(own(tmp_path, part).texts(ENGLISH)) > 20 for part in ("fit", "test"))


@pytest.fixture
def gettext_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """An embedded corpus of made-up rows, one of which is not translated into every language."""
    rows = [{language: f"{language} {i}" for language in (*GETTEXT_LANGUAGES, "cym-Latn")} for i in range(40)]
    del rows[7][GETTEXT_LANGUAGES[0]]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / "corpus.jsonl").write_text(text, encoding="utf-8")
    monkeypatch.setattr(assets, "install", lambda _name: tmp_path)
    monkeypatch.setattr(assets, "fingerprint", lambda _name: "fingerprint")
    return rows


def test_the_halves_of_the_embedded_corpus_are_disjoint_and_together_all(gettext_rows: list[dict[str, str]]) -> None:
    whole, fit, test = (load(name) for name in ("gettext", "gettext:fit", "gettext:test"))
    assert len(whole.texts(ENGLISH)) == len(gettext_rows) - 1
    for language in GETTEXT_LANGUAGES:
        halves = fit.texts(language), test.texts(language)
        assert all(len(half) > 5 for half in halves)
        assert sorted(halves[0] + halves[1]) == sorted(whole.texts(language))
        assert not set(halves[0]) & set(halves[1])
    assert {row.split()[1] for row in fit.texts("deu-Latn")} == {row.split()[1] for row in fit.texts(ENGLISH)}
    assert len({corpus.fingerprint() for corpus in (whole, fit, test)}) == 3
    with pytest.raises(DataError, match="parts are fit and test"):
        load("gettext:dev")


def test_what_is_fitted_on_the_fit_half_was_not_fitted_on_what_is_scored(gettext_rows: list[dict[str, str]]) -> None:
    trains = {part: load(f"gettext{part}").trains for part in ("", ":fit", ":test")}
    assert trains == {"": ("GettextPrecision",), ":fit": (), ":test": ("GettextPrecision",)}


@pytest.mark.parametrize(
    "task",
    [cls for _, cls in TASKS.items() if getattr(cls, "corpus_name", None) in PUBLISHERS],
    ids=lambda cls: cls.metadata.name,
)
def test_a_corpus_names_every_task_that_scores_it(task: Any) -> None:
    assert task.metadata.name in PUBLISHERS[task.corpus_name].trains


REAL = {"flores": 1012, "ntrex": 1997, "tatoeba": None, "tatoeba_pairs": None, "lingua": 1000, "newstest": None}


def published(name: str) -> Corpus:
    try:
        return load(name, local=True)
    except DataError as error:
        if "is missing" not in str(error):
            raise
        pytest.skip(str(error))


@realdata
@pytest.mark.realdata
@pytest.mark.parametrize(("name", "count"), REAL.items())
def test_published_corpora_are_read_whole(name: str, count: int | None) -> None:
    corpus = published(name)
    assert len(corpus.languages) >= 5
    for language in corpus.languages:
        rows = corpus.texts(language) if corpus.kind == "monolingual" else corpus.pair(language)[0]
        assert rows
        assert count in {None, len(rows)} or corpus.kind == "monolingual"
    assert len(corpus.fingerprint()) == 64


@realdata
@pytest.mark.realdata
def test_parallel_corpora_share_languages_and_rows() -> None:
    flores, ntrex = published("flores"), published("ntrex")
    assert len(flores.languages) == 204
    assert len(set(flores.languages) & set(ntrex.languages)) > 100
    assert {len(rows) for rows in ntrex.parallel(ntrex.languages).values()} == {1997}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "deu.txt has only blank rows"),
        (b"\n  \n\t\n", "deu.txt has only blank rows"),
        (b"one\rtwo\rthree\r", "deu.txt ends its lines with carriage returns alone"),
        (b"one\ntwo\0\nthree\n", "deu.txt, line 2 has a NUL byte"),
    ],
)
def test_text_that_cannot_be_scored_is_refused_by_its_file(tmp_path, content, message):
    (tmp_path / "eng.txt").write_text("a\nb\nc\n")
    (tmp_path / "deu.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        own(tmp_path).texts("deu-Latn")


def test_a_corpus_of_one_row_is_refused(tmp_path):
    for language in ("eng", "deu"):
        (tmp_path / f"{language}.txt").write_text("one row\n")
    for read in (lambda: own(tmp_path).pair("deu-Latn"), lambda: own(tmp_path).parallel(["deu-Latn", ENGLISH])):
        with pytest.raises(DataError, match=r"own: too few rows of deu-Latn.* \(1\); give at least 2"):
            read()


def test_blank_and_repeated_rows_are_counted_aloud(tmp_path, caplog):
    (tmp_path / "eng.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "deu.txt").write_text("a\n\na\na\n")
    assert own(tmp_path).texts("deu-Latn") == ["a", "", "a", "a"]
    assert "deu.txt: blank rows: 1 of 4 (2)" in caplog.text
    assert "deu.txt: repeated rows: 2 of 4 (3, 4)" in caplog.text
    (tmp_path / "table.tsv").write_text("deu\teng\na\tb\na\tc\n")
    own(tmp_path / "table.tsv")
    assert "column deu: repeated rows: 1 of 2 (2)" in caplog.text


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("cafe\u0301 noir", "rows that are not in Unicode's composed form, NFC"),
        ("grÃ¼n", "rows that were decoded wrongly"),
        ("donâ€™t", "rows that were decoded wrongly"),
        ("gr\ufffdn", "rows that were decoded wrongly"),
        ("Tom &amp; Jerry", "rows with HTML entities, such as &amp;"),
        ('"Er sagte ""nein"""', "rows in the quotes of a CSV file, to be saved without them"),
        ("it&#39;s", "rows with HTML entities, such as &amp;"),
    ],
)
def test_likely_mistakes_are_said_once_with_their_rows(tmp_path, caplog, row, said):
    (tmp_path / "eng.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "deu.txt").write_text(f"eins\n{row}\ndrei\n", encoding="utf-8")
    corpus = own(tmp_path)
    corpus.pair("deu-Latn")
    corpus.parallel(corpus.languages)
    assert [record.getMessage() for record in caplog.records] == [f"{tmp_path / 'deu.txt'}: {said}: 1 of 3 (2)."]
    caplog.clear()
    texts_of(str(tmp_path / "deu.txt"))  # each entry checks its text
    assert not caplog.records


@pytest.mark.parametrize(
    "row",
    ["SÃO PAULO", "naïve café", "AT&T; R&D", '"oui"', '"a" et "b"', "Äpfel & Birnen", "한국어", "ÂME", "à propos"],
)
def test_what_is_written_well_is_not_said(tmp_path, caplog, row):
    (tmp_path / "eng.txt").write_text("one\ntwo\n")
    (tmp_path / "fra.txt").write_text(f"{row}\ndeux\n", encoding="utf-8")
    own(tmp_path).pair("fra-Latn")
    assert not caplog.records


@pytest.mark.parametrize(
    "read", [lambda corpus: corpus.pair("deu-Latn"), lambda corpus: corpus.parallel(corpus.languages)]
)
def test_a_side_that_is_english_is_said(tmp_path, caplog, read):
    (tmp_path / "eng.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "deu.txt").write_text("one\ntwo\ndrei\n")
    read(own(tmp_path, name=tmp_path.name))
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path.name}: rows of deu-Latn that are equal to their translations: 2 of 3."
    ]


@pytest.mark.parametrize("line", ["[" * 100_000, '{"deu": "\\ud800", "eng": "a"}', '["deu"]', '{"deu": 1, "eng": "a"}'])
def test_hostile_lines_of_a_table_end_in_one_line(tmp_path, line):
    (tmp_path / "table.jsonl").write_text('{"deu": "a", "eng": "b"}\n' + line + "\n")
    with pytest.raises(DataError, match=r"line 2|row 2") as caught:
        own(tmp_path / "table.jsonl").texts("deu-Latn")
    assert "\n" not in str(caught.value)


def test_a_quoted_field_keeps_its_line_end(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text('de,en\n"first\nand second",a\nb,"c, d"\n')
    corpus = own(path)
    assert corpus.texts("deu-Latn") == ["first\nand second", "b"]
    assert corpus.texts("eng-Latn") == ["a", "c, d"]


def test_a_long_cell_is_read_and_the_csv_modules_limit_stays(tmp_path):
    before, cell = csv_module.field_size_limit(), "word " * 40_000
    (tmp_path / "t.csv").write_text(f'deu,eng\n"{cell}","one"\n')
    assert own(tmp_path / "t.csv").texts("deu-Latn") == [cell]
    assert csv_module.field_size_limit() == before


def _damaged_page(path):
    pq.write_table(pa.table({"de": ["a" * 100] * 50, "en": ["c"] * 50}), path)
    content = bytearray(path.read_bytes())
    content[8:40] = b"\xff" * 32
    path.write_bytes(content)


def _no_utf8(path):
    places, letters = struct.pack("<iii", 0, 1, 2), b"\xff\xfe"
    bad = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(places), pa.py_buffer(letters)])
    pq.write_table(pa.table({"de": bad, "en": ["c", "d"]}), path)


def _twice(path):
    column = pa.array(["a", "b"])
    pq.write_table(pa.Table.from_arrays([column, column], names=["de", "de"]), path)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("own.csv", lambda path: path.write_text('de,en\n"a,b\nc,d\n'), "not a readable CSV file"),
        ("own.parquet", _damaged_page, "not a readable parquet file"),
        ("own.parquet", _no_utf8, "not a readable parquet file"),
        ("own.parquet", _twice, "not a readable parquet file"),
        ("own.jsonl", lambda path: path.write_text('{"de": "a\\u0000", "en": "b"}\n' * 2), "NUL byte"),
    ],
)
def test_tables_that_cannot_be_read_are_refused_in_one_line(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(DataError, match=message) as caught:
        own(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_named_like_a_text_is_none(tmp_path):
    (tmp_path / "de.txt").mkdir()
    (tmp_path / "en.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match="at least two files"):
        own(tmp_path)


@pytest.mark.parametrize("first", ["rows", "identity"])
def test_the_bytes_that_are_hashed_are_those_that_are_read(tmp_path, first):
    """A file that changes between its digest and its reading is refused, and a later digest is of what was read."""
    for name in ("deu", "eng"):
        (tmp_path / f"{name}.txt").write_text("eins\nzwei\n")
    corpus = own(tmp_path)
    fingerprint = own(tmp_path).fingerprint()
    if first == "rows":
        rows = {language: corpus.texts(language) for language in corpus.languages}
    else:
        assert corpus.fingerprint() == fingerprint
    (tmp_path / "deu.txt").write_text("drei\nvier\n")
    if first == "rows":
        assert rows["deu-Latn"] == ["eins", "zwei"]
        assert corpus.fingerprint() == fingerprint
    else:
        with pytest.raises(DataError, match="deu.txt changed while it was in use"):
            corpus.texts("deu-Latn")
    assert own(tmp_path).texts("deu-Latn") == ["drei", "vier"]


@pytest.mark.parametrize("name", ["table.tsv", "table.jsonl", "table.parquet"])
def test_a_table_is_opened_once(tmp_path, name, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / name
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"de": ["eins", "zwei"], "en": ["one", "two"]}), path)
    elif path.suffix == ".jsonl":
        path.write_text('{"de": "eins", "en": "one"}\n{"de": "zwei", "en": "two"}\n')
    else:
        path.write_text("de\ten\neins\tone\nzwei\ttwo\n")
    opened = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" and watching else None)
    watching = [True]
    corpus = own(path)
    corpus.fingerprint()
    watching.clear()
    assert opened.count(str(path)) == 1
    assert corpus.fingerprint() == own(path).fingerprint()
