"""``xalign apply --engine ray``: the parts of a big input, each by a worker that sees its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xalign_models.cluster.cluster import RETRIES, Cluster, use_threads
from xalign_models.errors import ModelError
from xalign_models.plugins import load_plugins, sources
from xalign_models.vectors.applying import Job, Part, write_part

AHEAD = 2
"""Parts in hand for each core of the cluster, so that no worker waits for the driver."""


def write_parts(cluster: Cluster, job: Job, parts: Sequence[Part]) -> Iterator[int]:
    """Write parts on a cluster whose machines share the input's and the output's folders.

    A part whose worker is lost is written again elsewhere; a part is whole or absent, whoever writes it.

    Args:
        cluster: Where, and the resources of a part.
        job: The maps and the columns.
        parts: What to write.

    Yields:
        The rows of each part, when it is there.

    Raises:
        ModelError: A worker was lost too often.
        XAlignError: A part cannot be written.
    """
    with cluster.connect() as ray:
        options = {**cluster.resources(ray), "max_retries": RETRIES, "retry_exceptions": False}
        write = ray.remote(**options)(_write)
        shared = ray.put(job)
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)) // cluster.cpus)
        busy: list[Any] = []
        try:
            for part in parts:
                if len(busy) >= most:
                    (done,), busy = ray.wait(busy, num_returns=1)
                    yield ray.get(done)
                busy.append(write.remote(sources(), cluster.cpus, shared, part))
            for ref in busy:
                yield ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise ModelError(f"A worker was lost {RETRIES + 1} times ({type(error).__name__}); run it again.") from None


def _write(plugins: Sequence[str], cpus: int, job: Job, part: Part) -> int:
    """In a worker."""
    use_threads(cpus)
    load_plugins(plugins)
    return write_part(job, part)
