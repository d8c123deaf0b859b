"""``xalign apply`` against numpy: rows a second, memory, and recovery from a kill.

    python -m benchmarks.apply_vectors --rows 10000000 --folder /somewhere/with/space

The input is a directory of links to one file of a million rows. A numpy loop reads two files, computes ``X @ W + b``,
and writes them. Then ``xalign apply`` maps all files, is killed after two parts and resumes. Processor times count.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xalign_models import alignments
from xalign_models.vector_files.parquet import batches, column_of, matrix_of, writer

DIM = 384
FILE = 1_000_000
GROUP = 1 << 20
"""Rows of a row group, as many as pyarrow's default."""
LANGUAGES = ("deu-Latn", "eng-Latn", "fra-Latn")


def make_input(folder: Path, rows: int) -> None:
    """Write one file of a million rows, and link the others to it."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    first = folder / f"{0:04d}.parquet"
    languages = np.array(LANGUAGES)[rng.integers(len(LANGUAGES), size=FILE)]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(FILE * DIM, dtype=np.float32)), DIM)
    table = pa.table({"id": rng.permutation(FILE), "lang": languages, "vector": vectors})
    with writer(first, table.schema, "vector") as out:
        out.write_table(table, row_group_size=GROUP)
    for number in range(1, rows // FILE):
        (folder / f"{number:04d}.parquet").hardlink_to(first)


def make_map(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Save a map for each language; returns the first language's weight and shift, for numpy."""
    rng = np.random.default_rng(1)
    rows = {language: rng.standard_normal((1000, DIM)) for language in LANGUAGES}
    alignment = alignments.make("affine", pivot=LANGUAGES[1]).fit(rows)
    folder.mkdir()
    alignment.save(folder)
    number = alignment.languages_.index(LANGUAGES[0])
    factors = alignment.factors()
    return factors["weight"][number].astype(np.float32), factors["shift"][number].astype(np.float32)


def plain(source: Path, output: Path, weight: np.ndarray, shift: np.ndarray) -> float:
    """Processor seconds that numpy takes for a file, including reading and writing."""
    start = time.process_time()
    output.mkdir()
    files = sorted(source.glob("*.parquet"))[:2]
    for file in files:
        schema = pq.read_schema(file)
        with writer(output / file.name, schema, "vector") as out:
            for batch in batches(file, "vector"):
                y = matrix_of(batch.column("vector"), "") @ weight + shift
                column = column_of(y, schema.field("vector").type)
                out.write_batch(batch.set_column(2, schema.field("vector"), column))
    return (time.process_time() - start) / len(files)


def children() -> float:
    """Processor seconds of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def applied(command: list[str], kill_after: Path | None) -> float:
    """Run a command, kill it once a file exists, and return its peak resident memory in MB."""
    process = subprocess.Popen(command)
    most = 0
    while process.poll() is None:
        with suppress(OSError, IndexError):  # ru_maxrss would include the memory of the process that forked
            most = int(Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0])
        if kill_after is not None and kill_after.is_file():
            process.send_signal(signal.SIGKILL)
        time.sleep(0.05)
    if process.returncode and kill_after is None:
        sys.exit("xalign apply failed")
    return most / 1024


def same(source: Path, output: Path, weight: np.ndarray, shift: np.ndarray) -> tuple[int, float]:
    """Check that all ids come in the input's order; returns their number, and the largest difference from numpy."""
    files = [sorted(folder.glob("*.parquet")) for folder in (source, output)]
    known, found = (
        np.concatenate([pq.read_table(file, columns=["id"]).column(0).to_numpy() for file in side]) for side in files
    )
    assert np.array_equal(known, found), "rows are lost, repeated or in another order"
    x, y = (pq.ParquetFile(side[0]).read_row_group(0).slice(0, 2000) for side in files)
    first = np.array([code == LANGUAGES[0] for code in x.column("lang").to_pylist()[: len(y)]])
    a, b = (matrix_of(t.column("vector").combine_chunks(), "")[: len(first)] for t in (x, y))
    return len(found), float(np.abs(a[first] @ weight + shift - b[first]).max())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    if given.rows < 1 or given.rows % FILE:
        parser.error(f"--rows: give a multiple of {FILE}, the rows of a file.")
    folder: Path = given.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print("free GB", shutil.disk_usage(folder).free / 1e9, flush=True)
    weight, shift = make_map(folder / "map")
    source, output = folder / "in", folder / "out.parquet"
    make_input(source, given.rows)
    print("wrote the input", flush=True)
    numpy_seconds = plain(source, folder / "plain", weight, shift) * given.rows / FILE
    shutil.rmtree(folder / "plain")
    print(f"numpy: {numpy_seconds:.0f} s of processor time for all rows", flush=True)
    command = [sys.executable, "-m", "xalign_models.cli", "apply", str(folder / "map"), "--in", str(source)]
    command += ["--lang-column", "lang", "-o", str(output)]
    before, parts = children(), folder / f".{output.name}.parts"
    megabytes = applied(command, parts / "part-00000001.parquet")
    print("killed; these parts remain:", sorted(path.name for path in parts.iterdir()), flush=True)
    assert not output.exists()
    megabytes = max(megabytes, applied(command, None))
    seconds = children() - before
    print("resumed and finished", flush=True)
    rows, worst = same(source, output, weight, shift)
    report = {"rows": rows, "dimension": DIM, "numpy_rows_per_cpu_second": round(rows / numpy_seconds)}
    report |= {"apply_rows_per_cpu_second": round(rows / seconds), "ratio": round(numpy_seconds / seconds, 3)}
    report |= {"peak_MB": round(megabytes), "lost_or_doubled": 0, "largest_difference": worst}
    print(json.dumps({**report, "threads": os.environ.get("OMP_NUM_THREADS", "")}, indent=2))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
