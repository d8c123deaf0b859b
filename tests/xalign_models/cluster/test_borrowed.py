"""The private names of Ray that are used are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xalign_models.cluster.borrowed import be_silent, job_config, repeats

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'xalign[ray]'")


def test_workers_import_from_the_folders_of_this_process_alone(tmp_path, monkeypatch):
    """Ray extends this list by the working folder when it connects, and sends it to the workers."""
    monkeypatch.chdir(tmp_path)
    path = job_config(ray)._py_driver_sys_path
    path.extend([str(tmp_path), imported := str(Path(sys.path[-1]).absolute())])
    assert path == [imported]


LOSES = """
import logging, os, sys
from xalign_models.cluster import cluster as module
from xalign_models.cluster.cluster import Cluster, WorkerLostError

module.RETRIES = 1
logging.basicConfig(format="%(message)s")

def work(mark, number):
    if number == 1 and not os.path.exists(mark):
        open(mark, "w").close()
        os._exit(1)
    if number == 2:
        os._exit(1)
    return number

cluster = Cluster()
with cluster.connect():
    print(list(cluster.map(work, sys.argv[1], [0, 1])))
    try:
        next(cluster.map(work, sys.argv[1], [2]))
    except WorkerLostError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_lost_worker_is_told_in_our_words_alone(tmp_path):
    """A worker dies once at the second part, and each time at the only part of the next work."""
    command = [sys.executable, "-P", "-c", LOSES, str(tmp_path / "mark")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stderr.splitlines() == ["part 2: a worker was lost, and another one repeated its work."]
    values, error = done.stdout.splitlines()
    assert values == "[0, 1]"
    assert error.startswith("part 1: the worker was lost 2 times (")


def test_private_names_are_there(monkeypatch):
    assert callable(ray._private.worker.listen_error_messages)
    monkeypatch.setattr(ray._private.worker, "listen_error_messages", None)
    monkeypatch.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    be_silent(ray)
    assert ray._private.worker.listen_error_messages(None, None) is None
    assert callable(ray._raylet.CoreWorker.get_current_task_attempt_number)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: ray.runtime_context.RuntimeContext(FakeWorker))
    assert repeats(ray) == 3


class FakeWorker:
    """A worker at the fourth attempt at its task."""

    class core_worker:  # noqa: N801
        """Its compiled part."""

        @staticmethod
        def get_current_task_attempt_number():
            return 3
