"""Reading a product-search file of a million rows: rows per second, and memory that does not grow with it."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from tasks.product_search import rows
from tasks.product_search.fields import ITEM_IDS

ROWS = 1_000_000


@pytest.fixture(scope="module", params=["lines", "list", "map"])
def companion(request, tmp_path_factory):
    """A file of made-up titles in one of the three layouts, and its name."""
    path = tmp_path_factory.mktemp("companion") / "item.json"
    record = '{{"item_id": "i{0}", "title": "made-up thing number {0} with a title as long as theirs"}}'
    start, end, between = {"lines": ("", "", "\n"), "list": ("[", "]", ",\n"), "map": ("{", "}", ",\n")}[request.param]
    with path.open("w") as stream:
        stream.write(start)
        for i in range(ROWS):
            key = f'"i{i}": ' if request.param == "map" else ""
            stream.write((between if i else "") + key + record.format(i))
        stream.write(end)
    yield request.param, path
    path.unlink()


def test_a_million_rows(benchmark, note, say, companion):
    layout, path = companion

    def read():
        return sum(1 for _ in rows(path, ITEM_IDS))

    start = time.perf_counter()
    assert benchmark.pedantic(read, rounds=1) == ROWS
    seconds = time.perf_counter() - start
    tracemalloc.start()
    for number, _ in enumerate(rows(path, ITEM_IDS)):
        if number == ROWS // 10:  # tracing is slow; the first tenth has every buffer
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = path.stat().st_size
    note(rows_per_s=ROWS / seconds, peak_bytes=peak, file_bytes=size)
    say(
        f"product search, {ROWS:,} rows as {layout}: {ROWS / seconds:,.0f} rows/s, "
        f"peak {peak / 2**20:.2f} MiB of a file of {size / 2**20:.0f} MiB"
    )
    assert peak < 2**20
