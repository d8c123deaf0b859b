"""The commands on real stores with a tiny model: audit, fix, undo and migrate, and the refusals."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xalign_models
from tests.conftest import LANGUAGES
from tests.xalign_models.conftest import list_column
from tests.xalign_models.index.conftest import PUT, Data
from xalign_models.errors import DataError
from xalign_models.index.auditing import gather, page
from xalign_models.index.base import open_index
from xalign_models.index.expecting import own_queries
from xalign_models.index.working import open_model
from xalign_models.models.building import raw_encoder
from xalign_models.models.maps import load_maps
from xalign_models.models.names import find_spec
from xalign_models.ranking.ranks import normalise


@pytest.fixture
def documents(workdir, tiny_model, write_text):
    """Two hundred texts of three languages with the tiny model's vectors; parallel text of others is in ``fit``."""
    write_text(workdir / "fit", 90)
    folder = write_text(workdir / "docs", 70, seed=1)
    listed = [(text, code) for code in LANGUAGES for text in (folder / f"{code}.txt").read_text().splitlines()]
    vectors = raw_encoder(find_spec(str(tiny_model)).backbone, "cpu").encode([text for text, _ in listed], "")

    class Documents(Data):
        texts = [text for text, _ in listed]

    return Documents(vectors, [code for _, code in listed], list(range(len(listed))))


def first_of(data, count):
    """The first rows."""
    part = Data(data.vectors[:count], data.langs[:count], data.ids[:count])
    part.__class__ = type("Part", (Data,), {"texts": data.texts[:count]})
    return part


OPTIONS = ("--corpus", "own:fit", "--limit", "50")


@pytest.mark.slow
@pytest.mark.parametrize("store", ["parquet", "lance"])
def test_fix_writes_what_the_models_own_maps_give_and_undo_removes_it(
    store, documents, xalign, workdir, tiny_model, request
):
    source, _ = PUT[store](documents, workdir, request)
    command = ("index", "fix", source, "-o", "maps", "--model", tiny_model, "--method", "centered", *OPTIONS)
    status, out, err = xalign(*command)
    assert (status, err) == (0, [])
    assert "210 rows" in out
    index = open_index(source)
    second = np.concatenate([rows.vectors for rows in index.read(second=True)])
    maps = load_maps("maps")
    for code in LANGUAGES:
        chosen = [lang == code for lang in documents.langs]
        rows = normalise(documents.vectors[chosen])
        np.testing.assert_allclose(second[chosen], maps.transform(rows, code), atol=1e-5)
    assert xalign(*command)[0] == 0
    status, _, err = xalign(*command[:4], "other", *command[5:])
    assert status == 2
    assert "undo" in err[0]
    status, _, err = xalign(*command, "--method", "lsar")
    assert status == 2
    assert "another run" in err[0]
    assert xalign("index", "undo", source)[0] == 0
    assert "nothing changed" in xalign("index", "undo", source)[1]
    assert open_index(source).written() is None


@pytest.mark.parametrize("form", ["raw", "unit", "half", "scaled"])
def test_the_second_column_has_the_models_own_vectors_whatever_the_length_of_the_first(
    form, documents, xalign, workdir, tiny_model, request
):
    """Most indexes hold vectors of unit length; a shift that was fitted on others would push them all one way."""
    unit = normalise(documents.vectors)
    forms = {"raw": documents.vectors, "unit": unit, "half": unit.astype(np.float16), "scaled": 127 * unit}
    documents.vectors = forms[form].astype(np.float32)
    source, _ = PUT["parquet"](documents, workdir, request)
    command = ("index", "fix", source, "-o", "maps", "--model", tiny_model, "--method", "centered", *OPTIONS)
    assert xalign(*command)[0] == 0
    second = np.concatenate([rows.vectors for rows in open_index(source).read(second=True)])
    model = xalign_models.load("maps", device="cpu")
    np.testing.assert_allclose(second, model.encode(documents.texts, lang=documents.langs), atol=5e-3)


