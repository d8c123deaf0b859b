"""The command line, called in this process."""

from __future__ import annotations

import os
import sys
import warnings

import pytest

from xalign_models.cli import main


@pytest.fixture
def xalign(workdir, monkeypatch, capfd):
    """Runs a command in this process: (exit status, standard output, lines of standard error)."""

    def run(*arguments):
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["xalign", *map(str, arguments)])
        formatwarning = warnings.formatwarning
        with pytest.raises(SystemExit) as exit_:
            main()
        warnings.formatwarning = formatwarning
        os.environ.pop("XALIGN_OWN", None)  # --data sets it
        captured = capfd.readouterr()
        return exit_.value.code or 0, captured.out, captured.err.splitlines()

    return run
