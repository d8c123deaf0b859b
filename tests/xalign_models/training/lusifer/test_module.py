"""The model: who sees whom, padding that changes nothing, the connector's size, and what is saved."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from tests.xalign_models.training.lusifer.conftest import FAMILIES
from xalign_models.backbones.adapters import add_lora, lora_matrices
from xalign_models.backbones.pipeline import can_pack
from xalign_models.backbones.raw import RawEncoder
from xalign_models.training.lusifer.connector import Connector, join
from xalign_models.training.lusifer.decoder import Bidirectional, attention
from xalign_models.training.lusifer.module import Lusifer, modules_of
from xalign_models.training.lusifer.parts import base_of, load_bidirectional, load_llm

families = pytest.mark.parametrize("family", FAMILIES)
kernels = pytest.mark.parametrize("kernel", ["eager", "sdpa"])
TEXTS = ["w1", "w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12", "w13 w14 w15", "w1", "", "w20 w21 w22 w23 w24 w25"]


def vectors(lusifer, texts, batches=None):
    """Mean over real positions, each batch by itself."""
    pipeline = SentenceTransformer(modules=[*modules_of(lusifer), Normalize()], device="cpu")
    rows = []
    for batch in batches or [texts]:
        with torch.no_grad():
            rows.append(pipeline(pipeline.preprocess(batch))["sentence_embedding"])
    return torch.cat(rows)


def influence(llm, causal, length, mask=None):
    """(i, j): whether what stands at position j changes the last layer's state at position i."""
    embeds = torch.randn(1, length, llm.config.hidden_size, generator=torch.Generator().manual_seed(0))
    with attention(llm, causal=causal) as keywords, torch.no_grad():

        def states(given):
            options = {} if mask is None else {"attention_mask": mask}
            return llm(inputs_embeds=given, **options, **keywords).last_hidden_state[0]

        base = states(embeds)
        found = []
        for j in range(length):
            moved = embeds.clone()
            moved[:, j] += 1
            found.append((states(moved) - base).abs().amax(dim=1) > 1e-6)
    return torch.stack(found, dim=1)


def load(checkpoints, family, kernel):
    llm = load_llm(base_of(str(checkpoints[family]), None, "float32"))
    try:
        llm.set_attn_implementation(kernel)
    except ValueError:
        pytest.skip(f"{family} has no {kernel} attention")
    return llm


@families
@kernels
@pytest.mark.parametrize("padded", [False, True])
def test_positions_see_both_ways_or_back_only(workdir, checkpoints, family, kernel, padded):
    """Two layers with windows of 3 reach 2 positions at least and 6 at most; all else reaches everywhere."""
    if family == "gemma2" and kernel == "sdpa":
        pytest.skip("Gemma 2 caps its attention scores, which the fused kernel cannot")
    llm, n = load(checkpoints, family, kernel), 12
    mask = torch.tensor([[1] * n + [0] * 2]) if padded else None
    distance = torch.arange(n)[None] - torch.arange(n)[:, None]  # j - i
    for causal in (True, False):
        seen = influence(llm, causal, n + 2 * padded, mask)[:n, :n]
        allowed = distance <= (0 if causal else n)
        if family.endswith("window"):
            assert not (seen & ~(allowed & (distance.abs() <= 6))).any()
            assert not (~seen & allowed & (distance.abs() <= 2)).any()
        else:
            assert torch.equal(seen, allowed)


@families
def test_the_configuration_is_as_before(workdir, checkpoints, family):
    llm = load_llm(base_of(str(checkpoints[family]), None, "float32"))
    before = llm.config.to_dict()
    with attention(llm, causal=False):
        assert llm.config.is_causal is False
    assert llm.config.to_dict() == before


@families
def test_every_token_reaches_every_position_of_the_whole_model(make_lusifer, family):
    """Within the language model: the encoder, which sees both ways by itself, is bypassed."""
    lusifer = make_lusifer(family)
    seen = influence(lusifer.llm, False, 4)
    assert bool(seen.all())


@families
def test_a_texts_vector_does_not_depend_on_its_batch(make_lusifer, family):
    lusifer = make_lusifer(family)
    together = vectors(lusifer, TEXTS)
    alone = vectors(lusifer, TEXTS, [[one] for one in TEXTS])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(together[0], together[3], rtol=0, atol=1e-5)


def test_a_tokenizer_that_pads_on_the_left_makes_no_difference(make_lusifer, checkpoints, workdir):
    expected = vectors(make_lusifer(), TEXTS)
    left = shutil.copytree(checkpoints["encoder"], workdir / "left")
    config = json.loads((left / "tokenizer_config.json").read_text())
    (left / "tokenizer_config.json").write_text(json.dumps({**config, "padding_side": "left"}))
    torch.testing.assert_close(vectors(make_lusifer(encoder=left), TEXTS), expected, rtol=0, atol=1e-5)


