"""Packs: every text attends as if it were alone, with any model; models that cannot be packed are padded."""

from __future__ import annotations

import itertools
import json
import logging
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.nn.functional import scaled_dot_product_attention

from xalign_models.backbones import packing
from xalign_models.backbones.loading import open_backbone
from xalign_models.backbones.pipeline import can_pack
from xalign_models.backbones.prompt_eol import PromptEOL
from xalign_models.backbones.raw import RawEncoder
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.specs import BackboneSpec

from .conftest import WORDS
from .operations import Operations

SIZES = {
    "vocab_size": 5 + len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.3,
}
GROUPS = {"num_key_value_heads": 2, "head_dim": 8}
WINDOWS = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
KINDS: dict[str, dict[str, Any]] = {
    "Bert": {},
    "XLMRoberta": {"pad_token_id": 1, "max_position_embeddings": 66},
    "ModernBert": {"local_attention": 8, "global_attn_every_n_layers": 2, "pad_token_id": 0, "cls_token_id": 2,
                   "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3},
    "Llama": {"num_key_value_heads": 2},
    "Mistral": {**GROUPS, "sliding_window": 8},
    "Qwen3": GROUPS,
    "Gemma3Text": {**GROUPS, **WINDOWS, "query_pre_attn_scalar": 8},
}  # fmt: skip
PADDED: dict[str, dict[str, Any]] = {"Gemma2": {**GROUPS, "attn_logit_softcapping": 1.0}, "DebertaV2": {}, "Bloom": {}}
RNG = np.random.default_rng(0)
KERNELS = {"flash": "_flash_attention_forward", "efficient": "_efficient_attention_forward"}
TEXTS = [" ".join(RNG.choice(WORDS, size=size)) for size in [*RNG.integers(0, 20, 30), 1, 1]]


def backbone(checkpoint: Path, folder: Path, kind: str, options: dict[str, Any], dtype: str = "float32") -> list[Any]:
    """Random weights of some kind of model, with the tokenizer of the checkpoint."""
    import transformers

    sizes = SIZES if kind != "Bloom" else {"vocab_size": 5 + len(WORDS), "hidden_size": 32, "n_layer": 2, "n_head": 4}
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **options})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)
    causal = kind not in ("Bert", "XLMRoberta", "ModernBert", "DebertaV2")
    first = (PromptEOL if causal else LanguageTransformer)(str(folder), model_kwargs={"torch_dtype": dtype})
    return [first.eval(), Pooling(32, "lasttoken" if causal else "mean")]


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.mark.parametrize(("dtype", "least"), [("float32", 0.9999), ("bfloat16", 0.999)])
@pytest.mark.parametrize("prompt", ["", "the cat sees a [TEXT] dog"])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_vectors_are_those_of_each_text_alone(
    checkpoint: Path, tmp_path: Path, kind: str, prompt: str, dtype: str, least: float
) -> None:
    modules = backbone(checkpoint, tmp_path, kind, KINDS[kind], dtype)
    raw = RawEncoder("n", lambda: modules, "cpu", token_budget=60)
    packed = raw.encode(TEXTS, prompt)
    alone = np.concatenate([raw.forward([text], prompt) for text in TEXTS])
    assert can_pack(modules[0])
    assert raw.counts.computed_tokens <= raw.counts.real_tokens
    assert cosines(packed, alone).min() > least
    assert cosines(packed, np.roll(alone, 1, axis=0)).min() < 0.99  # texts differ


@pytest.mark.parametrize("kind", PADDED)
def test_a_model_that_cannot_be_packed_is_padded_and_that_is_logged(
    checkpoint: Path, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    modules = backbone(checkpoint, tmp_path, kind, PADDED[kind])
    raw = RawEncoder("n", lambda: modules, "cpu", token_budget=60)
    before = modules[0].model.config._attn_implementation
    with caplog.at_level(logging.DEBUG, "xalign_models.backbones.pipeline"):
        vectors = raw.encode(TEXTS)
    assert [record.message.split(" ")[0] for record in caplog.records] == [type(modules[0].model).__name__]
    assert modules[0].model.config._attn_implementation == before
    assert raw.counts.computed_tokens > raw.counts.real_tokens
    assert cosines(vectors, np.concatenate([raw.forward([text]) for text in TEXTS])).min() > 0.9999


def test_a_model_whose_texts_would_see_each_other_is_padded(
    modules: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaking(module: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        return scaled_dot_product_attention(query, key, value).transpose(1, 2), None

    monkeypatch.setitem(packing.AttentionInterface._global_mapping, packing.ATTENTION, leaking)
    assert not can_pack(modules[0])


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=9), min_size=1, max_size=5), st.sampled_from([0, 3]))
def test_positions_are_those_of_roberta_whatever_texts_contain(rows: list[list[int]], shared: int) -> None:
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    texts = [np.array([2, 1, 3][:shared] + row) for row in sorted(rows, key=len)]
    wanted = [RobertaEmbeddings.create_position_ids_from_input_ids(torch.from_numpy(row[None]), 1)[0] for row in texts]
    features = packing.pack(texts, shared, first=2)
    packing.unshare(features)
    assert features["position_ids"][0].tolist() == torch.cat(wanted).tolist()
    plain = packing.pack(texts, shared)
    packing.unshare(plain)
    assert plain["position_ids"][0].tolist() == [place for row in texts for place in range(len(row))]


