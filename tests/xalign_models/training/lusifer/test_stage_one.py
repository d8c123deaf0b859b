"""Stage 1: nothing that is to be predicted is seen, the loss by hand, masks, and what the tokenizers must have."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast

from tests.xalign_models.training.lusifer.conftest import FAMILIES, write_llm
from xalign_models.errors import DataError, ModelError
from xalign_models.training.lusifer.module import Lusifer
from xalign_models.training.lusifer.parts import base_of, load_encoder, load_llm, load_llm_tokenizer
from xalign_models.training.lusifer.stage_one import StageOne
from xalign_models.training.objective import ObjectiveLoss

families = pytest.mark.parametrize("family", FAMILIES)
ROWS = [
    {"source": "w1 w2 w3", "target": "w4 w5 w6 w7 w8", "reconstruct": False},
    {"source": "w9", "target": "w10", "reconstruct": True},
    {"source": "w11 w12 w13 w14 w15 w16 w17 w18", "target": "w11 w12 w13", "reconstruct": True},
]


@pytest.fixture
def make(workdir, checkpoints):
    """A stage-1 model in evaluation mode."""

    def go(family="llama", ratio=0.5, limit=16):
        base = base_of(str(checkpoints[family]), None, "float32")
        writer = load_llm(base, head=True)
        lusifer = Lusifer(load_encoder(base_of(str(checkpoints["encoder"]), None, "float32")), writer.base_model, base)
        ends = load_llm_tokenizer(base)[1:]
        # AutoTokenizer takes Qwen's for byte pairs, which this one has not
        tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoints[family])
        return StageOne(lusifer, writer, tokenizer, ends, limit, ratio).eval()

    return go


def by_hand(model, row):
    """Logits for a row's target by itself: no padding, no selection; the causal model as transformers runs it."""
    features = model.collate([row])
    states = model.lusifer.encoder(dict(features))["token_embeddings"]
    embed = model.writer.get_input_embeddings()
    soft = torch.cat([model.lusifer.connector(states[0]), model.lusifer.connector.token[None]])
    target = features["target_ids"][0]
    sequence = torch.cat([embed(torch.tensor([model.bos])), soft, embed(target)])[None]
    logits = model.writer(inputs_embeds=sequence).logits[0]
    return logits[len(soft) : len(soft) + len(target)], target


@families
@torch.no_grad()
def test_logits_are_the_language_models_own(make, family):
    model = make(family)
    found = model.logits(model.collate(ROWS))
    expected = torch.cat([by_hand(model, row)[0] for row in ROWS])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@families
@torch.no_grad()
def test_no_label_is_seen_before_it_is_predicted(make, family):
    """A target token that is changed changes no logit of it or before it, in any row, and those after it."""
    model = make(family)
    features = model.collate(ROWS)
    base = model.logits(features)
    row, length = 0, int(features["target_mask"][0].sum())
    assert length == 6  # five words and the end token
    for j in range(length):
        changed = {**features, "target_ids": features["target_ids"].clone()}
        changed["target_ids"][row, j] = 99
        moved = (model.logits(changed) - base).abs().amax(dim=1) > 0
        assert not moved[: j + 1].any()  # the first rows of the logits are row 0's
        assert not moved[length:].any()
        assert bool(moved[j + 1 : min(j + 3, length)].all())


