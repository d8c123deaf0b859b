"""Thirty names that a stranger could give, in every output that shows names: none acts."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from tests.xalign_models.page.conftest import data_in
from xalign_models import page
from xalign_models.boards import reports
from xalign_models.boards.verdicts import GateReport, GateRow, Verdict
from xalign_models.cli import common
from xalign_models.models.provenance import write_card
from xalign_models.page.writing import render
from xalign_models.specs import BackboneSpec, ModelSpec
from xalign_models.tables.board import Board, Cell, Evidence, Row
from xalign_models.tables.formats import to_csv, to_json, to_latex, to_markdown, to_tsv

PAYLOADS = (
    "=1+1", "+1+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", "  =HYPERLINK(\"http://x.example\")", "＝1",
    "[a](//x.example)", "[a](http://x.example)", "![a](http://x.example/i.png)", "www.x.example", "<img src=x>",
    "a\\|b", "a`b`c", "**a**__b__", "<script>alert(1)</script>", "</script><script>alert(1)</script>",
    "\"onload='x'", "<!--",
    "\\input{/etc/passwd}", "[9cm]", "*", "%$#_{}~^&", "::error::a", "a\n::set-output name=a::b",
    "\x1b]8;;http://x.example\x07a", "[red]a[/nothing]:smile:", "\u202eb\x9b31m\x00", "$(touch a); `b` 'c'",
)  # fmt: skip
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]")


def board(name: str) -> Board:
    cells = {name: Cell(81.25, 2.5, Evidence.HOLDS, 1.5, 3.5, (1, 2), best=True)}
    return Board("model", [name], [Row(name, name, name, cells)], ["A note."])


def gate(name: str) -> GateReport:
    return GateReport((GateRow(name, name, name, 1.0, Verdict.FAIL, name, 50.0, 40.0),))


def shown(thing: object) -> str:
    console = Console(file=io.StringIO(), force_terminal=False, width=200)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined]


def check_terminal(text: str) -> None:
    assert not [character for character in text if not character.isprintable() and character not in "\n\t\xa0"]


def check_cells(rows: list[list[str]], columns: int) -> None:
    assert {len(row) for row in rows} == {columns}
    numbers = re.compile(r"[-+]?[\d.]+")
    assert not [cell for row in rows for cell in row if FORMULA.match(cell) and not numbers.fullmatch(cell)]


def check_markdown(text: str, columns: int) -> None:
    check_terminal(text)
    plain = re.sub(r"`[^`\n]*`", "", text).replace("<ins>", "").replace("</ins>", "")
    assert not re.search(r"(?i)(?<!\\)<|\]\(|www\.|http|__|\|\||!\[", plain.replace("| |", ""))
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {columns + 1}


def test_there_are_thirty() -> None:
    assert len({*PAYLOADS}) == 30


@pytest.mark.parametrize("name", PAYLOADS)
class TestName:
    """One name in every output."""

    def test_in_leaderboards(self, name: str) -> None:
        check_terminal(shown(board(name)))
        tsv = to_tsv(board(name))
        check_cells([line.split("\t") for line in tsv.splitlines()], 2)
        check_cells(list(csv.reader(io.StringIO(to_csv(board(name))))), 17)
        for text in (tsv, to_csv(board(name)), to_latex(board(name))):
            check_terminal(text)
        for narrow in (False, True):
            check_markdown(to_markdown(board(name), narrow=narrow), 2)
        lines = to_latex(board(name)).splitlines()
        assert not [line for line in lines if line.startswith(("[", "*", "\\input"))]
        assert len(lines) == len(to_latex(board("plain")).splitlines())
        assert json.loads(json.dumps(to_json(board(name))))["rows"][0]["name"] == name

    def test_in_gates(self, name: str) -> None:
        report = gate(name)
        check_terminal(shown(report))
        check_markdown(reports.markdown(report), 5)
        (case,) = ET.fromstring(reports.junit(report)).iter("testcase")
        assert len(case) == 1
        (line,) = reports.workflow_commands(report)
        check_terminal(line)
        assert re.fullmatch(r"::error title=[^:,]*::.*", line)  # all behind the second :: is text

    def test_in_lists_and_messages(self, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: object) -> None:
        common.print_rows([{"model": name, "score": -1.5}], as_json=False)
        table = capsys.readouterr().out
        check_cells([line.split("\t") for line in table.splitlines()], 2)
        check_terminal(table)
        common.print_json({"name": name})
        text = capsys.readouterr().out
        check_terminal(text)
        assert json.loads(text) == {"name": name}
        for say in (common.say, common.tell):
            say(name)
            read = capsys.readouterr()
            check_terminal(read.out + read.err)
            assert ":smile:" in name or "☺" not in read.out

    def test_in_the_page(self, name: str) -> None:
        made = render({"packed": {}, "name": name})
        assert made.count("</script") == render({"packed": {}, "name": "plain"}).count("</script")
        assert data_in(made)["name"] == name

    def test_in_a_card(self, name: str, tmp_path: Path) -> None:
        class Model(list[object]):
            xalign_spec = ModelSpec(BackboneSpec("b", f"org/{name}"))
            xalign_claims = {"name": name}
            tuned = False

        write_card(Model(), tmp_path, called=name)
        text = (tmp_path / "README.md").read_text("utf-8")
        check_terminal(text)
        _, front, body = text.split("---\n", 2)
        assert len(front.splitlines()) == 7
        assert len(re.findall(r"^```", body, re.MULTILINE)) == 2
        title = body.strip().splitlines()[0]
        assert not re.search(r"<|\]\(", re.sub(r"`[^`]*`", "", title))


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_pages_commands_name_one_word_each() -> None:
    source = (Path(page.__file__).parent / "parts.js").read_text("utf-8")
    function = next(line for line in source.splitlines() if line.startswith("const shellWord"))
    texts = json.dumps([name for name in PAYLOADS if "\0" not in name])
    done = subprocess.run(
        ["node", "-e", f"{function}\nconsole.log(JSON.stringify({texts}.map(shellWord)))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    quoted: list[str] = json.loads(done.stdout)
    for word, name in zip(quoted, json.loads(texts), strict=True):
        echoed = subprocess.run(["sh", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout.decode()
        assert echoed == name
