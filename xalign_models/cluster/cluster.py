"""A Ray cluster: its resources, the connection to it, and the single loop for all work on it."""

import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from time import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import torch

from xalign_models.cluster.borrowed import be_silent, job_config, read_token, repeats, stay_on_loopback
from xalign_models.errors import ModelError
from xalign_models.plugins import load_plugins, sources

logger = logging.getLogger(__name__)

RETRIES = 3
"""How often Ray repeats a unit elsewhere after losing its worker."""
AHEAD = 4
"""Items of a stream that are read per worker, so that no worker waits for the driver or a slow item."""
WATCHED = 1000
"""Number of the oldest units that the driver waits for at a time."""


class WorkerLostError(ModelError):
    """Ray lost the worker of a unit too often."""


class Answer(NamedTuple):
    """The value of a unit, and vectors for later units, which Ray keeps and the driver never loads."""

    value: Any
    shared: Any = None


class Span(NamedTuple):
    """The worker of a unit, the unit's start and end in seconds since 1970, and how often it was begun before."""

    worker: tuple[str, int]
    start: float
    end: float
    repeats: int = 0


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and the resources of one unit of work.

    Attributes:
        address: ``--address``: a running cluster (``auto``, ``ray://host:10001``); None uses ``$RAY_ADDRESS`` or starts
            a cluster on this machine.
        cpus: ``--cpus-per-task``: cores and threads of a unit.
        gpus: ``--gpus-per-task``: GPUs of a unit; a fraction lets several units share a GPU. None is one GPU if the
            cluster has any and the device is not the CPU.
        device: cpu, cuda or mps; None uses the fastest that a worker has.
        tell: Receives a line about the work once it is done.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float | None = None
    device: str | None = None
    tell: Callable[[str], object] = logger.info

    def __post_init__(self) -> None:
        """Check the resources."""
        if self.cpus < 1:
            raise ModelError(f"--cpus-per-task {self.cpus} is invalid; give at least 1.")
        if self.gpus is not None and self.gpus < 0:
            raise ModelError(f"--gpus-per-task {self.gpus} is invalid; give 0 or more, e.g. 0.25.")
        if self.device and ("," in self.device or self.device == "cuda:all"):
            raise ModelError(f"--device {self.device}: Ray assigns the devices of a cluster; give cuda.")

    @property
    def where(self) -> str:
        """The address of the cluster; empty for one started here."""
        return self.address or os.environ.get("RAY_ADDRESS", "")

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """The module ``ray``, connected; a cluster started for this purpose is stopped at the end.

        Such a cluster listens only on loopback, and serves only processes with its random token.

        Raises:
            ModelError: Ray is not installed, or the cluster cannot be reached.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # read when a cluster starts here; Ray's 15 starves workers
        address = self.where
        if not address:
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            import ray
        except ImportError:
            raise ModelError("Ray is not installed; run: pip install 'xalign[ray]'.") from None
        if started := not ray.is_initialized():
            ours = signal.getsignal(signal.SIGTERM)
            try:
                place = urlsplit(f"//{address.removeprefix('ray://')}")
                if place.port:  # Ray itself would try for minutes
                    socket.create_connection((place.hostname, place.port), timeout=5).close()
                options: dict[str, Any] = {}
                if not address.startswith("ray://"):
                    be_silent(ray)
                    options["job_config"] = job_config(ray)
                if not address:
                    stay_on_loopback(ray)
                    read_token(ray)
                    options["include_dashboard"] = False
                ray.init(address or None, logging_level="ERROR", log_to_driver=False, **options)
            except Exception as error:  # Ray raises a bare Exception if a busy machine starts it slowly
                reason = " ".join(str(error).split())[:200]
                if address == "auto" and isinstance(error, ConnectionError):
                    reason = "no cluster answers on this machine; leave out --address and RAY_ADDRESS to start one."
                raise ModelError(f"Cannot reach a Ray cluster at {address or 'this machine'}: {reason}") from None
            if ours is not None:  # not set from Python
                with suppress(ValueError):  # outside the main thread, where Ray sets no handler
                    signal.signal(signal.SIGTERM, ours)  # Ray's prints a trace of its compiled code
        try:
            yield ray
        finally:
            if started:
                ray.shutdown()

    @contextmanager
    def pool(self, plugins: Sequence[str] | None = None) -> Iterator["Pool"]:
        """The loop for units of work; at the end, ``tell`` gets a line on the units and the workers' waiting time.

        Args:
            plugins: Files and modules that workers load from their machines; by default this process's plug-ins.

        Raises:
            ModelError: As for :meth:`connect`, or no machine has the resources of a unit.
        """
        with self.connect() as ray:
            pool = Pool(self, ray, sources() if plugins is None else plugins)
            yield pool
            if pool.spans:
                self.tell(report(pool.spans))

    def map(self, function: Callable[..., Any], common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Yield ``function(common, item)`` of each item, in order; items are read as needed.

        Raises:
            WorkerLostError: The worker of an item was lost too often.
            Exception: The error of the function, unchanged.
        """
        with self.pool() as pool:
            shared, rest, early, turn = pool.ray.put(common), enumerate(items, 1), dict[int, Any](), 1
            for number, item in islice(rest, AHEAD * pool.slots):
                pool.start(number, function, shared, item)
            for number, value in pool.results():
                if isinstance(value, WorkerLostError):
                    raise value
                early[number] = value
                while turn in early:
                    yield early.pop(turn)
                    turn += 1
                    for following, item in islice(rest, 1):
                        pool.start(following, function, shared, item)


class Pool:
    """The units of work of a command. Ray runs each unit once a worker is free and has the vectors it needs.

    Args:
        cluster: The resources of a unit.
        ray: The module ``ray``, connected.
        plugins: Plug-ins that a worker loads first.

    Attributes:
        slots: Number of units that the cores of machines with enough GPUs can run at once.
        spans: Worker and times of each unit.

    Raises:
        ModelError: No machine of a cluster started here has the resources of a unit. Other clusters may grow.
    """

    def __init__(self, cluster: Cluster, ray: Any, plugins: Sequence[str]) -> None:
        alive = (node["Resources"] for node in ray.nodes() if node["Alive"])
        machines = [(resources.get("CPU", 0), resources.get("GPU", 0)) for resources in alive]
        gpus = cluster.gpus
        if gpus is None:
            gpus = float(any(has for _, has in machines) and cluster.device in {None, "cuda"})
        slots = sum(int(cores // cluster.cpus) for cores, has in machines if has >= gpus)
        if not slots:
            asked = f"--cpus-per-task {cluster.cpus}" + (f" --gpus-per-task {gpus:g}" if gpus else "")
            have = "; ".join(f"{cores:g} cores, {has:g} GPUs" for cores, has in sorted({*machines}, reverse=True)[:3])
            said = f"{asked}: no machine of the cluster has that much; the largest have {have}. Ask for less"
            if not cluster.where:
                raise ModelError(f"{said}.")
            logger.warning("%s, unless the cluster grows: the work waits until then.", said)
        options = {"num_gpus": gpus, "max_calls": 0} if gpus else {}  # 0: a worker keeps its process, and its model
        options |= {"num_cpus": cluster.cpus, "max_retries": RETRIES, "retry_exceptions": False, "num_returns": 2}
        self.ray, self.slots = ray, max(1, slots)
        self.spans: list[Span] = []
        self._begin = ray.remote(**options)(_work).remote
        self._setup = (cluster.cpus, plugins)
        self._running: dict[Any, Any] = {}

    def start(self, key: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """Submit a unit; returns a reference to its shared vectors, which a later unit can take as an argument."""
        value, shared = self._begin(*self._setup, function, *arguments)
        self._running[value] = key
        return shared

    def results(self) -> Iterator[tuple[Any, Any]]:
        """The key and value of each unit as it finishes; the caller may start more units in the meantime.

        The value is a :class:`WorkerLostError` if workers were lost too often; a unit's own error is raised.
        """
        errors = self.ray.exceptions
        while self._running:
            (reference,), _ = self.ray.wait([*islice(self._running, WATCHED)], num_returns=1)
            key = self._running.pop(reference)
            try:
                value, span = self.ray.get(reference)
            except errors.RayError as error:
                cause = error.cause if isinstance(error, errors.RayTaskError) else error
                if not isinstance(cause, errors.RayError):
                    raise cause from None
                lost = f"{_part(key)}: the worker was lost {RETRIES + 1} times ({type(cause).__name__})"
                advice = "it crashes or needs more memory; raise --cpus-per-task so that fewer parts share a machine."
                yield key, WorkerLostError(f"{lost}; {advice}")
            else:
                if span.repeats:
                    logger.warning("%s: a worker was lost, and another one repeated its work.", _part(key))
                self.spans.append(span)
                yield key, value


def _part(key: Any) -> str:
    """A unit's key in messages."""
    return ", ".join(key) or "no model" if isinstance(key, tuple) else getattr(key, "label", f"part {key}")


def _work(cpus: int, plugins: Sequence[str], function: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """In a worker: run a unit on this number of threads, however many cores the machine has."""
    import ray

    start = time()
    torch.set_num_threads(cpus)
    load_plugins(plugins)
    answer = function(*arguments)
    value, shared = answer if isinstance(answer, Answer) else (answer, None)
    worker = str(ray.get_runtime_context().get_node_id()), os.getpid()
    return (value, Span(worker, start, time(), repeats(ray))), shared


def report(spans: Sequence[Span]) -> str:
    """A line on the units and on the share of time that workers waited.

    A worker's time begins with its first unit, once it has loaded the code, and ends with the last unit of all.
    """
    begins: dict[tuple[str, int], float] = {}
    for span in spans:
        begins[span.worker] = min(span.start, begins.get(span.worker, span.start))
    end = max(span.end for span in spans)
    total = sum(end - begin for begin in begins.values())
    waited = 1 - sum(span.end - span.start for span in spans) / total
    return f"Workers: {len(begins)}, units: {len(spans)}. The workers waited {waited:.1%} of their {total:.1f} s."
