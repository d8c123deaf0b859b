"""MGSM and X-CSQA: reading, numbers as they are written anywhere, and a model of a few kilobytes that answers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch

from xalign_models.analysis import Request
from xalign_models.errors import DataError, LanguageError
from xalign_models.generation.language_model import Completion, LanguageModel
from xalign_models.plugins import ANALYSES
from xalign_tasks.reasoning import mgsm, xcsqa
from xalign_tasks.reasoning.mgsm import final_number, to_number
from xalign_tasks.reasoning.solvers import Solver


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42), ("-7", -7), ("−7", -7), ("1,234", 1234), ("1.234", 1234), ("1,234,567", 1234567), ("3.5", "3.5"),
        ("3,5", "3.5"), ("1,234.5", "1234.5"), ("1.234,5", "1234.5"), ("0.125", "0.125"), ("৪২", 42), ("๑๒", 12),
        ("1’234", 1234), ("80 000", 80000), ("80\u202f000,5", "80000.5"), ("８０，０００", 80000), ("৮০,০০০", 80000),
        ("1,00,000", 100000), ("x", None), ("", None),
    ],
)  # fmt: skip
def test_numbers_are_read_as_they_are_written(text: str, number: Any) -> None:
    assert to_number(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("There are 4 * 6 = 24, minus 5. Answer: 19", 19),
        ("Answer: 19\nCheck: 20", 19),
        ("So the answer is 1,234 dollars.", 1234),
        ("#### 7", 7),
        ("First 3, then 5, so 8 in all.", 8),
        ("4 + 4 = 8, and 2 of these 8 are red: 6.", 6),
        ("The answer is not known, after 3 tries 4", 3),
        ("উত্তর: ৪২", 42),
        ("none at all", None),
        ("Answer: none. There were 5", 5),
        ("He answered 12 right and 3 wrong, so he scored 9.", 9),
        ("**Answer**: 19, as 20 - 1 = 19, not 18", 19),
        ("Réponse : 80 000 euros", 80000),
        ("Answer: 80\u00a0000", 80000),
        ("Ответ: 1\u202f080\u2009000 рублей", 1080000),
        ("答案是 ８０，０００", 80000),
        ("উত্তর: ৮০ ০০০", 80000),
        ("Answer: 80.000", 80000),
        ("in 2019 200 more, and in 7 1000, so 3\u00a04", 4),
        ("Answer: 80 0001", 80),
    ],
)
def test_the_final_number_counts(written: str, number: int | None) -> None:
    assert final_number(written) == number


@pytest.fixture
def data(workdir: Path) -> Path:
    """Made-up problems in German and English, and made-up choices in German."""
    root = workdir / "data"
    (root / "mgsm").mkdir()
    (root / "mgsm" / "mgsm_de.tsv").write_text("Wie viel ist 2 und 3?\t5\nUnd 4 und 4?\t8\n")
    (root / "mgsm" / "mgsm_en.tsv").write_text("What is 2 and 3?\t5\nAnd 4 and 4?\t1,008\n")
    folder = root / "xcsqa" / "X-CSQA" / "de"
    folder.mkdir(parents=True)
    choices = [{"label": letter, "text": f"Wahl {letter}"} for letter in "ABCDE"]
    rows = [{"question": {"stem": f"Was {i}?", "choices": choices}, "answerKey": "ABC"[i]} for i in range(3)]
    (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def test_files_are_read_and_defects_named(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = mgsm.languages()
    assert set(files) == {"deu-Latn", "eng-Latn"}
    assert mgsm.read(files["eng-Latn"])[1] == ("And 4 and 4?", Decimal(1008))
    (question, *_) = xcsqa.read(xcsqa.languages()["deu-Latn"])
    assert question.stem == "Was 0?" and question.answer == "A" and question.choices["E"] == "Wahl E"
    for own, known in (("jap", {"deu-Latn", "jpn-Jpan"}), ("de-tok", {"deu-Latn"})):
        folder = data / "xcsqa" / "X-CSQA" / own
        folder.mkdir()
        (folder / "dev.jsonl").write_text("")
        assert set(xcsqa.languages()) == known
        shutil.rmtree(folder)
    assert "de-tok" in caplog.text and "left out" in caplog.text
    (data / "mgsm" / "mgsm_de.tsv").write_text("no tab here 5\n")
    with pytest.raises(DataError, match=r"mgsm_de\.tsv, line 1"):
        mgsm.read(files["deu-Latn"])
    path = xcsqa.languages()["deu-Latn"]
    path.write_text('{"question": {"stem": "x", "choices": []}, "answerKey": "A"}\n')
    with pytest.raises(DataError, match="answer 'A' is not one of"):
        xcsqa.read(path)
    choices = [{"label": 1, "text": "x"}, {"label": "B", "text": "y"}]
    path.write_text(json.dumps({"question": {"stem": "x", "choices": choices}, "answerKey": 1}))
    assert xcsqa.read(path)[0].answer == "1"
    path.write_text(json.dumps({"question": {"stem": "x", "choices": choices}, "answerKey": ["B"]}))
    with pytest.raises(DataError, match="is not one of 1, B"):
        xcsqa.read(path)
    path.write_text(json.dumps({"question": {"stem": "x", "choices": choices * 2}, "answerKey": "B"}))
    with pytest.raises(DataError, match="line 1: two choices have the same letter"):
        xcsqa.read(path)
    path.write_text('{"question": 1}\n')
    with pytest.raises(DataError, match="line 1 is not a question"):
        xcsqa.read(path)


def test_missing_data_name_the_publisher(workdir: Path) -> None:
    for analysis, message in (("mgsm", "MGSM is missing.*url-nlp"), ("x-csqa", "X-CSQA is missing.*inklab")):
        with pytest.raises(DataError, match=message):
            ANALYSES[analysis](Request(("smollm2-135m-q4-last-token",)))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tiny_model: Path) -> list[str]:
    """A language model that answers 5 and likes B best; what it is asked."""
    asked: list[str] = []

    class Tokenizer:
        chat_template = None

    def write(self: LanguageModel, prompts: Sequence[str], **_: Any) -> list[Completion]:
        asked.extend(prompts)
        return [Completion("2 + 3 = 5. Answer: 5", finished=True) for _ in prompts]

    def next_of(self: LanguageModel, prompts: Sequence[str], choices: Sequence[str]) -> torch.Tensor:
        asked.extend(prompts)
        return torch.tensor([[0.1 + (one == " B") for one in choices]] * len(prompts))

    monkeypatch.setattr(LanguageModel, "tokenizer", Tokenizer())
    monkeypatch.setattr(LanguageModel, "write", write)
    monkeypatch.setattr(LanguageModel, "next_of", next_of)
    return asked


def test_accuracy_is_by_language_beside_the_paper(data: Path, scripted: list[str]) -> None:
    found = ANALYSES["mgsm"](Request(("smollm2-135m-q4-last-token",), results=Path(__file__).parents[3]))
    ours = found.tables["accuracy"].set_index("language")["accuracy"]
    assert ours.to_dict() == {"deu-Latn": 50.0, "eng-Latn": 50.0, "average": 50.0}
    assert scripted[0].count("Problem:") == 3 and scripted[0].endswith("Problem: Wie viel ist 2 und 3?\n")
    paper = found.tables["beside the paper"].set_index("language")
    assert paper.loc["ben-Beng", "Qwen3-8B [paper]"] == 66.4
    assert set(found.data) == {"MGSM deu-Latn", "MGSM eng-Latn"}
    for languages in (("tha-Thai",), ("deu-Latn", "tha-Thai")):
        with pytest.raises(LanguageError, match="MGSM has deu-Latn, eng-Latn"):
            ANALYSES["mgsm"](Request(("smollm2-135m-q4-last-token",), languages=languages))


def test_all_questions_are_read_before_any_is_asked(data: Path, scripted: list[str]) -> None:
    (data / "mgsm" / "mgsm_en.tsv").write_text("")
    with pytest.raises(DataError, match=r"mgsm_en\.tsv has no questions"):
        ANALYSES["mgsm"](Request(("smollm2-135m-q4-last-token",)))
    assert not scripted


def test_choices_are_by_the_likeliest_letter(data: Path, scripted: list[str]) -> None:
    found = ANALYSES["x-csqa"](Request(("smollm2-135m-q4-last-token",)))
    assert found.tables["accuracy"]["accuracy"].iloc[0] == pytest.approx(100 / 3)
    assert "A. Wahl A\nB. Wahl B" in scripted[0] and scripted[0].endswith("Answer:")


@pytest.mark.realdata
@pytest.mark.skipif(not (Path(os.environ.get("XALIGN_DATA", "-")) / "mgsm").is_dir(), reason="XALIGN_DATA has no mgsm")
def test_the_published_files_have_the_published_sizes() -> None:
    files = mgsm.languages()
    assert len(files) == 11
    problems = {language: mgsm.read(path) for language, path in files.items()}
    assert {len(one) for one in problems.values()} == {250}
    assert len({tuple(one.answer for one in rows) for rows in problems.values()}) == 1


def test_a_solver_of_a_lira_shows_the_chosen_translation(data: Path, scripted: list[str]) -> None:
    class Source:
        def __call__(self, texts: Sequence[str], languages: Sequence[str]) -> Any:
            from xalign_models.training.lira.candidates import Candidates

            mask = torch.tensor([[True, True], [False, False]])
            return Candidates(texts, [["first", "second"], [texts[1], ""]], mask, torch.zeros(2, 2, 3))

    class Lira:
        source = Source()

        def actor_choice(self, candidates: Any) -> Any:
            class Choice:
                log_probabilities = torch.tensor([[-2.0, -0.1], [-0.7, -0.7]])

            return Choice()

    solver = Solver("smollm2-135m-q4-last-token", "cpu")
    solver.lira = Lira()  # type: ignore[assignment]
    assert solver.questions(["eins", "zwei"], "deu-Latn") == ["eins\n(In English: second)", "zwei"]
    assert solver.questions(["one"], "eng-Latn") == ["one"]
