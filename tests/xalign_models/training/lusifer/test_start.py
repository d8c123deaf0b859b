"""The connector's start in closed form: a planted map is found, and nothing but the connector moves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.xalign_models.training.lusifer.conftest import FAMILIES, WORDS
from xalign_models.training.lusifer.start import _overlaps, _pairs, fit_connector


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 8))) for _ in range(400)]


@pytest.fixture
def tokenizer(checkpoints):
    return PreTrainedTokenizerFast.from_pretrained(checkpoints["llama"])


@pytest.fixture
def wide(make_lusifer, make_bert, workdir):
    """Of an encoder of 64 dimensions, so that there is room for words and ends."""
    return make_lusifer(encoder=make_bert(workdir / "wide", WORDS, hidden_size=64, initializer_range=0.3))


def test_letters_say_which_tokens_belong_together():
    read = [(0, 0), (0, 3), (3, 6), (7, 9), (0, 0)]  # special, two halves of a word, a word, special
    written = [(0, 6), (6, 8), (8, 9)]
    assert list(_overlaps(read, written)) == [(1, [0]), (2, [0]), (3, [1, 2])]


def plant(lusifer, tokenizer):
    """Make the embeddings of words, begin and end one linear map of their states in texts of a word."""
    table = lusifer.llm.get_input_embeddings().weight
    with torch.no_grad():
        states = torch.cat([lusifer.encoder(lusifer.preprocess([word]))["token_embeddings"] for word in WORDS])
        mapped = states @ torch.randn(64, 24, generator=torch.Generator().manual_seed(1))
        table[tokenizer.convert_tokens_to_ids(WORDS)] = mapped[:, 1]
        table[2], table[3] = mapped[:, 0].mean(dim=0), mapped[:, 2].mean(dim=0)


def test_embeddings_that_follow_the_encoder_are_found(wide, tokenizer, texts):
    """What is left is what the context adds to a word; nothing but the two layers moves."""
    before = {name: one.clone() for name, one in wide.state_dict().items()}
    chance = fit_connector(wide, tokenizer, (2, 3), texts)
    moved = {name for name, one in wide.state_dict().items() if not torch.equal(one, before[name])}
    layers = {f"connector.{layer}.{kind}" for layer in ("inner", "outer") for kind in ("weight", "bias")}
    assert moved == {*layers, "connector.token"}
    assert torch.equal(wide.connector.token, wide.llm.get_input_embeddings().weight[3])
    plant(wide, tokenizer)
    assert fit_connector(wide, tokenizer, (2, 3), texts) > chance
    assert fit_connector(wide, tokenizer, (2, 3), WORDS) > 0.5  # the ends have one embedding and many states


@torch.no_grad()
def test_tokens_without_letters_are_paired_with_begin_and_end(make_lusifer, tokenizer):
    """And those with letters with the embedding of the same word; padding with nothing."""
    lusifer = make_lusifer()
    table = lusifer.llm.get_input_embeddings().weight
    for text, (states, embeddings, words) in zip(
        ("w7 w8", "w9"), _pairs(lusifer, tokenizer, (2, 3), ["w7 w8", "w9"], 2), strict=True
    ):
        ids = [2, *tokenizer.convert_tokens_to_ids(text.split()), 3]
        torch.testing.assert_close(embeddings, table[ids])
        assert words.tolist() == [False, *[True] * (len(ids) - 2), False]
        own = lusifer.encoder(lusifer.preprocess([text]))["token_embeddings"][0]
        torch.testing.assert_close(states, own, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_token_of_several_pieces_is_paired_with_their_mean(make_lusifer):
    lusifer = make_lusifer()
    ids, places = [5, 6, 7], [(0, 1), (1, 2), (3, 5)]  # "w7" in two pieces, "w8" in one
    _, embeddings, _ = next(
        _pairs(lusifer, lambda *_, **__: {"input_ids": [ids], "offset_mapping": [places]}, (2, 3), ["w7 w8"], 1)
    )
    table = lusifer.llm.get_input_embeddings().weight
    torch.testing.assert_close(embeddings, torch.stack([table[2], table[5:7].mean(dim=0), table[7], table[3]]))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_texts_are_encoded_on_the_training_device(wide, tokenizer, texts, device, monkeypatch):
    """A machine with a GPU took minutes of its processors for this; the model is back in its place afterwards."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    moves, move = [], wide.encoder.to
    explained = fit_connector(wide, tokenizer, (2, 3), texts)
    monkeypatch.setattr(wide.encoder, "to", lambda place: moves.append(str(place)) or move(place))
    assert fit_connector(wide, tokenizer, (2, 3), texts, device=device) == pytest.approx(explained, abs=1e-4)
    assert moves == [device, "cpu"]
    assert {str(weight.device) for weight in wide.parameters()} == {"cpu"}


