"""Every format has the same numbers, and names cannot act on what shows them."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from xalign_models.tables.board import Board, Cell, Evidence, Row, wrap
from xalign_models.tables.escaping import escape
from xalign_models.tables.formats import FORMATS, to_csv, to_json, to_latex, to_markdown, to_tsv

HOSTILE = "a|b`<script>alert(1)</script>\x1b[31m\u202e\n\t{\\x}_%&\"'"


@pytest.fixture
def board() -> Board:
    cells = {
        "T": Cell(81.25, 2.5, Evidence.FIXED, 1.5, 3.5, same=-7.25, ranks=(1, 2), best=True),
        "U": Cell(40.0, -0.25, Evidence.CHANCE, -1.0, 0.5, ranks=(1, 3), covered=3, of=4, fitted=True),
    }
    return Board("model", ["T", "U"], [Row("tiny", "lsar", "xalign/lsar__tiny", cells)], ["A note."])


def test_all_formats_have_the_scores(board) -> None:
    texts = {name: form(board) for name, form in FORMATS.items()} | {"json": json.dumps(to_json(board))}
    for name, text in texts.items():
        assert re.search(r"81\.2", text), name
        assert re.search(r"\+?2\.5", text), name
        assert re.search(r"-0\.2", text), name
        assert re.search(r"-7\.2", text), name


def test_csv_has_a_line_for_each_cell(board) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(board))))
    assert [(row["model"], row["column"], float(row["score"])) for row in rows] == [
        ("xalign/lsar__tiny", "T", 81.25),
        ("xalign/lsar__tiny", "U", 40.0),
    ]
    assert [float(rows[0][field]) for field in ("low", "high", "best_rank", "worst_rank")] == [1.5, 3.5, 1, 2]
    assert (rows[1]["covered"], rows[1]["of"], rows[1]["fitted"]) == ("3", "4", "True")


def test_latex_has_intervals_daggers_and_marks(board) -> None:
    text = to_latex(board)
    for part in (
        r"\textbf{81.2}",
        r"{\scriptsize $+2.5$\textdegree{} [+1.5, +3.5]}",
        r"{\scriptsize same $-7.2$}",
        r"\underline{40.0}\textsuperscript{\textdagger}",
        "3/4",
    ):
        assert part in text
    assert r"\toprule" in text
    assert r"\bottomrule" in text


def test_narrow_markdown_has_no_legend(board) -> None:
    assert (
        to_markdown(board, narrow=True).splitlines()[-1]
        == "| lsar | **81.2**\u00a0(+2.5°, same -7.2) | <ins>40.0†</ins>\u00a0(-0.2~, 3/4) |"
    )


@pytest.mark.parametrize("name", [*FORMATS, "table"])
def test_hostile_names_are_harmless(name: str) -> None:
    board = Board("model", [HOSTILE], [Row(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: Cell(1.0)}, HOSTILE)], [HOSTILE])
    if name == "table":
        console = Console(width=400, file=io.StringIO(), color_system=None)
        console.print(board)
        text = console.file.getvalue()
    else:
        text = FORMATS[name](board)
    assert not {"\x1b", "\u202e"} & set(text)
    if name == "markdown":
        table = [line for line in text.splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {4}
        assert all(line.count("`") % 2 == 0 for line in table)
    if name == "tsv":
        assert [line.count("\t") for line in to_tsv(board).splitlines()] == [2, 2]
    if name == "latex":
        assert r"\textbackslash{}" in text
        assert r"\_\%\&" in text
    if name == "csv":
        assert next(csv.DictReader(io.StringIO(text)))["model"] == escape(HOSTILE, "csv")


@pytest.mark.parametrize("name", [*FORMATS, "table"])
def test_the_prompt_is_a_column_where_a_row_has_one(name: str) -> None:
    def shown(*prompts: str) -> str:
        rows = [Row("tiny", "plain", "xalign/plain__tiny", {"T": Cell(1.0)}, prompt) for prompt in prompts]
        board = Board("model", ["T"], rows, [])
        if name != "table":
            return FORMATS[name](board)
        console = Console(width=100, file=io.StringIO(), color_system=None)
        console.print(board)
        return console.file.getvalue()

    assert "prompt" not in shown("", "")
    assert all(text in shown("query:", "") for text in ("prompt", "query:", "--" if name == "latex" else "–"))


@given(st.text("ab-/_: ", min_size=1), st.integers(3, 20))
def test_lines_are_parts_of_the_text(text: str, width: int) -> None:
    text = " ".join(text.split())
    lines = wrap(text, width)
    assert all(line in text for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert wrap(text, 99) == ([text] if text else [])


@pytest.mark.parametrize("name", [*FORMATS, "table"])
def test_a_difference_that_rounds_to_zero_has_no_minus(name: str) -> None:
    cell = Cell(50.0, -0.04, Evidence.CHANCE, -0.04, -0.01, same=-0.04)
    board = Board("model", ["T"], [Row("tiny", "lsar", "xalign/lsar__tiny", {"T": cell})], [])
    if name == "table":
        console = Console(width=100, file=io.StringIO(), color_system=None)
        console.print(board)
        assert "+0.0~" in console.file.getvalue()
    else:
        assert not re.search(r"-0\.0(?!\d)", FORMATS[name](board))
