"""Measures the cost of xalign against size: ``python -m docs.tools.growth FOLDER``.

Rows, languages, models and results double four times. ``docs/results/throughput/growth.csv`` has processor seconds on
one thread, those of child processes included, and ``growth.svg`` draws them. Commands include the start of Python.
FOLDER keeps the cache and copies of the committed results; give one that is not there.
"""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from docs.tools.sources import ROOT
from xalign_models import corpora, figures
from xalign_models.alignments import make
from xalign_models.index.auditing import contents, gather
from xalign_models.index.base import open_index
from xalign_models.linalg.arrays import Float32
from xalign_models.models.building import load_encoder
from xalign_models.models.catalogue import fits
from xalign_models.ranking.pairs import Sides, all_pairs
from xalign_models.ranking.ranks import gold_ranks, normalise

TABLE = ROOT / "docs" / "results" / "throughput" / "growth.csv"
MODEL, D, DOUBLINGS = "multilingual-e5-small-q4", 384, 4
METHODS = ("centered", "lir", "lsar", "procrustes", "affine")
BOARDS = {
    "leaderboard": ("leaderboard",),
    "leaderboard --html": ("leaderboard", "--html", "page"),
    "gate --against": ("gate", "--against", "results"),
    "choose --results": ("choose", "--languages", "de,hi", "--results", "results"),
    "verify": ("verify",),
}
Step = Callable[[], object]


def languages(count: int, rows: int) -> dict[str, Float32]:
    """Vectors of the same sentences (rows, d), float32, in each of so many languages, English first."""
    rng = np.random.default_rng(0)
    content, noise = (rng.standard_normal((shape, D), dtype=np.float32) for shape in (rows, count * rows))
    codes = ("eng-Latn", *(f"l{i:02}" for i in range(1, count)))
    return {code: content + part for code, part in zip(codes, np.split(noise, count), strict=True)}


def encode(count: int) -> Step:
    """Encode so many interface texts in twelve languages by a small model."""
    corpus = corpora.load("gettext")
    texts = [text for row in zip(*map(corpus.texts, corpus.languages), strict=True) for text in row][:count]
    encoder = load_encoder(MODEL, device="cpu").raw
    encoder.encode(texts[:8], "query: ")
    return partial(encoder.encode, texts, "query: ")


def fit(method: str, count: int, rows: int) -> Step:
    """Fit a method on so many languages and rows of each."""
    return partial(make(method).fit, languages(count, rows))


def rank(rows: int) -> Step:
    """Rank the translations of so many sentences in both directions of one pair."""
    return partial(gold_ranks, *map(normalise, languages(2, rows).values()))


def rank_all(count: int) -> Step:
    """Rank 200 sentences and measure their neighbourhoods in all pairs of so many languages."""
    sides = {code: Sides(normalise(rows)) for code, rows in languages(count, 200).items()}
    return lambda: list(all_pairs(sides.__getitem__, combinations(sides, 2)))


