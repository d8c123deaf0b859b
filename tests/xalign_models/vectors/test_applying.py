"""Rows of any number are mapped as numpy maps them, in order, each once, whatever stops the run."""

from __future__ import annotations

import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xalign_models
from tests.xalign_models.conftest import list_column
from xalign_models import alignments
from xalign_models.errors import AlignmentError, FileError, LanguageError, ModelError
from xalign_models.models.building import build, raw_encoder
from xalign_models.models.maps import load_maps
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.vector_files import parquet
from xalign_models.vectors import applying
from xalign_models.vectors.applying import apply

from .conftest import LANGUAGES

ROWS, DIM = 60, 8


@pytest.fixture
def source(tmp_path):
    """Sixty rows in six row groups, languages written in three ways."""
    rng = np.random.default_rng(1)
    codes = ["de", "eng-Latn", "fra"]
    table = pa.table(
        {
            "id": [f"doc{number}" for number in range(ROWS)],
            "lang": [codes[number] for number in rng.integers(3, size=ROWS)],
            "vector": list_column(rng.standard_normal((ROWS, DIM)).astype(np.float32)),
            "tags": [["a"] * (number % 3) for number in range(ROWS)],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=10)
    return tmp_path / "in.parquet"


@pytest.fixture
def small(monkeypatch):
    """Parts of two row groups, batches of four rows."""
    monkeypatch.setattr(applying, "PART_ROWS", 20)
    monkeypatch.setattr(parquet, "BATCH_BYTES", 4 * 4 * DIM)


def matrix(table):
    return np.stack(table.column("vector").to_numpy(zero_copy_only=False))


def expected(table, folder):
    """By an independent route: one row after another through the alignment itself."""
    alignment = alignments.load(folder)
    codes = {"de": "deu-Latn", "fra": "fra-Latn"}
    return np.stack(
        [
            alignment.transform(row[None].astype(np.float64), codes.get(code, code))[0]
            for row, code in zip(matrix(table), table.column("lang").to_pylist(), strict=True)
        ]
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", ["affine", "centered", "lsar", "lir"])
def test_rows_are_those_of_the_alignment_and_all_else_stays(tmp_path, source, make_maps, method):
    folder = make_maps(method)
    assert apply(load_maps(str(folder)), source, tmp_path / "out.parquet", lang_column="lang") == ROWS
    before, after = pq.read_table(source), pq.read_table(tmp_path / "out.parquet")
    assert len(list((tmp_path / "out.parquet").glob("*.parquet"))) == 3
    assert after.schema.equals(before.schema)
    assert after.drop(["vector"]).equals(before.drop(["vector"]))
    np.testing.assert_allclose(matrix(after), expected(before, folder), atol=1e-5)
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.usefixtures("small")
def test_a_finished_output_that_lacks_a_part_is_refused(tmp_path, source, make_maps):
    maps, output = load_maps(str(make_maps())), tmp_path / "out"
    assert apply(maps, source, output, lang_column="lang") == apply(maps, source, output, lang_column="lang") == ROWS
    (output / "part-00000001.parquet").write_bytes(b"PAR1")
    with pytest.raises(FileError, match=r"part-00000001\.parquet is missing or damaged"):
        apply(maps, source, output, lang_column="lang")


@pytest.mark.parametrize("kind", ["list", "large", "tensor"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_type_and_form_of_the_vectors_stay(tmp_path, make_maps, kind, dtype):
    rows = np.random.default_rng(2).standard_normal((30, DIM)).astype(dtype)
    column = list_column(rows, kind)
    pq.write_table(pa.table({"embedding": column}), tmp_path / "in.parquet")
    maps = load_maps(str(make_maps()), default_lang="deu-Latn")
    apply(maps, tmp_path / "in.parquet", tmp_path / "out.parquet")
    after = pq.ParquetFile(next((tmp_path / "out.parquet").glob("*.parquet"))).read()
    assert after.schema.field("embedding").type == column.type
    wanted = alignments.load(make_maps()).transform(rows.astype(np.float64), "deu-Latn")
    found = parquet.matrix_of(after.column(0).combine_chunks(), "")
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, atol={2: 1e-2, 4: 1e-5, 8: 1e-5}[rows.dtype.itemsize])


@pytest.mark.parametrize("lang_column", [None, "lang"])
def test_a_default_language_is_that_of_rows_without_one_alone(tmp_path, source, make_maps, lang_column):
    table = pq.read_table(source)
    codes = table.column("lang").to_pylist()
    some = [code if row % 3 else None for row, code in enumerate(codes)]
    pq.write_table(table.set_column(1, "lang", pa.array(some)), source)
    filled = table.set_column(1, "lang", pa.array([code or "eng-Latn" for code in some]))
    folder = make_maps()
    apply(load_maps(str(folder), default_lang="eng-Latn"), source, tmp_path / "out", lang_column=lang_column)
    np.testing.assert_allclose(matrix(pq.read_table(tmp_path / "out")), expected(filled, folder), atol=1e-5)


def test_languages_that_are_named_as_prompts_are_refused(tmp_path, source, make_maps):
    with pytest.raises(AlignmentError, match="no map for the prompt"):
        apply(load_maps(str(make_maps())), source, tmp_path / "out", lang_column="lang", prompt_column="lang")


def test_a_saved_models_rows_are_its_own_vectors(workdir, tiny_model, write_text):
    text = write_text(workdir / "fit", 40)
    backbone = find_spec(str(tiny_model)).backbone
    spec = ModelSpec(backbone, AlignmentSpec("lir-2", "lir", (("k", 2),), (f"own:{text}",)), "fit")
    model = build(spec, device="cpu")
    save(model, workdir / "saved")
    texts = [f"w{number} w{number + 1}" for number in range(20)]
    inputs = [{"text": text, "lang": "deu-Latn"} for text in texts]
    raw = raw_encoder(backbone, "cpu").encode(texts)
    pq.write_table(pa.table({"text": texts, "vector": list_column(raw)}), "in.parquet")
    apply(load_maps("saved", default_lang="deu-Latn"), workdir / "in.parquet", workdir / "out")
    np.testing.assert_allclose(matrix(pq.read_table("out")), model.encode(inputs), atol=1e-6)
    with pytest.raises(ModelError, match="has no separate maps"):
        save(model, workdir / "dense", standalone=True, lang="de")
        load_maps("dense")


@pytest.mark.parametrize("method", ["centered", "lir", "residual"])
def test_vectors_of_unit_length_need_maps_of_unit_length(workdir, tiny_model, write_text, method):
    """Most stores hold unit vectors, which a shift between longer ones would push aside; a projection serves both."""
    texts, codes = [f"w{number} w{number + 1}" for number in range(20)], ["de", "fr"] * 10
    raw = 9 * raw_encoder(find_spec(str(tiny_model)).backbone, "cpu").encode(texts)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    pq.write_table(pa.table({"lang": codes, "vector": list_column(unit)}), "in.parquet")
    text = f"own:{write_text(workdir / 'fit', 40)}"
    for way in ("float32", "unit"):
        model = xalign_models.fit(
            method, backbone=str(tiny_model), corpus=text, device="cpu", overrides={"vectors": way}
        )
        save(model, way)
    maps = load_maps("unit")
    apply(maps, workdir / "in.parquet", workdir / "out", lang_column="lang")
    np.testing.assert_allclose(matrix(pq.read_table("out")), model.encode(texts, lang=codes), atol=1e-6)
    for other, rows in ((load_maps("float32"), unit), (maps, raw)):
        if method == "lir":
            assert other.misfit(rows) == ""
        else:
            with pytest.warns(UserWarning, match="The vectors have length"):
                other.transform(rows, codes)
    if method != "lir":
        with pytest.raises(ModelError, match=r"The vectors have length 1, those of the fit .* Fit with --vectors unit"):
            apply(load_maps("float32"), workdir / "in.parquet", workdir / "other", lang_column="lang")
        assert not (workdir / "other").exists()


def test_languages_that_are_not_fitted_are_said_first_or_left_as_they_are(tmp_path, source, make_maps):
    table = pq.read_table(source)
    codes = [
        None if number == 3 else "nld" if number % 2 else code for number, code in enumerate(table["lang"].to_pylist())
    ]
    pq.write_table(table.set_column(1, "lang", pa.array(codes)), source)
    with pytest.raises(AlignmentError, match="moves every fitted language"):
        load_maps(str(make_maps("centered")), unknown="unaligned")
    folder = str(make_maps("affine"))
    known = pa.array([code or "nld" for code in codes])
    pq.write_table(table.set_column(1, "lang", known), tmp_path / "known.parquet")
    with pytest.raises(LanguageError, match="not fitted for rows in nld; fitted languages are"):
        apply(load_maps(folder), tmp_path / "known.parquet", tmp_path / "out", lang_column="lang")
    with pytest.raises(LanguageError, match="needs every row's language: name a column with --lang-column"):
        apply(load_maps(folder), source, tmp_path / "out", lang_column="lang")
    assert not list(tmp_path.glob("*out*"))
    apply(load_maps(folder, unknown="unaligned"), source, tmp_path / "out", lang_column="lang")
    before, after = matrix(table), matrix(pq.read_table(tmp_path / "out"))
    same = [code in {"nld", "eng", "en", "eng-Latn", None} for code in codes]  # the pivot's map is the identity
    assert [np.array_equal(a, b) for a, b in zip(before, after, strict=True)] == same
    pq.write_table(table.set_column(1, "lang", known).rename_columns({"lang": "speech"}), tmp_path / "known.parquet")
    with pytest.raises(LanguageError, match="needs every row's language"):
        apply(load_maps(folder), tmp_path / "known.parquet", tmp_path / "other")


def test_the_usual_column_of_languages_is_found(tmp_path, source, make_maps):
    maps = load_maps(str(make_maps()))
    apply(maps, source, tmp_path / "named", lang_column="lang")
    apply(maps, source, tmp_path / "found")
    assert np.array_equal(matrix(pq.read_table(tmp_path / "named")), matrix(pq.read_table(tmp_path / "found")))


@pytest.mark.usefixtures("small")
def test_a_run_that_stops_at_any_part_resumes_to_the_same_rows(tmp_path, source, make_maps, monkeypatch):
    maps = load_maps(str(make_maps()))
    apply(maps, source, tmp_path / "whole", lang_column="lang")
    write, written = applying.write_part, []

    def stop_after(count):
        def write_some(job, part):
            if len(written) == count:
                (job.folder / f".{part.name}.x.part").write_bytes(b"PAR1 half of a part")
                raise KeyboardInterrupt
            written.append(part.name)
            return write(job, part)

        return write_some

    for count in (0, 1, 2):
        monkeypatch.setattr(applying, "write_part", stop_after(count))
        with pytest.raises(KeyboardInterrupt):
            apply(maps, source, tmp_path / "out", lang_column="lang")
        assert not (tmp_path / "out").exists()
    (tmp_path / ".out.parts" / "part-00000001.parquet").write_bytes(b"PAR1 cut off")
    monkeypatch.setattr(applying, "write_part", stop_after(9))
    apply(maps, source, tmp_path / "out", lang_column="lang")
    assert written == [f"part-{number:08d}.parquet" for number in (0, 1, 1, 2)]
    assert pq.read_table(tmp_path / "out").equals(pq.read_table(tmp_path / "whole"))
    names = [f"part-{number:08d}.parquet" for number in range(3)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_xalign.json", *names]
    assert apply(maps, source, tmp_path / "out", lang_column="lang") == ROWS  # done already
    assert len(written) == 4


def test_parts_of_other_vectors_or_maps_are_never_mixed(tmp_path, source, make_maps):
    maps, other = load_maps(str(make_maps())), load_maps(str(make_maps("centered")))
    apply(maps, source, tmp_path / "out", lang_column="lang")
    (tmp_path / "out").rename(tmp_path / ".more.parts")
    for name in ("more", "out"):
        if name == "out":
            apply(maps, source, tmp_path / "out", lang_column="lang")
        with pytest.raises(ModelError, match="other vectors, maps or options"):
            apply(other, source, tmp_path / name, lang_column="lang")
    table = pq.read_table(source)
    pq.write_table(table.slice(0, 50), source)
    with pytest.raises(ModelError, match="other vectors, maps or options"):
        apply(maps, source, tmp_path / "out", lang_column="lang")


def test_bad_rows_are_named_and_nothing_is_left_as_if_done(tmp_path, source, make_maps):
    maps, table = load_maps(str(make_maps())), pq.read_table(source)
    rows = matrix(table)
    rows[37, 2] = np.nan
    pq.write_table(table.set_column(2, "vector", list_column(rows)), source, row_group_size=10)
    with pytest.raises(FileError, match="row 37 is not finite"):
        apply(maps, source, tmp_path / "out", lang_column="lang")
    assert not (tmp_path / "out").exists()
    pq.write_table(table, source)
    assert apply(maps, source, tmp_path / "out", lang_column="lang") == ROWS  # no part was written before
    pq.write_table(table.set_column(2, "vector", list_column(np.ones((ROWS, 5), np.float32))), source)
    with pytest.raises(AlignmentError, match=r"shape \(60, 5\): the maps take embeddings \(n, 8\)"):
        apply(maps, source, tmp_path / "third", lang_column="lang")
    pq.write_table(table.set_column(2, "vector", list_column(np.full((ROWS, DIM), 6e4, np.float16))), source)
    maps.aligned.weight *= 100
    with pytest.raises(FileError, match=r"mapped: row \d+ is not finite"):
        apply(maps, source, tmp_path / "fourth", lang_column="lang")


@pytest.mark.slow
def test_a_process_that_is_killed_loses_no_row_and_doubles_none(tmp_path, make_maps, python):
    rows = 400_000
    vectors = list_column(np.random.default_rng(3).standard_normal((rows, DIM)).astype(np.float32))
    languages = [LANGUAGES[number % 3] for number in range(rows)]
    table = pa.table({"id": np.arange(rows), "lang": languages, "vector": vectors})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=20_000)
    command = [
        python, "-m", "xalign_models.cli", "apply", str(make_maps()), "--in", str(tmp_path / "in.parquet"),
        "--lang-column", "lang", "-o", str(tmp_path / "out"),
    ]  # fmt: skip
    process = subprocess.Popen(command)
    while not list(tmp_path.glob(".out.parts/part-*.parquet")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists() or process.returncode == 0
    subprocess.run(command, check=True)
    assert pq.read_table(tmp_path / "out").column("id").to_pylist() == list(range(rows))