def test_batches_are_the_same_in_training(make_lusifer):
    """Parts of similar length, put together again."""
    lusifer = make_lusifer().requires_grad_(True)
    for module in lusifer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    expected = vectors(lusifer, TEXTS)
    torch.testing.assert_close(vectors(lusifer.train(), TEXTS), expected, rtol=0, atol=1e-5)


def test_the_token_stands_right_behind_the_last_real_one(make_lusifer):
    lusifer = make_lusifer()
    features = lusifer.preprocess(["w1 w2 w3", "w4"])  # [CLS] ... [SEP]: 5 and 3 tokens
    embeds, mask = join(lusifer.soft_tokens(features))
    assert mask.tolist() == [[True] * 6, [True] * 4 + [False] * 2]
    token = lusifer.connector.token
    assert torch.equal(embeds[0, 5], token)
    assert torch.equal(embeds[1, 3], token)
    assert torch.equal(embeds[1, 4:], torch.zeros(2, 24))
    states = lusifer.encoder(dict(features))["token_embeddings"]
    torch.testing.assert_close(embeds[0, :5], lusifer.connector(states[0]))
    out = lusifer(features)
    assert out["attention_mask"].tolist() == mask.long().tolist()
    assert out["token_embeddings"].shape == (2, 6, 24)


def test_join_against_lists():
    rng = np.random.default_rng(0)
    masks = [torch.tensor(rng.integers(0, 2, (5, n)), dtype=torch.long) for n in (4, 1, 6)]
    values = [torch.randn(int(mask.sum()), 3) for mask in masks]
    joined, real = join(list(zip(values, masks, strict=True)))
    rows = [[] for _ in range(5)]
    for value, mask in zip(values, masks, strict=True):
        taken = iter(value.tolist())
        for row, bits in zip(rows, mask.tolist(), strict=True):
            row += [next(taken) for bit in bits if bit]
    assert joined.shape[1] == max(map(len, rows))
    for row, found, bits in zip(rows, joined, real, strict=True):
        assert bits.sum() == len(row)
        torch.testing.assert_close(found[: len(row)], torch.tensor(row).reshape(-1, 3))
        assert not found[len(row) :].any()


def test_join_takes_the_first_pieces_number_format():
    pieces = [(torch.ones(1, 3, dtype=dtype), torch.ones(1, 1)) for dtype in (torch.bfloat16, torch.float32)]
    assert join(pieces)[0].dtype == torch.bfloat16


@pytest.mark.parametrize(("width", "target", "count"), [(1024, 4096, 5_252_096), (384, 576, 370_176), (3, 5, 37)])
def test_the_connectors_size_is_the_formula(width, target, count):
    with torch.device("meta"):
        found = sum(one.numel() for one in Connector(width, target).parameters())
    assert found == count == width**2 + width + width * target + target + target


def test_the_connector_by_hand():
    connector = Connector(2, 3)
    with torch.no_grad():
        connector.inner.weight.copy_(torch.tensor([[1.0, 0], [0, -1]]))
        connector.inner.bias.zero_()
        connector.outer.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [1, 1]]))
        connector.outer.bias.copy_(torch.tensor([0.0, 0, 10]))
    assert connector(torch.tensor([[2.0, 3.0], [-1.0, -4.0]])).tolist() == [[2, 0, 12], [0, 4, 14]]


