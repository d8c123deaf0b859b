"""All measures of results, by direction."""

from __future__ import annotations

import json

import pytest

from xalign_models.analysis import Request
from xalign_models.errors import ModelError, ResultsError
from xalign_models.plugins import ANALYSES

PAIRS = {
    ("eng_Latn", "deu_Latn"): 0.9,
    ("eng_Latn", "tha_Thai"): 0.7,
    ("deu_Latn", "eng_Latn"): 0.6,
    ("tha_Thai", "eng_Latn"): 0.2,
    ("deu_Latn", "tha_Thai"): 0.1,
}


@pytest.fixture
def write(tmp_path):
    def write(task, scores, model="tiny"):
        folder = tmp_path / "results" / f"xalign__plain__{model}" / "r1"
        folder.mkdir(parents=True, exist_ok=True)
        entries = [
            {"hf_subset": subset, "languages": subset.split("-"), "mteb_version": "2", "main_score": 0.5, **measures}
            for subset, measures in scores.items()
        ]
        result = {"task_name": task, "dataset_revision": "d1", "evaluation_time": 1.0, "scores": {"test": entries}}
        (folder / f"{task}.json").write_text(json.dumps(result))
        (folder / "model_meta.json").write_text(json.dumps({"name": f"xalign/plain__{model}"}))

    return write


def rows(findings, task="Task"):
    return {row.pop("direction"): row for row in findings.tables[task].to_dict("records")}


def test_pairs_are_averaged_by_direction(write, tmp_path):
    write("Task", {"-".join(pair): {"mexa": share, "skew": 10 * share} for pair, share in PAIRS.items()})
    findings = ANALYSES["measures"](Request(results=tmp_path, tasks=("Task",)))
    found = rows(findings)
    assert found["from English"] == {"model": "plain__tiny", "subsets": 2, "mexa": pytest.approx(0.8), "skew": 8}
    assert found["into English"]["mexa"] == pytest.approx(0.4)
    assert found["without English"]["mexa"] == pytest.approx(0.1)
    assert findings.data == {"Task xalign/plain__tiny": "d1"}


def test_other_tasks_have_one_row(write, tmp_path):
    write("Task", {"deu-Latn": {"map": 0.25}, "tha-Thai": {"map": 0.75}})
    assert rows(ANALYSES["measures"](Request(results=tmp_path, tasks=("Task",)))) == {
        "all": {"model": "plain__tiny", "subsets": 2, "map": 0.5}
    }


def test_a_measure_that_a_subset_lacks_is_no_mean_of_the_others(write, tmp_path):
    write("Task", {"deu-Latn": {"map": 0.25, "mexa": 1.0}, "tha-Thai": {"map": 0.75}})
    write("Task", {"deu-Latn": {"map": 0.5, "mexa": 0.5}, "tha-Thai": {"map": 0.5, "mexa": 0.5}}, model="whole")
    table = ANALYSES["measures"](Request(results=tmp_path, tasks=("Task",))).tables["Task"].set_index("model")
    assert table["mexa"].isna()["plain__tiny"]
    assert table.loc["plain__whole", "mexa"] == 0.5


def test_a_task_is_named_and_scored(write, tmp_path):
    with pytest.raises(ModelError, match="--task: name at least one task"):
        ANALYSES["measures"](Request(results=tmp_path))
    write("Task", {"deu-Latn": {"map": 0.25}})
    with pytest.raises(ResultsError, match=r"plain__other.*`xalign run -m plain__other -t Task -o "):
        ANALYSES["measures"](Request(("plain__other",), tmp_path, tasks=("Task",)))
