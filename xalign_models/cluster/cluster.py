"""A Ray cluster: its resources, the connection to it, and the loop that keeps its workers busy."""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from xalign_models.cluster.borrowed import job_config, stay_on_loopback
from xalign_models.errors import ModelError
from xalign_models.plugins import load_plugins

Key = TypeVar("Key")

RETRIES = 3
"""How often Ray repeats a task elsewhere after its worker was lost."""


class WorkerLostError(ModelError):
    """Ray lost the worker of a task too often."""


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and the resources of one task.

    Attributes:
        address: ``--address``: a running cluster (``auto``, ``ray://host:10001``); None uses ``$RAY_ADDRESS`` or starts
            a cluster on this machine.
        cpus: ``--cpus-per-task``: cores and threads of a task.
        gpus: ``--gpus-per-task``: GPUs of a task; a fraction lets several tasks share a GPU. None is one GPU if the
            cluster has any and the device is not the CPU.
        device: cpu, cuda or mps; None is the fastest that a worker has.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        """Check the resources."""
        if self.cpus < 1:
            raise ModelError(f"--cpus-per-task {self.cpus} is not possible; give at least 1.")
        if self.gpus is not None and self.gpus < 0:
            raise ModelError(f"--gpus-per-task {self.gpus} is not possible; give 0 or more, e.g. 0.25.")
        if self.device and ("," in self.device or self.device == "cuda:all"):
            raise ModelError(f"--device {self.device}: Ray assigns the devices of a cluster; give cuda.")

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """The module ``ray``, connected; a cluster that was started for this is stopped at the end.

        Such a cluster listens on loopback alone, and serves only processes that have its random token.

        Raises:
            ModelError: Ray is not installed, or the cluster cannot be reached.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # read when a cluster starts here; Ray's 15 starves workers
        if own := not (self.address or os.environ.get("RAY_ADDRESS")):
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            import ray
        except ImportError:
            raise ModelError("Ray is not installed; run: pip install 'xalign[ray]'.") from None
        started = not ray.is_initialized()
        if started:
            try:
                options: dict[str, Any] = {"include_dashboard": False} if own else {}
                if own:
                    stay_on_loopback(ray)
                if not (self.address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://"):
                    options["job_config"] = job_config(ray)
                ray.init(self.address, logging_level="ERROR", log_to_driver=False, **options)
            except (ConnectionError, ValueError, RuntimeError) as error:
                reason = " ".join(str(error).split())[:200]
                raise ModelError(f"Cannot reach a Ray cluster at {self.address or 'this machine'}: {reason}") from None
        try:
            yield ray
        finally:
            if started:
                ray.shutdown()

    def resources(self, ray: Any) -> dict[str, Any]:
        """The resources of a task, as options of Ray."""
        has = ray.cluster_resources().get("GPU", 0) and self.device in {None, "cuda"}
        gpus = self.gpus if self.gpus is not None else float(bool(has))
        return {"num_cpus": self.cpus, **({"num_gpus": gpus} if gpus else {})}

    def slots(self, ray: Any) -> int:
        """Number of tasks that the cluster's cores can run at once."""
        return max(1, int(ray.cluster_resources().get("CPU", 1)) // self.cpus)

    def starter(self, ray: Any, plugins: Sequence[str], returns: int = 1) -> Callable[..., Any]:
        """A function ``start(name, function, *arguments)`` that starts a task and returns a reference to its result.

        A worker loads the plug-ins first. A task that returns several values gives a reference to each.
        """
        options = {**self.resources(ray), "max_retries": RETRIES, "retry_exceptions": False, "num_returns": returns}
        task = ray.remote(**options)(_run)
        return lambda name, *work: task.options(name=name).remote(self.cpus, plugins, *work)


def _run(cpus: int, plugins: Sequence[str], function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task in a worker, on that many threads, however many cores the machine has."""
    torch.set_num_threads(cpus)
    load_plugins(plugins)
    return function(*arguments)


def result_of(ray: Any, reference: Any) -> Any:
    """The result of a task.

    Raises:
        WorkerLostError: The task's worker was lost too often.
        Exception: The task's own error.
    """
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise WorkerLostError(
            f"The worker was lost {RETRIES + 1} times ({type(error).__name__}); run it again."
        ) from None


def finished(ray: Any, start: Callable[[int], Iterable[tuple[Any, Key]]]) -> Iterator[tuple[Key, Any]]:
    """Start tasks until there are none left, and yield the key and the reference of each when it is done.

    ``start`` receives the number of running tasks, starts any that can run now, and returns their references and keys.
    """
    running: dict[Any, Key] = {}
    while True:
        running.update(start(len(running)))
        if not running:
            return
        (reference,), _ = ray.wait([*running], num_returns=1)
        yield running.pop(reference), reference
