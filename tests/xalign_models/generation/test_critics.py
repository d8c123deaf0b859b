"""Critics: strict JSON and anything like it, expectations by hand, scores kept; and candidates with their masks."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch

from xalign_models.errors import DataError, ModelError
from xalign_models.generation.critics import (
    Critic,
    Judged,
    Scores,
    parse_critic,
    parse_scores,
)
from xalign_models.generation.language_model import Completion
from xalign_models.generation.translators import Kind, Translations, Translator, TranslatorSpec, make_translator
from xalign_models.languages import TaggedText
from xalign_models.training.lira.candidates import CandidateSource, at_k, judge_all, translate


@pytest.mark.parametrize(
    ("written", "scores"),
    [
        ('{"semantic": 8, "emotional": 7, "pragmatic": 9}', (8, 7, 9)),
        ('Sure! {"semantic": "8", "emotional": "7/10", "pragmatic": 9.5} I hope', (8, 7, 9.5)),
        ('```json\n{"Semantic Fidelity": 8, "Emotional Consistency": 7, "pragmatic tone": 9}\n```', (8, 7, 9)),
        ('{"semantic": 80, "emotional": -3, "pragmatic": 0}', (10, 1, 1)),
        ('{broken {"semantic": 1, "emotional": 2, "pragmatic": 3}', (1, 2, 3)),
        ('{"semantic": 1, "emotional": 2, "pragmatic": 3} {"semantic": 9, "emotional": 9, "pragmatic": 9}', (1, 2, 3)),
        ('{"semantic": 8, "emotional": 7}', None),
        ('{"semantic": 8, "emotional": 7, "pragmatic": NaN}', None),
        ('{"semantic": 8, "emotional": 7, "pragmatic": Infinity}', None),
        ('{"semantic": 8, "emotional": 7, "pragmatic": null}', None),
        ('{"semantic": true, "emotional": 7, "pragmatic": 3}', None),
        ('{"semantic": "good", "emotional": 7, "pragmatic": 3}', None),
        ("The translation is good: 8, 7, 9.", None),
        ("", None),
        ("{" * 5000, None),
    ],
)
def test_scores_are_read_out_of_what_was_written(written: str, scores: tuple[float, ...] | None) -> None:
    assert parse_scores(written) == scores


class Scripted(Critic):
    """Scores by the translation's length, nothing for an odd one; counts what it judges."""

    label = "scripted"

    def __init__(self) -> None:
        self.judged: Counter[str] = Counter()

    @property
    def identity(self) -> str:
        return "abc"

    def judge(self, items: Sequence[Judged]) -> list[tuple[float, float, float] | None]:
        self.judged.update(one.translation for one in items)
        return [None if one.translation == "odd" else (float(len(one.translation)), 2.0, 3.0) for one in items]


def test_scores_are_kept_and_what_cannot_be_read_is_masked(tmp_path: Path) -> None:
    critic = Scripted()
    items = [Judged("deu-Latn", "x", one) for one in ("abcd", "odd", "abcd", "ab")]
    scores, readable = Scores(critic, tmp_path, 2).get(items)
    assert scores.tolist() == [[4, 2, 3], [0, 0, 0], [4, 2, 3], [2, 2, 3]]
    assert readable.tolist() == [True, False, True, True]
    again, _ = Scores(critic, tmp_path).get(items)
    assert bool((again == scores).all())
    assert set(critic.judged.values()) == {1}


def test_of_two_processes_one_judges_and_the_other_waits(tmp_path: Path) -> None:
    class Slow(Scripted):
        def judge(self, items: Sequence[Judged]) -> list[tuple[float, float, float] | None]:
            sleep(0.05)
            return super().judge(items)

    texts = [(f"text {i}", "deu-Latn") for i in range(8)]
    tables = [Table(**{text: f"{text} {column}" for text, _ in texts}) for column in "ab"]
    both = [Slow(), Slow()]
    with ThreadPoolExecutor(2) as pool:
        kept = [Translations(one, tmp_path) for one in tables]
        list(pool.map(lambda one: judge_all(texts, kept, Scores(one, tmp_path, 2)), both))
    assert set((both[0].judged + both[1].judged).values()) == {1}


