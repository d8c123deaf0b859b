"""Whatever is killed at any moment is completed by the same command, with the same outcome.

``python -m tests.chaos --kills 200`` kills so often; the number here is small.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.chaos.killing import Ended, Job, command, fresh, run
from tests.xalign_models.conftest import byte_tokenizer, make_writer, writer
from tests.xalign_models.training.lira.conftest import lira_config, lira_text
from tests.xalign_models.training.lusifer.conftest import checkpoints, english, write_config
from xalign_models.evaluation import verification
from xalign_models.paths import atomic_directory

__all__ = [
    "byte_tokenizer",
    "checkpoints",
    "english",
    "lira_config",
    "lira_text",
    "make_writer",
    "write_config",
    "writer",
]

KILLS = int(os.environ.get("XALIGN_KILLS", "14"))
SEED = int(os.environ.get("XALIGN_CHAOS_SEED", "0"))
NAMES = ("run", "fit", "assets", "translate", "contrastive", "lusifer", "lira")
_TEMPORARY = re.compile(r"(^|/)\.|\.part$|\.aside-|\.lock$")


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Import once what every command would: the processes are forked from this one."""
    import mteb  # noqa: F401
    import peft  # noqa: F401

    import xalign_models.cli.analysis
    import xalign_models.training.contrastive.training
    import xalign_models.training.lira.run
    import xalign_models.training.lusifer.run  # noqa: F401
    from xalign_tasks import register_with_mteb

    register_with_mteb()


def weights(folder: Path) -> dict[str, np.ndarray]:
    """All tensors below a folder, and the log's steps."""
    found = {
        f"{path.relative_to(folder)}:{name}": array
        for path in sorted(folder.rglob("*.safetensors"))
        for name, array in load_file(path).items()
    }
    for path in sorted(folder.rglob("*log.jsonl")):
        found[str(path.relative_to(folder))] = np.array([json.loads(line)["step"] for line in path.open()])
    return found


