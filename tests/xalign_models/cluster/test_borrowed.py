"""The private names of Ray that are used are there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from xalign_models.cluster.borrowed import job_config

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'xalign[ray]'")


def test_workers_import_from_the_folders_of_this_process_alone(tmp_path, monkeypatch):
    """Ray extends this list by the working folder when it connects, and sends it to the workers."""
    monkeypatch.chdir(tmp_path)
    path = job_config(ray)._py_driver_sys_path
    path.extend([str(tmp_path), imported := str(Path(sys.path[-1]).absolute())])
    assert path == [imported]
