"""``xalign serve`` under load, beside the bare model: ``python -m benchmarks.serve_load --model all-MiniLM-L6-v2``.

Clients in another process send one text of gettext a request, 64 at once. Every vector is compared with ``encode``'s.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time

import httpx
import numpy as np

import xalign_models
from xalign_models import corpora


async def load(url: str, texts: list[str], clients: int) -> tuple[np.ndarray, list[float], int]:
    """Vectors (n, d) and seconds by text, and the number of answers that are no vector."""
    vectors: list[list[float] | None] = [None] * len(texts)
    seconds, numbers = [0.0] * len(texts), iter(range(len(texts)))

    async def client() -> None:
        async with httpx.AsyncClient(timeout=120) as http:
            for number in numbers:
                start = time.perf_counter()
                answer = await http.post(f"{url}/v1/embeddings", json={"input": texts[number]})
                seconds[number] = time.perf_counter() - start
                if answer.status_code == 200:
                    vectors[number] = answer.json()["data"][0]["embedding"]

    await asyncio.gather(*(client() for _ in range(clients)))
    good = [vector for vector in vectors if vector is not None]
    return np.array(good), seconds, len(vectors) - len(good)


def encoding(url: str) -> float:
    """Seconds that the server has spent in ``encode``."""
    metrics = dict(line.rsplit(" ", 1) for line in httpx.get(f"{url}/metrics").text.splitlines())
    return float(metrics["xalign_encode_seconds_total"])


def main() -> None:
    """Print one object: errors, the largest difference, and ratios of the server's times to the bare model's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=64)
    arguments = parser.parse_args()
    corpus = corpora.load("gettext")
    texts = [text for code in corpus.languages for text in corpus.texts(code)]
    texts = [texts[number % len(texts)] for number in range(arguments.requests)]
    command = [sys.executable, "-m", "xalign_models.cli", "serve", arguments.model, "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        url = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        asyncio.run(load(url, texts[:100], arguments.clients))  # warm
        before = encoding(url)
        start = time.perf_counter()
        vectors, seconds, errors = asyncio.run(load(url, texts, arguments.clients))
        wall = time.perf_counter() - start
        within = encoding(url) - before
        server.send_signal(signal.SIGINT)
        _, _, used = os.wait4(server.pid, 0)
    model = xalign_models.load(arguments.model, device="cpu")
    bare, alone = [], texts[: len(texts) // 10]
    for text in alone:
        start = time.perf_counter()
        model.encode(text)
        bare.append(time.perf_counter() - start)
    start = time.process_time()
    expected = model.encode(texts, batch_size=arguments.clients)
    whole = time.process_time() - start
    single, turn = np.median(bare), arguments.clients * np.median(bare)
    found = {
        "requests": len(texts),
        "at once": arguments.clients,
        "errors": errors,
        "largest difference": None if errors else float(np.abs(vectors - expected).max()),
        f"p50, p99 over encode's time for {arguments.clients} single texts": np.percentile(seconds, [50, 99]) / turn,
        "wall time over encode's, one text at a time": wall / len(texts) / single,
        "server's wall time spent in encode": within / wall,
        "server's processor time, its start included, over encode's": (used.ru_utime + used.ru_stime) / whole,
    }
    print(json.dumps(found, indent=1, default=np.ndarray.tolist))


if __name__ == "__main__":
    main()
