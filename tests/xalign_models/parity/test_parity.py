"""A planted fault is named, and equal models are never told apart."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer

import xalign_models
from xalign_models import assets
from xalign_models.errors import ModelError
from xalign_models.linalg.arrays import unit
from xalign_models.models.building import load_encoder
from xalign_models.parity.causes import _TEXT, PROMPTS, _same_empty
from xalign_models.parity.compare import changed_neighbours, compare
from xalign_models.parity.served import Served

ASSET = "multilingual-e5-small-q4"
FAULTS = ("prompt", "pooling", "normalisation", "tokenizer", "precision", "truncation")
SENTENCES = {
    "eng-Latn": "The harbour of Hamburg was built before the First Crusade, and Élise Müller of Café Zürich knew it.",
    "deu-Latn": "Der Hafen von Hamburg ist älter als der Erste Kreuzzug, und Frau Müller aus Zürich schrieb über Ihn.",
    "fra-Latn": "Le port de Hambourg est plus ancien que la Première Croisade, et Élise Müller en a écrit à Zürich.",
}


def sample(words, languages=("eng-Latn", "deu-Latn", "fra-Latn"), short=10, long=3, most=24):
    """Texts of words in random order, some of them long."""
    rng = np.random.default_rng(0)
    return {
        language: [
            " ".join(rng.choice(words(language), rng.integers(4, 12) if number < short else most))
            for number in range(short + long)
        ]
        for language in languages
    }


def faulty(checkpoint, fault, prompt, limit):
    """sentence-transformers' vectors with one thing done wrong, as a function of texts."""
    first = Transformer(str(checkpoint), max_seq_length=limit[fault == "truncation"])
    pooling = Pooling(first.get_embedding_dimension(), "cls" if fault == "pooling" else "mean")
    modules = [first, pooling, *([] if fault == "normalisation" else [Normalize()])]
    model = SentenceTransformer(modules=modules, device="cpu")
    if fault == "precision":
        model = model.half()
    before = "" if fault == "prompt" else prompt
    change = str.lower if fault == "tokenizer" else str
    return lambda texts: model.encode([before + change(text) for text in texts], batch_size=8).astype(np.float32)


def write(path, texts, encode):
    listed = [text for side in texts.values() for text in side]
    np.savez(path, text=np.array(listed), vectors=encode(listed))
    return f"vectors:{path}"


@pytest.fixture
def base(workdir, tiny_model):
    """A tiny model with a prompt, as a directory, and texts of which some are longer than sixteen tokens."""
    model = SentenceTransformer(
        str(tiny_model), device="cpu", prompts={"default": "w90 w91 "}, default_prompt_name="default"
    )
    model.save_pretrained("base", create_model_card=False)
    return workdir / "base", sample(lambda language: [f"w{number}" for number in range(80)])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", *(fault for fault in FAULTS if fault != "tokenizer")])
def test_a_planted_fault_of_a_tiny_model_is_named(base, workdir, monkeypatch, fault):
    monkeypatch.setattr("xalign_models.parity.causes.LIMITS", (16,))
    directory, texts = base
    second = write(workdir / "b.npz", texts, faulty(directory, fault, "w90 w91 ", (32, 16)))
    found = compare(Served(str(directory), "cpu"), Served(second, "cpu"), texts)
    assert [cause.kind for cause in found.causes] == ([fault] if fault else [])
    assert found.same == (not fault)
    assert sum(row.texts for row in found.rows) == 39
    if fault == "truncation":
        assert all((row.least < 0.999) == (row.tokens == "17-64") for row in found.rows)
    if fault == "normalisation":
        assert found.least > 1 - 1e-6
        assert all(row.length > 1.5 for row in found.rows)
    swapped = compare(Served(second, "cpu"), Served(str(directory), "cpu"), texts)
    assert [cause.kind for cause in swapped.causes] == [cause.kind for cause in found.causes]


@pytest.mark.parametrize("saved", [False, True])
def test_an_aligned_model_is_served_with_the_maps_of_its_prompts(base, workdir, write_text, saved):
    directory, _ = base
    text, prompts = write_text(workdir / "fit", 20), (("default", "w8 "), ("passage", "w9 w9 "))
    options = {"backbone": str(directory), "corpus": f"own:{text}", "device": "cpu", "overrides": {"prompts": prompts}}
    model = xalign_models.fit("centered", **options)
    xalign_models.save(model, workdir / "aligned")
    served = Served(str(workdir / "aligned") if saved else str(directory), "cpu")
    if not saved:
        served.encoder = load_encoder(model.xalign_spec, device="cpu")
        served.prompts = served.encoder.prompts
    texts, codes = ["w1 w2", "w3"], ["deu-Latn", "eng-Latn"]
    for name, prompt in {"default": None, "passage": "w9 w9 "}.items():
        expected = model.encode(texts, lang=codes, prompt_name=name)
        np.testing.assert_allclose(unit(served.vectors(texts, codes, prompt)), expected, atol=1e-5)
    assert np.isfinite(served.vectors(texts, codes, "w5 ")).all()  # a prompt that was not fitted is a guess
    assert served.lengths(["w1", "w1 w2", ""]).tolist() == [3, 4, 2]
    assert _same_empty(served, served, 1e-6) == saved  # other models refuse the empty text, which has no language


