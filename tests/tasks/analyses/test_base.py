"""A request loads models on its device; published tables are read where they are."""

from __future__ import annotations

import pytest

from tasks.analyses import ANALYSES, Request
from tasks.analyses.base import read_published
from xalign_models.errors import ModelError


def test_analyses_go_by_their_names():
    assert all(name == one.name and one.description.endswith(".") for name, one in ANALYSES.items())


def test_models_are_named_or_asked_for():
    assert Request(("a", "b")).named() == ("a", "b")
    with pytest.raises(ModelError, match="--model: name at least one"):
        Request().named()


def test_a_model_is_loaded_with_the_store(workdir, tiny_model):
    encoder = Request(device="cpu").load(str(tiny_model))
    assert encoder.raw.store.path == workdir / "store"
    assert encoder.encode_texts(["w1 w2"], [None]).shape == (1, 16)


@pytest.mark.parametrize("below", ["", "results"])
def test_a_published_table_is_read_from_the_root_or_its_results(tmp_path, below):
    folder = tmp_path / below / "published"
    folder.mkdir(parents=True)
    (folder / "one.csv").write_text("model,subset,value\nmBERT,,37.5\n")
    table = read_published(tmp_path, "one.csv")
    assert table.to_dict("records") == [{"model": "mBERT", "subset": "", "value": 37.5}]
    assert read_published(tmp_path, "other.csv").empty