def test_a_generating_critic_reads_its_model(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    critic = Critic(f"generate:{writer}", "cpu")
    asked: list[str] = []

    def write(prompts: Sequence[str], **_: Any) -> list[Completion]:
        asked.extend(prompts)
        return [
            Completion('{"semantic": 8, "emotional": 7, "pragmatic": 9', finished=True),
            Completion("I cannot judge this", finished=False),
        ]

    monkeypatch.setattr(critic.model, "write", write)
    found = critic.judge([Judged("deu-Latn", "guten Tag", "good day"), Judged(None, "x", "y")])
    assert found == [(8, 7, 9), None]
    assert "Original (German): guten Tag" in asked[0] and "Translation (English): good day" in asked[0]
    assert "unknown language" in asked[1]


def test_an_expecting_critic_takes_the_mean_of_the_digits(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    critic = Critic(f"expected_score:{writer}", "cpu")
    item = Judged("deu-Latn", "guten Tag", "good day")
    found = critic.judge([item])[0]
    assert found is not None
    model = critic.model
    for key, score in zip(("semantic", "emotional", "pragmatic"), found, strict=True):
        prompt = f'{critic.prompt(item)} {{"{key}": '
        logits = model.model(**model.tokenizer([prompt], return_tensors="pt")).logits[0, -1].detach()
        digits = torch.softmax(logits[model.tokenizer.convert_tokens_to_ids(list("123456789"))], 0)
        assert score == pytest.approx(float((digits * torch.arange(1.0, 10.0)).sum()), abs=1e-3)
    monkeypatch.setattr(model, "next_after", lambda prompts, *_: [torch.full((len(prompts), 9), math.nan)] * 3)
    assert critic.judge([item]) == [None]


@pytest.mark.parametrize("text", ["gemma", "judge:gemma", "generate:"])
def test_bad_critics_are_named(text: str) -> None:
    with pytest.raises(ModelError, match="critic"):
        parse_critic(text)


class Table(Translator):
    """Looks translations up."""

    instant = True

    def __init__(self, **table: str) -> None:
        self.spec, self.table = TranslatorSpec(Kind.FILE, "table"), table

    @property
    def identity(self) -> str:
        return "abc"

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        return [Completion(self.table.get(text, ""), finished=True) for text in texts]


def source(tmp_path: Path, critic: Critic | None = None) -> CandidateSource:
    tables = [Table(eins="one", zwei="two"), Table(eins="uno is odd", zwei="", drei="odd")]
    kept = [Translations(one, tmp_path) for one in tables]
    return CandidateSource(kept, critic and Scores(critic, tmp_path), online=False)


def test_candidates_are_masked_where_they_are_none(tmp_path: Path) -> None:
    found = source(tmp_path)(["eins", "zwei", "vier", "a word", ""], ["deu-Latn"] * 3 + ["eng-Latn", "deu-Latn"])
    assert found.texts[0] == ["one", "uno is odd"]
    assert found.mask.tolist() == [[True, True], [True, False], [False, False], [True, False], [False, False]]
    assert found.texts[2][0] == "vier"  # no translation at all: the text itself, masked
    assert found.texts[3][0] == "a word"
    assert bool((found.scores == 0).all())
    part = found.rows([3, 0])
    assert part.texts[0][0] == "a word" and part.mask.tolist() == [[True, False], [True, True]]


def test_the_critic_judges_only_where_there_is_a_choice(tmp_path: Path) -> None:
    critic = Scripted()
    found = source(tmp_path, critic)(["eins", "zwei", "drei", "a"], ["deu-Latn"] * 3 + ["eng-Latn"])
    assert set(critic.judged) == {"one", "uno is odd"}
    assert found.scores[0].tolist() == [[3, 2, 3], [10, 2, 3]]
    assert found.mask[2].tolist() == [False, True]


def test_all_unreadable_scores_mask_the_row(tmp_path: Path) -> None:
    class Silent(Scripted):
        def judge(self, items: Sequence[Judged]) -> list[tuple[float, float, float] | None]:
            return [None] * len(items)

    found = source(tmp_path, Silent())(["eins"], ["deu-Latn"])
    assert found.mask.tolist() == [[False, False]]
    assert found.texts[0][0] == "eins"


def test_no_translators_leave_the_text(tmp_path: Path) -> None:
    found = CandidateSource([], online=False)(["eins", "one"], ["deu-Latn", "eng-Latn"])
    assert found.texts == [["eins"], ["one"]]
    assert found.mask.tolist() == [[False], [True]]


@pytest.mark.parametrize(("lines", "warns"), [([], True), (["other"], True), (["zwei"], False), (["eins"], False)])
def test_a_translator_of_no_text_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lines: list[str], warns: bool
) -> None:
    """A file of translations may be partial, but one of other texts alone, or without a line, is a slip."""
    path = tmp_path / "made.jsonl"
    path.write_text("".join(json.dumps({"text": one, "translation": "a word"}) + "\n" for one in lines))
    files = Translations(make_translator(f"file:{path}"), tmp_path)
    texts = [TaggedText(one, "deu-Latn") for one in ("eins", "zwei")]
    translate(texts, CandidateSource([Translations(Table(eins="one"), tmp_path), files], online=True))
    assert caplog.messages == [f"file:{path} has no translation for any of the 2 texts; it adds no candidate."] * warns
    translate([], CandidateSource([files], online=True))
    assert len(caplog.messages) == warns


def test_offline_says_what_is_missing(tmp_path: Path) -> None:
    class Slow(Table):
        instant = False

    with pytest.raises(DataError, match="Texts without a translation by .*: 1, the first"):
        CandidateSource([Translations(Slow(), tmp_path)], online=False)(["eins"], ["deu-Latn"])


def test_pass_at_k_is_the_papers_table_15() -> None:
    models = [TranslatorSpec(Kind.LLM, one) for one in ("llama", "gemma", "qwen", "deepseek")]
    machines = [TranslatorSpec(Kind.MT, one) for one in ("opus", "m2m", "n600", "n3b")]
    mixed = (machines[0], *models, *machines[1:])
    for k in range(5):
        chosen = at_k(mixed, 4, k)
        assert chosen == (*models[:k], *machines[: 4 - k])
    assert at_k(mixed, None, None) == mixed
    assert at_k(mixed, 2, None) == mixed[:2]
    for k in (-1, 5):
        with pytest.raises(ModelError, match=f"pass@{k}"):
            at_k(mixed, 4, k)
