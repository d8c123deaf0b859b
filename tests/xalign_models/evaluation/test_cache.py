"""Results are whole or not there; unreadable and outdated ones are kept under another name."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mteb
import pytest
from mteb.results import TaskResult

from xalign_models.errors import ResultsError
from xalign_models.evaluation.cache import SafeResultCache, compact, hardware
from xalign_models.results.items import full_folder, outcomes_path, read_outcomes
from xalign_tasks.own_parallel import OwnParallel


@pytest.fixture
def scored(workdir, planted, make_encoder):
    """A cache with one result and its items, the task and the model's metadata."""
    task = OwnParallel(path=planted.write(workdir / "own", range(20), ("deu", "eng")))
    encoder, cache = make_encoder(planted()), SafeResultCache(workdir / "out")
    meta = encoder.mteb_model_meta
    items = full_folder(cache.path_of("OwnParallel", meta).parent)
    cache.hardware = hardware("cpu")
    mteb.evaluate(encoder, task, cache=cache, prediction_folder=items, show_progress_bar=False)
    return cache, task, meta


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_layout_is_mtebs(scored, workdir):
    cache, _, meta = scored
    assert cache.path_of("OwnParallel", meta) == workdir / "out/results/test__planted/1/OwnParallel.json"
    assert names(workdir / "out/results/test__planted/1") == [
        "OwnParallel.json",
        "items/OwnParallel.npz",
        "items/full/OwnParallel.npz",
        "model_meta.json",
        "run_settings.jsonl",
    ]
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
    cache.keep_only_usable(task, meta)()
    assert not path.exists()  # also if the run fails
    (aside,) = path.parent.glob("OwnParallel.json.aside-*")
    assert aside.read_bytes() == damaged
    assert "is unreadable" in caplog.text
    assert aside.name in caplog.text


@pytest.mark.parametrize("score", [float("nan"), float("inf"), 55.5, -0.5])
def test_a_result_with_an_impossible_score_is_set_aside(scored, score, caplog):
    cache, task, meta = scored
    path = cache.path_of("OwnParallel", meta)
    data = json.loads(path.read_text())
    data["scores"]["test"][0]["main_score"] = score
    path.write_text(json.dumps(data))
    cache.keep_only_usable(task, meta)
    assert not path.exists()
    assert "is not a complete result (impossible score of " in caplog.text


def test_a_result_of_other_text_is_set_aside_with_its_items(scored, workdir, planted, caplog):
    cache, _, meta = scored
    path = cache.path_of("OwnParallel", meta)
    other = OwnParallel(path=planted.write(workdir / "own", range(21), ("deu", "eng")))
    put_back = cache.keep_only_usable(other, meta)
    assert not path.exists()
    assert len(list(path.parent.glob("OwnParallel.json.aside-*"))) == 1
    outcomes, full = sorted(path.parent.glob("items/**/*.aside-*"), key=lambda path: len(path.parts))
    assert [one.name.partition(".aside")[0] for one in (outcomes, full)] == ["OwnParallel.npz"] * 2
    assert len(read_outcomes(outcomes)["deu_Latn-eng_Latn"]) == 20
    put_back()
    assert path.is_file() and not [*path.parent.rglob("*.aside-*")]
    assert not caplog.text  # the run's own error says why there is no new result
    put_back = cache.keep_only_usable(other, meta)
    path.write_text("{}")
    put_back()
    assert "had data revision" in caplog.text and "OwnParallel.json.aside-" in caplog.text


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


@pytest.mark.parametrize("at", range(3))
def test_a_kill_while_files_are_moved_leaves_no_scores_without_what_made_them(scored, monkeypatch, at):
    cache, _, meta = scored
    result = cache.load_task_result("OwnParallel", meta)
    result.task_name, folder = "Another", cache.path_of("Another", meta).parent
    original, moved = Path.replace, []

    def killed(self, target):
        moved.append(target.name)
        if len(moved) == at + 1:
            raise KeyboardInterrupt
        return original(self, target)

    (folder / "model_meta.json").unlink()
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        cache.save_to_cache(result, meta)
    monkeypatch.undo()
    assert moved[-1] == "Another.json" or at < 2
    assert not (folder / "Another.json").exists()
    cache.save_to_cache(result, meta)
    assert {"Another.json", "model_meta.json"} <= set(names(folder))


def test_lost_metadata_are_written_again_where_the_result_is_whole(scored):
    cache, task, meta = scored
    path = cache.path_of("OwnParallel", meta).with_name("model_meta.json")
    whole = path.read_text()
    for damage in (None, "", "[]", whole[:50], '{"name": "other/model"}'):
        path.unlink() if damage is None else path.write_text(damage)
        cache.keep_only_usable(task, meta)
        assert json.loads(path.read_text()) == json.loads(whole)


def test_damaged_items_are_set_aside_once_and_the_result_stays(scored, caplog):
    cache, task, meta = scored
    folder = cache.path_of("OwnParallel", meta).parent
    path = outcomes_path(folder, "OwnParallel")
    path.write_bytes(path.read_bytes()[:50])
    for _ in range(2):
        cache.keep_only_usable(task, meta)
    assert not path.exists()
    assert len(list(path.parent.glob("OwnParallel.npz.aside-*"))) == 1
    assert (folder / "OwnParallel.json").is_file()
    (record,) = caplog.records
    assert f"{path} is damaged" in record.getMessage()


