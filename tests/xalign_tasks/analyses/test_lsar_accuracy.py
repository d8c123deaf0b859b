"""Peeling is projecting; the sweeps' numbers are those of the models and alignments that they sweep over."""

from __future__ import annotations

import dataclasses
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from xalign_models import corpora
from xalign_models.alignments import LIR
from xalign_models.analysis import Request
from xalign_models.errors import LanguageError
from xalign_models.models.building import load_encoder
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_tasks.analyses import lsar_accuracy, spaces
from xalign_tasks.analyses.lsar_accuracy import chosen, peel

LANGUAGES = ("deu-Latn", "fra-Latn", "tur-Latn")


def test_peeling_removes_one_direction_after_the_other():
    rng = np.random.default_rng(0)
    x, basis = rng.standard_normal((6, 8)).astype(np.float32), np.linalg.qr(rng.standard_normal((8, 3))).Q
    steps = list(peel(x, basis))
    assert len(steps) == 4
    for k, step in enumerate(steps):
        np.testing.assert_allclose(step, x - x @ basis[:, :k] @ basis[:, :k].T, atol=1e-6)


@pytest.fixture
def asked(workdir, tiny_model, write_tatoeba, write_fit_text):
    write_tatoeba(workdir, 40)
    write_fit_text(workdir, 30)
    return Request((str(tiny_model),), workdir, "cpu", languages=LANGUAGES)


@pytest.fixture
def few_rows(asked):
    return dataclasses.replace(asked, rows=20)


def test_the_sweep_ends_in_the_alignments(asked):
    findings = lsar_accuracy.analyse_ranks(asked)
    sweep = findings.tables["sweep"].set_index(["method", "rank"])
    space = spaces.open_space(asked, asked.models[0])
    pairs = [
        (one, space.embed(side, one), space.embed(english, "eng-Latn"))
        for one, side, english in spaces.open_tatoeba(asked).pairs()
    ]
    original = np.mean([spaces.accuracy(a, b) for _, a, b in pairs], axis=0)
    lsar = np.mean([spaces.accuracy(space.lsar.transform(a), space.lsar.transform(b)) for _, a, b in pairs], axis=0)
    columns = ["accuracy", "accuracy_other_to_english"]
    for method in ("lsar", "lir"):
        np.testing.assert_allclose(sweep.loc[(method, 0), columns].astype(float), original)
    np.testing.assert_allclose(sweep.loc[("lsar", 4), columns].astype(float), lsar)
    assert sweep.index.get_level_values("rank").max() == 16  # of LIR, as the vectors have 16 dimensions
    assert sweep["languages"].unique() == [3]
    assert findings.data.keys() == {"tatoeba", "lingua", "newstest"}
    summary = findings.tables["summary"]
    ours = summary[summary["source"].str.startswith("this run")]  # published rows stand beside
    assert [label for label in ours["method"] if "best" not in label] == [
        "Original",
        "LIR(k=1)",
        "LIR(k=15)",
        "LSAR",
    ]


def test_lir_of_the_sweep_is_lir(asked):
    sweep = lsar_accuracy.analyse_ranks(asked).tables["sweep"].set_index(["method", "rank"])
    space, scores = spaces.open_space(asked, asked.models[0]), []
    fit = {}
    for name in ("lingua", "newstest"):
        corpus = corpora.load(name)
        for one in corpus.languages:
            fit.setdefault(one, []).append(space.embed(corpus.texts(one), one))
    lir = LIR(2).fit({one: np.concatenate(parts) for one, parts in fit.items()})
    for one, side, english in spaces.open_tatoeba(asked).pairs():
        a, b = space.embed(side, one), space.embed(english, "eng-Latn")
        scores.append(spaces.accuracy(lir.transform(a, one), lir.transform(b, "eng-Latn")))
    assert sweep.loc[("lir", 2), "accuracy"] == pytest.approx(np.mean(scores, axis=0)[0])


def test_ranks_leave_out_and_name_languages_without_fit_text(asked, workdir, write_tatoeba):
    write_tatoeba(workdir, 40, ["deu", "jpn"])
    findings = lsar_accuracy.analyse_ranks(Request(asked.models, workdir, "cpu", languages=("deu-Latn", "jpn-Jpan")))
    assert findings.tables["sweep"]["languages"].unique() == [1]
    assert any("the fit text lacks them: Japanese" in note for note in findings.notes)
    with pytest.raises(LanguageError, match="choose among these"):
        lsar_accuracy.analyse_ranks(Request(asked.models, workdir, "cpu", languages=("jpn-Jpan",)))


def test_the_summary_names_the_best():
    frame = pd.DataFrame(
        [("lsar", 0, 10.0), ("lsar", 1, 30.0), ("lsar", 2, 20.0), ("lir", 0, 10.0), ("lir", 1, 15.0)],
        columns=["method", "rank", "accuracy"],
    ).assign(model="m", languages=2)
    found = chosen(frame).set_index("method")["accuracy"].to_dict()
    assert found == {
        "Original": 10,
        "LIR(k=1)": 15,
        "LIR(k=1), its best": 15,
        "LSAR(r=1), its best": 30,
        "LSAR": 20,
    }


