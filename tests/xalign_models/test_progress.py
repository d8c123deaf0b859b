"""Live bars."""

from __future__ import annotations

import io
import time
from weakref import WeakSet

from tqdm import tqdm

from xalign_models import progress
from xalign_models.progress import live


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_and_erased(monkeypatch):
    monkeypatch.setattr(tqdm, "_instances", WeakSet())  # below a bar that another test left open it would stand lower
    screen = Terminal()
    assert list(live(range(3), desc="encode", delay=0, mininterval=0, file=screen)) == [0, 1, 2]
    assert "encode: 100%" in screen.getvalue()
    last = screen.getvalue().rsplit("\r", 2)[-2]
    assert not last.strip() and "\n" not in screen.getvalue()


def test_nothing_goes_into_a_pipe_within_a_minute(monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr(progress.Lines, "last", time.time())
    assert list(live(range(3), delay=0, file=pipe)) == [0, 1, 2]
    assert not pipe.getvalue()


def test_a_pipe_gets_a_line_a_minute_over_all_bars(monkeypatch):
    clock = [1000.0]
    pipe = io.StringIO()
    monkeypatch.setattr(progress, "time", lambda: clock[0])
    monkeypatch.setattr(progress.Lines, "last", clock[0])
    for name in ("deu", "fra"):  # each bar is shorter than a minute
        bar = live(total=4, desc=name, file=pipe)
        bar._time, bar.start_t = lambda: clock[0], clock[0]
        for _ in range(4):
            clock[0] += 10
            bar.update()
        bar.close()
    lines = pipe.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("fra:  50%")
    assert "\r" not in pipe.getvalue()
