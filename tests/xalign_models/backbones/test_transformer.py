"""LanguageTransformer: the language arrives with its text, pooling sees what it should, and it saves and loads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel, AutoTokenizer

from xalign_models import assets
from xalign_models.assets import ResolvedModel
from xalign_models.backbones import loading
from xalign_models.backbones.inputs import prompted
from xalign_models.backbones.transformer import LanguageTransformer
from xalign_models.device import pick_device
from xalign_models.errors import AssetError, ModelError
from xalign_models.specs import BackboneSpec
from xalign_models.specs import Pooling as PoolingChoice

from .conftest import LAYERS, LIMIT, WIDTH

LANGUAGES = {"deu-Latn": 1.0, "eng-Latn": 2.0, "tur-Latn": 3.0}
TEXTS = ["the cat", "die katze sieht den hund und die katze", "a", "very long text of many words " * 9, "", "zzz cat"]


class Stamp(torch.nn.Module):
    """Adds to each vector the number of its language, 0 where there is none."""

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        languages = features.get("lang") or [None] * len(features["sentence_embedding"])
        numbers = torch.tensor([LANGUAGES.get(one, 0.0) for one in languages])
        features["sentence_embedding"] = torch.cat([features["sentence_embedding"], numbers[:, None]], dim=1)
        return features


def hidden_states(checkpoint: Path, text: str) -> tuple[list[torch.Tensor], list[int]]:
    """Transformers' own hidden states of one text, unpadded, and its token ids."""
    inputs = AutoTokenizer.from_pretrained(checkpoint)(text, return_tensors="pt", truncation=True, max_length=LIMIT)
    with torch.inference_mode():
        output = AutoModel.from_pretrained(checkpoint).eval()(**inputs, output_hidden_states=True)
    return [state[0] for state in output.hidden_states], inputs["input_ids"][0].tolist()


@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_the_language_travels_with_its_text_through_sorting_and_batching(modules: list[Any], batch_size: int) -> None:
    model = SentenceTransformer(modules=[*modules, Stamp()], device="cpu")
    plain = SentenceTransformer(modules=modules, device="cpu").encode(TEXTS)
    codes = [*LANGUAGES, *LANGUAGES]
    inputs = [{"text": text, "lang": code} for text, code in zip(TEXTS, codes, strict=True)]
    vectors = model.encode(inputs, batch_size=batch_size)
    np.testing.assert_array_equal(vectors[:, -1], [LANGUAGES[code] for code in codes])
    np.testing.assert_allclose(vectors[:, :-1], plain, atol=1e-6)


def test_a_text_without_a_language_is_as_good_and_may_be_mixed_in(modules: list[Any]) -> None:
    model = SentenceTransformer(modules=[*modules, Stamp()], device="cpu")
    mixed = ["the cat", {"text": "die katze", "lang": "deu-Latn"}, {"text": "a dog"}]
    np.testing.assert_array_equal(model.encode(mixed, batch_size=3)[:, -1], [0.0, 1.0, 0.0])
    assert "lang" not in modules[0].preprocess(["the cat", {"text": "a dog"}])


def test_a_prompt_is_put_before_texts_in_either_form(modules: list[Any]) -> None:
    model = SentenceTransformer(modules=modules, device="cpu")
    wanted = model.encode("query: the cat")
    np.testing.assert_allclose(model.encode("the cat", prompt="query: "), wanted, atol=1e-6)
    inputs = [{"text": "the cat", "lang": "eng-Latn"}]
    np.testing.assert_allclose(model.encode(inputs, prompt="query: ")[0], wanted, atol=1e-6)


@pytest.mark.parametrize("prompt", ["query : ", "query : [TEXT] cat"])
def test_a_given_prompt_takes_the_place_of_prompts_by_language(transformer: Callable[..., Any], prompt: str) -> None:
    module = transformer(prompts={"deu-Latn": "die ", "eng-Latn": "the "})
    for text in TEXTS[:3]:
        ids = module.preprocess([text], prompt=prompt)["input_ids"]
        assert torch.equal(ids, transformer().preprocess([prompted(prompt, text)])["input_ids"])


