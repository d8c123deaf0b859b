"""Batches made ahead: in order, no further ahead than asked, and errors and ends come through."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from xalign_models.backbones import pipeline
from xalign_models.backbones.pipeline import AHEAD, ahead, batches, token_budget, tokenise


def numbers(made: list[int], end: int = 50) -> Iterator[int]:
    for i in range(end):
        made.append(i)
        yield i


def test_items_come_in_order_from_another_thread() -> None:
    def threads() -> Iterator[threading.Thread]:
        for _ in range(9):
            yield threading.current_thread()

    assert list(ahead(numbers([]))) == list(range(50))
    assert threading.current_thread() not in set(ahead(threads()))


def test_they_are_made_while_one_is_used_and_no_further_ahead_than_that() -> None:
    made: list[int] = []
    threads = {*threading.enumerate()}  # of other tests
    items = ahead(numbers(made))
    next(items)
    for _ in range(200):
        if len(made) > AHEAD:
            break
        time.sleep(0.01)
    assert len(made) == AHEAD + 1
    items.close()  # type: ignore[attr-defined]
    assert len(made) <= AHEAD + 2
    assert {*threading.enumerate()} <= threads


def test_an_error_in_the_making_is_raised_where_the_items_are_used() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise LookupError("no such text")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(LookupError, match="no such text"):
        next(items)


def test_each_text_is_tokenised_once_and_only_ahead(modules: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    original = modules[0].preprocess

    def spy(texts: list[str], **kwargs: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        seen.extend(text for text in texts if text != "query: ")  # sentence-transformers counts the prompt's tokens
        return original(texts, **kwargs)

    monkeypatch.setattr(modules[0], "preprocess", spy)
    monkeypatch.setattr(pipeline, "SLICE", 4)
    texts = [f"{'the ' * (i % 7)}cat {'dog ' * (i // 7)}" for i in range(30)]
    made = list(batches(modules[0], texts, "query: ", 20, "cpu"))
    assert {*seen} <= {*texts}  # a sample: the tokenizer alone does the others
    assert sorted(np.concatenate([one.rows for one in made]).tolist()) == list(range(30))
    assert all(one.computed_tokens == one.features["input_ids"].numel() <= 20 for one in made)


def test_rows_are_the_tokenizers_own(modules: list[Any]) -> None:
    texts = ["the cat sees", "", "a dog"]
    rows, others = tokenise(modules[0], texts, "")
    assert [row.tolist() for row in rows] == modules[0].tokenizer(texts)["input_ids"]
    assert others == {"modality": "text", "prompt": ""}


LONGER = [f"{'the ' * (i % 7)}cat {'dog ' * (i // 7)}" for i in range(40)] + ["", "sees " * 600]


@pytest.mark.parametrize("prompt", ["", "the "])
def test_the_tokenizer_alone_gives_what_the_module_gives(
    modules: list[Any], prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, others = tokenise(modules[0], LONGER, prompt)
    fast = pipeline.tokenise_fast(modules[0], LONGER, prompt)  # cuts texts where the sample's call did
    monkeypatch.setattr(pipeline, "tokenise_fast", lambda *arguments: [])
    slow, same = tokenise(modules[0], LONGER, prompt)
    assert len(fast) == len(LONGER)
    assert [row.tolist() for row in fast] == [row.tolist() for row in rows] == [row.tolist() for row in slow]
    assert others == same


def test_a_module_that_does_more_than_its_tokenizer_is_asked(
    modules: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = modules[0].preprocess
    monkeypatch.setattr(modules[0], "preprocess", lambda texts, **kw: original([text.upper() for text in texts], **kw))
    rows, _ = tokenise(modules[0], LONGER, "")
    assert [row.tolist() for row in rows] == [
        modules[0].tokenizer(text.upper(), truncation=True)["input_ids"] for text in LONGER
    ]


def test_a_batch_has_more_tokens_on_a_gpu_the_narrower_the_model(modules: list[Any]) -> None:
    assert token_budget(modules[0], "cpu") == 1024
    assert token_budget(modules[0], "mps") == 16_384
    assert token_budget(modules[0], "cuda:1") == 2**26 // modules[0].get_embedding_dimension()
