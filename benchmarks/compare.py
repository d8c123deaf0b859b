"""Two runs with ``--benchmark-json=FILE``, old and new, compared: ``python -m benchmarks.compare OLD NEW``.

The same as ``xalign gate --throughput OLD NEW``: the comparison is in the package, because the gate is installed
without this folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from xalign_models.boards.throughput import compare_throughput
from xalign_models.errors import ResultsError


def main(old: str, new: str) -> int:
    """Print what differs and return the gate's exit status."""
    try:
        report = compare_throughput(Path(old), Path(new), {})
    except ResultsError as error:
        print(error, file=sys.stderr)
        return 2
    Console().print(report.to_rich())
    return report.exit_code


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Name two files that --benchmark-json wrote: the old one and the new one.")
    sys.exit(main(*sys.argv[1:]))
