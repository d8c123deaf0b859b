"""The limit-to-one-target heat map, read back from results as the task writes them."""

from __future__ import annotations

import json

import pytest

from xalign_models.analysis import Request
from xalign_models.errors import ResultsError
from xalign_models.plugins import ANALYSES
from xalign_models.results.reading import read_results
from xalign_tasks.analyses.one_target import TASK, heat_map

CELLS = {
    ("arb-Arab", "arb-Arab"): 0.8,
    ("arb-Arab", "eng-Latn"): 0.1,
    ("eng-Latn", "arb-Arab"): 0.3,
    ("eng-Latn", "eng-Latn"): 0.9,
}


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results" / "xalign__plain__tiny" / "r1"
    folder.mkdir(parents=True)
    entries = [
        {
            "hf_subset": asked,
            "languages": [asked],
            "mteb_version": "2",
            "map": 0.5,
            "main_score": 0.5,
            "one_target_same": CELLS[asked, asked],
            "one_target_other": CELLS[asked, other],
            **{f"one_target_{answer}": CELLS[asked, answer] for answer in (asked, other)},
        }
        for asked, other in (("eng-Latn", "arb-Arab"), ("arb-Arab", "eng-Latn"))
    ]
    result = {"task_name": TASK, "dataset_revision": "d1", "evaluation_time": 1.0, "scores": {"test": entries}}
    (folder / f"{TASK}.json").write_text(json.dumps(result))
    (folder / "model_meta.json").write_text(json.dumps({"name": "xalign/plain__tiny"}))
    return tmp_path


def test_rows_are_questions_and_columns_answers(results):
    (table,) = read_results(results).tables.values()
    found = heat_map(table)
    assert found.loc["arb-Arab", "eng-Latn"] == pytest.approx(10)
    assert found.loc["eng-Latn", "arb-Arab"] == pytest.approx(30)
    assert found.shape == (2, 2)


@pytest.mark.parametrize("models", [(), ("plain__tiny",), ("xalign/plain__tiny",)])
def test_the_means_stand_beside_the_papers(results, models):
    findings = ANALYSES["one-target"](Request(models=models, results=results))
    rows = {row.pop("model"): row for row in findings.tables["summary"].to_dict("records")}
    assert rows["plain__tiny"] == pytest.approx(
        {"mAP, all answers in": 50, "mAP, one answer, same language": 85, "mAP, one answer, other language": 20}
    )
    assert rows["mBERT (X-X) LSAR (paper)"]["mAP, one answer, other language"] == 23.76
    assert list(findings.figures) == ["plain__tiny"]
    assert findings.data == {"XQuAD-R xalign/plain__tiny": "d1"}


def test_without_results_the_command_is_named(results, tmp_path):
    with pytest.raises(ResultsError, match=r"plain__other.*`xalign run -m plain__other -t XQuAD-R -o "):
        ANALYSES["one-target"](Request(models=("plain__other",), results=results))
    with pytest.raises(ResultsError, match=r"`xalign run -m MODEL -t XQuAD-R -o "):
        ANALYSES["one-target"](Request(results=tmp_path / "empty"))
