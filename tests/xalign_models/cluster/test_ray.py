"""Two workers give what one process gives, also when one of them is killed; nothing is encoded twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xalign_models
from tests.xalign_models.conftest import list_column
from tests.xalign_models.vectors.conftest import LANGUAGES, make_maps
from xalign_models.evaluation import run as running
from xalign_models.index import working
from xalign_models.index.base import open_index
from xalign_models.models.building import build, load_encoder
from xalign_models.models.maps import load_maps
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_models.store import EmbeddingStore, open_store
from xalign_models.vectors import applying

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'xalign[ray]'")
from xalign_models import cluster as on_ray  # noqa: E402

__all__ = ["make_maps"]
pytestmark = pytest.mark.slow
ROWS = 120
EXAMPLES = Path(__file__).parents[3] / "examples"
PLUGINS = ("mlp_head.py", "numbers_task.py")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a cache, a store and text; the workers inherit where it is when the cluster starts."""
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def cluster(place, write_text):
    """Two workers of one thread each, which live as long as the tests of this file."""
    patch = pytest.MonkeyPatch()
    (place / "data").mkdir()
    for name in ("cache", "store", "data"):
        patch.setenv(f"XALIGN_{name.upper()}", str(place / name))
    patch.setenv("XALIGN_OWN", str(write_text(place / "own", ROWS)))
    patch.setenv("HF_HUB_OFFLINE", "1")
    patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    patch.setenv("OMP_NUM_THREADS", "1")
    patch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(xalign_models.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    )
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_worker_niceness", "0")  # else they starve on a busy machine
    ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield on_ray.Cluster(device="cpu")
    ray.shutdown()
    patch.undo()


@pytest.fixture(scope="module")
def models(cluster, place, tiny_model, write_text):
    """A backbone, and two alignments of it."""
    text = write_text(place / "fit", 40)
    backbone = find_spec(str(tiny_model)).backbone
    folders = [str(tiny_model)]
    for method in ("centered", "procrustes"):
        spec = ModelSpec(backbone, AlignmentSpec(method, method, corpora=(f"own:{text}",)))
        folders.append(str(place / method))
        save(build(spec, device="cpu"), Path(folders[-1]))
    return folders


@pytest.fixture(scope="module")
def local(models, place):
    """Outcomes of one process with a store of its own."""
    with EmbeddingStore(place / "local-store", 1 << 26) as store:
        return list(running.run(models, ["OwnParallel"], place / "local", device="cpu", store=store))


def scores(outcome):
    return {one["hf_subset"]: {**one} for one in outcome.result.scores["test"]}


def items(root):
    return {path.parts[-4]: dict(np.load(path)) for path in sorted(root.rglob("OwnParallel.npz"))}


def assert_same(found, local, place, folder):
    assert [one.error for one in found] == [""] * 3
    by_model = {one.model: scores(one) for one in found}
    for one in local:
        mine, theirs = by_model[one.model], scores(one)
        assert mine.keys() == theirs.keys()
        for subset, row in mine.items():
            assert row["precision_at_1"] == round(theirs[subset]["precision_at_1"], 6)
    mine, theirs = items(place / folder), items(place / "local")
    assert mine.keys() == theirs.keys()
    for model, arrays in theirs.items():
        assert mine[model].keys() == arrays.keys()
        for subset, ranks in arrays.items():
            np.testing.assert_array_equal(mine[model][subset], ranks)
    assert len({tuple(one["precision_at_1"] for one in rows.values()) for rows in by_model.values()}) > 1


VECTORS = """
import json, sys
import lmdb
env = lmdb.open(sys.argv[1], readonly=True, max_dbs=99, lock=False)
transaction = env.begin()
names = [key for key, _ in transaction.cursor() if key != b"__used__"]
found = {
    name.decode(): {k.hex(): v.hex() for k, v in transaction.cursor(env.open_db(name, txn=transaction, create=False))}
    for name in names
}
print(json.dumps({name: rows for name, rows in found.items() if rows}))
"""


