"""What a cluster gains, by the product's own plan of units on simulated workers, and a corpus in shards by arithmetic.

    python -m benchmarks.cluster

A worker is one core; it takes the first unit whose languages are there. Times are those of ``cpu.md``. Nothing is
counted for the network: a language's vectors are 1.6 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from itertools import permutations
from types import SimpleNamespace
from typing import Any

from benchmarks.sources import measured, source
from benchmarks.tables import markdown, table
from xalign_models.cluster.grid import Unit, plan
from xalign_models.cluster.scoring import PIECES

LANGUAGES, ROWS, TOKENS = 204, 1012, 30
"""FLORES-200's devtest; the tokens of a sentence are docs/scale.md's assumption."""
START = 2.0
"""Seconds that a unit takes beside its work, an assumption: task, model and alignment are opened, results written."""


@dataclass(frozen=True)
class Simulated:
    """A run on a simulated cluster.

    Attributes:
        seconds: From the beginning to the end.
        busy: Of all workers together.
        workers: How many there are.
        units: Units of work.
    """

    seconds: float
    busy: float
    workers: int
    units: int

    @property
    def waiting(self) -> float:
        """The share of the workers' time in which they have nothing to do, in percent."""
        return 100 * (1 - self.busy / (self.workers * self.seconds))


def simulate(units: Mapping[Any, set[Any]], workers: int, cost: Callable[[Any], float]) -> Simulated:
    """Units on workers, each as soon as what it waits for is done and a worker is free, in their order."""
    left, done = dict(units), set[Any]()
    running: list[tuple[float, int, Any]] = []
    now = busy = 0.0
    while left or running:
        free = (unit for unit, ahead in left.items() if ahead <= done)
        for unit in [unit for unit, _ in zip(free, range(workers - len(running)), strict=False)]:
            del left[unit]
            busy += cost(unit)
            heappush(running, (now + cost(unit), len(left), unit))
        now, _, finished = heappop(running)
        done.add(finished)
    return Simulated(now, busy, workers, len(units))


@cache
def all_pairs(workers: int) -> Simulated:
    """All pairs of FLORES by multilingual-e5-small-q4, nothing in the store, on workers of one core."""
    codes = [f"l{number:03}" for number in range(LANGUAGES)]
    pairs = {f"{one}-{other}": [one, other] for one, other in permutations(codes, 2)}
    metadata = SimpleNamespace(name="FLORES", hf_subsets_to_langscripts=pairs, revision="")
    task: Any = SimpleNamespace(metadata=metadata, eval_splits=["test"])
    encode = ROWS * TOKENS / measured("cpu.md", "real_corpus[cpu]", "real tokens/s")
    score = measured("cpu.md", "against_mteb[384-search and metrics]", "ms") / 1000 / 2

    def cost(unit: Unit) -> float:
        return START + encode * len(unit.gives) + score * len(unit.subsets)

    units, _ = plan("model", task, list(pairs), {}, PIECES * workers)
    return simulate(units, workers, cost)


@source
def simulated(workers: int, column: str) -> float:
    """``minutes``, ``speedup``, ``waiting`` in percent, or ``units`` of :func:`all_pairs`."""
    run = all_pairs(workers)
    alone = all_pairs(1).seconds
    return {"minutes": run.seconds / 60, "speedup": alone / run.seconds, "waiting": run.waiting, "units": run.units}[
        column
    ]


@table
def simulated_cluster() -> str:
    """All pairs of 204 languages, on more and more workers."""
    columns = ("minutes", "speedup", "waiting", "units")
    rows = [(n, *(simulated(n, column) for column in columns[:3]), all_pairs(n).units) for n in (1, 2, 4, 8, 32, 64)]
    return markdown(("workers of one core", "minutes", "speed-up", "waiting, %", "units"), rows)


@source
@cache
def sharded(
    actors: int, *, sentences: int = 10**9, shard: int = 16_384, tokens: float = 1.4e6, disk: float = 1e9
) -> float:
    """Hours in which actors encode a corpus into float16 shards of d = 384 on one storage that takes them in turn.

    Args:
        actors: Each takes the next shard when the last one is written.
        sentences: Of the corpus, of :data:`TOKENS` tokens.
        shard: Sentences of a shard.
        tokens: That an actor encodes in a second.
        disk: Bytes that the storage takes in a second.
    """
    encode, write = shard * TOKENS / tokens, shard * 384 * 2 / disk
    ready = [encode] * actors
    free = 0.0
    for _ in range(-(-sentences // shard)):
        free = max(free, heappop(ready)) + write
        heappush(ready, free + encode)
    return free / 3600


@table
def simulated_corpus() -> str:
    """The billion sentences, and their mining against English, on more and more GPUs."""
    mining = 8 * 999e12 / 4.3e12 / 3600
    rows = [(n, sharded(n), mining / n, sharded(n) + mining / n) for n in (1, 4, 8, 16, 28, 32, 64)]
    return markdown(("GPUs", "hours of encoding", "of mining with English", "together"), rows, digits=2)


def main() -> Iterator[str]:
    """Both tables."""
    yield simulated_cluster()
    yield simulated_corpus()


if __name__ == "__main__":
    print("\n\n".join(main()))