@pytest.mark.parametrize("special_tokens", [True, False])
def test_mean_pooling_with_and_without_special_tokens_is_the_mean_by_hand(
    checkpoint: Path, transformer: Callable[..., Any], special_tokens: bool
) -> None:
    model = SentenceTransformer(
        modules=[transformer(pool_special_tokens=special_tokens), Pooling(WIDTH, "mean")], device="cpu"
    )
    vectors = model.encode(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        states, ids = hidden_states(checkpoint, text)
        content = [i for i, token in enumerate(ids) if special_tokens or token not in {2, 3}]  # [CLS], [SEP]
        rows = states[-1][content or list(range(len(ids)))]  # an empty text has special tokens only
        np.testing.assert_allclose(vector, rows.mean(dim=0).numpy(), atol=1e-5)


def test_it_saves_and_loads_as_an_ordinary_sentence_transformer(
    tmp_path: Path, transformer: Callable[..., Any]
) -> None:
    model = SentenceTransformer(modules=[transformer(pool_special_tokens=False), Pooling(WIDTH, "mean")], device="cpu")
    model.save(str(tmp_path / "saved"), create_model_card=False)
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    assert type(again[0]) is LanguageTransformer
    assert again[0].pool_special_tokens is False
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))


def test_an_adopted_module_gives_the_same_vectors_and_takes_languages(checkpoint: Path) -> None:
    module = Transformer(str(checkpoint))
    plain = SentenceTransformer(modules=[module, Pooling(WIDTH, "mean")], device="cpu")
    before = plain.encode(TEXTS)
    assert LanguageTransformer.adopt(module) is module
    np.testing.assert_array_equal(plain.encode(TEXTS), before)
    assert module.preprocess([{"text": "a", "lang": "deu-Latn"}])["lang"] == ["deu-Latn"]


class TestLoading:
    @pytest.fixture(autouse=True)
    def local(self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        resolved = ResolvedModel(str(checkpoint), None, "fingerprint", "local")
        monkeypatch.setattr(assets, "resolve", lambda *_: resolved)

    def encode(self, **fields: Any) -> np.ndarray:
        spec = BackboneSpec("tiny", "somewhere", **fields)
        model = SentenceTransformer(modules=list(loading.open_backbone(spec).modules("cpu")), device="cpu")
        return model.encode(TEXTS)

    @pytest.mark.parametrize("layer", range(LAYERS + 1))
    def test_a_layer_is_transformers_own_hidden_state(self, checkpoint: Path, layer: int) -> None:
        for text, vector in zip(TEXTS, self.encode(layer=layer), strict=True):
            states, _ = hidden_states(checkpoint, text)
            np.testing.assert_allclose(vector, states[layer].mean(dim=0).numpy(), atol=1e-5)

    def test_layers_above_the_one_that_is_pooled_are_not_loaded(self) -> None:
        (first, _) = loading.open_backbone(BackboneSpec("tiny", "somewhere", layer=1)).modules("cpu")
        assert len(first.model.encoder.layer) == 2

    @pytest.mark.parametrize(("pooling", "token"), [(PoolingChoice.CLS, 0), (PoolingChoice.LAST, -1)])
    def test_a_pooling_takes_its_token(self, checkpoint: Path, pooling: PoolingChoice, token: int) -> None:
        for text, vector in zip(TEXTS, self.encode(pooling=pooling), strict=True):
            states, _ = hidden_states(checkpoint, text)
            np.testing.assert_allclose(vector, states[-1][token].numpy(), atol=1e-5)

    def test_texts_are_cut_at_the_lower_of_the_two_limits(self) -> None:
        for max_tokens, limit in ((None, LIMIT), (8, 8), (10_000, LIMIT)):
            (first, _) = loading.open_backbone(BackboneSpec("tiny", "somewhere", max_tokens=max_tokens)).modules("cpu")
            assert first.max_seq_length == limit
            assert first.preprocess(["the cat " * 50])["input_ids"].shape == (1, limit)

    def test_a_layer_that_is_not_there_names_the_flag(self) -> None:
        with pytest.raises(ModelError, match=rf"--layer 4: somewhere has {LAYERS} layers"):
            self.encode(layer=LAYERS + 1)

    def test_a_directory_without_a_model_is_an_asset_error_of_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(assets, "resolve", lambda *_: ResolvedModel(str(tmp_path), None, "", "local"))
        with pytest.raises(AssetError, match="cannot be loaded: Unrecognized model") as caught:
            self.encode()
        assert "\n" not in str(caught.value)

    def test_a_device_that_is_not_there_lists_the_usable_ones(self) -> None:
        assert pick_device("cpu") == "cpu"
        assert pick_device() in {"cpu", "cuda", "mps"}
        with pytest.raises(ModelError, match="--device abacus is not usable.*cpu"):
            pick_device("abacus")
