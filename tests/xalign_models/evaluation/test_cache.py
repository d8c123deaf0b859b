"""Results are whole or not there; unreadable and outdated ones are kept under another name."""

from __future__ import annotations

import json

import mteb
import numpy as np
import pytest
from mteb.results import TaskResult

from tasks.own_parallel import OwnParallel
from xalign_models.assets import CARD
from xalign_models.errors import ResultsError
from xalign_models.evaluation.cache import SafeResultCache, hardware


@pytest.fixture
def scored(workdir, planted, make_encoder):
    """A cache with one result and its items, the task and the model's metadata."""
    task = OwnParallel(path=planted.write(workdir / "own", range(20), ("deu", "eng")))
    encoder, cache = make_encoder(planted()), SafeResultCache(workdir / "out")
    meta = encoder.mteb_model_meta
    items = cache.path_of("OwnParallel", meta).parent / "items"
    mteb.evaluate(encoder, task, cache=cache, prediction_folder=items, show_progress_bar=False)
    return cache, task, meta


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_layout_is_mtebs(scored, workdir):
    cache, _, meta = scored
    assert cache.path_of("OwnParallel", meta) == workdir / "out/results/test__planted/1/OwnParallel.json"
    assert names(workdir / "out/results/test__planted/1") == [
        "OwnParallel.json", "items/OwnParallel.npz", "model_meta.json", "run_settings.jsonl",
    ]  # fmt: skip
    assert mteb.ResultCache(workdir / "out").load_task_result("OwnParallel", meta).scores["test"]


def test_a_usable_result_stays(scored):
    cache, task, meta = scored
    before = cache.path_of("OwnParallel", meta).read_bytes()
    cache.keep_only_usable(task, meta)
    assert cache.path_of("OwnParallel", meta).read_bytes() == before


@pytest.mark.parametrize("spoil", [lambda data: data[:100], lambda _: b"", lambda _: b"[]", lambda _: b"\xff\xfe"])
def test_an_unreadable_result_is_set_aside(scored, spoil, caplog):
    cache, task, meta = scored
    path = cache.path_of("OwnParallel", meta)
    damaged = spoil(path.read_bytes())
    path.write_bytes(damaged)
    cache.keep_only_usable(task, meta)
    assert not path.exists()
    (aside,) = path.parent.glob("OwnParallel.json.aside-*")
    assert aside.read_bytes() == damaged
    assert "is unreadable" in caplog.text
    assert aside.name in caplog.text


def test_a_result_of_other_text_is_set_aside_with_its_items(scored, workdir, planted):
    cache, _, meta = scored
    path = cache.path_of("OwnParallel", meta)
    other = OwnParallel(path=planted.write(workdir / "own", range(21), ("deu", "eng")))
    cache.keep_only_usable(other, meta)
    assert not path.exists()
    assert len(list(path.parent.glob("OwnParallel.json.aside-*"))) == 1
    (items,) = (path.parent / "items").iterdir()
    assert items.name.startswith("OwnParallel.npz.aside-")
    with np.load(items.open("rb")) as kept:
        assert len(kept["deu_Latn-eng_Latn"]) == 20


def test_saving_replaces_whole_files_and_merges_the_settings(scored, monkeypatch):
    """While a result is written, what lies at its place is the old one, whole; afterwards nothing else is left."""
    cache, _, meta = scored
    path = cache.path_of("OwnParallel", meta)
    result = cache.load_task_result("OwnParallel", meta)
    settings = (path.parent / "run_settings.jsonl").read_text()
    before, listed = path.read_bytes(), names(path.parent)
    original = mteb.ResultCache.save_to_cache

    def die_halfway(self, *args, **kwargs):
        original(self, *args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(mteb.ResultCache, "save_to_cache", die_halfway)
    with pytest.raises(KeyboardInterrupt):
        cache.save_to_cache(result, meta)
    assert path.read_bytes() == before
    assert names(path.parent) == listed
    monkeypatch.undo()
    result.task_name = "Another"
    cache.save_to_cache(result, meta)
    assert names(path.parent) == sorted([*listed, "Another.json"])
    assert settings.strip() in (path.parent / "run_settings.jsonl").read_text()


def test_the_card_says_what_made_the_results(scored, workdir):
    cache, _, meta = scored
    meta = meta.model_copy(update={"loader_kwargs": {"spec": {"backbone": {"name": "x"}}}})
    cache.write_card(meta, "xalign/plain__x", hardware("cpu"))
    card = json.loads((workdir / "out/results/test__planted/1" / CARD).read_text())
    assert (card["name"], card["revision"], card["baseline"]) == ("test/planted", "1", "xalign/plain__x")
    assert card["spec"] == {"backbone": {"name": "x"}}
    assert card["versions"]["mteb"] == mteb.__version__
    assert card["hardware"].startswith("cpu ")


def test_results_do_not_say_where_files_and_directories_lie(scored, workdir):
    cache, _, meta = scored
    path = cache.path_of("OwnParallel", meta)
    (workdir / "some" / "c++:17").mkdir(parents=True)
    (workdir / "some" / "x.jsonl").touch()
    outside = f"../{workdir.name}/some"
    named = {
        str(workdir / "some"): "some",
        "some/c++:17/": "c++:17",
        outside: "some",
        f"llm:{workdir}/some": "llm:some",
        f"file:{workdir}/some/x.jsonl?llm=1": "file:x.jsonl?llm=1",
        f"reference:ntrex+own:{outside}/x.jsonl": "reference:ntrex+own:x.jsonl",
        **{same: same for same in ("/no directory", "org/name", "llm:org/name?seed=1", "query: ", "a/" * 3000)},
    }
    spec = {"backbone": {"model": list(named), "prompts": [["default", 1]]}}
    arguments = {"spec": spec, "training": {"text": {f"file:{workdir}/some/x.jsonl": "abc"}}}
    trained = {f"file:{workdir}/some/x.jsonl", "FloresPrecision"}
    placed = meta.model_copy(update={"loader_kwargs": arguments, "training_datasets": trained})
    cache.save_to_cache(TaskResult.from_disk(path), placed)
    cache.write_card(placed, None, hardware("cpu"))
    written, card = (json.loads((path.parent / name).read_text()) for name in ("model_meta.json", CARD))
    expected = {"backbone": {"model": list(named.values()), "prompts": [["default", 1]]}}
    assert [written["loader_kwargs"]["spec"], card["spec"]] == [expected] * 2
    assert card["training"] == {"text": {"file:x.jsonl": "abc"}}
    assert sorted(written["training_datasets"]) == ["FloresPrecision", "file:x.jsonl"]
    assert placed.loader_kwargs["spec"] is spec  # it can still be loaded
    assert workdir.name not in "".join(file.read_text() for file in path.parent.glob("*.json*"))


def test_a_root_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"Cannot write results to .*file.*--output"):
        SafeResultCache(tmp_path / "file")
