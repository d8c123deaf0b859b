"""``xalign paper``: numbers over the common languages, paired with the new model, in LaTeX that parses."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from xalign_models.boards.paper import compare, write_paper
from xalign_models.errors import ResultsError
from xalign_models.results.reading import read_results
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec
from xalign_models.tables.board import Evidence

BASE = "xalign/plain__tiny_bert"
PAIRS = ["deu_Latn-eng_Latn", "fra_Latn-eng_Latn", "ita_Latn-eng_Latn"]


def spec(label: str, method: str, data: str = "") -> ModelSpec:
    alignment = AlignmentSpec(label, method, (), ("ntrex",), 1000)
    return ModelSpec(BackboneSpec("tiny_bert", "some/model"), alignment, data)


@pytest.fixture
def results(put, tmp_path):
    """The new model lacks the third pair; each of 200 queries of a pair is found or not."""
    rng = np.random.default_rng(0)
    chances = {BASE: 0.4, spec("lsar", "lsar").name: 0.5, spec("mine_1%", "lsar", "text-0a1b2c").name: 0.8}
    specs = {BASE: None, **{one.name: one for one in (spec("lsar", "lsar"), spec("mine_1%", "lsar", "text-0a1b2c"))}}
    hits = {}
    for number, (model, chance) in enumerate(chances.items()):
        ranks = {pair: 1 + (rng.random(200) > chance).astype(np.uint16)[None] for pair in PAIRS[: 3 - (number == 2)]}
        hits[model] = {pair: row[0] == 1 for pair, row in ranks.items()}
        scores = {pair: float(hit.mean()) for pair, hit in hits[model].items()}
        plain = specs[model]
        trained = ("Mining",) if number == 1 else ()
        put(
            model, "Mining", scores, ranks=ranks, baseline=BASE, trained=trained, spec=plain and plain.to_dict()
        )  # fmt: skip
    return SimpleNamespace(read=read_results(tmp_path), hits=hits, names=list(chances))


def test_means_and_differences_are_over_the_common_pairs_against_the_new_model(results):
    base, lsar, new = results.names
    paper = compare(results.read, new, ["lsar"])
    rows = {row.name: row for row in paper.board.rows}
    assert [row.label for row in paper.board.rows] == ["plain", "lsar", "mine_1%"]  # without hash and backbone
    mean = {name: 100 * np.mean([results.hits[name][pair].mean() for pair in PAIRS[:2]]) for name in results.names}
    for name in (base, lsar):
        cell = rows[name].cells["Mining"]
        assert cell.score == pytest.approx(mean[name])
        assert cell.difference == pytest.approx(mean[name] - mean[new])
        assert cell.low < cell.difference < cell.high < 0
        assert not cell.best
        assert not cell.tied
    assert rows[new].cells["Mining"].difference is None
    assert rows[new].cells["Mining"].best


@pytest.mark.parametrize("place", [0, 1])
def test_no_row_is_tied_with_the_best_if_its_difference_to_it_holds(put, tmp_path, place):
    """Among the few tests of one model, differences hold that do not hold among all pairs."""
    rng = np.random.default_rng(2)
    names = [f"xalign/{name}__tiny_bert" for name in ("best", "a", "b", "c", "d", "e", "near")]
    for task in ("Mining", "Other", "Third"):
        order = rng.random((len(PAIRS), 400))
        for model, chance in zip(names, (0.6, 0.57, 0.54, 0.51, 0.48, 0.45, 0.59), strict=True):
            noise = rng.random(order.shape)
            hits = dict(zip(PAIRS, np.where(noise < 0.5, order, noise) < chance, strict=True))
            ranks = {pair: np.where(hit, 1, 2).astype(np.uint16)[None] for pair, hit in hits.items()}
            put(model, task, {pair: float(hit.mean()) for pair, hit in hits.items()}, ranks=ranks)
    new = names[place]
    rows = compare(read_results(tmp_path), new, [name for name in names if name != new]).board.rows
    (mine,) = (row.cells for row in rows if row.name == new)
    cells = [(row.name, column, cell) for row in rows for column, cell in row.cells.items()]
    holding = [(name, column, cell) for name, column, cell in cells if cell.test in {Evidence.HOLDS, Evidence.FIXED}]
    assert holding
    assert not any(cell.tied for _, column, cell in holding if mine[column].best)
    assert not any(mine[column].tied for _, column, cell in holding if cell.best)
    assert any(cell.tied for *_, cell in cells)


def test_refusals_name_what_is_missing(results, put, tmp_path):
    new = results.names[-1]
    put(new, "Other", {PAIRS[0]: 0.5}, spec=spec("mine_1%", "lsar", "text-0a1b2c").to_dict())
    with pytest.raises(ResultsError, match="plain__tiny_bert.* has no results on Other"):
        compare(read_results(tmp_path), new, [], ["Other"])
    with pytest.raises(ResultsError, match="lsra"):
        compare(results.read, new, ["lsra"])
    with pytest.raises(ResultsError, match="no model to be compared with"):
        compare(results.read, BASE, [])


CITATION = "@misc{mining,\n  title = {Mining},\n  year = {2020}\n}\n"


@pytest.fixture
def folder(results, tmp_path) -> Path:
    pytest.importorskip("matplotlib")
    paper = compare(results.read, results.names[-1], ["lsar"])
    target = tmp_path / "paper"
    write_paper(paper, target, {"Mining": SimpleNamespace(bibtex_citation=CITATION)}, ["xalign", "paper"])
    return target


def expanded(folder: Path, name: str = "paper") -> str:
    text = re.sub(r"(?<!\\)%.*", "", (folder / f"{name}.tex").read_text("utf-8"))
    return re.sub(r"\\input\{(\w+)\}", lambda match: expanded(folder, match[1]), text)


def test_the_document_parses(folder):
    """Braces and environments balance, rows have as many cells as columns, citations and files exist."""
    text = expanded(folder)
    depth = 0
    for token in re.findall(r"\\.|[{}]", text, re.S):
        depth += (token == "{") - (token == "}")
        assert depth >= 0
    assert depth == 0
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert stack == []
    columns, body = re.search(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, re.S).groups()
    for row in re.findall(r"^(.+)\\\\$", body, re.M):
        assert len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1
    for line in body.replace("\\&", "").splitlines():
        assert not re.search(r"(?<!\\)[#$_%](?![+-]?[\d\\])(?<!\d\$)", line), line
    keys = {key for group in re.findall(r"\\cite\{([^}]+)\}", text) for key in group.split(",")}
    assert keys == {"lsar", "mining"}
    assert set(re.findall(r"^@\w+\{(\w+),", (folder / "references.bib").read_text("utf-8"), re.M)) == keys
    for name in re.findall(r"\\includegraphics(?:\[[^\]]*\])?\{([^}]+)\}", text):
        assert (folder / name).read_bytes().startswith(b"%PDF")
    assert set(re.findall(r"\\ref\{([^}]+)\}", text)) <= set(re.findall(r"\\label\{([^}]+)\}", text))


def test_the_caption_explains_every_mark_in_the_table(folder):
    body, caption = expanded(folder).split(r"\bottomrule")
    for mark in (r"\textdagger", r"\textasciitilde", r"\textdegree"):
        assert (mark in body.split(r"\begin{tabular}")[1]) == (mark in caption)
    assert r"\textdagger{}: fitted or trained on text of the task." in caption


def test_pdflatex_sets_ten_columns_within_the_page(results, put, tmp_path):
    """Tables of more than four columns continue below, and no line is wider than the page."""
    pytest.importorskip("matplotlib")
    for number in range(9):
        for model in results.names:
            put(model, f"TaskWithALongName{number}", {"deu_Latn-eng_Latn": 0.5 + number / 100}, baseline=BASE)
    paper = compare(read_results(tmp_path), results.names[2], ["lsar"])
    folder = tmp_path / "paper"
    citation = SimpleNamespace(bibtex_citation="@misc{one,\n  author = {{\\\\~n}igo},\n}")
    write_paper(paper, folder, {"Mining": citation}, ["xalign"])
    assert len(paper.board.columns) == 10
    assert [len(columns) - 1 for columns in re.findall(r"\\begin\{tabular\}\{(\w+)\}", expanded(folder))] == [4, 4, 2]
    assert r"{\~n}igo" in (folder / "references.bib").read_text("utf-8")
    if not (pdflatex := shutil.which("pdflatex")):
        pytest.skip("pdflatex is not installed")
    command = [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    assert "Overfull" not in (folder / "paper.log").read_text("utf-8", "replace")


def test_a_folder_is_written_again_unless_a_file_there_is_anothers(results, folder):
    paper = compare(results.read, results.names[-1], ["lsar"])
    names = {path.name for path in folder.iterdir()}
    assert {"paper.tex", "references.bib", "differences.pdf", "provenance.json"} < names
    write_paper(paper, folder, {}, ["another"])  # untouched files are replaced
    assert (folder / "reproduce.sh").read_text("utf-8").endswith("another\n")
    for name in names:
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(b"mine")
        before = {path: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(ResultsError, match="is not as xalign wrote it"):
            write_paper(paper, folder, {}, ["xalign", "paper"])
        assert {path: path.read_bytes() for path in folder.iterdir()} == before
        (folder / name).write_bytes(kept)
    write_paper(paper, folder, {}, ["xalign", "paper"])


def test_a_folder_of_anothers_paper_is_refused_as_it_is(results, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "methods.tex").write_text("mine")
    with pytest.raises(ResultsError, match=r"methods\.tex is not as xalign wrote it"):
        write_paper(compare(results.read, results.names[-1], ["lsar"]), tmp_path / "mine", {}, ["xalign", "paper"])
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["mine"]


def test_the_commands_fit_what_is_not_registered_and_score_all(folder):
    fit, other, run, again = (folder / "reproduce.sh").read_text("utf-8").splitlines()[2:]
    labels = [line.partition("--label ")[2].partition(" ")[0] for line in (fit, other)]
    assert sorted(labels) == ["lsar", "mine_1%"]
    assert all("--backbone some/model " in line for line in (fit, other))
    assert "--corpus ntrex --limit 1000" in other
    assert run.startswith("xalign run --models some/model,models/")
    assert "--languages " in run
    assert again == "xalign paper"


def test_the_commands_score_each_task_in_its_own_languages(results, put, tmp_path):
    """A task may have subsets in the others' languages, which its scores are not over."""
    pytest.importorskip("matplotlib")
    for model in results.names:
        put(model, "Other", {PAIRS[2]: 0.5})
        put(model, "Again", {PAIRS[2]: 0.5})
    base, lsar, new = results.names
    write_paper(compare(read_results(tmp_path), new, [base, lsar]), tmp_path / "paper", {}, ["xalign"])
    lines = (tmp_path / "paper" / "reproduce.sh").read_text("utf-8").splitlines()
    runs = sorted(line.partition("--tasks ")[2] for line in lines if line.startswith("xalign run"))
    assert runs == [
        "Again,Other --languages eng-Latn,ita-Latn", "Mining --languages deu-Latn,eng-Latn,fra-Latn"
    ]  # fmt: skip


def test_the_commands_name_the_plug_ins(results, tmp_path, monkeypatch):
    monkeypatch.setattr("xalign_models.boards.paper.sources", lambda: ("my method.py",))
    pytest.importorskip("matplotlib")
    write_paper(compare(results.read, results.names[-1], ["lsar"]), tmp_path, {}, ["xalign", "paper"])
    commands = (tmp_path / "reproduce.sh").read_text("utf-8").splitlines()[2:]
    assert len(commands) == 4
    assert all(command.endswith(" --plugin 'my method.py'") for command in commands)