def test_the_connector_depends_on_its_seed_alone(make_lusifer):
    state = torch.get_rng_state()
    found = [make_lusifer(seed=seed).connector.outer.weight for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_truncation_keeps_the_end_token(make_lusifer):
    lusifer = make_lusifer()
    lusifer.max_seq_length = 5
    ids = lusifer.preprocess(["w1 w2 w3 w4 w5 w6"], prompt="w9 ")["input_ids"][0].tolist()
    tokenizer = lusifer.tokenizer
    assert ids == [tokenizer.cls_token_id, *tokenizer.convert_tokens_to_ids(["w9", "w1", "w2"]), tokenizer.sep_token_id]


def test_a_language_travels_with_its_text(make_lusifer):
    features = make_lusifer().preprocess([{"text": "w1", "lang": "deu-Latn"}, {"text": "w2", "lang": None}])
    assert make_lusifer()(features)["lang"] == ["deu-Latn", None]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("projection", [False, True])
def test_saved_and_loaded_it_is_the_same(make_lusifer, workdir, dtype, projection):
    lusifer = make_lusifer("gemma3_text", dtype=dtype)
    lusifer.max_seq_length = 9
    for model in (lusifer.encoder.model, lusifer.llm):
        add_lora(model, rank=2, alpha=4, dropout=0.0, seed=0)
        for matrix in lora_matrices(model):
            torch.nn.init.normal_(matrix, std=0.1)
    pipeline = SentenceTransformer(modules=[*modules_of(lusifer, projection), Normalize()], device="cpu").eval()
    pipeline.save_pretrained(str(workdir / "saved"), create_model_card=False)
    again = SentenceTransformer(str(workdir / "saved"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(again.encode(TEXTS), pipeline.encode(TEXTS), atol=1e-6)
    assert again.max_seq_length == 9
    files = {one.relative_to(workdir / "saved").as_posix() for one in (workdir / "saved").rglob("*") if one.is_file()}
    assert {"modules.json", "lusifer_config.json", "connector.safetensors", "encoder/config.json",
            "encoder/adapter_config.json", "llm/config.json", "llm/adapter_config.json"} <= files  # fmt: skip
    checkpoints = {"encoder/model.safetensors", "llm/model.safetensors", "tokenizer.json"}
    assert not checkpoints & files
    assert str(workdir) not in "".join(
        (workdir / "saved" / one).read_text() for one in files if one.endswith(".json") and "adapter" in one
    )


def test_saving_asks_no_hub_for_the_checkpoints(make_lusifer, workdir, monkeypatch):
    lusifer = make_lusifer()
    for model in (lusifer.encoder.model, lusifer.llm):
        add_lora(model, rank=2, alpha=4, dropout=0.0, seed=0)
    SentenceTransformer(modules=modules_of(lusifer), device="cpu").save_pretrained(
        str(workdir / "saved"), create_model_card=False
    )
    again = SentenceTransformer(str(workdir / "saved"), device="cpu", trust_remote_code=True)
    (workdir / "named").mkdir()
    asked = []
    monkeypatch.setattr("peft.utils.save_and_load.check_file_exists_on_hf_hub", lambda *names, **_: asked.append(names))
    for one in (lusifer, again[0]):
        one.encoder.base = {**one.encoder.base, "model": "an-encoder"}  # names that are no paths, as those of assets
        one.llm_base["model"] = "a-writer"
        one.save(str(workdir / "named"))
    assert not asked
    for part, name in (("encoder", "an-encoder"), ("llm", "a-writer")):
        adapter = json.loads((workdir / "named" / part / "adapter_config.json").read_text())
        assert adapter["base_model_name_or_path"] == name


def test_a_changed_checkpoint_is_refused(make_lusifer, workdir, checkpoints):
    from xalign_models.errors import ModelError

    SentenceTransformer(modules=modules_of(make_lusifer()), device="cpu").save_pretrained(
        str(workdir / "saved"), create_model_card=False
    )
    path = workdir / "saved" / "lusifer_config.json"
    config = json.loads(path.read_text())
    config["llm_base"]["fingerprint"] = "0"
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=f"another version of {checkpoints['llama']}"):
        Lusifer.load(str(workdir / "saved"))


def test_a_language_model_alone_sees_both_ways(workdir, checkpoints):
    alone = load_bidirectional(base_of(str(checkpoints["llama"]), None, "float32"))
    assert type(alone) is Bidirectional
    pipeline = SentenceTransformer(modules=modules_of(alone.eval()), device="cpu")
    one, other = (pipeline.encode([text], output_value="token_embeddings")[0] for text in ("w1 w2 w3", "w1 w2 w4"))
    assert (one[0] - other[0]).abs().max() > 1e-4
    together, single = pipeline.encode(["w1 w2", "w1 w2 w3 w4 w5 w6"]), pipeline.encode(["w1 w2"])
    np.testing.assert_allclose(together[0], single[0], atol=1e-5)
    pipeline.save_pretrained(str(workdir / "saved"), create_model_card=False)
    again = SentenceTransformer(str(workdir / "saved"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(again.encode(["w1 w2"]), single, atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "mistral", "mistral-window", "qwen3", "gemma2", "gemma3_text"])
def test_a_language_model_alone_sees_both_ways_in_a_pack_too(workdir, checkpoints, family):
    alone = load_bidirectional(base_of(str(checkpoints[family]), None, "float32"))
    pipeline = SentenceTransformer(modules=modules_of(alone.eval()), device="cpu")
    assert can_pack(alone) or "sliding_window" in FAMILIES[family]
    texts = [text for text in TEXTS if text]
    packed = RawEncoder("", lambda: list(pipeline), "cpu").encode(texts)
    np.testing.assert_allclose(packed, pipeline.encode(texts), atol=1e-5)
