"""Numbers in pages: right ones pass, others fail with their line, and what names nothing fails too."""

from __future__ import annotations

import pytest

from benchmarks import claims


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Checks a page beside ``scores.csv`` and ``report.json``: (exit status, what was printed)."""
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    claims._rows.cache_clear()
    claims._json.cache_clear()
    (tmp_path / "scores.csv").write_text("model,task,mean\na,T,12.345\nb,T,-0.5\nb,U,2000\n")
    (tmp_path / "report.json").write_text('{"tables": [{"share": 0.871}]}')

    def run(text: str):
        (tmp_path / "page.md").write_text(text)
        return claims.main([str(tmp_path / "page.md")]), capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    "text",
    [
        'It is 12.3<!-- claim: cell("scores.csv", "mean", model="a") --> points.',
        '| a | **12**<!-- claim: cell("scores.csv", "mean", model="a") --> |',
        'about 87%<!-- claim: 100 * value("report.json", "tables", 0, "share") -->',
        'It is −0.50<!-- claim: cell("scores.csv", "mean", model="b", task="T") -->',
        '2,000<!-- claim:\n cell("scores.csv", "mean",\n model="b", task="U") -->',
    ],
)
def test_a_right_number_passes(check, text):
    status, printed = check(text)
    assert (status, printed) == (0, "1 claims in 1 pages, 0 wrong\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('12.4<!-- claim: cell("scores.csv", "mean", model="a") -->', "says 12.4"),
        ('12.345<!-- claim: cell("scores.csv", "mean", model="c") -->', "0 rows"),
        ('1<!-- claim: cell("scores.csv", "mean", model="b") -->', "2 rows"),
        ('1<!-- claim: cell("scores.csv", "median", model="a") -->', "KeyError"),
        ('1<!-- claim: cell("nothing.csv", "mean") -->', "nothing.csv"),
        ('1<!-- claim: open("page.md") -->', "NameError"),
        ('a word <!-- claim: cell("scores.csv", "mean", model="a") -->', "no number"),
    ],
)
def test_a_wrong_number_fails_with_its_line(check, text, reason):
    status, printed = check(f"# Title\n\n{text}")
    assert status == 1
    assert "page.md:3: " in printed
    assert reason in printed


@pytest.mark.slow
def test_the_pages_of_the_repository_claim_what_holds():
    assert claims.main([]) == 0
