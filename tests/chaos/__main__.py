"""``python -m tests.chaos --kills 200`` and ``--fuzz 100000``: the chaos tests, as often as is asked for."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest


def main() -> int:
    """Run the tests and print a table of the counts; the exit status is pytest's."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, help="kills over all commands")
    parser.add_argument("--fuzz", type=int, default=0, help="inputs over all functions")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--only", default="", help="commands or functions, as pytest's -k")
    options = parser.parse_args()
    if not options.kills and not options.fuzz:
        parser.error("give --kills or --fuzz")
    folder = Path(__file__).parent
    kinds = {"kills": ["kills"], "fuzz": ["fuzz", "hostile"]}
    tests = [
        str(folder / f"test_{name}.py") for kind, names in kinds.items() for name in names if getattr(options, kind)
    ]
    with tempfile.TemporaryDirectory() as temporary:
        log = Path(temporary) / "counts"
        os.environ |= {
            "XALIGN_KILLS": str(options.kills),
            "XALIGN_FUZZ": str(options.fuzz),
            "XALIGN_CHAOS_SEED": str(options.seed),
            "XALIGN_CHAOS_LOG": str(log),
        }
        status = pytest.main(["-q", "-p", "no:cacheprovider", *(["-k", options.only] if options.only else []), *tests])
        for line in log.read_text().splitlines() if log.is_file() else ():
            print(" | ".join(f"{key} {value}" for key, value in json.loads(line).items()))  # noqa: T201
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