def test_what_a_killed_run_left_half_written_is_removed_later(scored):
    cache, _, meta = scored
    folder = cache.path_of("OwnParallel", meta).parent
    old, new = folder / ".staged-old", folder / ".staged-new"
    for staged in (old, new):
        (staged / "results").mkdir(parents=True)
    os.utime(old, (0, 0))
    cache.save_to_cache(cache.load_task_result("OwnParallel", meta), meta)
    assert not old.exists()
    assert new.exists()  # another run may be writing there


def test_a_line_per_subset_and_versions_and_hardware_by_task(scored):
    cache, _, meta = scored
    path = cache.path_of("OwnParallel", meta)
    lines = path.read_text().splitlines()
    assert len([line for line in lines if "hf_subset" in line]) == 2
    (entry,) = map(json.loads, (path.parent / "run_settings.jsonl").read_text().splitlines())
    assert {"python", "xalign", "mteb", "numpy", "torch"} <= entry["version"].keys()
    assert entry["hardware"].startswith("cpu ")
    assert "tokens_per_second" not in entry  # too few tokens to tell
    cache.costs = lambda: {"tokens_per_second": 45_000.0}
    cache.save_to_cache(cache.load_task_result("OwnParallel", meta), meta)
    (entry,) = map(json.loads, (path.parent / "run_settings.jsonl").read_text().splitlines())
    assert entry["tokens_per_second"] == 45_000


def test_damaged_settings_are_set_aside_and_stop_nobody(scored, caplog):
    cache, _, meta = scored
    path = cache.path_of("OwnParallel", meta)
    settings = path.parent / "run_settings.jsonl"
    good = settings.read_text()
    other = json.dumps({**json.loads(good), "task": "Other"}) + "\n"
    settings.write_text(other + '{"task": 5}\n[1]\n{"task": "Cut')
    cache.save_to_cache(cache.load_task_result("OwnParallel", meta), meta)
    assert sorted(json.loads(line)["task"] for line in settings.read_text().splitlines()) == ["Other", "OwnParallel"]
    assert "has 3 damaged lines" in caplog.text
    assert '"Cut' in settings.with_name("run_settings.jsonl.damaged").read_text()


def test_runs_at_the_same_time_keep_all_settings(scored, workdir):
    cache, _, meta = scored
    result = cache.load_task_result("OwnParallel", meta)
    tasks = [f"Task{number}" for number in range(12)]

    def save(task: str) -> None:
        SafeResultCache(workdir / "out").save_to_cache(result.model_copy(update={"task_name": task}), meta)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(save, tasks))
    folder = cache.path_of("OwnParallel", meta).parent
    kept = [json.loads(line)["task"] for line in (folder / "run_settings.jsonl").read_text().splitlines()]
    assert sorted(kept) == sorted([*tasks, "OwnParallel"])
    assert {path.stem for path in folder.glob("Task*.json")} == {*tasks}
    assert not [path for path in (workdir / "out").rglob("*") if path.name.startswith(".")]


def test_the_compact_form_is_the_same_json(scored):
    cache, _, meta = scored
    plain = json.loads(cache.path_of("OwnParallel", meta).read_text())
    odd = {**plain, "scores": {'sp"lit': [{"hf_subset": "é", "main_score": 0.1}], "empty": []}, "none": [None]}
    for document in (plain, odd, {"scores": {}}):
        assert json.loads(compact(document)) == document


def test_the_compact_form_names_mtebs_version_once(scored):
    cache, _, meta = scored
    path = cache.path_of("OwnParallel", meta)
    result = TaskResult.from_disk(path)
    assert path.read_text().count(f'"{result.mteb_version}"') == 1
    first, *others = next(iter(result.scores.values()))
    first["mteb_version"] = "2.1.0"  # a subset that an older version scored, merged into a newer result
    path.write_text(compact(json.loads(result.model_dump_json())))
    read = TaskResult.from_disk(path)
    assert read.scores == result.scores and others and first in next(iter(read.scores.values()))


@pytest.mark.parametrize("revision", ["../../elsewhere", "..", "a\nb"])
def test_a_revision_does_not_lead_out_of_the_results(scored, workdir, revision):
    cache, _, meta = scored
    before = sorted(workdir.rglob("*"))
    with pytest.raises(ResultsError, match="cannot name a file"):
        cache.path_of("OwnParallel", meta.model_copy(update={"revision": revision}))
    with pytest.raises(ResultsError, match="cannot name a file"):
        cache.save_to_cache(cache.load_task_result("OwnParallel", meta), "test/planted", revision)
    assert sorted(workdir.rglob("*")) == before


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
    written = json.loads((path.parent / "model_meta.json").read_text())
    expected = {"backbone": {"model": list(named.values()), "prompts": [["default", 1]]}}
    assert written["loader_kwargs"]["spec"] == expected
    assert written["loader_kwargs"]["training"] == {"text": {"file:x.jsonl": "abc"}}
    assert sorted(written["training_datasets"]) == ["FloresPrecision", "file:x.jsonl"]
    assert placed.loader_kwargs["spec"] is spec  # it can still be loaded
    assert workdir.name not in "".join(file.read_text() for file in path.parent.glob("*.json*"))


def test_a_root_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"Cannot write results to .*file.*--output"):
        SafeResultCache(tmp_path / "file")
