"""Private names of Ray, each with the reason for its use."""

import os
import sys
from collections.abc import Iterable
from typing import Any


class _Importable(list[str]):
    """Folders for the workers' search path; keeps only folders that this process imports from."""

    def extend(self, folders: Iterable[str]) -> None:
        super().extend(folder for folder in folders if folder in map(os.path.abspath, sys.path))


def job_config(ray: Any) -> Any:
    """A job whose workers import from the driver's working folder only if the driver does.

    Ray puts that folder first on the workers' search path in any case, so that a user's ``tasks.py`` or ``lmdb.py``
    would run there, and not in the driver. Ray has no public option to leave it out.
    """
    config = ray.job_config.JobConfig()
    config._py_driver_sys_path = _Importable(config._py_driver_sys_path)
    return config


def stay_on_loopback(ray: Any) -> None:
    """Let a cluster that this process starts listen only on loopback, Ray's default on macOS and Windows."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # for the processes that it starts
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False


def read_token(ray: Any) -> None:
    """Let Ray read its token from the environment now; it was not set if the program imported Ray earlier."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def be_silent(ray: Any) -> None:
    """Keep the driver from printing Ray's own reports of failed workers and units, which have colour codes."""
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # in values that nobody reads
    ray._private.worker.listen_error_messages = lambda worker, stopped: None


def repeats(ray: Any) -> int:
    """In a worker: how often lost workers have begun the unit before."""
    return int(ray.get_runtime_context().worker.core_worker.get_current_task_attempt_number())
