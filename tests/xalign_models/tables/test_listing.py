"""Rows in terminals of any width: nothing is lost, and no line is too long."""

from collections import Counter

import pytest
from rich.console import Console

from xalign_models.tables.listing import listing

HEADS = ("model", "score", "trained on", "licence", "description", "link")
ADDRESS = "https://huggingface.co/organisation/a-model-with-a-long-name"
LINES = [
    ["organisation/a-model-with-a-long-name", "82.6", "0", "MIT", "Finds translations among many sentences.", ADDRESS],
    ["organisation/short", "7.1", "12", f"{ADDRESS}/LICENSE", "", "?"],
]


def shown(room: int, lines: list[list[str]] = LINES) -> tuple[list[str], list[str]]:
    """Lines of each table as a terminal of ``room`` characters shows it, and the addresses."""
    tables, addresses = listing(HEADS, lines, ("score", "trained on"), room)
    texts = []
    for table in tables:
        console = Console(width=room)
        with console.capture() as capture:
            console.print(table, highlight=False, markup=False)
        texts.append(capture.get())
    return texts, addresses


@pytest.mark.parametrize("room", [40, 60, 80, 96, 110, 160, 300])
def test_no_line_is_wider_than_the_terminal_and_no_character_is_lost(room: int) -> None:
    texts, addresses = shown(room)
    assert all(len(line.rstrip()) <= room for text in texts for line in text.splitlines())
    printed = Counter("".join(texts))
    wanted = Counter("".join(cell for line in LINES for cell in line if ADDRESS not in cell).replace(" ", ""))
    assert wanted <= printed
    if room < 300:
        assert addresses == [f"[1] {ADDRESS}/LICENSE", f"[2] {ADDRESS}"]


def test_wide_terminals_show_one_table_with_its_addresses() -> None:
    (text,), addresses = shown(300)
    assert f"{ADDRESS}/LICENSE" in text
    assert not addresses


def test_an_address_has_one_number() -> None:
    _, addresses = shown(80, [[*line[:5], ADDRESS] for line in LINES])
    assert [address for address in addresses if address.endswith(ADDRESS)] == [f"[2] {ADDRESS}"]


def test_columns_that_do_not_fit_stand_below_with_the_rows_names() -> None:
    texts, _ = shown(80)
    assert len(texts) > 1
    for text in texts:
        assert "organisation/a-model-with-a-long-name" in text


def test_headers_are_broken_before_cells() -> None:
    tables, _ = listing(("name", "trained on"), [["a" * 20, "1"]], (), 30)
    console = Console(width=30)
    with console.capture() as capture:
        console.print(tables[0])
    assert [line.split() for line in capture.get().splitlines()] == [["trained"], ["name", "on"], ["a" * 20, "1"]]


def test_wide_characters_count_twice() -> None:
    texts, _ = shown(300, [["模型" * 20, *LINES[0][1:]]])
    assert "模型" * 20 in texts[0]


def test_codes_in_a_list_stay_whole() -> None:
    tables, _ = listing(("name", "worse in"), [["affine", "deu-Latn, fra-Latn, swh-Latn"]], (), 22)
    console = Console(width=22)
    with console.capture() as capture:
        console.print(tables[0])
    assert {"deu-Latn,", "fra-Latn,", "swh-Latn"} <= {*capture.get().split()}
