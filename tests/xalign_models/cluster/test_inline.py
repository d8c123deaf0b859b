"""The driver's plan, waiting and results, with a stand-in for Ray that runs a task when it is waited for."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.xalign_models.conftest import list_column
from tests.xalign_models.vectors.conftest import LANGUAGES, make_maps
from xalign_models import cluster as on_ray
from xalign_models.backbones.raw import RawEncoder
from xalign_models.cluster import running as driving
from xalign_models.cluster import schedule
from xalign_models.cluster.cluster import Span, WorkerLostError, report
from xalign_models.errors import DataError, LanguageError, ModelError
from xalign_models.evaluation import run as running
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.models.building import build, load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.maps import load_maps
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.store import EmbeddingStore, open_store
from xalign_models.vectors import applying

__all__ = ["make_maps"]


class InlineRay:
    """The part of ``ray`` that is used, in this process; the last piece that can be done is done first.

    Attributes:
        done: Name of each piece of work, in order.
        node: The machine that is at work: one after the other, of as many as there are.
        before: Called with the name of a piece of work before it is done.
        machines: The resources of each machine.
        repeats: How often a piece of work was begun before.
    """

    def __init__(self):
        self.done, self.lose = [], {}
        self.exceptions = SimpleNamespace(RayError=RuntimeError, RayTaskError=ZeroDivisionError)
        self.nodes_in_turn = itertools.cycle(["node-1"])
        self.before = lambda name: None
        self.machines = [{"CPU": 1.0}, {"CPU": 1.0}]
        self.repeats = 0

    def is_initialized(self):
        return True

    def get_runtime_context(self):
        core = SimpleNamespace(get_current_task_attempt_number=lambda: self.repeats)
        return SimpleNamespace(get_node_id=lambda: self.node, worker=SimpleNamespace(core_worker=core))

    def remote(self, **options):
        return lambda function: SimpleNamespace(remote=lambda *arguments: self._begin(function, arguments))

    def _begin(self, function, arguments):
        work, *own = arguments[2:]
        unit = next((one for one in own if isinstance(one, schedule.Unit)), None)
        name = f"{unit.task} {Path(unit.model).name}" if unit else getattr(work, "__name__", "")
        needs = [one for one in arguments if isinstance(one, _Ref)]
        piece = SimpleNamespace(function=function, arguments=arguments, name=name, needs=needs, value=None, lost=False)
        return [_Ref(piece, 0), _Ref(piece, 1)]

    def put(self, value):
        return value

    def nodes(self):
        return [{"Alive": True, "Resources": machine} for machine in self.machines]

    def wait(self, refs, num_returns):
        able = [ref for ref in refs if all(need.piece.value or need.piece.lost for need in ref.piece.needs)]
        return able[-1:], refs

    def get(self, ref):
        piece = ref.piece
        piece.lost = any(need.piece.lost for need in piece.needs)
        if not piece.lost:
            self.done.append(piece.name)
            self.node = next(self.nodes_in_turn)
            piece.lost = self.lose.pop(piece.name, False)
        if piece.lost:
            raise RuntimeError
        self.before(piece.name)
        values = [one.piece.value[one.index] if isinstance(one, _Ref) else one for one in piece.arguments]
        piece.value = piece.function(*values)
        return piece.value[ref.index]


class _Ref:
    def __init__(self, piece, index):
        self.piece, self.index = piece, index


@pytest.fixture
def inline(monkeypatch):
    fake = InlineRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


@pytest.fixture
def models(workdir, tiny_model, write_text, monkeypatch):
    """A backbone and two alignments of it, and a text to score them on."""
    text = write_text(workdir / "fit", 40)
    backbone = find_spec(str(tiny_model)).backbone
    folders = [str(tiny_model)]
    for method in ("centered", "procrustes"):
        spec = ModelSpec(backbone, AlignmentSpec(method, method, corpora=(f"own:{text}",)))
        folders.append(str(workdir / method))
        save(build(spec, device="cpu"), workdir / method)
    monkeypatch.setenv("XALIGN_OWN", str(write_text(workdir / "own", 30, seed=7)))
    open_store().clear()
    return folders


def run(models, output, most=2, tasks=("OwnParallel",)):
    cluster = on_ray.Cluster(device="cpu")
    return list(on_ray.run(models, tasks, output, cluster, languages=None, most=most))


def settings(root):
    return {path.relative_to(root): json.loads(path.read_text()) for path in root.rglob("run_settings.jsonl")}


def items(root):
    return {path.parts[-4]: dict(np.load(path)) for path in sorted(root.rglob("OwnParallel.npz"))}


@pytest.mark.slow
def test_scores_files_and_vectors_are_the_local_runs(inline, models, workdir, monkeypatch):
    monkeypatch.setattr("xalign_models.backbones.raw.ENOUGH", 1)
    found = run(models, workdir / "out")
    # Three languages are three pairs of both directions: the first brings two, the second one. Of the two saved
    # models, which share their vectors, the other one waits for that. The plain directory has vectors of its own.
    leader, follower, plain = (f"OwnParallel {Path(models[i]).name}" for i in (1, 2, 0))
    assert sorted(inline.done) == sorted([*["open_models"] * 2, *[leader] * 3, *[follower] * 3, *[plain] * 3])
    assert inline.done.index(leader) < inline.done.index(follower)
    with EmbeddingStore(workdir / "local-store", 1 << 26) as store:
        local = list(running.run(models, ["OwnParallel"], workdir / "local", device="cpu", store=store))
        assert [one.vectors for one in store.stats()] == [one.vectors for one in open_store().stats()]
    assert {one.error for one in found} == {""}
    assert {one.model: one.revision for one in found} == {one.model: one.revision for one in local}
    mine, theirs = items(workdir / "out"), items(workdir / "local")
    assert mine.keys() == theirs.keys()
    for model, arrays in theirs.items():
        assert mine[model].keys() == arrays.keys()
        assert all((mine[model][subset] == ranks).all() for subset, ranks in arrays.items())
    by_model = {one.model: {row["hf_subset"]: row["main_score"] for row in one.result.scores["test"]} for one in found}
    for one in local:
        expected = {row["hf_subset"]: round(row["main_score"], 6) for row in one.result.scores["test"]}
        assert [*by_model[one.model].items()] == [*expected.items()]  # in the same order
    assert len({tuple(sorted(one.items())) for one in by_model.values()}) == 3
    mine, theirs = settings(workdir / "out"), settings(workdir / "local")
    assert sum("tokens_per_second" in line for line in theirs.values()) == 2  # the third has the second's vectors
    assert {model: line.keys() for model, line in mine.items()} == {
        model: line.keys() for model, line in theirs.items()
    }
    files = {path.name for path in (workdir / "out").rglob("*") if path.is_file()}
    assert files == {"OwnParallel.json", "OwnParallel.npz", "model_meta.json", "run_settings.jsonl"}
    assert not list((workdir / "cache" / "units").iterdir())


@pytest.mark.slow
def test_a_run_does_only_what_is_missing(inline, models, workdir):
    inline.lose["OwnParallel centered"] = True  # the first of its three units
    first = {one.model: one for one in run(models, workdir / "out")}
    assert "was lost 4 times" in first["xalign/centered__tiny"].error
    assert first["xalign/procrustes__tiny"].result is not None
    inline.done.clear()
    second = {one.model: one for one in run(models, workdir / "out")}
    assert sorted(inline.done) == ["OwnParallel centered", "open_models", "open_models"]
    assert [one.fresh for one in second.values()].count(True) == 1
    assert len(second["xalign/centered__tiny"].result.scores["test"]) == 6


def test_a_run_without_its_text_leaves_the_results_in_place(inline, models, workdir, monkeypatch):
    run(models[:1], workdir / "out")
    (path,) = (workdir / "out").rglob("OwnParallel.json")
    monkeypatch.delenv("XALIGN_OWN")
    (failed,) = run(models[:1], workdir / "out")
    assert failed.error
    assert path.is_file()
    assert not list(path.parent.rglob("*.aside-*"))


def test_the_outcome_has_the_requested_subsets(inline, models, workdir):
    run(models[:1], workdir / "out")
    cluster = on_ray.Cluster(device="cpu")
    (found,) = on_ray.run(models[:1], ["OwnParallel"], workdir / "out", cluster, languages=["deu-Latn", "eng-Latn"])
    subsets = {one["hf_subset"] for one in found.result.scores["test"]}
    assert subsets == {"deu_Latn-eng_Latn", "eng_Latn-deu_Latn"}


def test_units_that_waited_for_a_lost_one_encode_for_themselves(inline, models, workdir):
    inline.lose["OwnParallel tiny"] = True
    found = run(models[:1], workdir / "out", most=1000)
    (one,) = found
    assert "was lost 4 times" in one.error
    (score_file,) = (workdir / "out").rglob("OwnParallel.json")
    (rows,) = json.loads(score_file.read_text())["scores"].values()
    assert len(rows) == 4  # all pairs but the one of the lost unit, in both directions


def test_a_worker_with_another_model_is_refused(inline, tiny_model, workdir, models):
    copy = workdir / "changing"
    shutil.copytree(tiny_model, copy)

    def change(name):
        if name.startswith("OwnParallel"):
            config = json.loads((copy / "config.json").read_text())
            (copy / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-3}))

    inline.before = change
    (found,) = run([str(copy)], workdir / "out")
    assert "differs from the driver's; give all machines the same model" in found.error


@pytest.mark.parametrize("field", ["trust_remote_code", "prompts"])
def test_workers_take_every_override_that_a_local_run_takes(inline, models, workdir, field):
    overrides = {"trust_remote_code": [models[0]], "prompts": {"default": "query: "}}
    arguments = {"cluster": on_ray.Cluster(device="cpu"), "overrides": {field: overrides[field]}}
    (found,) = on_ray.run(models[:1], ["OwnParallel"], workdir / "out", languages=None, **arguments)
    assert not found.error
    (path,) = on_ray.encode_corpus(models[0], ["w1"], "deu", workdir / "corpus", **arguments)
    expected = load_encoder(models[0], device="cpu", **arguments["overrides"]).encode_texts(["w1"], ["deu"])
    np.testing.assert_array_equal(np.load(path), expected)


def test_the_last_line_says_how_long_workers_waited():
    """Two workers, from 0 and 1 s to 10 s; the first pauses for a second, the second ends two before the end."""
    first, second = ("node", 1), ("node", 2)
    spans = [Span(first, 0, 4), Span(second, 1, 8), Span(first, 5, 10)]
    assert report(spans) == "Workers: 2, units: 3. The workers waited 15.8% of their 19.0 s."


def test_a_run_tells_its_last_line_once(inline, models, workdir):
    told = []
    cluster = on_ray.Cluster(device="cpu", tell=told.append)
    list(on_ray.run(models[:1], ["OwnParallel"], workdir / "out", cluster, languages=None, most=2))
    (line,) = told
    assert line.startswith("Workers: 1, units: 5. ")  # two of them load the code


@pytest.fixture
def written(monkeypatch, workdir):
    """The number of subsets in each result that the driver writes."""
    sizes, save = [], SafeResultCache.save_to_cache

    def counted(self, result, *arguments, **options):
        if Path(self.cache_path) == workdir / "out":
            sizes.append(len(result.scores["test"]))
        return save(self, result, *arguments, **options)

    monkeypatch.setattr(SafeResultCache, "save_to_cache", counted)
    return sizes


@pytest.mark.parametrize(("rest", "expected"), [(0, [2, 4, 6]), (10**9, [2, 6])])
def test_a_result_that_grows_is_written_seldom_if_writing_is_slow(
    inline, models, workdir, written, rest, expected, monkeypatch
):
    monkeypatch.setattr(driving, "REST", rest)
    (found,) = run(models[:1], workdir / "out")
    assert written == expected
    assert len(found.result.scores["test"]) == 6
    (local,) = running.run(models[:1], ["OwnParallel"], workdir / "local", device="cpu")
    mine, theirs = items(workdir / "out"), items(workdir / "local")
    assert all((mine[model][subset] == ranks).all() for model in theirs for subset, ranks in theirs[model].items())
    assert {row["hf_subset"] for row in found.result.scores["test"]} == {
        row["hf_subset"] for row in local.result.scores["test"]
    }


def test_a_stopped_run_keeps_the_units_that_were_done(inline, models, workdir, written, monkeypatch):
    monkeypatch.setattr(driving, "REST", 10**9)
    get, calls = inline.get, itertools.count(1)

    def interrupted(ref):
        if next(calls) == 5:  # both workers have loaded the code, and two units are done
            raise KeyboardInterrupt
        return get(ref)

    inline.get = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(models[:1], workdir / "out")
    assert written == [2, 4]
    inline.get = get
    inline.done.clear()
    (found,) = run(models[:1], workdir / "out")
    assert len(inline.done) == 3  # beside those that load the code, the unit that was not done
    assert len(found.result.scores["test"]) == 6


@pytest.mark.slow
def test_each_text_is_encoded_on_one_machine_only(inline, models, workdir, monkeypatch):
    """Two machines take turns, each with a store of its own; what the one lacks the other has sent."""
    from xalign_models.cluster import scoring

    inline.nodes_in_turn = itertools.cycle(["node-1", "node-2"])
    stores = {node: EmbeddingStore(workdir / node, 1 << 26) for node in ("node-1", "node-2")}
    monkeypatch.setattr(scoring, "open_store", lambda: stores[inline.node])
    encoded = []
    inner = RawEncoder.encode_missing
    monkeypatch.setattr(
        RawEncoder, "encode_missing", lambda self, keys, *rest: [encoded.extend(keys), inner(self, keys, *rest)]
    )
    found = run(models[1:], workdir / "out")
    assert [one.error for one in found] == ["", ""]
    assert len(encoded) == len(set(encoded)) > 0
    held = [{key for key, _ in store.items(one.namespace)} for store in stores.values() for one in store.stats()]
    assert len(held) == 2
    assert all(held)


def test_a_model_that_cannot_be_had_is_an_outcome(inline, models, workdir):
    found = {(one.model, one.task): one for one in run(["no/such", models[0]], workdir / "out")}
    assert found["xalign/plain__no-such", "OwnParallel"].error
    assert found["xalign/plain__tiny", "OwnParallel"].result is not None


def test_a_worker_with_another_text_is_refused(inline, models, workdir, write_text, monkeypatch):
    other = str(write_text(workdir / "other", 30, seed=8))
    inline.before = lambda name: monkeypatch.setenv("XALIGN_OWN", other) if name.startswith("OwnParallel") else None
    (found,) = run(models[:1], workdir / "out")
    assert "differs from the driver's" in found.error
    assert not list((workdir / "out").rglob("OwnParallel.json"))


@pytest.fixture
def encode(inline, tiny_model, workdir):
    """Encodes texts in shards of 10: (vectors, shards that were encoded)."""

    def run(texts, shard=10):
        inline.done.clear()
        paths = on_ray.encode_corpus(
            str(tiny_model),
            iter(texts),
            "deu",
            workdir / "corpus",
            on_ray.Cluster(device="cpu"),
            shard=shard,
        )
        vectors = np.concatenate([np.load(path, mmap_mode="r") for path in paths])
        np.testing.assert_array_equal(vectors, expected(texts, shard))
        return inline.done.count("_encode")

    def expected(texts, shard):
        encoder = load_encoder(str(tiny_model), device="cpu")
        pieces = [texts[i : i + shard] for i in range(0, len(texts), shard)]
        return np.concatenate([encoder.encode_texts(piece, ["deu"] * len(piece)) for piece in pieces])

    return run


@pytest.mark.slow
def test_only_shards_of_other_texts_are_encoded_again(encode, workdir, caplog):
    texts = [f"w{i} w{i % 7}" for i in range(34)]
    assert encode(texts) == 4
    assert encode(texts) == 0
    assert encode([*texts, "w40"]) == 1  # the last one, which has grown
    assert encode([*texts, "w40", *texts]) == 4
    assert encode([*texts[:12], "w99", *texts[13:], "w40", *texts]) == 1
    assert not caplog.records
    assert encode(texts) == 2  # of a shorter corpus
    (record,) = caplog.records
    assert re.search(r"00000004-\w{32}\.npy and later shards are from a longer corpus; remove them", record.message)
    assert encode(texts[::-1]) == 4
    for lost in (workdir / "corpus").glob("0000000[12]-*.npy"):
        lost.unlink()
    assert encode(texts[::-1]) == 2


def test_a_shard_that_was_being_replaced_is_encoded_again(encode, workdir, monkeypatch):
    """Killed before the new vectors are there: the old ones are not taken for those of the new texts."""
    from xalign_models.cluster import encoding

    old, new = [f"w{i}" for i in range(10)], [f"w{i}" for i in range(10, 20)]
    encode(old)
    with monkeypatch.context() as patch:
        patch.setattr(encoding, "atomic_file", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            encode(new)
    assert encode(old) == 0
    assert encode(new) == 1
    assert len(list((workdir / "corpus").glob("*.npy"))) == 1


def test_vectors_that_half_precision_cannot_hold_are_refused(inline, models, workdir, monkeypatch):
    folder, texts = workdir / "corpus", ["w1", "w2", "w3"]
    arguments = {"folder": folder, "cluster": on_ray.Cluster(device="cpu"), "half": True, "shard": 10}
    encode = XAlignEncoder.encode_texts
    scale = np.float32([[1], [1e6], [1]])
    with monkeypatch.context() as patch:
        patch.setattr(XAlignEncoder, "encode_texts", lambda *rest: encode(*rest) * scale)
        with pytest.raises(ModelError, match="vector of 'w2' is not finite in float16"):
            on_ray.encode_corpus(models[0], texts, "deu", **arguments)
    assert not list(folder.glob("*.npy"))
    (path,) = on_ray.encode_corpus(models[0], texts, "deu", **arguments)
    assert np.load(path).dtype == np.float16


def test_what_a_kill_left_half_written_is_removed_once_it_is_old(encode, workdir):
    folder, hour = workdir / "corpus", 3600
    encode(["w1"])
    old, young = (folder / f".00000000-{name}.npy.abc.part" for name in ("old", "young"))
    old.write_bytes(b"half")
    young.write_bytes(b"half")  # of a process that is at work
    os.utime(old, (time.time() - 2 * hour,) * 2)
    encode(["w1"])
    assert [*folder.glob(".*.part")] == [young]


def test_a_folder_of_another_models_vectors_is_refused(inline, models, workdir):
    arguments = {"language": "deu", "folder": workdir / "corpus", "cluster": on_ray.Cluster(device="cpu")}
    on_ray.encode_corpus(models[0], ["w1"], **arguments, shard=10)
    with pytest.raises(ModelError, match="another model, shard"):
        on_ray.encode_corpus(models[1], ["w1"], **arguments, shard=20)
    on_ray.encode_corpus(models[0], ["w1"], **{**arguments, "language": "de"}, shard=10)
    other = {**arguments, "folder": workdir / "other", "language": "xx"}
    with pytest.raises(LanguageError, match="'xx'"):
        on_ray.encode_corpus(models[0], ["w1"], **other)
    with pytest.raises(ModelError, match="one string"):
        on_ray.encode_corpus(models[0], "w1", **arguments)
    with pytest.raises(DataError, match=r"texts\[12\] is None"):
        on_ray.encode_corpus(models[0], [*["w1"] * 12, None], **arguments, shard=10)
    assert not other["folder"].exists()


def test_workers_in_another_folder_find_the_model_and_write_into_the_drivers(inline, models, workdir, monkeypatch):
    monkeypatch.chdir(workdir)
    folders = {model: Path(os.path.relpath(model)) for model in models[:2]}
    (workdir / "worker").mkdir()
    inline.before = lambda name: os.chdir(workdir / "worker")
    for model, folder in folders.items():
        os.chdir(workdir)
        output = Path(f"corpus-{folder.name}")
        (path,) = on_ray.encode_corpus(str(folder), ["w1"], "deu", output, on_ray.Cluster(device="cpu"))
        assert path.is_relative_to(workdir / output)
        expected = load_encoder(model, device="cpu").encode_texts(["w1"], ["deu"])
        np.testing.assert_array_equal(np.load(path), expected)


def test_a_shard_without_a_text_is_refused(encode):
    with pytest.raises(ModelError, match="shard -1: give at least 1"):
        encode(["w1"], shard=-1)


def test_workers_write_the_parts_that_one_process_writes(inline, tmp_path, make_maps, monkeypatch):
    monkeypatch.setattr(applying, "PART_ROWS", 20)
    vectors = list_column(np.random.default_rng(1).standard_normal((60, 8)).astype(np.float32))
    table = pa.table({"lang": [LANGUAGES[row % 3] for row in range(60)], "vector": vectors})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=10)
    maps = load_maps(str(make_maps()))
    applying.apply(maps, tmp_path / "in.parquet", tmp_path / "out", lang_column="lang", each=on_ray.Cluster().map)
    applying.apply(maps, tmp_path / "in.parquet", tmp_path / "whole", lang_column="lang")
    assert inline.done == ["write_part"] * 3
    assert pq.read_table(tmp_path / "out").equals(pq.read_table(tmp_path / "whole"))


def test_values_come_in_the_order_of_the_items_which_are_read_as_needed(inline):
    read, cluster = [], on_ray.Cluster()
    values = cluster.map(pow, 2, (read.append(number) or number for number in range(20)))
    assert next(values) == 1
    assert len(read) == 8  # four for each of two workers, all of which this Ray does before the first one
    assert list(values) == [2**number for number in range(1, 20)]


def test_a_part_whose_worker_is_lost_is_named(inline, models, workdir, caplog):
    inline.lose["OwnParallel tiny"] = True
    (one,) = run(models[:1], workdir / "out")
    assert one.error.startswith(
        f"OwnParallel of {models[0]}, deu_Latn-eng_Latn and 1 more: the worker was lost 4 times"
    )
    assert "needs more memory; raise --cpus-per-task" in one.error
    assert not caplog.text
    inline.lose["pow"] = True
    with pytest.raises(WorkerLostError, match=r"^part 1: the worker was lost 4 times \(RuntimeError\)"):
        list(on_ray.Cluster().map(pow, 2, [5]))


def test_work_that_another_worker_repeats_is_told_once(inline, models, workdir, caplog):
    inline.before = lambda name: setattr(inline, "repeats", int(name == "OwnParallel tiny" and len(inline.done) == 3))
    (one,) = run(models[:1], workdir / "out")
    assert not one.error
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"OwnParallel of {models[0]}, ")
    assert line.endswith(": a worker was lost, and another one repeated its work.")


CLUSTERS = [
    ([{"CPU": 2.0}], {"cpus": 64}),
    ([{"CPU": 2.0}] * 32, {"cpus": 64}),  # enough together, and too little each
    ([{"CPU": 2.0}], {"gpus": 1}),
    ([{"CPU": 2.0, "GPU": 1.0}], {"cpus": 3}),
    ([{"CPU": 8.0}, {"CPU": 2.0, "GPU": 1.0}], {"cpus": 4}),  # a GPU for each unit by default
    ([{"CPU": 8.0}, {"CPU": 2.0, "GPU": 1.0}], {"gpus": 1.5}),
    ([{"memory": 9.0}], {}),
]


@pytest.mark.parametrize(("machines", "wanted"), CLUSTERS)
def test_resources_that_no_machine_has_are_refused_and_not_waited_for(inline, machines, wanted, monkeypatch, caplog):
    """An error here; a cluster with an address may grow, so that a warning says what is missing."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    inline.machines = machines
    with pytest.raises(ModelError, match=r"^--cpus-per-task \d+.*: no machine of the cluster has that much; .* cores"):
        next(on_ray.Cluster(**wanted).map(pow, 2, [1]))
    assert not caplog.text
    assert list(on_ray.Cluster("auto", **wanted).map(pow, 2, [1])) == [2]
    assert "unless the cluster grows" in caplog.text