def test_a_text_that_names_the_padding_token_has_the_vector_of_sentence_transformers(
    checkpoint: Path, tmp_path: Path
) -> None:
    modules = backbone(checkpoint, tmp_path, "XLMRoberta", {**KINDS["XLMRoberta"], "pad_token_id": 0})
    raw = RawEncoder("n", lambda: modules, "cpu")
    texts = ["[PAD] the cat", "the [PAD] cat [PAD]", "the cat"]
    assert can_pack(modules[0])
    np.testing.assert_allclose(raw.encode(texts), raw.forward(texts), atol=1e-5)


TABLES = {
    "Bert": {}, "XLMRoberta": {"pad_token_id": 1}, "MPNet": {"pad_token_id": 1}, "GPT2": {}, "OPT": {}, "GPTJ": {},
    "Nystromformer": {}, "XLM": {}, "Llama": {}, "ModernBert": KINDS["ModernBert"],
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_a_text_may_fill_the_table_of_positions_and_no_more(kind: str) -> None:
    import transformers

    named = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9, "rotary_dim": 4}
    config = getattr(transformers, f"{kind}Config")(**{**named, "max_position_embeddings": 12, **TABLES[kind]})
    model = transformers.AutoModel.from_config(config).eval()
    limit = packing.find_limit(model)
    if kind in ("Llama", "ModernBert"):
        assert limit is None
        return
    assert limit is not None
    for length in (limit, limit + 1):
        ids = torch.full((1, length), 5)
        with nullcontext() if length == limit else pytest.raises((IndexError, RuntimeError)):
            model(input_ids=ids, attention_mask=torch.ones_like(ids))


@pytest.mark.parametrize("length", [None, 500])
def test_a_longer_text_is_cut_at_the_positions_that_roberta_has(
    checkpoint: Path, tmp_path: Path, length: int | None
) -> None:
    backbone(checkpoint, tmp_path, "XLMRoberta", {"pad_token_id": 1, "max_position_embeddings": 18})
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"model_max_length": length}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    modules = open_backbone(BackboneSpec("short", str(tmp_path))).modules("cpu")
    raw = RawEncoder("n", lambda: modules, "cpu")
    raw.encode(["the cat " * 50])
    assert raw.counts.real_tokens == modules[0].max_seq_length == 16


class Mixing(torch.nn.Module):
    """A user's own module: each token gets a part of the next one."""

    takes_packs = False

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        states = features["token_embeddings"]
        if "attention_mask" in features:
            states = states * features["attention_mask"][..., None]
        after = torch.nn.functional.pad(states, (0, 0, 0, 1))[:, 1:]
        return {**features, "token_embeddings": states + after}


