"""The command line: ``xalign``."""

import os
import signal
import sys
from types import FrameType

__all__ = ["main"]

TERMINATED = 143
"""Exit status of a terminated process: 128 + 15, as in a shell."""


def main() -> None:
    """Run a command.

    The application is imported here, so that an interruption while it loads ends in one line too. Python processes that
    the command starts do not import from the working folder, which may have a ``tasks.py`` or a ``pip`` of the user's.
    """
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):  # for terminals without UTF-8 and for undecodable names
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if "run" in sys.argv[1:]:
        from xalign_models.cli.survival import SURVIVOR

        SURVIVOR.go_on()
    try:
        from xalign_models.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was finished is kept, and the same command resumes from there.\n")
        sys.exit(130)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.write("terminated; what was finished is kept, and the same command resumes from there.\n")
    sys.exit(TERMINATED)
