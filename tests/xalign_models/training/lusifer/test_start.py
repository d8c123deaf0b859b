"""The connector's start in closed form: a planted map is found, and nothing but the connector moves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.xalign_models.training.lusifer.conftest import WORDS
from xalign_models.training.lusifer.start import _overlaps, fit_connector


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 8))) for _ in range(400)]


@pytest.fixture
def tokenizer(checkpoints):
    return PreTrainedTokenizerFast.from_pretrained(checkpoints["llama"])


def test_letters_say_which_tokens_belong_together():
    read = [(0, 0), (0, 3), (3, 6), (7, 9), (0, 0)]  # special, two halves of a word, a word, special
    written = [(0, 6), (6, 8), (8, 9)]
    assert list(_overlaps(read, written)) == [(1, [0]), (2, [0]), (3, [1, 2])]


def test_embeddings_that_follow_the_encoder_are_found(make_lusifer, tokenizer, texts):
    """Each word's embedding is made a linear map of its mean state: what is left is what the context adds."""
    lusifer = make_lusifer()
    before = {name: one.clone() for name, one in lusifer.state_dict().items()}
    chance = fit_connector(lusifer, tokenizer, texts)
    moved = {name for name, one in lusifer.state_dict().items() if not torch.equal(one, before[name])}
    assert moved == {f"connector.{layer}.{kind}" for layer in ("inner", "outer") for kind in ("weight", "bias")}
    turn = torch.randn(16, 24, generator=torch.Generator().manual_seed(1))
    table = lusifer.llm.get_input_embeddings().weight
    with torch.no_grad():
        for word in WORDS:
            states = lusifer.encoder(lusifer.preprocess([word]))["token_embeddings"][0, 1]
            table[tokenizer.convert_tokens_to_ids(word)] = states @ turn
    planted = fit_connector(lusifer, tokenizer, texts)
    assert planted > 4 * chance  # the rest is what the context adds to a word
    lone = fit_connector(lusifer, tokenizer, WORDS)
    assert lone > 0.98  # without a context nothing is left


def test_the_start_is_the_least_squares_solution(make_lusifer, tokenizer, texts):
    """No other outer layer is nearer to the embeddings."""
    lusifer = make_lusifer()
    explained = fit_connector(lusifer, tokenizer, texts)
    assert 0 < explained < 1
    states, wanted = [], []
    table = lusifer.llm.get_input_embeddings().weight.detach()
    with torch.no_grad():
        for text in texts:
            found = lusifer.encoder(lusifer.preprocess([text]))["token_embeddings"][0, 1:-1]
            states.append(found)
            wanted.append(table[tokenizer.convert_tokens_to_ids(text.split())])
        mapped = lusifer.connector(torch.cat(states))
    goal = torch.cat(wanted)
    left = (goal - mapped).square().sum() / (goal - goal.mean(dim=0)).square().sum()
    assert 1 - float(left) == pytest.approx(explained, abs=1e-3)


def test_the_token_begins_as_long_as_an_embedding(make_lusifer):
    lusifer = make_lusifer(seed=3)
    rows = lusifer.llm.get_input_embeddings().weight
    assert float(lusifer.connector.token.norm()) == pytest.approx(float(rows.norm(dim=1).mean()), rel=0.5)
