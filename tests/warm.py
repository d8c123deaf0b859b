"""Python processes that need not import the large libraries: each is forked from a server that has done so.

A fork has its caller's arguments, environment, folder and open files, and imports this project's packages itself.
Tests of the imports or of the interpreter need ``sys.executable``.
"""

from __future__ import annotations

import ast
import gc
import importlib
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from filelock import FileLock

LIBRARIES = ("torch.distributed.run", "accelerate", "mteb", "peft", "sentence_transformers")
CLIENT = """#!{python} -ES
import os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({folder!r} + "/" + os.environ.get("LOCAL_RANK", "0"))
request = repr((sys.argv[1:], dict(os.environ), os.getcwd())).encode()
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
answers = server.makefile()
child = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(child, number))
status = int(answers.readline())
if status < 0:
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


class Warm:
    """A program that stands for ``sys.executable``, and servers, which end with their owner.

    Args:
        folder: Where they meet; a socket's path has a hundred characters at most.
        owner: The process that the servers are for, and others that it has started.
    """

    def __init__(self, folder: Path, owner: int) -> None:
        self._folder, self._owner = folder, owner
        self._servers: list[subprocess.Popen[bytes]] = []

    def serve(self, count: int = 1) -> str:
        """The program, whose processes of local rank 0 to ``count`` - 1 have a server each, and so their own hashes.

        Where the system cannot watch a process by a file, it is Python itself.
        """
        if not hasattr(os, "pidfd_open"):
            return sys.executable
        self._folder.mkdir(exist_ok=True)
        program = self._folder / "python"
        with FileLock(self._folder / "lock"):
            if not program.exists():
                program.write_text(CLIENT.format(python=sys.executable, folder=str(self._folder)))
                program.chmod(0o755)
            for place in (self._folder / str(number) for number in range(count)):
                if not place.exists():
                    self._start(place)
        return str(program)

    def _start(self, place: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            listener.listen()
            self._servers.append(
                subprocess.Popen(
                    [sys.executable, __file__, str(listener.fileno()), str(self._owner), str(self._folder)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[listener.fileno()],
                    env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": ""},
                    start_new_session=True,
                )
            )


def listen(listener: socket.socket, owner: int, folder: str) -> None:
    """Fork for each caller until the owner is gone; returns in the forks, which go on as the callers' processes."""
    watched = os.pidfd_open(owner)
    path = [place for place in sys.path[1:] if place not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    gc.freeze()  # no fork touches what is there
    while True:
        ready, _, _ = select.select([listener, watched], [], [])
        if watched in ready:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.close(watched)
            attend(caller)
            break
        caller.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    sys.path[:] = path


def attend(caller: socket.socket) -> None:
    """Fork the caller's process, and stay to tell how it ends; it is killed if the caller goes first."""
    size, files, _, _ = socket.recv_fds(caller, 8, 3)
    request = b""
    while len(request) < int.from_bytes(size, "big"):
        request += caller.recv(1 << 16)
    if child := os.fork():
        for file in (*files, 0, 1, 2):
            os.close(file)
        caller.sendall(f"{child}\n".encode())
        watched = os.pidfd_open(child)
        ready, _, _ = select.select([caller, watched], [], [])
        if watched not in ready:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with suppress(OSError):
            caller.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    caller.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.argv, environment, folder = ast.literal_eval(request.decode())
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)


def run() -> None:
    """Run the arguments as ``python`` does: ``-c``, ``-m`` or a file."""
    import numpy as np

    np.random.seed()  # noqa: NPY002
    sys.stdin, sys.stdout = open(0), open(1, "w", buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    if sys.argv[0] == "-u":
        sys.argv.pop(0)
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if sys.argv[0] == "-c":
        code = sys.argv.pop(1)
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), main.__dict__)
    elif sys.argv[0] == "-m":
        sys.argv.pop(0)
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    listen(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3])
    run()