def audit(rows: int, folder: Path) -> Step:
    """Audit an index of so many vectors in ten languages."""
    file = folder / f"{rows}.parquet"
    codes = corpora.load("gettext").languages[:10]
    vectors = [row for side in languages(10, rows // 10).values() for row in side]
    columns = {"id": range(rows), "lang": np.repeat(codes, rows // 10), "vector": vectors}
    pq.write_table(pa.table(columns), file)
    return lambda: contents(gather(open_index(str(file)), None))


def command(folder: Path, *words: str) -> Step:
    """Run a command of xalign in a folder, whatever its verdict."""

    def run() -> None:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "xalign_models.cli", *words], cwd=folder, capture_output=True, text=True
        )
        if done.returncode not in (0, 1, 3):
            raise RuntimeError(f"{' '.join(words)}: {done.stderr[-500:]}")

    return run


def score(count: int, folder: Path) -> Step:
    """Score so many models of one backbone, unaligned and by registered methods, on stored vectors and fits."""
    models = [f"plain__{MODEL}", *(f"{method}__{MODEL}__gettext" for method in fits()["gettext"])][:count]
    words = ("run", *(word for model in models for word in ("-m", model)), "--tasks", "GettextPrecision", "-o")
    run = command(folder, *words, "scored")

    def again() -> None:
        shutil.rmtree(folder / "scored", ignore_errors=True)
        run()

    again()  # stores the vectors and the fits
    return again


def results(copies: int, folder: Path) -> Path:
    """A folder with so many copies of the committed results, each of models with other names."""
    whole = folder / f"copies-{copies}"
    for source in ROOT.glob("results/*__*"):
        for copy in range(copies):
            system, backbone, *rest = source.name.removeprefix("xalign__").split("__")
            name = "__".join(("xalign", system, f"{backbone}-{copy}", *rest))
            shutil.copytree(source, target := whole / "results" / name)
            for meta in target.glob("*/model_meta.json"):
                meta.write_text(meta.read_text().replace(backbone, f"{backbone}-{copy}"))
    return whole


def measurements(folder: Path) -> Iterator[tuple[str, str, int, Step]]:
    """Each step at each size: the thing that doubles, the name of the step, the size, and the step itself."""
    doubled = [2**i for i in range(DOUBLINGS + 1)]
    for i in doubled:
        yield "rows", "encode", 50 * i, encode(50 * i)
        yield "rows", "rank a pair", 1000 * i, rank(1000 * i)
        yield "rows", "audit an index", 5000 * i, audit(5000 * i, folder)
        for method in METHODS:
            yield "rows", f"fit {method}", 2000 * i, fit(method, 3, 2000 * i)
            yield "languages", f"fit {method}", 8 * i, fit(method, 8 * i, 500)
        yield "languages", "rank all pairs", 4 * i, rank_all(4 * i)
        yield "models", "run", i, score(i, folder)
        copies = results(i, folder)
        files = len(list(copies.glob("results/*/*/*.json"))) - len(list(copies.glob("results/*/*/model_meta.json")))
        for name, words in BOARDS.items():
            yield "results", name, files, command(copies, *words)
        shutil.rmtree(copies)


def seconds(step: Step) -> float:
    """Processor seconds of a step and its child processes; the least of the runs within a second, or of two."""

    def used() -> float:
        parts = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(part.ru_utime + part.ru_stime for part in parts)

    runs: list[float] = []
    while len(runs) < 2 or sum(runs) < 1:
        start = used()
        step()
        runs.append(used() - start)
    return min(runs)


def draw(table: pd.DataFrame) -> Figure:
    """A panel for each thing that doubles; a line's label ends in the exponent of its last doubling."""
    with figures.styled():
        figure, panels = figures.canvas(2, 2, width=10, height=7)
        for axes, (what, part) in zip(panels.flat, table.groupby("doubled", sort=False), strict=True):
            lines = {}
            for step, line in part.groupby("step", sort=False):
                size, cost = line["size"].to_numpy(), line["seconds"].to_numpy()
                lines[f"{step}: {np.log2(cost[-1] / cost[-2]):.1f}"] = size, cost
            figures.describe(axes, f"Cost by number of {what}", f"number of {what}", "seconds of one processor")
            figures.draw_lines(axes, lines)
            axes.loglog()
            low, high = axes.get_ylim()
            axes.set_ylim(low, max(high, 10 * low))
            axes.legend(title="exponent of\nthe last doubling", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def main(folder: Path) -> None:
    """Measure, and write the table and the figure."""
    folder.mkdir(parents=True)
    os.environ["XALIGN_CACHE"] = str(folder / "cache")
    records = []
    with threadpool_limits(1):
        for what, name, size, step in measurements(folder):
            records.append({"doubled": what, "step": name, "size": size, "seconds": round(seconds(step), 6)})
            print(time.strftime("%H:%M:%S"), *records[-1].values(), flush=True)
    table = pd.DataFrame(records)
    table.to_csv(TABLE, index=False, lineterminator="\n")
    figures.save(draw(table), TABLE.parent, TABLE.stem)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
