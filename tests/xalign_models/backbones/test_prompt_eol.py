"""PromptEOL: the vector is the hidden state at the template's last quote, whatever batch, padding and length."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from xalign_models import assets
from xalign_models.backbones import loading
from xalign_models.backbones.checkpoint import is_decoder_only
from xalign_models.backbones.inputs import ENGLISH, SLOT, TEMPLATES, prompted
from xalign_models.backbones.prompt_eol import PromptEOL
from xalign_models.backbones.raw import RawEncoder
from xalign_models.errors import LanguageError, ModelError
from xalign_models.languages import canonical
from xalign_models.models.building import build, load, load_encoder
from xalign_models.models.catalogue import modes_of
from xalign_models.models.saving import save
from xalign_models.plugins import BACKBONES
from xalign_models.specs import BackboneSpec, Dtype, ModelSpec

TEXTS = ["a cat", 'he said "no",\nthen left', "die Katze", "", "a much longer text than all of the others " * 3, "猫"]
SIZE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}


def write_tokenizer(folder: Path, eos_after: bool = False, alphabet: str | None = None) -> int:
    """A tokenizer of single bytes (or of the characters of ``alphabet`` only), with a begin token and no pad token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet()) if alphabet is None else sorted(set(alphabet))
    vocabulary = {one: i for i, one in enumerate(["<s>", "</s>", "<unk>", *letters])}
    if alphabet is None:
        tokenizer = Tokenizer(models.BPE(vocabulary, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    end = " </s>" if eos_after else ""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"<s> $A{end}", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    return len(vocabulary)


def write_model(folder: Path, kind: str = "llama", **tokenizer: Any) -> Path:
    """A random causal language model of a few kilobytes."""
    from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPT2Config, LlamaConfig, Qwen3Config

    folder.mkdir(parents=True, exist_ok=True)
    size: dict[str, Any] = {**SIZE, "vocab_size": write_tokenizer(folder, **tokenizer), "initializer_range": 0.3}
    size |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    config = {
        "llama": lambda: LlamaConfig(**size, num_key_value_heads=2),
        "qwen3": lambda: Qwen3Config(**size, num_key_value_heads=2, head_dim=8),
        "gemma3": lambda: Gemma3TextConfig(
            **size, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, sliding_window=16, layer_types=[
                "sliding_attention", "full_attention", "sliding_attention"]),
        "gpt2": lambda: GPT2Config(
            vocab_size=size["vocab_size"], n_embd=32, n_layer=3, n_head=4, n_positions=512, initializer_range=0.3,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    }[kind]()  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_lm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    made: dict[Any, Path] = {}

    def make(kind: str = "llama", **tokenizer: Any) -> Path:
        key = (kind, *tokenizer.items())
        if key not in made:
            made[key] = write_model(tmp_path_factory.mktemp(kind), kind, **tokenizer)
        return made[key]

    return make


def spec_of(path: Path, mode: str = "en-prompts", **fields: Any) -> BackboneSpec:
    spec = next(one for one in modes_of("lm", str(path)) if one.name.endswith(mode))
    return dataclasses.replace(spec, **{"dtype": Dtype.FLOAT32, **fields})


def encoder(spec: BackboneSpec, budget: int = 2048) -> RawEncoder:
    return RawEncoder("lm", lambda: loading.open_backbone(spec).modules("cpu"), "cpu", token_budget=budget)


def by_hand(path: Path, filled: str, layer: int = -1) -> np.ndarray:
    """transformers' own hidden state at the last token of one string, unpadded."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    inputs = AutoTokenizer.from_pretrained(path)(filled, return_tensors="pt")
    with torch.inference_mode():
        states = AutoModelForCausalLM.from_pretrained(path).eval()(**inputs, output_hidden_states=True).hidden_states
    return states[layer][0, -1].numpy()


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3", "gpt2"])
def test_the_vector_is_the_last_layers_hidden_state_at_the_closing_quote(make_lm: Any, kind: str) -> None:
    path = make_lm(kind)
    vectors = encoder(spec_of(path)).encode(TEXTS, ENGLISH)
    wanted = [by_hand(path, f'This sentence : "{text}" means in one word:"') for text in TEXTS]
    np.testing.assert_allclose(vectors, wanted, atol=2e-5)


def test_without_a_prompt_it_is_the_state_at_the_texts_own_last_token(make_lm: Any) -> None:
    path = make_lm()
    vectors = encoder(spec_of(path, "last-token")).encode(TEXTS)
    np.testing.assert_allclose(vectors, [by_hand(path, text) for text in TEXTS], atol=2e-5)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_neither_batch_nor_padding_side_changes_a_vector(make_lm: Any, kind: str, side: str) -> None:
    spec = spec_of(make_lm(kind))
    modules = loading.open_backbone(spec).modules("cpu")
    modules[0].tokenizer.padding_side = side
    raw = RawEncoder("lm", lambda: modules, "cpu")
    together = raw.forward(TEXTS, ENGLISH)
    alone = np.concatenate([raw.forward([text], ENGLISH) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=2e-5)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3", "gpt2"])
@pytest.mark.parametrize(
    "fields", [{}, {"layer": 1}, {"pooling": "mean"}, {"pooling": "mean", "special_tokens": False}]
)
def test_a_prefix_computed_once_gives_what_computing_it_for_every_text_gives(
    make_lm: Any, kind: str, fields: dict[str, Any]
) -> None:
    raw = encoder(spec_of(make_lm(kind), **fields), budget=10_000)
    shared = raw.encode(TEXTS, ENGLISH)
    prefix = len('<This sentence : "')  # a token a byte, and the begin token
    assert raw.counts.batches == 1
    assert raw.counts.real_tokens - raw.counts.computed_tokens == (len(TEXTS) - 1) * prefix
    np.testing.assert_allclose(shared, raw.forward(TEXTS, ENGLISH), atol=2e-5)


@pytest.mark.parametrize(("kind", "field"), [("qwen3", {"is_causal": False}),
                                             ("gemma3", {"use_bidirectional_attention": True})])  # fmt: skip
def test_a_prefix_that_sees_what_follows_is_computed_for_every_text(
    make_lm: Any, tmp_path: Path, kind: str, field: dict[str, Any]
) -> None:
    both = shutil.copytree(make_lm(kind), tmp_path / "both")
    config = json.loads((both / "config.json").read_text())
    assert is_decoder_only(loading.open_config(assets.resolve(str(make_lm(kind)))))
    (both / "config.json").write_text(json.dumps(config | field))
    assert not is_decoder_only(loading.open_config(assets.resolve(str(both))))
    raw = encoder(spec_of(both, pooling="mean"), budget=10_000)
    texts = [f"This sentence : {text}" for text in TEXTS]
    np.testing.assert_allclose(raw.encode(texts), [raw.forward([text])[0] for text in texts], atol=2e-5)


def test_a_long_text_is_cut_and_the_template_stays_whole(make_lm: Any) -> None:
    path, room = make_lm(), 30
    template = len(ENGLISH.replace(SLOT, "")) + 1
    raw = encoder(spec_of(path, max_tokens=template + room))
    text = "0123456789" * 9
    np.testing.assert_allclose(raw.encode([text], ENGLISH)[0], by_hand(path, prompted(ENGLISH, text[:room])), atol=2e-5)
    # a character of several bytes does not fit in part
    np.testing.assert_allclose(
        raw.encode(["猫" * 50], ENGLISH)[0], by_hand(path, prompted(ENGLISH, "猫" * (room // 3))), atol=2e-5
    )
    with pytest.raises(ModelError, match="--max-tokens 20 leaves no room"):
        encoder(spec_of(path, max_tokens=20)).encode([text], ENGLISH)


def test_an_end_token_that_the_tokenizer_adds_is_not_what_is_read(make_lm: Any) -> None:
    plain, ending = make_lm(), make_lm(eos_after=True)
    np.testing.assert_allclose(
        encoder(spec_of(ending)).encode(TEXTS, ENGLISH), encoder(spec_of(plain)).encode(TEXTS, ENGLISH), atol=2e-5
    )


def test_a_lm_without_a_pad_token_is_padded_all_the_same(make_lm: Any) -> None:
    modules = loading.open_backbone(spec_of(make_lm())).modules("cpu")
    assert isinstance(modules[0], PromptEOL)
    assert modules[0].tokenizer.pad_token == "</s>"


def test_a_chat_template_of_the_tokenizer_changes_nothing(make_lm: Any, tmp_path: Path) -> None:
    path = make_lm()
    chat = shutil.copytree(path, tmp_path / "chat")
    (chat / "chat_template.jinja").write_text(
        "{% for m in messages %}<s>{{ m['role'] }}{{ m['content'] }}</s>{% endfor %}"
    )
    assert AutoTokenizer.from_pretrained(chat).chat_template
    before, after = (encoder(spec_of(one)).encode(TEXTS, ENGLISH) for one in (path, chat))
    np.testing.assert_array_equal(after, before)


def test_self_prompts_take_the_template_of_each_texts_language(make_lm: Any) -> None:
    path = make_lm()
    model = load_encoder(ModelSpec(spec_of(path, "self-prompts")), device="cpu")
    languages = ["deu-Latn", "eng-Latn", "de", "tha-Thai", "eng_Latn", "zho-Hans"]
    vectors = model.encode_texts(TEXTS, languages)
    for vector, text, language in zip(vectors, TEXTS, languages, strict=True):
        wanted = by_hand(path, prompted(TEMPLATES[canonical(language)], text))
        np.testing.assert_allclose(vector, wanted / np.linalg.norm(wanted), atol=2e-5)
    assert model.unfitted(["de", "lo"]) == ["lao-Laoo"]
    with pytest.raises(LanguageError, match=r"no prompt in lao-Laoo; it has one in arb-Arab, .*en-prompts"):
        model.encode_texts(["x"], ["lo"])


def test_as_a_sentence_transformer_saved_and_loaded_it_prompts_by_itself(
    make_lm: Any, tmp_path: Path, workdir: Path
) -> None:
    path = make_lm()
    for mode in ("self-prompts", "en-prompts"):
        spec = ModelSpec(spec_of(path, mode))
        inputs = [{"text": "die Katze", "lang": "deu-Latn"}, {"text": "a cat", "lang": "eng-Latn"}]
        wanted = load_encoder(spec, device="cpu").encode_texts(
            ["die Katze", "a cat"], ["deu-Latn", "eng-Latn"], dict(spec.backbone.prompts).get("default", "")
        )
        model = build(spec, device="cpu")
        np.testing.assert_allclose(model.encode(inputs), wanted, atol=2e-5)
        save(model, tmp_path / mode)
        loaded = load(str(tmp_path / mode), device="cpu")
        np.testing.assert_allclose(loaded.encode(inputs), wanted, atol=2e-5)
        if mode == "self-prompts":
            with pytest.raises(LanguageError, match="the unknown language of a text"):
                loaded.encode(["a cat"])


def test_a_tokenizer_that_cannot_write_the_template_is_named(make_lm: Any) -> None:
    path = make_lm(alphabet=ENGLISH + "abc")
    raw = encoder(spec_of(path, "self-prompts"))
    assert raw.encode(["abc"], ENGLISH).shape == (1, 32)
    with pytest.raises(ModelError, match="lacks characters of the prompt 'この文"):
        raw.encode(["abc"], TEMPLATES["jpn-Jpan"])


def test_every_template_has_one_slot_and_ends_in_the_quote_that_is_read() -> None:
    assert len(TEMPLATES) >= 40
    for code, template in TEMPLATES.items():
        assert canonical(code) == code
        assert template.count(SLOT) == 1 and template.count('"') == 3 and template.endswith(':"'), code
        assert f'"{SLOT}"' in template
    assert len(set(TEMPLATES.values())) == len(TEMPLATES)


def test_every_language_model_is_registered_in_three_modes() -> None:
    names = {name.rpartition("-en-prompts")[0] for name in BACKBONES if name.endswith("-en-prompts")}
    assert names >= {
        "gemma-3-270m-q4",
        "smollm2-135m-q4",
        "llama-2-7b",
        "llama-2-13b",
        "tower-7b",
        "tower-13b",
        "mistral-7b",
    }
    assert all(f"{name}-{mode}" in BACKBONES for name in names for mode in ("self-prompts", "last-token"))


def test_out_of_memory_halves_the_batch_says_so_once_and_loses_nothing(
    make_lm: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    raw = encoder(spec_of(make_lm()), budget=100_000)
    texts = [f"text {i}" for i in range(16)]
    wanted = raw.encode(texts, ENGLISH)
    launch, sizes = raw.launch, []

    def small(features: dict[str, Any]) -> Any:
        packed = "keys" in features  # with the tokens that all have in common before them
        sizes.append(len(features["cu_seq_lens_q"]) - 2 if packed else len(features["input_ids"]))
        if sizes[-1] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return launch(features)

    monkeypatch.setattr(raw, "launch", small)
    np.testing.assert_allclose(raw.encode(texts, ENGLISH), wanted, atol=2e-5)
    assert sizes[:4] == [16, 8, 4, 2]
    assert [record.message for record in caplog.records if "out of memory" in record.message] == [
        "cpu is out of memory for 16 texts; batches are halved until they fit."
    ]
    monkeypatch.setattr(raw, "launch", lambda features: (_ for _ in ()).throw(torch.OutOfMemoryError()))
    with pytest.raises(ModelError, match="out of memory for a single text"):
        raw.encode(["x"], ENGLISH)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_training_by_groups_of_similar_length_changes_neither_vectors_nor_gradients(
    make_lm: Any, kind: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = loading.open_backbone(spec_of(make_lm(kind))).modules("cpu")
    modules[0].tokenizer.padding_side = side
    modules[0].train()

    def step() -> tuple[torch.Tensor, list[torch.Tensor], int]:
        tokens = []
        handle = (
            modules[0]
            .model.get_input_embeddings()
            .register_forward_hook(lambda _, inputs, output: tokens.append(inputs[0].numel()))
        )
        features = modules[0].preprocess(TEXTS, prompt=ENGLISH)
        for module in modules:
            features = module(features)
        modules[0].zero_grad()
        features["sentence_embedding"].pow(3).sum().backward()
        handle.remove()
        grads = [one.grad.clone() for one in modules[0].parameters() if one.grad is not None]
        return features["sentence_embedding"].detach(), grads, sum(tokens)

    vectors, gradients, tokens = step()
    monkeypatch.setattr("xalign_models.backbones.batching.SPREAD", 0.0)  # all of them together
    wanted, wanted_gradients, wanted_tokens = step()
    assert tokens < 0.8 * wanted_tokens
    torch.testing.assert_close(vectors, wanted, atol=2e-5, rtol=1e-4)
    for ours, theirs in zip(gradients, wanted_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5 * float(theirs.abs().max()) + 1e-6, rtol=1e-3)


def test_halves_are_computed_with_in_float32_where_the_processor_is_slow_at_them(
    make_lm: Any, monkeypatch: Any
) -> None:
    spec = spec_of(make_lm(), dtype=Dtype.BFLOAT16)
    found = {}
    for slow in (False, True):
        monkeypatch.setattr("xalign_models.linalg.onednn.is_slow", lambda *_, slow=slow: slow)
        modules = loading.open_backbone(spec).modules("cpu")
        vectors = RawEncoder("lm", lambda modules=modules: modules, "cpu").encode(TEXTS, ENGLISH)
        found[slow] = (loading.open_backbone(spec).fingerprint, next(modules[0].model.parameters()), vectors)
    assert found[False][0] != found[True][0]
    assert (found[False][1].dtype, found[True][1].dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(found[False][1].float(), found[True][1])  # the values are those of the checkpoint's type
    cosines = np.sum(found[False][2] * found[True][2], axis=1)
    cosines /= np.linalg.norm(found[False][2], axis=1) * np.linalg.norm(found[True][2], axis=1)
    assert cosines.min() > 0.99


def test_float32_needs_no_timing(make_lm: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("xalign_models.linalg.onednn.is_slow", lambda *_: pytest.fail("timed"))
    assert loading.open_backbone(spec_of(make_lm())).fingerprint
