"""Texts of concurrent requests, encoded together by one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from xalign_models.linalg.arrays import AnyFloats


@dataclass(eq=False)
class Job:
    """The texts of a request, the name of their prompt, and their vectors to come."""

    rows: Sequence[Any]
    prompt: str | None
    vectors: asyncio.Future[AnyFloats]


class Batcher:
    """Collects the texts that arrive while a batch is encoded, and encodes them next.

    Args:
        encode: Returns vectors (n, d) of inputs under a prompt; one thread calls it.
        most: Number of texts from which a batch takes no further request.
        most_waiting: Maximum number of texts that wait or are being encoded.
    """

    def __init__(self, encode: Callable[[list[Any], str | None], AnyFloats], most: int, most_waiting: int) -> None:
        self.encode, self.most, self.most_waiting = encode, most, most_waiting
        self.waiting = 0
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "encode")

    async def submit(self, rows: Sequence[Any], prompt: str | None) -> AnyFloats:
        """The vectors (n, d) of a request's inputs.

        Raises:
            HTTPException: Too many texts wait already; the status is 429.
        """
        if self.waiting + len(rows) > self.most_waiting:
            raise HTTPException(429, "Too many texts are waiting; try again later.", {"Retry-After": "1"})
        job = Job(rows, prompt, asyncio.get_running_loop().create_future())
        self.waiting += len(rows)
        self._jobs.put_nowait(job)
        try:
            return await job.vectors
        finally:
            self.waiting -= len(rows)

    async def run(self) -> None:
        """Encode until cancelled."""
        while True:
            jobs = [await self._jobs.get()]
            while not self._jobs.empty() and sum(len(job.rows) for job in jobs) < self.most:
                jobs.append(self._jobs.get_nowait())
            for prompt in dict.fromkeys(job.prompt for job in jobs):
                await self._answer([job for job in jobs if job.prompt == prompt])

    async def _answer(self, jobs: Sequence[Job]) -> None:
        """Encode jobs of one prompt; if that fails, each alone, as one must not fail the others."""
        jobs = [job for job in jobs if not job.vectors.done()]  # the client of a cancelled one has left
        rows = [row for job in jobs for row in job.rows]
        if not rows:
            return
        try:
            vectors = await asyncio.get_running_loop().run_in_executor(self._thread, self.encode, rows, jobs[0].prompt)
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    await self._answer([job])
            elif not jobs[0].vectors.done():
                jobs[0].vectors.set_exception(error)
            return
        start = 0
        for job in jobs:
            if not job.vectors.done():
                job.vectors.set_result(vectors[start : start + len(job.rows)])
            start += len(job.rows)
