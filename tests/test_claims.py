"""Numbers and tables in pages: right ones pass, wrong ones and unknown names fail with their line."""

from __future__ import annotations

import json
import re

import pytest

from docs.tools import claims, sources, tables


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Checks a page beside ``scores.csv`` and ``report.json``: (exit status, what was printed)."""
    monkeypatch.setattr(sources, "ROOT", tmp_path)
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
        'b is lower in 2<!-- holds: cell("scores.csv", "mean", model="b", task="T") < 0 --> tasks',
        "a falls<!-- holds: falling(3, 2, 1) and not falling(1, 1) -->",
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
        ("It rises.<!-- holds: falling(1, 2) -->", "does not hold"),
        ("It rises.<!-- holds: falling(unknown) -->", "NameError"),
        ('a word <!-- claim: cell("scores.csv", "mean", model="a") -->', "no number"),
    ],
)
def test_a_wrong_number_fails_with_its_line(check, text, reason):
    status, printed = check(f"# Title\n\n{text}")
    assert status == 1
    assert "page.md:3: " in printed
    assert reason in printed


def test_a_table_is_compared_and_written(tmp_path, monkeypatch, capsys):
    rows = {"a": {"value": 1.25}, "b": {"value": None}}
    monkeypatch.setitem(tables.TABLES, "two", {"rows": rows, "columns": {"score": "value"}})
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- table: two -->\nstale\n<!-- /table -->\n\nThe end.\n")
    assert claims.main([str(page)]) == 1
    assert "page.md:3: table two" in capsys.readouterr().out
    assert claims.main(["--write", str(page)]) == 0
    written = page.read_text()
    assert "| a | 1.2 |\n| b |  |\n\n<!-- /table -->\n\nThe end.\n" in written
    assert claims.main([str(page)]) == 0
    page.write_text(written.replace("1.2", "1.3"))
    assert claims.main([str(page)]) == 1


def test_a_table_is_made_as_its_description_says(monkeypatch):
    sizes = {
        "for": [{"size": [1, 2], "unit": ["m"]}, {"size": [3], "unit": "['m', 'km']"}],
        "let": {"double": "2 * size", "half": "double / 4"},
        "columns": [
            {"text": "f'{double} {unit}'"},
            {"for": {"power": [1, 2]}, "format": "{:.2f}", "to {power}": "half**power"},
        ],
    }
    monkeypatch.setitem(tables.TABLES, "sizes", sizes)
    assert tables.table("sizes").splitlines() == [
        "|  | text | to 1 | to 2 |",
        "| --- | ---: | ---: | ---: |",
        "| 1: m | 2 m | 0.50 | 0.25 |",
        "| 2: m | 4 m | 1.00 | 1.00 |",
        "| 3: m | 6 m | 1.50 | 2.25 |",
        "| 3: km | 6 km | 1.50 | 2.25 |",
    ]


def test_a_table_takes_keys_and_rows_of_others(monkeypatch):
    rows = {"whole": {"size": 2.0}, "part": {"size": 1.0}}
    described = {
        "first": {"corner": "of", "rows": rows, "columns": {"size": "size"}},
        "like": {"like": "first", "label": "row.upper()", "columns": {"none": "-0.0 * size"}, "differences": "{:+.1f}"},
        "rows": {"rows": "first", "columns": {"format": "{:.0f} of {:.0f}", "both": "[size, 2 * size]"}},
    }
    for name, description in described.items():
        monkeypatch.setitem(tables.TABLES, name, description)
    head, _, *lines = tables.table("like").splitlines()
    assert (head, lines) == ("| of | size | none |", ["| WHOLE | 2.0 | 0.0 |", "| PART | -1.0 | +0.0 |"])
    assert tables.table("rows").splitlines()[2:] == ["| whole | 2 of 4 |", "| part | 1 of 2 |"]


def test_a_table_that_nothing_makes_is_an_error(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: none -->\n<!-- /table -->\n")
    with pytest.raises(KeyError, match="none"):
        claims.main([str(page)])


def test_scores_are_percent_means_over_the_chosen_subsets(tmp_path, monkeypatch):
    def result(model: str, **subsets: float) -> None:
        folder = tmp_path / "results" / f"xalign__{model}" / "r"
        folder.mkdir(parents=True)
        entries = [
            {"hf_subset": subset, "languages": subset.replace("_", "-").split("-")[::2], "main_score": score}
            for subset, score in subsets.items()
        ]
        (folder / "Pairs.json").write_text(json.dumps({"task_name": "Pairs", "scores": {"test": entries}}))

    into, leaving, beside = "deu_Latn-eng_Latn", "eng_Latn-deu_Latn", "fra_Latn-eng_Latn"
    result("a", **{into: 0.5, leaving: 0.2, beside: 0.9})
    result("b", **{into: 0.1})
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    assert sources.score("a", "Pairs", ".*-eng_Latn") == pytest.approx(70)
    assert sources.score("a", "Pairs", languages="eng deu") == pytest.approx(35)
    assert sources.score("xalign/a", "Pairs", beside=["b"]) == pytest.approx(50)
    assert sources.score(["a", "b"], "Pairs", ".*-eng_Latn") == pytest.approx((70 + 10) / 2)
    with pytest.raises(LookupError, match="no such subset"):
        sources.score("a", "Pairs", "jpn.*")


def test_logs_and_measured_tables_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    log = tmp_path / "docs" / "results" / "training" / "run" / "training_log.jsonl"
    page = tmp_path / "docs" / "results" / "throughput" / "cpu.md"
    for file in (log, page):
        file.parent.mkdir(parents=True)
    log.write_text('{"kind": "epoch", "loss": 2.0}\n{"kind": "step", "loss": 9.0}\n{"kind": "epoch", "loss": 1.0}\n')
    page.write_text("|  | s |\n|---|---|\n| a | 7 |\n\n|  | ms |\n|---|---|\n| a | 1,250.5 |\n")
    assert [sources.training("run", "loss", line=k) for k in (0, -1)] == [2, 1]
    assert sources.training("run", "loss", kind="step") == 9
    assert sources.measured("cpu.md", "a", "ms") == 1250.5
    with pytest.raises(LookupError, match="no row b"):
        sources.measured("cpu.md", "b", "ms")


def test_each_table_stands_in_a_page():
    files = [claims.ROOT / "README.md", *claims.ROOT.glob("docs/**/*.md")]
    pages = "".join(page.read_text("utf-8") for page in files)
    assert set(re.findall(r"<!-- table: ([\w-]+) -->", pages)) == tables.TABLES.keys()


@pytest.mark.parametrize("page", ["results.md", "results-alignments.md", "scale.md"])
def test_the_pages_of_results_claim_what_the_files_give(page):
    assert claims.main([str(claims.ROOT / "docs" / page)]) == 0


@pytest.mark.slow
def test_the_pages_of_the_repository_claim_what_holds():
    assert claims.main([]) == 0