def digests(folder: Path) -> dict[str, np.ndarray]:
    """Every file's content."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not _TEMPORARY.search(str(path.name))]
    return {
        str(path.relative_to(folder)): np.frombuffer(hashlib.sha256(path.read_bytes()).digest(), np.uint8)
        for path in paths
    }


def scores(folder: Path) -> dict[str, np.ndarray]:
    """Main scores and outcomes item by item, and which files are beside them."""
    from xalign_models.results.items import Items
    from xalign_models.results.possible import MAIN
    from xalign_models.results.reading import read_results

    found: dict[str, np.ndarray] = {}
    for (model, task), table in read_results(folder).tables.items():
        for subset, value in table.values().items():
            found[f"{model} {task} {subset}"] = np.array(value)
        for subset, items in Items(MAIN).outcomes(table).items():
            found[f"{model} {task} {subset} items"] = np.asarray(items, float)
        files = sorted(path.name for path in table.folder.iterdir() if not _TEMPORARY.search(path.name))
        found[f"{model} files {files}"] = np.zeros(0)
    return found


def lines(folder: Path) -> dict[str, np.ndarray]:
    """How often each text was translated, and as what."""
    found: dict[str, np.ndarray] = {}
    for path in folder.glob("*.jsonl"):
        for line in path.open():
            entry = json.loads(line)
            key = f"{entry['text']} -> {entry['translation']}"
            found[key] = found.get(key, np.zeros(1)) + 1
    return found


@pytest.fixture
def job(request, workdir, tiny_model, write_text, tmp_path_factory, monkeypatch) -> Job:
    """One of the commands, at its smallest."""
    name, get = request.param, request.getfixturevalue
    device = ("--device", "cpu")
    write_text(workdir / "text", 30)
    outcome, out, written = weights, "out", ("out",)
    if name == "run":
        write_text(workdir / "data" / "own", 30)
        body = command("run", "-m", str(tiny_model), "-t", "OwnParallel", "--data", "own=text", "-o", "out", *device)
        outcome, written = scores, ("-o", "out")
    elif name == "fit":
        body = command("fit", "lsar", "--backbone", str(tiny_model), "--corpus", "own:text", "-o", "out", *device)
    elif name == "assets":
        get("toy")
        body, outcome, out, written = command("assets", "install", "toy"), digests, "cache/assets", ()
    elif name == "translate":
        texts = (workdir / "text" / "deu.txt").read_text().splitlines()[:8]
        (workdir / "de.txt").write_text("\n".join(texts) + "\n")
        body = command(
            "translate", "--texts", "de.txt", "--languages", "de", "--translators", f"llm:{get('writer')}",
            "-o", "out", "--batch-size", "2", *device,
        )  # fmt: skip
        outcome, written = lines, ()
    elif name == "contrastive":
        monkeypatch.setattr("xalign_models.training.contrastive.training.CHECKPOINT_STEPS", 2)
        body = command(
            "train", "contrastive", "--backbone", str(tiny_model), "--pairs", "own:text", "--languages", "de,fr",
            "--samples", "20", "--set", "batch_size=8", "--set", "accumulation=1", "--set", "rank=4", "--set",
            "max_steps=5", "-o", "out", *device,
        )  # fmt: skip
    elif name == "lusifer":
        get("english")
        config = get("write_config")(stages={1: {"max_steps": 5}})
        body = command("train", "lusifer", "--stage", "1", "--config", Path(config).name, "-o", "out", *device)
    else:
        get("lira_config")()
        body = command("train", "lira", "--stage", "all", "--config", "lira.yaml", "-o", "out", *device)
        written = ("out", "out-arca")
    template = tmp_path_factory.mktemp("chaos") / "template"
    shutil.copytree(workdir, template, symlinks=True)
    return Job(body, lambda folder: outcome(folder / out), template, command("verify", "--clean", *written))


def moments(whole: Ended, count: int, rng: random.Random) -> list[dict[str, float]]:
    """Every write if there are no more than ``count``, else half of them, spread evenly; the others at random times."""
    writes = whole.writes or 1
    at_writes = writes if writes <= count else math.ceil(count / 2)
    points = {round(1 + (writes - 1) * i / max(at_writes - 1, 1)) for i in range(at_writes)}
    return [
        *({"at_write": point} for point in sorted(points)),
        *({"after": rng.uniform(0, whole.seconds)} for _ in range(count - len(points))),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("job", NAMES, indirect=True)
def test_a_killed_command_is_completed_by_the_next(job: Job, tmp_path: Path, request, record_property) -> None:
    rng = random.Random(SEED)
    folder = tmp_path / "attempts" / "attempt"
    folder.parent.mkdir()
    whole = run(job.body, fresh(job.template, folder))
    assert whole.status == 0, whole.printed
    expected = job.outcome(folder)
    assert expected
    files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    killed, leftovers = 0, set[str]()
    for moment in moments(whole, max(1, KILLS // len(NAMES)), rng):
        first = run(job.body, fresh(job.template, folder), **moment)
        while first.status == 0 and "after" in moment:  # it ended before that moment
            moment = {"after": rng.uniform(0, first.seconds)}
            first = run(job.body, fresh(job.template, folder), **moment)
        assert first.status in (-9, 0), f"{moment}: {first.printed}"
        killed += first.status == -9
        if "after" in moment and rng.random() < 0.3:  # and once more on the way
            killed += run(job.body, folder, after=rng.uniform(0, whole.seconds)).status == -9
        again = run(job.body, folder)
        assert again.status == 0, f"{moment}: {again.printed}"
        assert "Traceback" not in again.printed, f"{moment}: {again.printed}"
        found = job.outcome(folder)
        assert found.keys() == expected.keys(), f"{moment}: {found.keys() ^ expected.keys()}; {again.printed}"
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=f"{moment}: {name}")
        left = [path for path in folder.rglob("*") if str(path.relative_to(folder)) not in files]
        left = [path for path in left if _TEMPORARY.search(path.name)]
        leftovers |= {re.sub(r"[\w-]{8}(?=\.part$|$)", "*", str(path.relative_to(folder))) for path in left}
        if left:
            for path in folder.rglob("*"):
                os.utime(path, (0, 0), follow_symlinks=False)  # as if it had happened long ago
            cleaned = run(job.clean, folder)
            assert cleaned.status == 0, f"{moment}: {cleaned.printed}"
            assert not [path for path in left if path.exists()], f"{moment}: {cleaned.printed}"
    counts = {"writes": whole.writes, "kills": killed, "leftovers": sorted(leftovers)}
    if log := os.environ.get("XALIGN_CHAOS_LOG"):
        with Path(log).open("a") as handle:
            handle.write(json.dumps({"command": request.node.callspec.params["job"], **counts}) + "\n")
    assert killed


def replace_model() -> None:
    with atomic_directory(Path("model")) as temporary:
        for name in ("a", "b"):
            (temporary / name).write_text("new")


@pytest.mark.parametrize("exchanges", [True, False])
def test_after_a_kill_one_whole_copy_is_left_or_restored(tmp_path, monkeypatch, exchanges):
    """Kills at each change of a file and each renaming, in turn; `verify --clean` follows at once and after an hour."""
    template, folder = tmp_path / "template", tmp_path / "attempt"
    (template / "model").mkdir(parents=True)
    for name in ("a", "b"):
        (template / "model" / name).write_text("old")
    monkeypatch.setenv("XALIGN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XALIGN_STORE", str(tmp_path / "store"))
    if not exchanges:
        monkeypatch.setattr("xalign_models.paths._exchange", lambda *_: False)
    writes = run(replace_model, fresh(template, folder)).writes
    kills, missing = 0, 0
    for attempt in range(max(KILLS // 2, writes)):
        ended = run(replace_model, fresh(template, folder), at_write=attempt % writes + 1)
        kills += ended.status == -9
        missing += not (folder / "model").exists()
        for age in (0, 2 * verification.OLD):
            for path in folder.rglob("*"):
                os.utime(path, (time.time() - age,) * 2, follow_symlinks=False)
            list(verification.verify(folder, [folder / "model"], clean=True))
            texts = {path.name: path.read_text() for path in (folder / "model").iterdir()}
            assert texts in ({"a": "old", "b": "old"}, {"a": "new", "b": "new"})
        assert [path.name for path in folder.iterdir()] == ["model"]
    assert kills
    assert bool(missing) != exchanges
    if log := os.environ.get("XALIGN_CHAOS_LOG"):
        with Path(log).open("a") as handle:
            counts = {"exchanges": exchanges, "writes": writes, "kills": kills, "missing": missing}
            handle.write(json.dumps({"command": "replace", **counts}) + "\n")