def test_another_vocabulary_is_seen_where_both_tokenizers_are_at_hand(base, workdir):
    directory, texts = base
    shutil.copytree(directory, workdir / "other")
    tokenizer = workdir / "other" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"w7"', '"w7x"'))
    found = compare(Served(str(directory), "cpu"), Served(str(workdir / "other"), "cpu"), texts)
    assert [cause.kind for cause in found.causes] == ["tokenizer"]


@pytest.mark.slow
def test_other_weights_are_no_fault_of_serving(base, workdir, make_model):
    directory, texts = base
    other = make_model(workdir / "m", num_hidden_layers=1)
    second = write(workdir / "b.npz", texts, faulty(other, "", "w90 w91 ", (32, 16)))
    found = compare(Served(str(directory), "cpu"), Served(second, "cpu"), texts)
    assert [cause.kind for cause in found.causes] == ["weights"]
    assert found.neighbours > 0.3
    write(workdir / "b.npz", texts, lambda listed: np.ones((len(listed), 5)))
    with pytest.raises(ModelError, match="dimension 16, and vectors:.* of 5"):
        compare(Served(str(directory), "cpu"), Served(second, "cpu"), texts)


@pytest.mark.slow
def test_equal_models_raise_no_alarm_in_a_hundred_runs(base, workdir):
    """Other texts, another order and other batches each time; float32 sums in another order are no difference."""
    directory, _ = base
    first = Served(str(directory), "cpu")
    model = SentenceTransformer(str(directory), device="cpu")
    rng = np.random.default_rng(1)
    alarms = []
    for run in range(100):
        words = [f"w{number}" for number in rng.permutation(100)[:40]]
        texts = sample(lambda language, words=words: words, ("eng-Latn",), short=int(rng.integers(3, 12)))
        order = rng.permutation(len(texts["eng-Latn"]))
        listed = [texts["eng-Latn"][row] for row in order]
        batch = int(rng.integers(1, 9))
        vectors = model.encode(listed, batch_size=batch)
        np.savez(workdir / f"{run}.npz", text=np.array(listed), vectors=vectors)
        found = compare(first, Served(f"vectors:{workdir / f'{run}.npz'}", "cpu"), texts)
        alarms += [cause.kind for cause in found.causes]
        assert found.neighbours == 0
    assert alarms == []


def test_neighbours_change_where_they_do():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((30, 8))
    b = a.copy()
    b[3] = rng.standard_normal(8)
    near = lambda x: np.argmax(x @ x.T / np.outer(*[np.linalg.norm(x, axis=1)] * 2) - 9 * np.eye(30), axis=1)  # noqa: E731
    np.testing.assert_array_equal(changed_neighbours(a, b, 0.0), near(a) != near(b))
    assert not changed_neighbours(a, 3 * a, 1e-9).any()
    assert not changed_neighbours(a[:1], b[:1], 0.0).any()


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """multilingual-e5-small-q4 with the tokens of SENTENCES alone: it gives them its vectors, and is loaded at once."""
    source = assets.where(ASSET)
    if source is None:
        pytest.skip(f"the asset {ASSET} is not installed: xalign assets install {ASSET}")
    folder = shutil.copytree(source, tmp_path_factory.mktemp("real") / "e5", ignore=shutil.ignore_patterns("MANIFEST*"))
    read = lambda name: json.loads((folder / name).read_text("utf-8"))  # noqa: E731
    write = lambda name, content: (folder / name).write_text(json.dumps(content), "utf-8")  # noqa: E731
    texts = [change(text) for text in (*SENTENCES.values(), *PROMPTS) for change in (str, *_TEXT.values())]
    encoded = Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(texts)
    tokenizer, weights = read("tokenizer.json"), load_file(folder / "model.safetensors")
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "<mask>"]
    kept = sorted(
        {token for text in encoded for token in text.ids} | {token["id"] for token in tokenizer["added_tokens"]}
    )
    tokenizer["model"]["vocab"] = [tokenizer["model"]["vocab"][token] for token in kept]
    name = "embeddings.word_embeddings.weight"
    save_file({**weights, name: weights[name][kept]}, folder / "model.safetensors", {"format": "pt"})
    write("tokenizer.json", tokenizer)
    write("config.json", {**read("config.json"), "vocab_size": len(kept)})
    write("tokenizer_config.json", {**read("tokenizer_config.json"), "mask_token": None})
    own = {"prompts": {"default": "query: "}, "default_prompt_name": "default"}
    write("config_sentence_transformers.json", {**read("config_sentence_transformers.json"), **own})
    return folder


@pytest.fixture(scope="session")
def real_texts():
    """Some longer than 64 tokens."""
    return sample(lambda language: SENTENCES[language].split(), short=3, long=1, most=60)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_a_planted_fault_of_a_real_model_is_named(real, real_texts, fault, tmp_path, capsys):
    second = write(tmp_path / "b.npz", real_texts, faulty(real, fault, "query: ", (512, 64)))
    first = Served(str(real) if fault else ASSET, "cpu")  # which are equal
    found = compare(first, Served(second, "cpu"), real_texts)
    capsys.readouterr()
    with capsys.disabled():
        sys.stdout.write(f"{fault or 'none'}: {found.causes} {found.least:.9f}\n")
    assert [cause.kind for cause in found.causes] == ([fault] if fault else [])
