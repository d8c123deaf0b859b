"""``xalign analyse``: lists, writes what it found, and says in one line what it cannot do."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pandas as pd
import pytest

from xalign_models import figures
from xalign_models.analysis import Findings
from xalign_models.errors import DataError
from xalign_models.plugins import ANALYSES, Entry

DOCS = Path(__file__).parents[3] / "docs"
COMMANDS = [
    shlex.split(re.sub(r"\$\w+", "de", command), comments=True)
    for page in sorted(DOCS.glob("*.md"))
    for command in re.findall(r"^ *(xalign analyse .*)$", page.read_text().replace("\\\n", " "), re.MULTILINE)
]


@pytest.fixture
def fake(monkeypatch):
    """An analysis of the test's; ``asked`` are the requests it got."""
    asked = []

    @figures.styled()
    def analyse(request):
        asked.append(request)
        figure, ((axis,),) = figures.canvas()
        axis.plot([1, 2])
        table = pd.DataFrame({"language": ["German", "Thai"], "score": [1 / 3, float("nan")], "n": [1, 2]})
        large = pd.DataFrame({"row": range(100)})
        return Findings({"scores": table, "large": large}, {"line": figure}, ("A note.",), {"text": "abc"})

    monkeypatch.setitem(ANALYSES._entries, "fake", Entry(analyse, {"description": "A test."}))
    return asked


def test_without_a_name_they_are_listed(xalign):
    status, out, _ = xalign("analyse", "--json")
    assert status == 0
    assert [one["analysis"] for one in json.loads(out)] == list(ANALYSES)


def test_tables_figures_and_what_made_them_are_written(xalign, fake, workdir, tiny_model):
    status, out, err = xalign("analyse", "fake", "-m", tiny_model, "-o", "found", "--rows", 7, "--languages", "de,th")
    assert (status, err) == (0, [])
    (request,) = fake
    assert (request.models, request.rows, request.languages) == ((str(tiny_model),), 7, ("deu-Latn", "tha-Thai"))
    assert sorted(path.name for path in (workdir / "found").iterdir()) == [
        "fake-large.csv",
        "fake-line.svg",
        "fake-scores.csv",
        "fake.json",
    ]
    document = json.loads((workdir / "found" / "fake.json").read_text())
    assert document["models"] == [{"name": "xalign/plain__tiny", "revision": document["models"][0]["revision"]}]
    assert len(document["models"][0]["revision"]) == 40
    assert document["data"] == {"text": "abc"}
    assert document["options"]["languages"] == ["deu-Latn", "tha-Thai"]
    assert document["tables"] == ["fake-scores.csv", "fake-large.csv"]
    assert document["notes"] == ["A note."]
    assert document["figures"] == ["fake-line.svg"]
    assert {"python", "xalign", "numpy", "matplotlib"} <= document["versions"].keys()
    assert pd.read_csv(workdir / "found" / "fake-scores.csv")["score"][0] == pytest.approx(1 / 3)
    assert "0.3333" in out
    assert "- A note." in out
    assert "90 more rows in the files" in out


def test_the_command_and_the_results_are_named_without_folders(xalign, fake, workdir, tiny_model):
    (workdir / "some" / "res").mkdir(parents=True)
    given = ["--results", workdir / "some" / "res", "--rows", 7, "--languages", "de,th", "-t", "A,B"]
    xalign("analyse", "fake", "-m", tiny_model, "-m", "all-MiniLM-L6-v2", *given)
    text = (workdir / "analyses" / "fake.json").read_text()
    document = json.loads(text)
    assert document["command"] == (
        "xalign analyse fake --models=tiny,all-MiniLM-L6-v2 --rows=7 --languages=deu-Latn,tha-Thai --tasks=A,B "
        "--results=res"
    )
    assert document["options"]["results"] == "res"
    assert str(workdir) not in text and str(tiny_model.parent) not in text
    (first, again) = (fake[0], xalign(*shlex.split(document["command"])[1:]) and fake[1])
    assert (again.rows, again.languages, again.tasks) == (first.rows, first.languages, first.tasks)


def test_models_that_an_analysis_chooses_are_in_its_report(xalign, workdir, tiny_model, monkeypatch):
    found = Findings(data={f"own:{tiny_model}": "1"}, models=(str(tiny_model),))
    monkeypatch.setitem(ANALYSES._entries, "own", Entry(lambda request: found, {"description": "A test."}))
    _, out, _ = xalign("analyse", "own", "--json")
    document = json.loads(out)
    assert [model["name"] for model in document["models"]] == ["xalign/plain__tiny"]
    assert document["data"] == {"own:tiny": "1"}
    assert document["command"] == "xalign analyse own"


def test_json_is_the_document_with_its_tables(xalign, fake, workdir):
    _, out, _ = xalign("analyse", "fake", "-o", "found", "--json")
    printed, document = json.loads(out), json.loads((workdir / "found" / "fake.json").read_text())
    tables = printed.pop("tables")
    assert tables["scores"][1] == {"language": "Thai", "score": None, "n": 2}
    assert [f"fake-{title}.csv" for title in tables] == document.pop("tables")
    assert printed == document


