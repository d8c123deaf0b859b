"""The tutorials as a reader follows them: each file is written, each command run, and the page shows what it prints."""

from __future__ import annotations

import doctest
import os
import pty
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
STEP = re.compile(r'^```(?:\w+ title="(?P<file>[^"\n]+)"|console)\n(?P<body>.*?)^```$', re.M | re.S)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.M)
STYLE = re.compile(r"(?:\x1b\[[0-9;]*m| )+$|\x1b\[[0-9;]*m", re.M)


@pytest.fixture
def terminal(workdir, python):
    """Runs a command in a terminal of 96 columns; returns what it prints there, without messages of progress."""
    (workdir / "bin").mkdir()
    for name, module in (("python", ""), ("xalign", "-m xalign_models.cli")):
        (workdir / "bin" / name).write_text(f'#!/bin/sh\nexec {python} {module} "$@"\n')
        (workdir / "bin" / name).chmod(0o755)
    os.environ.update(COLUMNS="96", TERM="xterm", OMP_NUM_THREADS="1", PATH=f"{workdir / 'bin'}:{os.environ['PATH']}")
    (folder := workdir / "tutorial").mkdir()

    def run(command: str) -> tuple[str, str]:
        master, slave = pty.openpty()
        with (workdir / "errors").open("w+") as errors:
            process = subprocess.Popen(["bash", "-c", command], cwd=folder, stdin=slave, stdout=slave, stderr=errors)
            os.close(slave)
            shown = b""
            with suppress(OSError):  # the terminal is closed
                while chunk := os.read(master, 65536):
                    shown += chunk
            os.close(master)
            process.wait()
            errors.seek(0)
            return STYLE.sub("", shown.decode().replace("\r\n", "\n")), errors.read()

    return run


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_the_page_shows_what_its_commands_print(page, terminal, workdir, take_assets):
    take_assets("all-minilm-l6-v2", "gettext")
    for step in STEP.finditer(page.read_text("utf-8")):
        if step["file"]:
            (workdir / "tutorial" / step["file"]).write_text(step["body"])
            continue
        for command, shown in COMMAND.findall(step["body"]):
            printed, errors = terminal(command)
            same = doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)
            assert same, f"{page.name}: $ {command}\nshows\n{shown}\nprints\n{printed}\n{errors}"
