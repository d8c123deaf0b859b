"""Where Ray runs, and what a piece of work takes of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from xalign_models.cluster.borrowed import job_config
from xalign_models.errors import ModelError

RETRIES = 3
"""Times that a piece of work is begun again elsewhere when its worker is lost."""


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and the resources of one piece of work.

    Attributes:
        address: ``--address``: of a running cluster (``auto``, ``ray://host:10001``); None starts one on this machine,
            or takes ``$RAY_ADDRESS``.
        cpus: ``--cpus-per-task``: cores, and threads, of a piece of work.
        gpus: ``--gpus-per-task``: GPUs of one, of which a part lets several share a GPU; None is one where the cluster
            has GPUs and the device is not the CPU.
        device: cpu, cuda or mps; None is the best that a worker has.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.cpus < 1:
            raise ModelError(f"--cpus-per-task {self.cpus} is not possible; give at least 1.")
        if self.gpus is not None and self.gpus < 0:
            raise ModelError(f"--gpus-per-task {self.gpus} is not possible; give 0 or more, e.g. 0.25.")
        if self.device and ("," in self.device or self.device == "cuda:all"):
            raise ModelError(f"--device {self.device}: on a cluster Ray deals out the devices; give cuda.")

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """The module ``ray``, connected; a cluster that was started for this is stopped.

        Raises:
            ModelError: Ray is not installed, or the cluster cannot be reached.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # read when a cluster starts here; Ray's 15 starves workers
        try:
            import ray
        except ImportError:
            raise ModelError("Ray is not installed; run: pip install 'xalign[ray]'.") from None
        started = not ray.is_initialized()
        if started:
            try:
                options: dict[str, Any] = {"include_dashboard": False} if self.address is None else {}
                if not (self.address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://"):
                    options["job_config"] = job_config()
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
        """Ray's options of a piece of work."""
        has = ray.cluster_resources().get("GPU", 0) and self.device in {None, "cuda"}
        gpus = self.gpus if self.gpus is not None else float(bool(has))
        return {"num_cpus": self.cpus, **({"num_gpus": gpus} if gpus else {})}


def use_threads(count: int) -> None:
    """Let this worker compute on that many threads, whatever the machine has."""
    import torch

    torch.set_num_threads(count)