def test_the_start_is_the_least_squares_solution(wide, tokenizer, texts):
    """No small change of the outer layer brings it nearer to the ends' embeddings and the enlarged ones of words."""
    lusifer = wide
    plant(lusifer, tokenizer)
    fit_connector(lusifer, tokenizer, (2, 3), texts)
    table = lusifer.llm.get_input_embeddings().weight.detach()
    with torch.no_grad():
        states = torch.cat([lusifer.encoder(lusifer.preprocess([text]))["token_embeddings"][0] for text in texts])
    ids = [id_ for text in texts for id_ in [2, *tokenizer.convert_tokens_to_ids(text.split()), 3]]
    wanted, words = table[ids], torch.tensor([id_ not in (2, 3) for id_ in ids])
    mean = wanted[words].mean(dim=0)
    hidden = torch.nn.functional.pad(torch.relu(lusifer.connector.inner(states)).detach(), (0, 1), value=1.0)
    fitted = (hidden @ torch.linalg.lstsq(hidden, wanted, driver="gelsd").solution)[words] - mean
    wanted[words] = mean + (wanted[words] - mean) * float((wanted[words] - mean).norm() / fitted.norm())
    loss = (lusifer.connector(states) - wanted).square().sum()
    loss.backward()
    outer = lusifer.connector.outer
    assert float(outer.bias.grad.norm()) < 1e-2 * float(loss)
    assert float(outer.weight.grad.norm()) < 1e-1 * float(loss)  # but for the ridge
    assert float(lusifer.connector.inner.weight.grad.norm()) > 0


@torch.no_grad()
def test_fitted_words_vary_as_much_as_the_language_models_own(wide, tokenizer, texts):
    """Plain least squares would leave them the share of the variance that it explains."""
    plant(wide, tokenizer)
    assert fit_connector(wide, tokenizer, (2, 3), texts) < 0.9
    pairs = zip(*_pairs(wide, tokenizer, (2, 3), texts, 64), strict=True)
    states, embeddings, words = (torch.cat(side) for side in pairs)
    fitted, own = (vectors[words].var(dim=0).sum() for vectors in (wide.connector(states), embeddings))
    assert float(fitted / own) == pytest.approx(1, abs=0.1)


@pytest.fixture(params=FAMILIES)
def of_family(request, make_lusifer):
    return make_lusifer(request.param, seed=3)


@torch.no_grad()
def test_the_start_is_what_each_family_reads(of_family, tokenizer, texts):
    """Gemma multiplies a token's row of the table by sqrt(d) before the first layer, but not what is given instead."""
    llm, (_, embeddings, _) = of_family.llm, next(_pairs(of_family, tokenizer, (2, 3), ["w7"], 1))
    ids = torch.tensor([[2, *tokenizer.convert_tokens_to_ids(["w7"]), 3]])
    torch.testing.assert_close(llm(inputs_embeds=embeddings[None])[0], llm(input_ids=ids)[0])
    fit_connector(of_family, tokenizer, (2, 3), texts[:50])
    torch.testing.assert_close(
        llm(inputs_embeds=of_family.connector.token[None, None])[0], llm(input_ids=torch.tensor([[3]]))[0]
    )


def test_the_token_begins_as_long_as_an_embedding(of_family):
    rows = of_family.llm.get_input_embeddings()(torch.arange(of_family.llm.config.vocab_size))
    lusifer = of_family
    assert float(lusifer.connector.token.norm()) == pytest.approx(float(rows.norm(dim=1).mean()), rel=0.5)