def test_audit_compares_methods_and_names_the_prompt(documents, xalign, workdir, tiny_model, request):
    source, _ = PUT["parquet"](documents, workdir, request)
    status, out, err = xalign(
        "index", "audit", source, "--model", tiny_model, *OPTIONS, "--json", "--html", "page.html"
    )
    assert (status, err) == (0, [])
    tables = json.loads(out)
    facts = {row["fact"]: row["value"] for row in tables["Contents"]}
    assert (facts["rows"], facts["dimension"], facts["zero"]) == (210, 16, 0)
    (again,) = [rows for title, rows in tables.items() if "encoded again" in title]
    assert [row["prompt"] for row in again] == ["default"]
    assert again[0]["median cosine"] > 0.999
    methods = next(rows for title, rows in tables.items() if "expect" in title)
    assert methods[0]["method"] == "plain"
    assert tables["Recommended"][0]["method"] in {row["method"] for row in methods}
    text = (workdir / "page.html").read_text()
    assert "<meta name=viewport" in text
    for title in tables:  # a sentence explains each table
        assert re.search(rf"<h2>{re.escape(html.escape(title))}</h2>\n<p>[A-Z].+\.</p>", text), title


@pytest.mark.parametrize("store", ["parquet", "faiss"])
def test_queries_of_the_user_set_the_recall(store, documents, xalign, workdir, tiny_model, request):
    """A row's own text as its query is found in the same language, whatever the method; ids are those of the file."""
    documents.ids = [f"row {key}" for key in documents.ids]
    source, _ = PUT["parquet"](documents, workdir, request)
    lines = [
        json.dumps({"text": text, "lang": code, "id": key})
        for key, text, code in zip(documents.ids, documents.texts, documents.langs, strict=True)
    ]
    if store == "faiss":
        source = (PUT["faiss"](documents, workdir, request)[0], "--texts", "texts.parquet")
    else:
        source = (source,)
    (workdir / "q.jsonl").write_text("\n".join(lines[::5]) + "\n")
    command = ("index", "audit", *source, "--model", tiny_model, *OPTIONS, "--queries", "q.jsonl")
    status, out, _ = xalign(*command, "--json")
    assert status == 0
    methods = next(rows for title, rows in json.loads(out).items() if "expect" in title)
    assert methods[0]["same language"] == 100.0
    assert methods[0]["across"] is None
    (workdir / "q.jsonl").write_text('{"text": "a", "lang": "de"}\n')
    status, _, err = xalign(*command)
    assert status == 2
    assert "one per relevant row" in err[0]


def test_migrate_predicts_a_new_models_vectors_and_lists_rows_to_encode_first(
    documents, xalign, workdir, tiny_model, make_model, tmp_path_factory, request
):
    new = make_model(tmp_path_factory.mktemp("models") / "new", num_hidden_layers=1)
    source, _ = PUT["parquet"](documents, workdir, request)
    status, out, err = xalign("index", "migrate", source, "--from", tiny_model, "--to", new, "-o", "moved")
    assert (status, err) == (0, [])
    record = json.loads((workdir / "moved" / "index.json").read_text())
    bounds = [row["bound"] for row in record["table"]]
    assert bounds[-1] <= bounds[0]
    listed = (workdir / "moved" / "encode-first.txt").read_text().split()
    assert len(listed) / 210 == pytest.approx(record["share"], abs=0.1)
    assert f"an index of {record['rows']} rows" in out
    assert record["rows"] == len({*documents.texts}) // 2
    second = np.concatenate([rows.vectors for rows in open_index(source).read(second=True)])
    true = raw_encoder(find_spec(str(new)).backbone, "cpu").encode(documents.texts, "")
    true /= np.linalg.norm(true, axis=1, keepdims=True)
    assert np.median((second * true).sum(axis=1)) > 0.8
    status, _, err = xalign("index", "migrate", source, "--from", new, "--to", new, "-o", "wrong")
    assert status == 2