def test_a_model_that_is_not_at_hand_has_the_revision_of_its_results(xalign, fake, workdir):
    _, out, _ = xalign("analyse", "fake", "-m", "someone/elses__model", "--json")
    assert json.loads(out)["models"] == [{"name": "someone/elses__model", "revision": None}]
    folder = workdir / "results" / "someone__elses__model" / "7"
    folder.mkdir(parents=True)
    scores = {"test": [{"hf_subset": "all", "languages": ["eng-Latn"], "main_score": 0.5}]}
    result = {"task_name": "Task", "dataset_revision": "1", "scores": scores}
    (folder / "Task.json").write_text(json.dumps(result))
    (folder / "model_meta.json").write_text(json.dumps({"name": "someone/elses__model"}))
    _, out, _ = xalign("analyse", "fake", "-m", "someone/elses__model", "--json")
    assert json.loads(out)["models"] == [{"name": "someone/elses__model", "revision": "7"}]


def test_an_analysis_of_results_names_the_revision_that_it_read(xalign, fake, workdir, tiny_model, monkeypatch):
    folder = workdir / "results" / "xalign__plain__tiny" / "7"
    folder.mkdir(parents=True)
    scores = {"test": [{"hf_subset": "deu-Latn", "languages": ["deu-Latn"], "main_score": 0.5}]}
    (folder / "Task.json").write_text(json.dumps({"task_name": "Task", "dataset_revision": "1", "scores": scores}))
    (folder / "model_meta.json").write_text(json.dumps({"name": "xalign/plain__tiny"}))
    entry = ANALYSES._entries["fake"]
    facts = {**entry.facts, "options": ("models", "results")}
    monkeypatch.setitem(ANALYSES._entries, "fake", Entry(entry.value, facts))
    _, out, _ = xalign("analyse", "fake", "-m", tiny_model, "--json")
    assert json.loads(out)["models"] == [{"name": "xalign/plain__tiny", "revision": "7"}]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["scater"], "Unknown analysis 'scater'. Did you mean scatter? `xalign analyse` lists them."),
        (["scatter"], "--model: name at least one model"),
        (["fake", "--rows", "0"], "Invalid value for '--rows': at least 1 is needed"),
        (["fake", "--languages", "xx"], "Unknown ISO 639-1 language code 'xx'"),
        (["fake", "--languages", "all"], "--languages all is not possible; give codes."),
        (["fake", "-o", "file"], "--output file is a file"),
        (["scatter", "-m", "no-such-model"], "Unknown model 'no-such-model'"),
    ],
)
def test_wrong_input_is_one_line(xalign, fake, workdir, arguments, part):
    (workdir / "file").write_text("")
    flores = workdir / "data" / "flores200_dataset" / "devtest"
    flores.mkdir(parents=True)
    for code in ("eng_Latn", "tha_Thai", "zho_Hans"):
        (flores / f"{code}.devtest").write_text("a\nb\n")
    status, out, err = xalign("analyse", *arguments)
    assert (status, out) == (2, "")
    (line,) = err
    assert line.startswith(f"error: {part}")


GIVEN = {"models": "m", "results": "elsewhere", "rows": "3", "languages": "de", "tasks": "STS17CrossLingual"}


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, option) for name in ANALYSES for option in GIVEN if option not in ANALYSES.facts(name)["options"]],
)
def test_an_option_that_an_analysis_does_not_read_is_refused(xalign, workdir, name, option):
    status, out, (line,) = xalign("analyse", name, f"--{option}", GIVEN[option])
    assert (status, out) == (2, "")
    assert line == f"error: --{option}: this analysis does not read it; leave it out."


@pytest.mark.parametrize("command", COMMANDS)
def test_the_documented_commands_pass_what_is_read(xalign, workdir, monkeypatch, command):
    asked, name = [], command[2]
    monkeypatch.setattr("xalign_models.cli.analysis.report", lambda *_: {})  # the models are not here
    monkeypatch.setitem(
        ANALYSES._entries, name, Entry(lambda request: asked.append(request) or Findings(), ANALYSES.facts(name))
    )
    status, _, err = xalign(*command[1:])
    assert (status, err) == (0, [])
    assert asked


def test_nothing_is_written_if_an_analysis_fails(xalign, workdir, monkeypatch):
    def fails(request):
        raise DataError("There is nothing.")

    monkeypatch.setitem(ANALYSES._entries, "fails", Entry(fails, {"description": "A test."}))
    assert xalign("analyse", "fails", "-o", "found")[0] == 2
    assert not (workdir / "found").exists()


def test_a_package_of_an_extra_that_is_missing_is_one_line(xalign, monkeypatch):
    def draws(request):
        import matplotlib.pyplot  # noqa: F401

    monkeypatch.setitem(ANALYSES._entries, "draws", Entry(draws, {"description": "A test."}))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, (line,) = xalign("analyse", "draws")
    assert (status, out) == (2, "")
    assert line == "error: This needs matplotlib, which is not installed; run: pip install 'xalign[plots]'."