def test_accuracies_are_those_of_each_layers_model(few_rows):
    findings = lsar_accuracy.analyse_layers(few_rows)
    assert findings.data.keys() == {"tatoeba", "lingua", "newstest"}
    frame = findings.tables["layers"].set_index(["layer", "method"])
    assert frame.index.tolist() == [
        (layer, method) for layer in range(3) for method in ("original", "centered", "lir-1", "lsar")
    ]
    fit = {"corpora": ("lingua", "newstest"), "limit": 20, "languages": ("eng-Latn", *LANGUAGES)}
    alignments = {
        "original": None,
        "centered": AlignmentSpec("centered", "centered", (), **fit),
        "lsar": AlignmentSpec("lsar", "lsar", (), **fit),
    }
    for (layer, method), alignment in (((1, one), alignment) for one, alignment in alignments.items()):
        backbone = dataclasses.replace(find_spec(few_rows.models[0]).backbone, layer=layer)
        encoder = load_encoder(ModelSpec(backbone, alignment), device="cpu")
        scores = []
        for language, *sides in spaces.open_tatoeba(few_rows).pairs():
            codes = (language, "eng-Latn")
            vectors = [encoder.encode_texts(side, [code] * 20) for side, code in zip(sides, codes, strict=True)]
            scores.append(spaces.accuracy(*vectors))
        assert frame.loc[(layer, method), "accuracy"] == pytest.approx(np.mean(scores, axis=0)[0])
    assert findings.tables["summary"]["source"].iloc[0] == "this run, best layer"
    assert len(next(iter(findings.figures.values())).axes[0].lines) == 4


def test_layers_leave_out_or_refuse_languages_without_fit_text(few_rows, workdir, write_tatoeba):
    write_tatoeba(workdir, 20, ["deu", "jpn"])
    findings = lsar_accuracy.analyse_layers(dataclasses.replace(few_rows, languages=("deu-Latn", "jpn-Jpan")))
    assert findings.tables["layers"]["languages"].unique() == [1]
    assert any("lacks them: Japanese" in note for note in findings.notes)
    with pytest.raises(LanguageError, match=r"lingua, newstest have deu-Latn, .*; choose among these"):
        lsar_accuracy.analyse_layers(dataclasses.replace(few_rows, languages=("jpn-Jpan",)))


@pytest.fixture
def fitted_on_pairs(few_rows, workdir, monkeypatch):
    """Makes an LSAR of given hyperparameters the model's own, fitted on pairs under the prompts of two sides."""
    folder = workdir / "data" / "tatoeba_pairs"
    folder.mkdir()
    for seed, language in enumerate(("deu", "fra", "tur")):
        words = np.random.default_rng(seed).integers(100, size=(30, 2, 6))
        rows = ("\t".join(" ".join(f"w{i}" for i in side) for side in row) for row in words)
        (folder / f"eng-{language}.tsv").write_text("".join(f"{row}\n" for row in rows))
    backbone = find_spec(few_rows.models[0]).backbone
    backbone = dataclasses.replace(backbone, prompts=(("query", "w1 "), ("passage", "w2 ")))

    def own(*params):
        alignment = AlignmentSpec("lsar", "lsar", params, ("tatoeba_pairs",))
        monkeypatch.setattr(spaces, "lsar_spec", lambda _: (backbone, alignment))

    return own


def test_layers_are_those_of_the_models_own_fit(few_rows, fitted_on_pairs):
    found = []
    for rank in (1, 2):
        fitted_on_pairs(("rank", rank))
        found.append(lsar_accuracy.analyse_layers(few_rows).tables["layers"])
    differ = found[0]["accuracy_other_to_english"] != found[1]["accuracy_other_to_english"]
    assert {*found[0]["method"][differ]} == {"lsar"}
    assert {*found[0]["languages"]} == {3}


def test_one_forward_pass_gives_every_vector_of_the_layers(few_rows, fitted_on_pairs, monkeypatch):
    fitted_on_pairs()
    monkeypatch.setattr(spaces.loading, "shared_modules", shared := Mock(wraps=spaces.loading.shared_modules))
    lsar_accuracy.analyse_layers(few_rows)
    loaded = {getattr(call.args[0], "layer", None) for call in shared.call_args_list}
    assert loaded == {2}  # the last alone


def test_lir_of_the_sweep_is_fitted_on_the_models_languages(asked, monkeypatch):
    spec = dataclasses.replace(spaces.PAPERS_FIT, languages=("eng-Latn", "deu-Latn", "fra-Latn"))
    monkeypatch.setattr(spaces, "PAPERS_FIT", spec)
    fitted = []
    monkeypatch.setattr(lsar_accuracy, "Recipe", lambda spec, raw: fitted.append(spec.alignment) or Recipe(spec, raw))
    lsar_accuracy.analyse_ranks(asked)
    assert [(one.method, one.languages) for one in fitted] == [("lir", spec.languages)]