def test_copies_of_a_text_are_not_on_both_sides_of_a_measured_loss(
    documents, xalign, workdir, tiny_model, make_model, tmp_path_factory, request
):
    """They would be predicted without a loss, and would set the penalty of the map."""
    new, found = make_model(tmp_path_factory.mktemp("models") / "new", num_hidden_layers=1), []
    for times in (1, 3):
        (folder := workdir / str(times)).mkdir()
        data = Data(np.tile(documents.vectors, (times, 1)), documents.langs * times, [*range(210 * times)])
        data.__class__ = type("Copies", (Data,), {"texts": documents.texts * times})
        source, _ = PUT["parquet"](data, folder, request)
        assert xalign("index", "migrate", source, "--from", tiny_model, "--to", new, "-o", folder / "moved")[0] == 0
        record = json.loads((folder / "moved" / "index.json").read_text())
        found.append({name: record[name] for name in ("rows", "table", "share", "cut")})
    assert found[0] == found[1]


@pytest.mark.parametrize(("wanted", "listed"), [(1.0, 3), (-1.0, 210)])
def test_all_rows_or_those_without_a_vector_alone_are_encoded_first(
    wanted, listed, documents, xalign, workdir, tiny_model, make_model, tmp_path_factory, request, monkeypatch
):
    """A sample's shortest and longest predictions bound no other row's."""
    monkeypatch.setattr("xalign_models.index.migrating.WANTED", wanted)
    monkeypatch.setattr("xalign_models.index.migrating.TEXTS", 150)
    documents.vectors[[3, 50, 90]] = 0
    new = make_model(tmp_path_factory.mktemp("models") / "new", num_hidden_layers=1)
    source, _ = PUT["parquet"](documents, workdir, request)
    assert xalign("index", "migrate", source, "--from", tiny_model, "--to", new, "-o", "moved")[0] == 0
    assert len((workdir / "moved" / "encode-first.txt").read_text().split()) == listed


@pytest.mark.parametrize("command", [("migrate", "--to", "MODEL", "--from"), ("fix", *OPTIONS, "--model")])
def test_an_index_of_another_model_is_left_alone(command, documents, xalign, workdir, tiny_model, request):
    documents.vectors = np.random.default_rng(0).standard_normal(documents.vectors.shape).astype(np.float32)
    source, _ = PUT["parquet"](documents, workdir, request)
    words = [str(tiny_model) if word == "MODEL" else word for word in command]
    status, _, err = xalign("index", *words, tiny_model, source, "-o", "moved")
    assert status == 2
    assert "vectors are not from" in err[0]
    assert not (workdir / "moved").exists()
    assert open_index(source).written() is None


def test_a_fix_says_that_some_rows_are_another_models(documents, xalign, workdir, tiny_model, request, caplog):
    documents.vectors[::5] = np.random.default_rng(0).standard_normal(documents.vectors[::5].shape)
    source, _ = PUT["parquet"](documents, workdir, request)
    assert xalign("index", "fix", source, "-o", "maps", "--model", tiny_model, "--method", "centered", *OPTIONS)[0] == 0
    assert re.search(r"\d+ of 64 texts have vectors of another model or version", caplog.text)


def test_a_language_that_does_not_exist_and_rows_without_text(documents, xalign, workdir, tiny_model, request):
    documents.texts = [None, "", *documents.texts[2:]]
    source, _ = PUT["parquet"](documents, workdir, request)
    _, out, _ = xalign("index", "audit", source, "--model", tiny_model, *OPTIONS, "--json")
    (again,) = [rows for title, rows in json.loads(out).items() if "encoded again" in title]
    assert [row["prompt"] for row in again] == ["default"]
    documents.langs = ["klingon", *documents.langs[1:]]
    source, _ = PUT["parquet"](documents, workdir, request)
    status, _, err = xalign("index", "audit", source)
    assert status == 2
    assert "klingon" in err[0]
    assert "--lang-column" in err[0]


