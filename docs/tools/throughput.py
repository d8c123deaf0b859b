"""Prints files of ``pytest --benchmark-json`` as Markdown tables: ``python -m docs.tools.throughput FILE ...``."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

NUMBERS = {
    "tokens_per_s": "real tokens/s",
    "tokens_per_s_with_tokenizer": "with the tokenizer",
    "tokenizer_tokens_per_s": "tokenizer alone",
    "pairs_per_s": "pairs/s",
    "rows_per_s": "rows/s",
    "fraction_of_roofline": "of the measured peak",
    "useful_share": "useful share",
    "peak_bytes": "peak GiB",
    "cosine": "least cosine",
}


def row(benchmark: dict[str, Any]) -> dict[str, Any]:
    """A benchmark's line: its name, its median time and the numbers that it noted."""
    info = benchmark["extra_info"]
    line: dict[str, Any] = {
        "": benchmark["name"].removeprefix("test_"),
        "ms": f"{1e3 * benchmark['stats']['median']:.3g}",
    }
    by_processor = info.get("device") == "cpu" and "processor_ratio" in info
    kind, label = ("processor_ratio", "ratio of processor time") if by_processor else ("ratio", "ratio")
    if kind in info:
        spread = f" ({min(ratios):.2f}–{max(ratios):.2f})" if (ratios := info.get(f"{kind}s")) else ""
        line |= {label: f"{info[kind]:.2f}{spread}", "against": info.get("against", "mteb")}
    for key, label in NUMBERS.items():
        if info.get(key) is None:
            continue
        value = info[key] / 2**30 if key == "peak_bytes" else info[key]
        line[label] = (
            f"{value:.0%}" if key == "fraction_of_roofline" else f"{value:,.0f}" if value > 100 else f"{value:.3g}"
        )
    return line


def tables(results: dict[str, Any]) -> Iterable[tuple[str, pd.DataFrame]]:
    """A table for each module, device and dtype, under a title that names them."""
    frame = pd.DataFrame(
        {
            "module": benchmark["fullname"].split("::")[0].rpartition("/")[2].removesuffix(".py"),
            "where": ", ".join(str(benchmark["extra_info"].get(key)) for key in ("device", "dtype")),
            "line": row(benchmark),
        }
        for benchmark in results["benchmarks"]
    )
    for (module, where), group in frame.groupby(["module", "where"], sort=False):
        yield f"{module}: {where}", pd.DataFrame(list(group["line"])).fillna("")


def read(path: str) -> dict[str, Any]:
    """Read a run's JSON.

    Raises:
        SystemExit: The file is missing, was not written by pytest-benchmark, or has no benchmark in it.
    """
    try:
        results: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        if results["benchmarks"]:
            return results
        wrong = "no benchmark ran"
    except OSError as error:
        wrong = error.strerror or str(error)
    except (ValueError, KeyError, TypeError):
        wrong = "not written by pytest-benchmark"
    sys.exit(f"{path}: {wrong}. Write one with: pytest benchmarks --benchmark-only --benchmark-json={path}")


def main(paths: Iterable[str]) -> None:
    """Print the tables of each file."""
    for results in map(read, paths):
        info = results["benchmarks"][0]["extra_info"]
        versions = ", ".join(f"{name} {number}" for name, number in info["versions"].items())
        print(f"Revision {info['revision']}, {results['datetime'][:10]}; {info['threads']} thread(s); {versions}.")
        if clocks := {benchmark["extra_info"].get("clocks") for benchmark in results["benchmarks"]} - {None}:
            print(f"GPU clocks (SM, memory, their maxima) during the runs: {'; '.join(sorted(clocks))}.")
        for title, table in tables(results):
            print(f"\n## {title}\n\n{table.to_markdown(index=False)}")


if __name__ == "__main__":
    main(sys.argv[1:] or sys.exit("Name the files that --benchmark-json wrote."))
