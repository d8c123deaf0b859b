"""``xalign apply`` and ``xalign store import|export``: what is asked for is done, all else is one line."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xalign_models import alignments


@pytest.fixture
def table(workdir):
    """Vectors of two languages in ``in.parquet`` and fitted maps in ``map``."""
    rng = np.random.default_rng(0)
    rows = {language: rng.standard_normal((30, 4)) for language in ("deu-Latn", "eng-Latn")}
    (workdir / "map").mkdir()
    alignments.make("affine").fit(rows).save(workdir / "map")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows["deu-Latn"].reshape(-1)), 4)
    columns = {"text": [f"t{n}" for n in range(30)], "lang": ["de", "nl", "en"] * 10, "vector": vectors}
    pq.write_table(pa.table(columns), workdir / "in.parquet")
    return rows


def test_apply_says_what_it_wrote_and_that_it_is_done(xalign, table, workdir):
    arguments = ("apply", "map", "--in", "in.parquet", "--lang-column", "lang", "-o", "out")
    status, _, err = xalign(*arguments)
    assert (status, len(err)) == (2, 1)
    assert "not fitted for rows in nl" in err[0]
    for _ in range(2):
        assert xalign(*arguments, "--unknown", "unaligned")[:2] == (0, "30 rows: out\n")
    assert pq.read_table("out").num_rows == 30
    assert "comes from other vectors" in xalign(*arguments, "--unknown", "mean")[2][0]
    before = (workdir / "in.parquet").read_bytes()
    status, _, (line,) = xalign(*arguments[:-1], "in.parquet", "--unknown", "mean")
    assert (status, (workdir / "in.parquet").read_bytes()) == (2, before)
    assert "in.parquet exists and is not an output of `xalign apply`; choose another output." in line


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("map", "--in", "nothing.parquet", "-o", "o"), "nothing.parquet"),
        (("map", "--in", "in.parquet", "-o", "o"), "not fitted for rows in nl"),
        (("map", "--in", "in.parquet", "-o", "o", "--lang-column", "language"), "no column language; it has text"),
        (("map", "--in", "in.parquet", "-o", "o", "--column", "text"), "its lists of numbers are vector"),
        (("map", "--in", "in.parquet", "-o", "o", "--unknown", "x"), "'x' is not one of 'error', 'related', 'mean'"),
        (("map", "--in", "in.parquet", "-o", "o", "--engine", "x"), "'x' is not one of 'local', 'ray'"),
        (("no-model", "--in", "in.parquet", "-o", "o"), "no-model"),
        (("vectors:in.parquet", "--in", "in.parquet", "-o", "o"), "no alignment"),
    ],
)
def test_apply_refuses_in_one_line(xalign, table, arguments, part):
    status, out, err = xalign("apply", *arguments)
    assert (status, out, len(err)) == (2, "", 1), err
    assert part in err[0]


def test_vectors_go_out_of_the_store_and_into_it(xalign, workdir, tiny_model):
    (workdir / "deu.txt").write_text("w1 w2\nw3\nw1 w2\n")
    assert xalign("store", "export", "--model", tiny_model, "-o", "v.parquet", "--texts", "deu.txt")[:2] == (
        0,
        "2 vectors: v.parquet\n",
    )
    assert pq.read_table("v.parquet").column("lang").to_pylist() == ["deu-Latn"] * 2
    status, _, (line,) = xalign("store", "export", "--model", tiny_model, "-o", "deu.txt", "--texts", "deu.txt")
    assert (status, "deu.txt exists and is not a parquet file" in line) == (2, True)
    assert (workdir / "deu.txt").read_text() == "w1 w2\nw3\nw1 w2\n"
    status, _, (line,) = xalign("store", "clear")
    assert (status, "add --yes" in line) == (2, True)
    xalign("store", "clear", "--yes")
    status, out, _ = xalign("store", "import", "v.parquet", "--model", tiny_model)
    assert (status, out) == (0, "2 vectors kept, 2 of them checked\n")
    status, _, err = xalign("store", "import", "v.parquet", "--model", "vectors:v.parquet")
    assert (status, len(err)) == (2, 1)


def test_parity_says_same_and_different_by_its_status(xalign, workdir, tiny_model):
    (workdir / "texts.txt").write_text("".join(f"w{n} w{n + 1}\n" for n in range(30)))
    xalign("store", "export", "--model", tiny_model, "-o", "same.parquet", "--texts", "texts.txt")
    status, out, err = xalign("parity", tiny_model, "vectors:same.parquet", "--texts", "texts.txt")
    assert (status, err) == (1, [])  # what is exported is not brought to unit length
    assert "normalisation: The first model normalises its vectors, the second does not." in out
    assert "different: least cosine 1.000000000, nearest neighbour of 0.0% of texts changes" in out
    status, out, _ = xalign("parity", tiny_model, tiny_model, "--texts", "texts.txt", "--json")
    assert (status, json.loads(out)["same"], json.loads(out)["causes"]) == (0, True, [])
    assert sum(row["texts"] for row in json.loads(out)["rows"]) == 30  # the whole file
    status, _, err = xalign("parity", tiny_model, "vectors:nothing.parquet", "--texts", "texts.txt")
    assert (status, len(err)) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("affine", "--from", "x", "-o", "m"), "go together"),
        (("affine", "-o", "m"), "--backbone is missing"),
        (
            ("lsar", "--from", "vectors:a", "--to", "vectors:b", "--corpus", "gettext", "-o", "m"),
            "procrustes or affine",
        ),
    ],
)
def test_a_migration_that_cannot_be_is_refused_in_one_line(xalign, arguments, part):
    status, out, err = xalign("fit", *arguments)
    assert (status, out, len(err)) == (2, "", 1), err
    assert part in err[0]


def test_a_migration_refuses_every_option_that_it_would_not_heed(xalign):
    """All options of ``fit`` are tried, each with some valid value, in pairs with what a migration needs."""
    from typer.main import get_command

    from xalign_models.cli.app import app
    from xalign_models.cli.models import MIGRATION

    migration = ("fit", "affine", "--from", "no/old", "--to", "no/new", "--corpus", "ntrex", "-o", "m")
    values = {"unknown": "mean", "use": "similarity", "pooling": "cls", "dtype": "bfloat16", "precision": "int8"}
    values |= {"vectors": "binary"} | dict.fromkeys(("layer", "truncate_dim", "max_tokens"), "1")
    tried = 0
    for own in get_command(app).commands["fit"].params:
        if own.param_type_name != "option" or own.name in {"help", *MIGRATION}:
            continue
        status, out, err = xalign(*migration, own.opts[0], *[values.get(own.name, "x=1")] * (not own.is_flag))
        assert (status, out, len(err)) == (2, "", 1), err
        assert err[0].endswith(f"--from, --to and --corpus go together, without {own.opts[0]}.")
        tried += 1
    assert tried > 15
    status, _, err = xalign(*migration, "--layer", "3", "--standalone", "--limit", "5", "--languages", "de,en")
    assert err[0].endswith("go together, without --standalone, --layer.")
    status, _, err = xalign(*migration, "--limit", "5", "--languages", "de,en", "--device", "cpu", "--budget", "1M")
    assert status == 2 and "go together" not in err[0]