def test_a_run_is_known_by_its_place_and_its_settings(documents, xalign, workdir, tiny_model, request, monkeypatch):
    PUT["parquet"](documents, workdir, request)
    command = ("index", "fix", "docs.parquet", "-o", workdir / "maps", "--model", tiny_model, "--method", "centered")
    options = ("--corpus", f"own:{workdir / 'fit'}", "--limit", "50")
    assert xalign(*command, *options)[0] == 0
    assert xalign(*command[:2], "./docs.parquet", *command[3:], *options)[0] == 0
    for other in (("--limit", "60"), ("--lang", "fr"), ("--queries", "q.jsonl")):
        status, _, err = xalign(*command, *options, *other)
        assert status == 2
        assert "another run" in err[0]
        assert other[0][2:] in err[0]
    (folder := workdir / "sub").mkdir()
    PUT["parquet"](documents, folder, request)
    monkeypatch.chdir(folder)
    status, _, err = xalign(*command, *options)
    assert status == 2
    assert "another run" in err[0]
    assert not (folder / "docs_xalign.parquet").exists()
    monkeypatch.chdir(workdir)
    record = json.loads((workdir / "maps" / "index.json").read_text())
    old = {name: value for name, value in record.items() if name not in {"lang", "limit", "queries"}}
    (workdir / "maps" / "index.json").write_text(json.dumps(old | {"source": "docs.parquet"}))
    assert xalign(*command, *options)[0] == 0


def test_rows_without_a_text_take_no_part_in_a_map_between_models(
    documents, xalign, workdir, tiny_model, make_model, tmp_path_factory, request
):
    new = make_model(tmp_path_factory.mktemp("models") / "new", num_hidden_layers=1)
    whole, losses = documents.texts, []
    for name, kept in (("all", 150), ("some", 210)):
        (workdir / name).mkdir()
        documents.texts = [*whole[:150], *[None, ""] * 30][:kept]
        part = first_of(documents, kept)
        source, _ = PUT["parquet"](part, workdir / name, request)
        assert xalign("index", "migrate", source, "--from", tiny_model, "--to", new, "-o", f"moved {name}")[0] == 0
        record = json.loads((workdir / f"moved {name}" / "index.json").read_text())
        losses.append({name: record[name] for name in ("table", "share", "cut")})
    assert losses[0] == losses[1]


def test_an_index_in_english_alone_is_audited_and_has_nothing_to_align(documents, xalign, workdir, tiny_model, request):
    documents.langs = ["en"] * len(documents.langs)
    source, _ = PUT["parquet"](documents, workdir, request)
    command = (source, "--model", tiny_model, *OPTIONS)
    status, out, err = xalign("index", "audit", *command, "--json")
    assert (status, err) == (0, [])
    tables = json.loads(out)
    assert tables["Contents"]
    assert any("encoded again" in title for title in tables)
    assert "nothing to align" in tables["Recommended"][0]["error"]
    status, _, err = xalign("index", "fix", *command, "-o", "maps")
    assert status == 2
    assert "nothing to align" in err[0]


def test_an_english_index_is_aligned_with_the_languages_of_its_queries(documents, xalign, workdir, tiny_model, request):
    documents.langs = ["en"] * len(documents.langs)
    source, _ = PUT["parquet"](documents, workdir, request)
    lines = [json.dumps({"text": documents.texts[row], "lang": "de", "id": row}) for row in range(30)]
    (workdir / "q.jsonl").write_text("\n".join(lines) + "\n")
    command = (source, "--model", tiny_model, *OPTIONS, "--queries", "q.jsonl")
    status, out, _ = xalign("index", "audit", *command, "--json")
    assert status == 0
    methods = next(rows for title, rows in json.loads(out).items() if "expect" in title)
    assert len(methods) > 1
    assert all(row["across"] is not None for row in methods if not row["error"])
    assert xalign("index", "fix", *command, "--method", "centered", "-o", "maps")[0] == 0
    assert {"deu-Latn", "eng-Latn"} <= {*load_maps("maps").settings["languages"]}


@pytest.mark.parametrize("codes", [["eng-Latn", "und"], ["und"], ["swh-Latn"]])
def test_an_audit_without_text_to_fit_on_keeps_its_tables(
    codes, documents, xalign, workdir, tiny_model, request, monkeypatch
):
    found = [codes[-(row % 7 == 0)] for row in range(len(documents.langs))]
    monkeypatch.setattr("xalign_models.index.auditing.languages_of", lambda rows, lang: found)
    source, _ = PUT["parquet"](documents, workdir, request)
    status, out, err = xalign("index", "audit", source, "--model", tiny_model, *OPTIONS, "--json")
    assert (status, err) == (0, [])
    tables = json.loads(out)
    assert tables["Contents"]
    assert tables["Recommended"][0]["error"]


