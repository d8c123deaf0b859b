"""Writing with a random model: padding, stops, limits and draws, each against one text at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from xalign_models.errors import AssetError, ModelError
from xalign_models.generation.language_model import LanguageModel, repeats

PROMPTS = ["a", "some longer prompt", "bc"]


@pytest.fixture(scope="module")
def model(writer: Path) -> LanguageModel:
    return LanguageModel(str(writer), device="cpu")


def test_a_batch_writes_what_single_prompts_do(model: LanguageModel) -> None:
    together = model.write(PROMPTS, max_new_tokens=8)
    assert together == [model.write([prompt], max_new_tokens=8)[0] for prompt in PROMPTS]
    expected = model.model.generate(
        **model.tokenizer(["a"], return_tensors="pt"), max_new_tokens=8, do_sample=False, pad_token_id=0
    )
    assert together[0].text == model.tokenizer.decode(expected[0, 1:], skip_special_tokens=True)


def test_released_weights_are_loaded_again(writer: Path) -> None:
    own = LanguageModel(str(writer), device="cpu")
    before = own.write(["a"], max_new_tokens=4)
    own.release()
    assert "model" not in vars(own)
    assert own.write(["a"], max_new_tokens=4) == before


@pytest.fixture(scope="module")
def windowed(make_writer: Callable[..., Path]) -> LanguageModel:
    return LanguageModel(str(make_writer("mistral", sliding_window=24)), device="cpu")


def test_padding_takes_nothing_of_a_sliding_window(windowed: LanguageModel) -> None:
    prompts = [f"what all of them begin with: {one}" for one in ("a", "longer than the others are", "bc")]
    together, chances = windowed.write(prompts, max_new_tokens=8), windowed.next_of(prompts, ["1", "2"])
    assert together == [windowed.write([prompt], max_new_tokens=8)[0] for prompt in prompts]
    torch.testing.assert_close(chances, torch.cat([windowed.next_of([prompt], ["1", "2"]) for prompt in prompts]))


def test_a_checkpoint_without_a_head_does_not_write(writer: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(writer).model.save_pretrained(tmp_path / "body")
    AutoTokenizer.from_pretrained(writer).save_pretrained(tmp_path / "body")
    with pytest.raises(ModelError, match=r"lacks lm_head\.weight"):
        LanguageModel(str(tmp_path / "body"), device="cpu").write(["a"], max_new_tokens=2)


def test_it_stops_at_the_string_and_says_so(model: LanguageModel) -> None:
    written = model.write(["a"], max_new_tokens=12)[0].text
    stop = written[4]
    found = model.write(PROMPTS, max_new_tokens=12, stop=(stop,))
    assert found[0] == (written[: written.index(stop)], True)
    for one, free in zip(found, model.write(PROMPTS, max_new_tokens=12), strict=True):
        assert one.text == free.text.split(stop)[0]
        assert one.finished == (stop in free.text)


def test_the_end_token_finishes_and_the_limit_does_not(model: LanguageModel) -> None:
    assert not model.write(["a"], max_new_tokens=3)[0].finished
    second = model.model.generate(**model.tokenizer(["a"], return_tensors="pt"), max_new_tokens=2, do_sample=False)
    config, before = model.model.generation_config, model.model.generation_config.eos_token_id
    config.eos_token_id = int(second[0, -1])
    try:
        assert model.write(["a"], max_new_tokens=5)[0].finished
    finally:
        config.eos_token_id = before


@pytest.mark.parametrize(
    ("tail", "expected"),
    [([5] * 24, True), ([5] * 23, False), ([1, 2, 3] * 8, True), ([1, 2, 3] * 7 + [1, 2, 4], False),
     (list(range(8)) * 6, True), (list(range(9)) * 6, False), ([7] * 8 + list(range(24)), False)],
)  # fmt: skip
def test_a_loop_is_up_to_eight_tokens_over_and_over(tail: list[int], expected: bool) -> None:
    assert repeats(torch.tensor([tail])).tolist() == [expected]


def test_a_loop_is_cut_short_and_has_not_finished(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    looped = torch.zeros(3, dtype=torch.bool)
    monkeypatch.setattr("xalign_models.generation.language_model.repeats", lambda ids: looped & (ids.shape[1] >= 16))
    free = model.write(PROMPTS, max_new_tokens=40)
    looped[1] = True
    found = model.write(PROMPTS, max_new_tokens=40)
    assert found[0] == free[0] and found[2] == free[2]
    assert free[1].text.startswith(found[1].text) and len(found[1].text) < len(free[1].text)
    assert not found[1].finished


def test_draws_follow_their_seed_and_leave_torchs_alone(model: LanguageModel) -> None:
    state = torch.random.get_rng_state()
    one, again, other = (model.write(PROMPTS, max_new_tokens=8, temperature=2.0, seed=s) for s in (1, 1, 2))
    assert one == again != other
    assert bool((torch.random.get_rng_state() == state).all())


def test_next_probabilities_are_the_models_among_the_choices(model: LanguageModel) -> None:
    found = model.next_of(PROMPTS, ["1", "2", "3"])
    for row, prompt in zip(found, PROMPTS, strict=True):
        logits = model.model(**model.tokenizer([prompt], return_tensors="pt")).logits[0, -1]
        chosen = logits[model.tokenizer.convert_tokens_to_ids(["1", "2", "3"])]
        torch.testing.assert_close(row, torch.softmax(chosen, 0).detach(), rtol=1e-4, atol=1e-5)


def test_each_ending_is_as_if_it_stood_in_the_prompt(model: LanguageModel) -> None:
    shared = [f"an example that all of them begin with: {one}" for one in ("a", "longer than the others", "bc")]
    for prompts in (PROMPTS, shared):
        endings = ("", " or so", "!")
        for ending, found in zip(endings, model.next_after(prompts, endings, ["1", "2"]), strict=True):
            expected = model.next_of([prompt + ending for prompt in prompts], ["1", "2"])
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_chat_templates_are_used_where_they_are(model: LanguageModel) -> None:
    assert model.chat("hello") == "hello"
    model.tokenizer.chat_template = "[BOS]{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    try:
        assert model.chat("hello") == "[BOS]<user>hello"
        assert model.tokenize([model.chat("hello")])["input_ids"][0].tolist().count(1) == 1
    finally:
        model.tokenizer.chat_template = None


def test_a_model_that_does_not_write_is_named(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="cannot be loaded"):
        _ = LanguageModel(str(tmp_path)).tokenizer
    with pytest.raises(AssetError, match="cannot be loaded"):
        _ = LanguageModel(str(tmp_path), device="cpu").model
