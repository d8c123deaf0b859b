"""mteb's cross-lingual tasks: a model of ours learns the language of each side, and every score stays as it is."""

from __future__ import annotations

import sys
from typing import Any

import mteb
import mteb.get_tasks  # the function of this name hides the module
import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from xalign_models.evaluation.recording import Recorder
from xalign_models.languages import canonical
from xalign_models.models.mteb import get_task, register_with_mteb
from xalign_models.models.sides import COMPARES, SEARCHES, closed, with_sides
from xalign_models.plugins import Part

KINDS = {
    name: kind
    for name, kind in sys.modules["mteb.get_tasks"].__dict__["_TASKS_REGISTRY"].items()
    if kind.metadata.modalities == ["text"] and kind.__module__.startswith("mteb.")
}
TOLD = {name: kind for name, kind in KINDS.items() if with_sides(kind) is not kind}


def first_pair(kind: Any) -> tuple[str, tuple[str, str]]:
    """A subset of two languages, and its languages."""
    pairs = ((subset, tuple(map(canonical, codes))) for subset, codes in kind.metadata.eval_langs.items())
    return next((subset, codes) for subset, codes in pairs if len(set(codes)) == 2)


def made_up(kind: Any, subset: str, codes: tuple[str, str], splits: list[str]) -> Any:
    """Texts that begin with their side's language, in the layout that the task's type has."""
    roles = SEARCHES.get(kind.metadata.name, ("sentence1", "sentence2"))
    rows = {role: [f"{code} {role} {i}" for i in range(6)] for role, code in zip(roles, codes, strict=True)}
    if kind.metadata.type in COMPARES:
        gold = {"score": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]} if kind.metadata.type == "STS" else {}
        return DatasetDict({split: Dataset.from_dict({**rows, **gold}) for split in splits})
    ids = {role: [f"{role[0]}{i}" for i in range(6)] for role in rows}
    search = {
        "corpus": Dataset.from_dict({"id": ids["document"], "title": [""] * 6, "text": rows["document"]}),
        "queries": Dataset.from_dict({"id": ids["query"], "text": rows["query"]}),
        "relevant_docs": {q: {d: 1} for q, d in zip(ids["query"], ids["document"], strict=True)},
        "top_ranked": None,
    }
    return dict.fromkeys(splits, search)


def scores_of(kind: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the task scores in its first pair of languages on made-up texts."""
    subset, codes = first_pair(kind)
    task = kind()
    task.hf_subsets, task._eval_splits = [subset], task.metadata.eval_splits[:1]

    def load(**_: Any) -> None:
        task.dataset = {subset: made_up(kind, subset, codes, task.eval_splits)}
        task.data_loaded = True

    monkeypatch.setattr(task, "load_data", load)
    return task.evaluate(model, task.eval_splits[0], encode_kwargs={"batch_size": 4})[subset]


# What mFollowIR is scored by, pairs of instructions, is not made up here; CUREv1's subset is named by one language.
@pytest.mark.parametrize("name", sorted(TOLD.keys() - {"mFollowIRCrossLingual"}))
def test_the_language_of_each_side_is_told_and_the_score_is_mtebs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told, plain = Recorder(), Recorder()
    plain._needs_language = False  # mteb's task cannot tell, and this one does not ask
    ours = scores_of(with_sides(KINDS[name]), told, monkeypatch)
    assert ours == scores_of(KINDS[name], plain, monkeypatch)
    assert told.seen
    assert all(text.startswith(str(language)) for (text, language), _ in told.seen)


SIDED = with_sides(KINDS["STS22"]).__bases__[0]


def test_every_subset_of_mteb_is_open_or_closed_for_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    shut = {name: reasons for name, kind in KINDS.items() if (reasons := closed(kind))}
    whole = {name for name, reasons in shut.items() if len(reasons) == subsets(KINDS[name])}
    with capsys.disabled():
        sys.stdout.write(f"\n{len(KINDS)} tasks of text, {len(TOLD)} of them told their sides; closed:\n")
        for name, reasons in shut.items():
            some = "" if name in whole else f", {len(reasons)} of {subsets(KINDS[name])} subsets"
            sys.stdout.write(f"  {name}{some}: {'; '.join(sorted({*reasons.values()}))}\n")
    assert len(whole) < 0.04 * len(KINDS)
    assert {"MLQARetrieval", "BelebeleRetrieval", "STS22.v2", "BUCC.v2", "BibleNLPBitextMining"} <= TOLD.keys()
    assert not {"MKQARetrieval", "WebFAQRetrieval", "XQuADRetrieval", "NeuCLIR2022Retrieval"} & whole
    multilingual = {name for name, kind in KINDS.items() if isinstance(kind.metadata.eval_langs, dict)}
    assert len(multilingual & whole) < 0.03 * len(multilingual)


def subsets(kind: Any) -> int:
    return len(kind.metadata.eval_langs) if isinstance(kind.metadata.eval_langs, dict) else 1


def test_a_task_of_one_language_or_of_columns_named_by_language_is_left_alone() -> None:
    for name in ("STSBenchmark", "FloresBitextMining", "MultiLongDocRetrieval"):
        assert with_sides(KINDS[name]) is KINDS[name]
    assert with_sides(told := with_sides(KINDS["STS22"])) is told


def test_register_with_mteb_puts_them_where_mteb_finds_them() -> None:
    register_with_mteb()
    for name in ("MLQARetrieval", "STS22.v2"):
        assert isinstance(mteb.get_task(name), SIDED)
        assert isinstance(get_task(Part(name)), SIDED)
        assert mteb.get_task(name).metadata is KINDS[name].metadata
    chosen = mteb.get_tasks(task_types=["Retrieval", "STS"], exclude_superseded=False, exclude_beta=False)
    found = [task for task in chosen if task.metadata.name in TOLD]
    assert len(found) > 5
    assert all(isinstance(task, SIDED) for task in found)
    assert len({task.metadata.name for task in chosen}) == len(chosen)


def test_texts_of_neither_column_are_refused() -> None:
    from xalign_models.errors import LanguageError

    task = with_sides(KINDS["STS22"])()
    task.dataset = {"de-en": {"test": Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"]})}}
    assert task.language_of(["b"], "test", "de-en", None) == "eng-Latn"
    assert task.language_of(["x"], "test", "de", None) is None
    with pytest.raises(LanguageError, match="are not a column of the data set"):
        task.language_of(["b", "a"], "test", "de-en", None)


def test_other_models_see_no_difference() -> None:
    """A model that is not ours is handed on as it is."""
    seen: list[Any] = []

    class Base:
        metadata = KINDS["STS22"].metadata

        def evaluate(self, model: Any, *_: Any, **__: Any) -> None:
            seen.append(model)

    model = np.zeros(3)
    type("Task", (SIDED, Base), {})().evaluate(model)
    assert seen[0] is model