@pytest.mark.parametrize("rows", [2, 3, 9])
def test_text_of_a_few_rows_is_enough(rows, documents, xalign, workdir, tiny_model, write_text, request):
    """A passage of an index of long texts has no more sentences than are held out."""
    documents.texts = [" ".join([text] * 9) for text in documents.texts]
    write_text(workdir / "few", rows)
    source, _ = PUT["parquet"](documents, workdir, request)
    assert xalign("index", "audit", source, "--model", tiny_model, "--corpus", "own:few")[0] == 0


def test_a_repeated_query_counts_once(documents, workdir, tiny_model, request):
    source, _ = PUT["parquet"](documents, workdir, request)
    sample, recipe = gather(open_index(source)), open_model(str(tiny_model), "cpu")
    lines = [json.dumps({"text": "w1", "lang": "de", "id": row}) + "\n" for row in (0, 5, 5, 0)]
    (workdir / "q.jsonl").write_text("".join(lines))
    assert own_queries(recipe, workdir / "q.jsonl", sample).targets.tolist() == [[0, 5]]


def test_queries_may_come_from_windows(documents, workdir, tiny_model, request):
    source, _ = PUT["parquet"](documents, workdir, request)
    sample, recipe = gather(open_index(source)), open_model(str(tiny_model), "cpu")
    lines = [json.dumps({"text": "w1", "lang": "de", "id": row}) for row in (0, 5)]
    (workdir / "q.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, "", ""]).encode())
    assert own_queries(recipe, workdir / "q.jsonl", sample).targets.tolist() == [[0, 5]]


@pytest.mark.parametrize("line", ['{"text": "w1", "id": 0}', '{"text": "w1"'])
def test_a_malformed_query_is_named_by_its_line(line, documents, workdir, tiny_model, request):
    source, _ = PUT["parquet"](documents, workdir, request)
    sample, recipe = gather(open_index(source)), open_model(str(tiny_model), "cpu")
    (workdir / "q.jsonl").write_text('{"text": "w1", "lang": "de", "id": 0}\n\n' + line)
    with pytest.raises(DataError, match="q.jsonl, line 3"):
        own_queries(recipe, workdir / "q.jsonl", sample)


def test_queries_that_are_missing_or_name_no_row_are_said(documents, xalign, workdir, tiny_model, request, caplog):
    source, _ = PUT["parquet"](documents, workdir, request)
    command = ("index", "audit", source, "--model", tiny_model, *OPTIONS, "--queries", "q.jsonl")
    status, _, err = xalign(*command)
    assert status == 2
    assert "q.jsonl cannot be read" in err[0]
    lines = [json.dumps({"text": "w1", "lang": "de", "id": key}) for key in (0, 1, 999)]
    (workdir / "q.jsonl").write_text("\n".join(lines) + "\n")
    assert xalign(*command)[0] == 0
    assert "queries that name a row of the sample: 2 of 3" in caplog.text
    (workdir / "q.jsonl").write_text(lines[2] + "\n")
    status, _, err = xalign(*command)
    assert status == 2
    assert "queries that name a row of the sample: 0 of 1" in err[0]


@pytest.mark.parametrize("option", ["--corpus", "--limit", "--queries", "--device"])
def test_an_option_of_an_audit_that_needs_a_model_is_refused_without_one(option, xalign):
    status, _, err = xalign("index", "audit", "docs.parquet", option, "300")
    assert status == 2
    assert err == [f"error: {option}: no effect without --model; add --model, or leave out {option}."]


def test_rows_without_language_and_text_are_refused(workdir, xalign):
    pq.write_table(pa.table({"vector": list_column(np.eye(20, dtype=np.float32))}), workdir / "bare.parquet")
    status, _, err = xalign("index", "audit", "bare.parquet")
    assert status == 2
    assert "--lang" in err[0]
    assert xalign("index", "audit", "bare.parquet", "--lang", "de")[0] == 0


def test_the_page_is_inert():
    text = page("<i>#t", {"<b>": [{"<script>": "<img src=x onerror=alert(1)>"}], "none": []})
    assert "<img" not in text
    assert "<script" not in text
    assert "<i>" not in text
    assert "default-src 'none'" in text
