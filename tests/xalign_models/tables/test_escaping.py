"""Names that could act on a terminal, a page or a table do not."""

from __future__ import annotations

import html
import json
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xalign_models.tables.escaping import escape

HOSTILE = "a\x1b[31m\r\nb\u202ec\u2066d\u200be\u2028f\x00g\ud800h\x85i"


def test_names_of_all_scripts_stay() -> None:
    for name in ("xalign/lsar__multilingual-e5-small", "ভাষা", "עברית", "日本語", "naïve", "a b"):
        assert escape(name) == name


def test_what_does_not_print_is_written_out() -> None:
    assert escape(HOSTILE) == r"a\x1b[31m\r\nb\u202ec\u2066d\u200be\u2028f\x00g\ud800h\x85i"
    for form in ("terminal", "html", "markdown", "github", "property", "csv"):
        assert escape(HOSTILE, form).isprintable()


def test_each_form_by_hand() -> None:
    text = "<b>&\"'|`%:,"
    assert escape(text, "html") == "&lt;b&gt;&amp;&quot;&#x27;|`%:,"
    assert escape(text, "markdown") == "`<b>&\"'\\x7c\\x60%:,`"
    assert escape(text, "github") == "<b>&\"'|`%25:,"
    assert escape(text, "property") == "<b>&\"'|`%25%3A%2C"
    assert escape("", "markdown") == ""
    assert [escape(name, "csv") for name in ("=1+1", "@SUM(A1)", "a=b", "")] == ["'=1+1", "'@SUM(A1)", "a=b", ""]


@given(st.text(st.characters()))
def test_nothing_gets_out(text: str) -> None:
    assert escape(text).isprintable()
    assert html.unescape(escape(text, "html")) == escape(text)
    assert ET.fromstring(f'<a b="{escape(text, "html")}"/>').attrib["b"] == escape(text)
    assert "`" not in escape(text, "markdown")[1:-1]
    assert "|" not in escape(text, "markdown")
    assert not {":", ",", "\n"} & set(escape(text, "property"))
    assert escape(text, "github").replace("%25", "%") == escape(text)  # as GitHub's runner reads them
    assert escape(text, "property").replace("%3A", ":").replace("%2C", ",").replace("%25", "%") == escape(text)


@given(st.text(st.characters()))
def test_json_is_itself_when_it_is_read(text: str) -> None:
    shown = escape(json.dumps(text, ensure_ascii=False), "json")
    assert shown.isprintable()
    assert json.loads(shown) == text


@pytest.mark.parametrize("text", ["", "plain", "\\x1b"])
def test_what_prints_is_itself(text: str) -> None:
    assert escape(text) == text


@pytest.mark.parametrize(
    "cell", ["+1.5", "-1e-05", "+3.2%", "+0.0041 swh-Latn", "+2.0 [+0.3, -3.7]", "-1.6 deu-Latn [-0.1, +3.3]"]
)
def test_gains_are_no_formulas(cell: str) -> None:
    assert escape(cell, "csv") == cell


@pytest.mark.parametrize("cell", ["+1 =A1", "-2+3", "+0.5 x!A1", "+1 [+A1, 2]", "-1e", "+1|cmd", "+1 fra-Latn()"])
def test_formulas_that_open_with_a_number_are_guarded(cell: str) -> None:
    assert escape(cell, "csv") == f"'{cell}"
