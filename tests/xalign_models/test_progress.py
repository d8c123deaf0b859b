"""Live bars."""

from __future__ import annotations

import io

from xalign_models.progress import live


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_and_erased():
    screen = Terminal()
    assert list(live(range(3), desc="encode", delay=0, mininterval=0, file=screen)) == [0, 1, 2]
    assert "encode: 100%" in screen.getvalue()
    last = screen.getvalue().rsplit("\r", 2)[-2]
    assert not last.strip() and "\n" not in screen.getvalue()


def test_nothing_goes_into_a_pipe():
    pipe = io.StringIO()
    assert list(live(range(3), delay=0, file=pipe)) == [0, 1, 2]
    assert not pipe.getvalue()
