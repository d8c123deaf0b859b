"""Commands in a process of their own that is killed at a chosen write or moment, and what they leave."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHANGES = frozenset(
    f"os.{name}" for name in ("rename", "remove", "mkdir", "rmdir", "link", "symlink", "truncate", "chmod", "utime")
)
"""Audit events of Python that change a file system; opening a file to write is one more."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        status: Its exit status; negative is the signal that ended it.
        writes: How often it was about to change a file; None if it was killed.
        seconds: How long it ran.
        printed: What it printed.
    """

    status: int
    writes: int | None
    seconds: float
    printed: str


@dataclass(frozen=True)
class Job:
    """A command that is to survive being killed.

    Attributes:
        body: The command, run in its folder.
        outcome: Folder -> what must be the same however often the command was killed.
        template: The folder's content before the command.
        clean: The command that removes what kills leave.
    """

    body: Callable[[], Any]
    outcome: Callable[[Path], Any]
    template: Path
    clean: Callable[[], Any]


def command(*arguments: str) -> Callable[[], None]:
    """``xalign`` with these arguments."""

    def body() -> None:
        from xalign_models.cli import main

        sys.argv = ["xalign", *arguments]
        main()

    return body


def run(body: Callable[[], Any], folder: Path, at_write: int | None = None, after: float | None = None) -> Ended:
    """Run ``body`` in a forked process in ``folder``.

    Args:
        body: What is run; it may exit as a command does.
        folder: The working directory, whose cache, store and data it uses.
        at_write: Kill it when it is about to change a file for this time, from 1.
        after: Kill it after these seconds.
    """
    log, counted = folder.with_name("log"), folder.with_name("writes")
    counted.unlink(missing_ok=True)
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(body, folder, at_write, log, counted)
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended:
        if after is not None and time.monotonic() - start >= after:
            os.kill(pid, signal.SIGKILL)
            after = None
        time.sleep(0.002)
        ended, status = os.waitpid(pid, os.WNOHANG)
    whole = os.WIFEXITED(status) and counted.is_file()  # a killed process may leave half of the file
    writes = pickle.loads(counted.read_bytes()) if whole else None
    seconds = time.monotonic() - start
    return Ended(os.waitstatus_to_exitcode(status), writes, seconds, log.read_text(errors="replace"))


def _child(body: Callable[[], Any], folder: Path, at_write: int | None, log: Path, counted: Path) -> None:
    status = 70
    writes = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal writes
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & _WRITING:
                return
        elif event in CHANGES:
            path = arguments[0]
        else:
            return
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if Path(name).is_absolute() and not name.startswith(str(folder)):
            return
        writes += 1
        if writes == at_write:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = sys.stderr = os.fdopen(handle, "w")
        os.chdir(folder)
        if "torch" in sys.modules:  # its threads stayed in the parent, and an operation on several would wait for them
            sys.modules["torch"].set_num_threads(1)
        for name in ("cache", "store", "data"):
            os.environ[f"XALIGN_{name.upper()}"] = str(folder / name)
        sys.addaudithook(watch)
        try:
            body()
            status = 0
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        counted.write_bytes(pickle.dumps(writes))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def fresh(template: Path, folder: Path) -> Path:
    """``folder`` with the template's content and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder, symlinks=True)
    return folder
