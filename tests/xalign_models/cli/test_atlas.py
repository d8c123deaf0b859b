"""``xalign import mteb-results``: a report, the same as JSON, and results that our own commands read."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from xalign_models.cli.app import app
from xalign_models.cli.atlas import add_to
from xalign_models.errors import ResultsError

if not any(group.name == "import" for group in app.registered_groups):
    add_to(app)


def xalign(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def clone(tmp_path):
    for model in ("org__a", "org__b"):
        path = tmp_path / "clone" / "results" / model / "r1" / "Tatoeba.json"
        path.parent.mkdir(parents=True)
        entry = {"hf_subset": "deu-eng", "languages": ["deu-Latn", "eng-Latn"], "main_score": 0.5, "f1": 0.5}
        content = {"dataset_revision": "0123456789", "mteb_version": "2.0.0", "scores": {"test": [entry]}}
        path.write_text(json.dumps(content))
    (tmp_path / "clone" / "results" / "org__b" / "r1" / "STS17.json").write_text("{")
    return tmp_path / "clone"


def test_a_report_without_output_writes_nothing(clone):
    before = sorted(clone.parent.rglob("*"))
    result = xalign("import", "mteb-results", clone, "--json")
    report = json.loads(result.stdout)
    assert report["comparable"] == [
        {"task": "Tatoeba", "dataset_revision": "0123456", "metric": "f1", "models": 2, "subsets": 1, "scores": 2}
    ]
    assert [line.split(":")[0] for line in report["left_out"]] == ["org__b/r1/STS17.json"]
    assert sorted(clone.parent.rglob("*")) == before


def test_output_has_the_chosen_models_alone(clone, tmp_path):
    result = xalign("import", "mteb-results", clone, "-o", tmp_path / "out", "-m", "org/a")
    assert "1 results of 1 models" in result.stdout
    assert [path.name for path in (tmp_path / "out" / "results").iterdir()] == ["org__a"]


def test_a_wrong_path_is_one_error(tmp_path):
    result = xalign("import", "mteb-results", tmp_path / "nowhere")
    assert isinstance(result.exception, ResultsError)
    assert "nowhere" in str(result.exception)
