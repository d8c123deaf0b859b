"""Lets ``xalign run`` outlive work that ends its process: by a crash in compiled code, a lack of memory, or a hang.

The command continues in a child process, and its parent waits. If a signal ends the child, the parent starts another,
which leaves out the unit of work that ended the first. Work that was finished has its results on disk.
"""

import os
import signal
import struct
import sys
import threading
from collections.abc import Callable
from mmap import mmap
from time import monotonic

from xalign_models.errors import ModelError

SIZE = 4096
"""Bytes of memory that parent and child share: the seconds that a unit of work may take, and its name."""
_TIMEOUT = struct.Struct("d")
_BLOCKED = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD} if hasattr(signal, "SIGCHLD") else set()
KILLED = "Its process was killed, most likely for want of memory."


class Survivor:
    """The units of work that ended earlier processes of this command, and the one that is under way.

    Attributes:
        ended: Why each of them ended its process.
        alone: Whether no parent waits for this process.
    """

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}
        self.alone = True
        self._shared = mmap(-1, SIZE)

    def watch(self, units: int, minutes: float | None = None) -> Callable[..., str]:
        """:meth:`begin`, for some units of work that may take so long each; a single one may end the command.

        Raises:
            ModelError: There is a limit of time, but no parent that could keep it.
        """
        if minutes and self.alone:
            raise ModelError("--timeout needs Linux, and a process that has not imported torch; leave it out.")
        self._shared[: _TIMEOUT.size] = _TIMEOUT.pack(60 * (minutes or 0))
        return self.begin if minutes or units > 1 else lambda *unit: ""

    def begin(self, *unit: str) -> str:
        """Note the unit of work that begins; returns why it ended an earlier process, or an empty text."""
        room = SIZE - _TIMEOUT.size
        self._shared[-room:] = "\t".join(unit).encode()[:room].ljust(room, b"\0")
        return self.ended.get(self._unit, "")

    @property
    def _unit(self) -> str:
        return self._shared[_TIMEOUT.size :].rstrip(b"\0").decode(errors="ignore")

    def go_on(self) -> None:
        """Return in a child process, and again in another one after each unit that ends it; the parent exits with it.

        It must be called before torch starts threads, which do not outlive a fork. Systems without Linux's waiting for
        signals go on without a child, and so does a process that has imported torch.
        """
        if not hasattr(signal, "sigtimedwait") or "torch" in sys.modules:
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        while True:
            self._shared[:] = bytes(SIZE)
            alive, parent = os.pipe()
            if (child := os.fork()) == 0:
                os.close(parent)
                threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                self.alone = False
                return
            os.close(alive)
            status, reason = self._wait(child)
            os.close(parent)
            if not os.WIFSIGNALED(status):
                os._exit(os.waitstatus_to_exitcode(status))
            number, unit = os.WTERMSIG(status), self._unit
            if not unit or unit in self.ended or number in _BLOCKED:  # nothing to leave out: end as the child did
                if number != signal.SIGKILL:
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                os.kill(os.getpid(), number)
            crashed = f"Its process crashed ({signal.Signals(number).name}); run it alone to see where."
            self.ended[unit] = reason or (KILLED if number == signal.SIGKILL else crashed)

    def _wait(self, child: int) -> tuple[int, str]:
        """The status of a child that ended, and why it was ended. Signals reach it; a unit has its time."""
        began, unit = monotonic(), self._unit
        while True:
            got = signal.sigtimedwait(_BLOCKED, 1)
            if got is not None and got.si_signo != signal.SIGCHLD:
                if got.si_signo == signal.SIGTERM or got.si_pid:  # a terminal interrupts both
                    os.kill(child, got.si_signo)
                continue
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status, ""
            if self._unit != unit:
                began, unit = monotonic(), self._unit
            (timeout,) = _TIMEOUT.unpack(self._shared[: _TIMEOUT.size])
            if unit and 0 < timeout < monotonic() - began:
                os.kill(child, signal.SIGKILL)
                return os.waitpid(child, 0)[1], f"It took longer than {timeout / 60:g} minutes."


SURVIVOR = Survivor()
"""The survivor of this process."""


def _end_with_parent(alive: int) -> None:
    """End this process when its parent does, even by SIGKILL: the pipe then has no writer."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGKILL)
