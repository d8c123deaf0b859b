"""Every command, argument and option has a help text that reads as plain English and is never cut."""

from __future__ import annotations

import re

import pytest

from xalign_models.cli.app import GROUPS, root

BAD_START = re.compile(r"(Of|What|That|Those|Whose|Which|It|They)\b")
WIDTH = 80


def walk(command, path=()):
    """Each command of a group, and the group, with its path: (path, command)."""
    yield " ".join(path), command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*path, name))


COMMANDS = dict(walk(root()))


@pytest.fixture
def help_of(xalign, monkeypatch):
    """The help of a command in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))

    def text(path: str) -> str:
        status, out, err = xalign(*path.split(), "--help")
        assert (status, err) == (0, [])
        return out

    return text


def unbroken(text: str) -> str:
    """A text on one line; a line may end within a word at a hyphen."""
    return " ".join(text.split()).replace("- ", "-")


@pytest.mark.parametrize("path", [path for path in COMMANDS if path != "mteb"])  # it shows mteb's own help
def test_no_help_line_is_cut(help_of, path):
    """Each summary and help text is there word by word, in lines of at most 80 columns."""
    command, shown = COMMANDS[path], help_of(path)
    words = unbroken(shown)
    for below in getattr(command, "commands", {}).values():
        assert below.short_help
        assert below.short_help in words
    for parameter in command.params:
        assert unbroken(parameter.help or "") in words
    assert [line for line in shown.splitlines() if len(line) > WIDTH] == []


@pytest.mark.parametrize("path", [path for path in COMMANDS if path != "mteb"])
def test_help_texts_are_phrases_that_stand_alone(path):
    """Each begins with a verb or a noun, and does not lean on the name of its option as "Of a model" does."""
    command = COMMANDS[path]
    command.get_help(command.context_class(command))  # some commands complete the texts when they show them
    texts = {parameter.name: parameter.help or "" for parameter in command.params}
    texts["the command"] = command.help or ""
    assert {name: text for name, text in texts.items() if BAD_START.match(text) or not text.strip()} == {}


def test_the_list_of_commands_has_a_short_summary_of_each():
    assert {path: command.short_help for path, command in COMMANDS.items() if len(command.short_help or "") > 120} == {}


def test_every_command_is_in_one_group_of_the_help(help_of):
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == sorted(root().commands)
    shown = help_of("")
    assert [shown.index(f"\n{title}:") for title in GROUPS] == sorted(shown.index(f"\n{title}:") for title in GROUPS)
