"""The command line: ``xalign``."""

import io
import os
import signal
import sys
from types import FrameType
from typing import Any

__all__ = ["main"]

TERMINATED = 143
"""Exit status of a terminated process: 128 + 15, as in a shell."""


class _Output(io.FileIO):
    """A standard stream whose reader may leave, as ``| head`` does: the rest is discarded, and the command goes on.

    So its exit status is the one that it has without the pipe. An output that a full disk cuts is an error.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
                raise
            return super().write(data)


def main() -> None:
    """Run a command.

    The application is imported here, so that an interruption while it loads ends in one line too. Python processes that
    the command starts do not import from the working folder, which may have a ``tasks.py`` or a ``pip`` of the user's.
    """
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    if "OMP_WAIT_POLICY" not in os.environ:  # else threads that wait for each other occupy processors
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    signal.signal(signal.SIGTERM, _terminate)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: PTH123, SIM115  # None if it is closed, as by `>&-`
        if stream is getattr(sys, f"__{name}__") and not stream.isatty():
            raw = io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False))
            by_line = stream.line_buffering or stream.write_through
            stream = io.TextIOWrapper(raw, stream.encoding, line_buffering=by_line)
        if hasattr(stream, "reconfigure"):  # for terminals without UTF-8 and for undecodable names
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, stream)
    if "run" in sys.argv[1:]:
        from xalign_models.cli.survival import SURVIVOR

        SURVIVOR.go_on()
    try:
        from xalign_models.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run the same command again: it reuses whatever was stored so far.\n")
        sys.exit(130)


def _terminate(number: int, frame: FrameType | None) -> None:
    from xalign_models.errors import Terminated

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.write("terminated; run the same command again: it reuses whatever was stored so far.\n")
    raise Terminated(TERMINATED)