def test_slots_are_counted_by_machine_that_is_alive_and_has_the_gpus(inline, monkeypatch):
    inline.machines = [{"CPU": 3.0}, {"CPU": 3.0, "GPU": 1.0}, {"CPU": 5.0, "GPU": 0.5}]
    for wanted, slots in (({"gpus": 0}, 11), ({"gpus": 0, "cpus": 2}, 4), ({}, 3), ({"gpus": 0.5, "cpus": 2}, 3)):
        with on_ray.Cluster(**wanted).pool() as pool:
            assert pool.slots == slots
    nodes = inline.nodes()
    nodes[0]["Alive"] = False
    monkeypatch.setattr(inline, "nodes", lambda: nodes)
    with on_ray.Cluster(gpus=0).pool() as pool:
        assert pool.slots == 8


def test_without_ray_it_says_how_to_get_it(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModelError, match=r"pip install 'xalign\[ray\]'"):
        run(models[:1], Path("out"))


@pytest.fixture
def listening():
    """An address that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def refusing(monkeypatch, error):
    """A stand-in for Ray that cannot connect; returns the addresses that it is asked for."""
    asked = []

    def init(address, **_):
        asked.append(address)
        raise error

    stand_in = SimpleNamespace(
        is_initialized=lambda: False,
        init=init,
        _private=SimpleNamespace(worker=SimpleNamespace()),
        job_config=SimpleNamespace(JobConfig=lambda: SimpleNamespace(_py_driver_sys_path=[])),
    )
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    return asked


def test_a_cluster_that_does_not_start_is_one_line(monkeypatch, listening):
    refusing(monkeypatch, Exception("The current node timed out during startup.\nIt may be overloaded."))
    address = f"ray://{listening}"
    with pytest.raises(ModelError, match=f"Ray cluster at {address}: The current node timed out") as error:
        next(on_ray.Cluster(address).map(len, None, []))
    assert "\n" not in str(error.value)
    monkeypatch.setenv("RAY_ADDRESS", listening)
    with pytest.raises(ModelError, match=f"Ray cluster at {listening}: "):
        next(on_ray.Cluster().map(len, None, []))


def test_an_address_that_takes_no_connection_is_refused_before_ray_waits_for_it(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    asked = refusing(monkeypatch, AssertionError("unreachable"))
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", f"ray://[::1]:{port}", "host:port", "host:70000"):
        start = time.perf_counter()
        with pytest.raises(ModelError, match=f"^Cannot reach a Ray cluster at {re.escape(address)}: ") as error:
            next(on_ray.Cluster(address).map(len, None, []))
        assert time.perf_counter() - start < 8 and "\n" not in str(error.value)
    assert asked == []
    for address in ("auto", "local", "ray://named"):  # without a port, Ray knows where
        with pytest.raises(ModelError):
            next(on_ray.Cluster(address).map(len, None, []))
    assert asked == ["auto", "local", "ray://named"]


def test_without_a_cluster_to_find_it_says_how_to_start_one(monkeypatch):
    refusing(monkeypatch, ConnectionError("Please specify the one to connect to by setting `--address` flag."))
    with pytest.raises(ModelError, match="at auto: no cluster answers on this machine; leave out --address") as error:
        next(on_ray.Cluster("auto").map(len, None, []))
    assert "flag" not in str(error.value)
    with pytest.raises(ModelError, match="at ray://named: Please specify"):
        next(on_ray.Cluster("ray://named").map(len, None, []))


def test_workers_of_a_cluster_started_here_are_not_put_behind_other_processes(monkeypatch):
    name, started = "RAY_worker_niceness", []
    loader = SimpleNamespace(instance=lambda: SimpleNamespace(reset_cache=lambda: None))
    stand_in = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda *args, **options: started.append(os.environ[name]),
        shutdown=lambda: None,
        _private=SimpleNamespace(ray_constants=SimpleNamespace(), worker=SimpleNamespace()),
        _raylet=SimpleNamespace(Config=SimpleNamespace(initialize=str), AuthenticationTokenLoader=loader),
        job_config=SimpleNamespace(JobConfig=lambda: SimpleNamespace(_py_driver_sys_path=[])),
    )
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.setenv(name, "7")  # a choice of the user's
    with on_ray.Cluster().connect():
        monkeypatch.delenv(name)
    with on_ray.Cluster().connect():
        pass
    assert started == ["7", "0"]


@pytest.mark.parametrize("ours", [lambda *_: None, signal.SIG_DFL, signal.SIG_IGN])
def test_a_signal_reaches_its_handler_whatever_ray_sets(monkeypatch, ours):
    def init(*_, **__):
        signal.signal(signal.SIGTERM, lambda *_: None)

    stand_in = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    before = signal.signal(signal.SIGTERM, ours)
    try:
        with on_ray.Cluster("ray://named").connect():
            assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)
