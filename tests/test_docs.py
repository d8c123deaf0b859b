"""README and docs: links lead somewhere, command lines parse as written, Python runs as written."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

from xalign_models.corpora import embedded

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall(page.read_text("utf-8")) if name == language]


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text("utf-8")), re.M)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).lower() for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                found += [(page.name, part.strip()) for part in line.split("&&") if part.strip().startswith("xalign ")]
    with (ROOT / "xalign_models" / "published" / "reproduction.csv").open(encoding="utf-8", newline="") as file:
        found += [("reproduction.csv", row["command"]) for row in csv.DictReader(file) if row["command"]]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in LINK.findall(BLOCK.sub("", page.read_text("utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name}: {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), f"{page.name}: {target}"


@pytest.fixture(scope="module")
def application():
    import typer.main

    from xalign_models.cli.app import app

    return typer.main.get_command(app)


@pytest.mark.parametrize(("page", "line"), commands())
def test_command_lines_parse(application, page, line):
    """Every option that a page shows exists; ``$L`` and ``$K`` are languages, which are checked too."""
    command = application
    arguments = shlex.split(re.sub(r"\$[KL]\b", "de", line), comments=True)[1:]
    context = command.make_context("xalign", list(arguments))
    while hasattr(command, "get_command"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not rest and command.invoke_without_command:
            break
        command = command.get_command(context, rest[0])
        assert command is not None, f"{page}: no command {rest[0]}"
        context = command.make_context(rest[0], rest[1:], parent=context)


@pytest.fixture
def few_rows(monkeypatch):
    """The embedded corpus has forty rows in each half."""
    make = embedded.from_columns

    def first(name, trains, columns, fingerprint):
        return make(name, trains, {language: texts[:40] for language, texts in columns.items()}, f"{fingerprint} few")

    monkeypatch.setattr(embedded, "from_columns", first)
    embedded._gettext.cache_clear()
    yield
    embedded._gettext.cache_clear()


@pytest.mark.slow
def test_readmes_lines_run_as_written(take_assets, few_rows):
    take_assets("multilingual-e5-small-q4", "gettext")
    (source,) = blocks(ROOT / "README.md", "python")
    names: dict = {}
    exec(compile(source, "README.md", "exec"), names)  # as a reader would paste it
    assert names["vectors"].shape == (2, 384)
    assert set(names["scores"]["model"]) >= {"xalign/plain__multilingual-e5-small-q4"}
    assert names["scores"]["score"].between(0, 1).all()


def test_readmes_board_is_of_the_committed_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from docs.tools.readme import BOARD, board

    (shown,) = BOARD.findall((ROOT / "README.md").read_text("utf-8"))
    assert shown == board(), "run python -m docs.tools.readme"


def test_every_table_of_the_papers_is_accounted_for(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from docs.tools.reproduction import PAGE, ROWS, STATUS, page

    tables = {(row["paper"], row["item"]) for row in ROWS if row["item"].startswith("Table")}
    counts = {"isomorphism": 11, "linear-mapping": 7, "lsar": 20, "lusifer": 19, "lira": 16}
    assert tables == {(paper, f"Table {n}") for paper, most in counts.items() for n in range(1, most + 1)}
    assert len({(row["paper"], row["item"]) for row in ROWS}) == len(ROWS)
    assert {row["status"] for row in ROWS} <= STATUS.keys()
    assert PAGE.read_text("utf-8") == page(), "run python -m docs.tools.reproduction"
