"""``xalign apply --engine ray``: the parts of a large input, each mapped by a worker."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from xalign_models.cluster.cluster import Cluster, finished, result_of
from xalign_models.plugins import sources
from xalign_models.vectors.applying import FilePart, Job, write_part

AHEAD = 2
"""Parts submitted for each slot of the cluster, so that no worker waits for the driver."""


def write_parts(cluster: Cluster, job: Job, parts: Sequence[FilePart]) -> Iterator[int]:
    """Map and write parts on a cluster whose machines share the folders of the input and the output.

    A part whose worker is lost is written again elsewhere. Parts are written atomically.

    Yields:
        The number of rows of each written part.

    Raises:
        WorkerLostError: A worker was lost too often.
        XAlignError: A part cannot be written.
    """
    with cluster.connect() as ray:
        start, shared, waiting = cluster.starter(ray, sources()), ray.put(job), iter(parts)
        most = AHEAD * cluster.slots(ray)

        def begin(running: int) -> Iterator[tuple[Any, FilePart]]:
            for part in islice(waiting, most - running):
                yield start(part.name, write_part, shared, part), part

        for _, reference in finished(ray, begin):
            yield result_of(ray, reference)