def test_texts_are_padded_for_a_module_that_may_mix_a_pack(modules: list[Any]) -> None:
    raws = []
    for takes_packs in (False, True):
        mixing = Mixing()
        mixing.takes_packs = takes_packs
        whole = [modules[0], mixing, modules[1]]
        raws.append(RawEncoder("n", lambda whole=whole: whole, "cpu", token_budget=60))
    alone = np.concatenate([raws[0].forward([text]) for text in TEXTS])
    assert cosines(raws[0].encode(TEXTS), alone).min() > 0.9999
    assert cosines(raws[1].encode(TEXTS), alone).min() < 0.9999
    assert raws[0].counts.computed_tokens > raws[1].counts.computed_tokens


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.integers(0, 3),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 9)),
    st.sampled_from([1, 2, 4]),
)
def test_attention_is_within_each_text(
    lengths: list[int], shared: int, causal: bool, window: int | None, groups: int
) -> None:
    shared = shared if causal else 0  # else first tokens see what follows, and differ
    lengths = [shared + n for n in sorted(lengths)]
    rows = [np.concatenate([np.arange(shared), 100 * i + np.arange(n - shared)]) for i, n in enumerate(lengths, 1)]
    features = packing.pack(rows, shared)
    assert sum(texts * queries for texts, queries, _ in features["runs"]) == features["input_ids"].numel()
    ids = features.pop("input_ids")[0]
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(heads, 1000, 8, generator=generator) for heads in (4, groups, groups))  # by token
    del features["position_ids"]
    assert features.pop("seq_idx")[0].tolist() == [i for i, row in enumerate(rows) for _ in row]
    out, _ = packing.attention(
        torch.nn.Identity(),
        *(one[None, :, ids] for one in (q, k, v)),
        is_causal=causal,
        sliding_window=window,
        **features,
    )
    states = {"input_ids": ids[None], "position_ids": ids[None], "out": out, **features}
    packing.unshare(states, "out")
    assert states["input_ids"][0].tolist() == np.concatenate(rows).tolist()
    starts = states["cu_seq_lens_q"].tolist()
    for row, start, end in zip(rows, starts[:-1], starts[1:], strict=True):
        distance = np.subtract.outer(np.arange(len(row)), np.arange(len(row)))
        seen = (distance >= 0 if causal else True) & (np.abs(distance) < (window or 100))
        alone = scaled_dot_product_attention(
            *(one[None, :, row] for one in (q, k, v)), attn_mask=torch.from_numpy(seen), enable_gqa=True
        )[0].transpose(0, 1)
        torch.testing.assert_close(states["out"][0, start:end], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("kernel", "dtype", "heads"), [("flash", torch.bfloat16, 2), ("efficient", torch.float32, 4)])
def test_the_kernels_arguments_are_those_that_torch_declares(
    kernel: packing.Kernel, dtype: torch.dtype, heads: int
) -> None:
    """No GPU here: torch's own description of the operator takes them and gives the shape."""
    features = packing.pack([np.arange(5), np.arange(3)], kernel=kernel)
    starts = features["cu_seq_lens_q"].to("meta")
    q, k = (torch.empty(1, count, 8, 16, dtype=dtype, device="meta") for count in (4, 2))
    with Operations() as operations:
        out, _ = packing.attention(
            torch.nn.Identity(), q, k, k, cu_seq_lens_q=starts, cu_seq_lens_k=starts, max_length_q=5, max_length_k=5,
            kernel=kernel, scaling=0.25, sliding_window=4, is_causal=True,
        )  # fmt: skip
    assert (out.shape, out.dtype) == ((1, 8, 4, 16), dtype)
    called = next(call for call in operations.calls if call[0] == getattr(torch.ops.aten, KERNELS[kernel]).default)
    assert called[1][1].shape[-2:] == (heads, 16)  # memory-efficient attention wants a key's head for each query's
    assert ("runs" in features) == (kernel == "efficient")


def efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: None,
    starts_q: torch.Tensor,
    starts_k: torch.Tensor,
    max_q: int,
    max_k: int,
    dropout: float,
    mask_type: int,
    *,
    scale: float | None,
    window_size: int | None,
) -> tuple[torch.Tensor, ...]:
    """Memory-efficient attention as torch's kernel defines it: masks count from the last query and the last key.

    Query i of m sees key j of n where j <= i + n - m, and j > i + n - m - window_size.
    """
    assert query.shape[2] == key.shape[2] == value.shape[2]
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    assert starts_q.dtype == starts_k.dtype == torch.int32
    assert (bias, dropout) == (None, 0.0)
    assert mask_type == 2 or (mask_type == 0 and window_size is None)
    out = torch.empty_like(query)
    bounds = [list(itertools.pairwise(one)) for one in (starts_q.tolist(), starts_k.tolist())]
    for (begin_q, end_q), (begin_k, end_k) in zip(*bounds, strict=True):
        assert 0 < end_q - begin_q <= max_q
        assert end_k - begin_k <= max_k
        q, k, v = query[0, begin_q:end_q].double(), key[0, begin_k:end_k].double(), value[0, begin_k:end_k].double()
        scores = torch.einsum("ihd,jhd->hij", q, k) * (scale or q.shape[-1] ** -0.5)
        last = torch.arange(len(q))[:, None] + len(k) - len(q)
        j = torch.arange(len(k))
        hidden = (j > last) if mask_type == 2 else torch.zeros(len(q), len(k), dtype=torch.bool)
        hidden = hidden | (j <= last - window_size) if window_size else hidden
        out[0, begin_q:end_q] = torch.einsum("hij,jhd->ihd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)
    return (out,)


@pytest.mark.parametrize(
    ("causal", "shared", "groups", "window", "by_kernel"),
    [
        (False, 0, 4, None, True),
        (False, 0, 2, None, True),
        (True, 0, 4, None, True),
        (True, 3, 4, None, True),  # fewer queries than keys
        (True, 3, 1, None, True),
        (True, 3, 2, 4, True),
        (True, 3, 2, 100, True),
        (False, 0, 2, 100, True),  # a window that is longer than any text is none
        (False, 0, 2, 4, False),  # it looks both ways, which the kernel cannot say
    ],
)
def test_the_kernel_of_float32_gives_what_the_runs_give(
    monkeypatch: pytest.MonkeyPatch, causal: bool, shared: int, groups: int, window: int | None, by_kernel: bool
) -> None:
    calls = []

    def reference(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        calls.append(args)
        return efficient_attention(*args, **kwargs)

    monkeypatch.setattr(torch.ops.aten, "_efficient_attention_forward", reference)
    lengths = [5, 5, 6, 9, 9, 12]
    rows = [np.concatenate([np.arange(shared), 100 * i + np.arange(n - shared)]) for i, n in enumerate(lengths, 1)]
    generator = torch.Generator().manual_seed(0)
    tokens = sum(lengths) - shared * (len(lengths) - 1)
    q, k, v = (torch.randn(1, heads, tokens, 8, generator=generator) for heads in (4, groups, groups))

    def attend(kernel: packing.Kernel | None) -> torch.Tensor:
        features = packing.pack(rows, shared, kernel)
        for name in ("input_ids", "position_ids", "seq_idx"):
            del features[name]
        options = {"is_causal": causal, "sliding_window": window, "scaling": 0.3}
        return packing.attention(torch.nn.Identity(), q, k, v, **options, **features)[0]

    runs = attend(None)
    assert not calls
    torch.testing.assert_close(attend("efficient"), runs, rtol=0, atol=1e-6)
    assert len(calls) == by_kernel


@pytest.mark.parametrize(
    ("dtype", "dim", "capability", "kernel"),
    [
        ("float32", 32, (7, 5), "efficient"),
        ("float32", 36, (9, 0), "efficient"),
        ("float32", 34, (9, 0), None),
        ("bfloat16", 32, (9, 0), "flash"),
        ("bfloat16", 36, (9, 0), None),
        ("bfloat16", 264, (9, 0), None),
        ("float16", 64, (7, 5), None),
    ],
)
def test_which_kernel_takes_packs(
    monkeypatch: pytest.MonkeyPatch, dtype: str, dim: int, capability: tuple[int, int], kernel: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    config = SimpleNamespace(head_dim=None, hidden_size=2 * dim, num_attention_heads=2)
    config.get_text_config = lambda: config
    model = SimpleNamespace(config=config, device=torch.device("cuda:0"), dtype=getattr(torch, dtype))
    assert packing.find_kernel(model) == kernel
    model.device = torch.device("cpu")
    assert packing.find_kernel(model) is None


@pytest.mark.parametrize("name", ["softcap", "position_bias", "s_aux"])
def test_what_it_lacks_it_refuses(name: str) -> None:
    features = packing.pack([np.arange(5)])
    q = torch.zeros(1, 1, 5, 8)
    with pytest.raises(ValueError, match="no soft cap"):
        packing.attention(torch.nn.Identity(), q, q, q, **{**features, name: 1.0})


def test_content_alone_is_kept_and_a_text_without_any_keeps_all() -> None:
    rows = [np.array([2, 7, 8, 3]), np.array([2, 3]), np.array([2, 9, 3])]
    features = packing.pack(rows)
    features["states"] = features["input_ids"][..., None].float()
    features["layers"] = (features["states"], -features["states"])
    packing.keep_content(features, [2, 3], "states", "layers")
    assert features["layers"][1].flatten().tolist() == [-7, -8, -2, -3, -9]
    assert features["states"].flatten().tolist() == [7, 8, 2, 3, 9]
    assert features["cu_seq_lens_q"].tolist() == [0, 2, 4, 5]
    assert features["seq_idx"].tolist() == [[0, 0, 1, 1, 2]]


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], 4),
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4]], 3),  # one token at least is the text's own
        ([[1, 2, 3], [1, 2, 4]], 0),  # too few to be worth it
        ([[1, 2, 3, 4, 5]], 0),
        ([[9, 2, 3, 4, 5], [1, 2, 3, 4, 6]], 0),
    ],
)
def test_tokens_that_all_begin_with(rows: list[list[int]], shared: int) -> None:
    assert packing.shared_tokens([np.array(row) for row in rows]) == shared