@torch.no_grad()
def test_the_loss_by_hand(make):
    model = make()
    parts = [by_hand(model, row) for row in ROWS]
    expected = cross_entropy(torch.cat([one for one, _ in parts]), torch.cat([one for _, one in parts]))
    torch.testing.assert_close(model(model.collate(ROWS))["loss"], expected, rtol=0, atol=1e-5)
    wrapped = SentenceTransformer(modules=[model], device="cpu")
    torch.testing.assert_close(ObjectiveLoss(wrapped)([model.collate(ROWS)]), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_only_content_of_rows_to_reconstruct_is_masked(make):
    model = make(ratio=0.5)
    features = model.collate([{**ROWS[2], "reconstruct": one} for one in (True, False)] * 300)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ids = model.masked(features)
        torch.manual_seed(0)
        assert torch.equal(ids, model.masked(features))
    changed = ids != features["input_ids"]
    assert not changed[1::2].any()
    assert not changed[:, [0, -1]].any()  # [CLS] and [SEP]
    assert bool((ids[changed] == model.mask_id).all())
    assert changed[::2, 1:-1].float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert torch.equal(features["input_ids"][0], model.collate([ROWS[2]])["input_ids"][0])


def test_masks_are_drawn_in_training_alone(make):
    model = make()
    features = model.collate(ROWS)
    with torch.no_grad():
        assert model(features)["loss"] == model(features)["loss"]
        model.train()
        assert model(features)["loss"] != model(features)["loss"]


def test_targets_end_or_are_cut(make):
    model = make(limit=4)
    features = model.collate(ROWS)
    end = model.eos
    assert features["target_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert [
        row[mask.bool()].tolist()[-1] == end
        for row, mask in zip(features["target_ids"], features["target_mask"], strict=True)
    ] == [False, True, True]


def test_an_empty_batch_is_refused(make):
    model = make(limit=0)
    with pytest.raises(DataError, match="no target token"):
        model(model.collate(ROWS))


def test_only_what_is_trained_gets_a_gradient(make):
    model = make()
    model.requires_grad_(False).lusifer.connector.requires_grad_(True)
    model.train()(model.collate(ROWS))["loss"].backward()
    with_gradient = {name for name, one in model.named_parameters() if one.grad is not None}
    assert with_gradient == {f"lusifer.connector.{name}" for name, _ in model.lusifer.connector.named_parameters()}
    assert not model.writer.training
    assert not model.lusifer.encoder.training  # frozen


def test_begin_and_end_tokens(workdir):
    """From the tokenizer, else from the configuration, as Qwen has it; with neither it is refused."""
    llm = write_llm(workdir / "qwen", "qwen2", {"bos_token": None}, bos_token_id=7)
    assert load_llm_tokenizer(base_of(str(llm), None, "float32"))[1:] == (7, 3)
    for missing in ("bos", "eos"):
        llm = write_llm(workdir / missing, "llama", {f"{missing}_token": None}, **{f"{missing}_token_id": None})
        with pytest.raises(ModelError, match=f"neither its tokenizer nor its configuration has a {missing} token"):
            load_llm_tokenizer(base_of(str(llm), None, "float32"))


def test_an_encoder_without_a_mask_token_is_refused(make):
    model = make()
    model.lusifer.tokenizer.mask_token = None
    with pytest.raises(ModelError, match="no mask token"):
        StageOne(model.lusifer, model.writer, model.tokenizer, (1, 2), 4)


def measuring(make, **options):
    model = make()
    rows = [{"source": f"w{i} w{i + 1}", "target": f"w{i} w{i + 1}", "reconstruct": True} for i in range(6)]
    ends = model.bos, model.eos
    return StageOne(model.lusifer, model.writer, model.tokenizer, ends, 16, 0.5, rows, **options)


@torch.no_grad()
def test_the_gain_is_what_own_soft_tokens_save(make, monkeypatch):
    """None where the text does not get through, and by hand where it does."""
    model = measuring(make)
    own, other = (
        sum(
            float(cross_entropy(*by_hand(model, {**row, "source": model.held_out[(i + step) % 6]["source"]}))) / 6
            for i, row in enumerate(model.held_out)
        )
        for step in (0, 1)
    )
    found = model.measure()
    assert found["held_out_loss"] == pytest.approx(own, abs=1e-4)
    assert found["gain"] == pytest.approx(other - own, abs=1e-4)
    deaf = model.lusifer.connector
    monkeypatch.setattr(deaf, "forward", lambda states: torch.zeros(*states.shape[:-1], 24))
    assert model.measure()["gain"] == pytest.approx(0, abs=1e-6)
    assert not model.verdict({"gain": 0.0}, {"gain": 0.05}).learnt
    assert model.verdict({"gain": 0.0}, {"gain": 0.6}).text == (
        "A held-out text's own soft tokens save 0.60 nats a token over another's (0.00 before)."
    )


@torch.no_grad()
def test_parts_have_no_padding_that_none_of_their_rows_needs(make, monkeypatch):
    model = make()
    monkeypatch.setattr(
        "xalign_models.training.lusifer.stage_one.similar_lengths", lambda *_: [(torch.tensor([1]), None)]
    )
    (part,) = model._parts(model.collate(ROWS))
    assert {name: value.shape[1] for name, value in part.items() if name.endswith("mask")} == {
        "attention_mask": len(model.collate(ROWS[1:2])["attention_mask"][0]),
        "target_mask": len(model.collate(ROWS[1:2])["target_mask"][0]),
    }