def vectors(folder):
    """The content of a store, read in a process of its own, as LMDB opens a store once per process."""
    command = [sys.executable, "-c", VECTORS, str(folder)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_two_workers_give_what_one_process_gives_bit_for_bit(cluster, models, local, place):
    open_store().clear()
    found = list(on_ray.run(models, ["OwnParallel"], place / "two", cluster, languages=None, most=2))
    assert_same(found, local, place, "two")
    assert all(one.fresh for one in found)
    assert len(list((place / "two").rglob("model_meta.json"))) == 3
    again = on_ray.run(models, ["OwnParallel"], place / "two", cluster, languages=None)
    assert [one.fresh for one in again] == [False] * 3
    assert vectors(place / "store") == vectors(place / "local-store")  # every bit of every vector, and no more of them


DIES = """
import os
import signal
from pathlib import Path

from xalign_models.store import EmbeddingStore

mark = Path({mark!r})
put = EmbeddingStore.put

def dies(self, *args):
    put(self, *args)
    if not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)

if not mark.exists():
    EmbeddingStore.put = dies
"""


def test_a_killed_worker_changes_no_number(cluster, models, local, place, monkeypatch):
    """The first worker that encodes dies after one language of three, once; Ray begins its unit again."""
    mark = place / "killed"
    open_store().clear()

    plugin = place / "dies.py"  # of the workers alone
    plugin.write_text(DIES.format(mark=str(mark)))
    arguments = {"plugins": [str(plugin)], "languages": None, "most": 2}
    found = list(on_ray.run(models, ["OwnParallel"], place / "killed-run", cluster, **arguments))
    assert mark.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
    assert_same(found, local, place, "killed-run")


def test_what_fails_is_an_outcome_and_the_rest_goes_on(cluster, models, place):
    found = list(
        on_ray.run(
            ["no/such-model", models[0]],
            ["OwnParallel", "FloresPrecision"],
            place / "some",
            cluster,
            languages=["deu", "eng", "fra"],
        )
    )
    by_key = {(one.model, one.task): one for one in found}
    assert len(by_key) == 4
    assert [key for key, one in by_key.items() if one.result] == [("xalign/plain__tiny", "OwnParallel")]
    assert "XALIGN_DATA" in by_key["xalign/plain__tiny", "FloresPrecision"].error
    assert by_key["xalign/plain__no-such-model", "OwnParallel"].error


def test_rows_that_workers_map_are_those_of_one_process(cluster, tmp_path, make_maps, monkeypatch):
    monkeypatch.setattr(applying, "PART_ROWS", 20)
    vectors = list_column(np.random.default_rng(1).standard_normal((60, 8)).astype(np.float32))
    table = pa.table({"lang": [LANGUAGES[row % 3] for row in range(60)], "vector": vectors})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=10)
    maps = load_maps(str(make_maps()))
    applying.apply(maps, tmp_path / "in.parquet", tmp_path / "out.parquet", lang_column="lang", each=cluster.map)
    applying.apply(maps, tmp_path / "in.parquet", tmp_path / "whole", lang_column="lang")
    assert len(list((tmp_path / "out.parquet").glob("*.parquet"))) == 3
    assert pq.read_table(tmp_path / "out.parquet").equals(pq.read_table(tmp_path / "whole"))


def test_an_index_is_fixed_by_workers_as_by_one_process(cluster, place, models, write_text):
    """The vectors of the second column come from workers, batch by batch, and are written in order."""
    corpus = {"corpus": f"own:{write_text(place / 'index-fit', 60)}", "limit": 50}
    rows = np.random.default_rng(2).standard_normal((500, 16)).astype(np.float32)
    pairs = {}
    for name, each in (("one", applying.in_turn), ("two", cluster.map)):
        np.savez(place / f"{name}.npz", vectors=rows, lang=np.array([LANGUAGES[row % 3] for row in range(len(rows))]))
        with closing(open_index(str(place / f"{name}.npz"))) as index:
            working.fix(index, place / f"maps-{name}", models[0], "centered", each=each, **corpus)
            pairs[name] = np.concatenate([part.vectors for part in index.read(second=True)])
    np.testing.assert_array_equal(pairs["one"], pairs["two"])
    assert not np.array_equal(pairs["one"], rows)


def test_workers_have_the_plug_ins_of_the_command_line(cluster, apart, xalign, tiny_model, write_text, workdir):
    """A network that is a plug-in's is loaded by one worker, and scored by one on a task that is another's."""
    plugins = [argument for name in PLUGINS for argument in ("--plugin", EXAMPLES / name)]
    corpus = f"own:{write_text(workdir / 'fit', 40)}"
    fit = ("fit", "mlp", "--backbone", tiny_model, "--corpus", corpus, "--param", "steps=5", "-o", "with-head")
    assert xalign(*plugins, *fit)[0] == 0
    run = ("run", "-m", "with-head", "-t", "NumberWords", "--engine", "ray", "--json", "--device", "cpu")
    status, out, _ = xalign(*run)
    (outcome,) = json.loads(out)
    assert (status, outcome["scored"], outcome["error"]) == (0, True, "")


def test_a_corpus_is_a_shards_encode_bit_for_bit(cluster, models, place):
    texts = [f"w{i % 97} w{i % 89} w{i % 7}" for i in range(230)]
    arguments = {"language": "deu", "folder": place / "corpus", "cluster": cluster, "shard": 50}
    paths = on_ray.encode_corpus(models[2], iter(texts), **arguments)
    encoder = load_encoder(models[2], device="cpu")
    assert [len(np.load(path)) for path in paths] == [50] * 4 + [30]
    for i, path in enumerate(paths):
        piece = texts[50 * i : 50 * i + 50]
        np.testing.assert_array_equal(np.load(path), encoder.encode_texts(piece, ["deu"] * len(piece)))


LISTEN = """
import os, subprocess, sys
import psutil
import ray  # a program may have it before the cluster has a token
from xalign_models.cluster.cluster import Cluster
with Cluster().connect() as ray:
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        for connection in process.net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                print(connection.laddr.ip)
    address = ray.get_runtime_context().gcs_address
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    code = f"import ray; ray.init({address!r}); print('connected')"
    stranger = subprocess.run([sys.executable, "-P", "-c", code], env=own, capture_output=True, text=True)
    print("refused" if "connected" not in stranger.stdout and "oken" in stranger.stderr else stranger)
"""


@pytest.mark.slow
def test_a_cluster_that_we_start_listens_on_loopback_and_refuses_a_process_without_its_token():
    printed = subprocess.run([sys.executable, "-P", "-c", LISTEN], capture_output=True, text=True, timeout=200)
    *addresses, stranger = printed.stdout.splitlines()
    assert len(addresses) > 3
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    assert stranger == "refused"
