"""The sweep's numbers are those of the models it sweeps over."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import LanguageError
from xalign_models.models.building import load_encoder
from xalign_models.models.names import find_spec
from xalign_models.specs import AlignmentSpec, ModelSpec
from xalign_tasks.analyses import lsar_accuracy, spaces

LANGUAGES = ("deu-Latn", "fra-Latn", "tur-Latn")


@pytest.fixture
def asked(workdir, tiny_model, write_tatoeba, write_fit_text):
    write_tatoeba(workdir, 40)
    write_fit_text(workdir, 30)
    return Request((str(tiny_model),), workdir, "cpu", rows=20, languages=LANGUAGES)


def test_accuracies_are_those_of_each_layers_model(asked):
    findings = lsar_accuracy.analyse_layers(asked)
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
        backbone = dataclasses.replace(find_spec(asked.models[0]).backbone, layer=layer)
        encoder = load_encoder(ModelSpec(backbone, alignment), device="cpu")
        scores = []
        for language, *sides in spaces.open_tatoeba(asked).pairs():
            codes = (language, "eng-Latn")
            vectors = [encoder.encode_texts(side, [code] * 20) for side, code in zip(sides, codes, strict=True)]
            scores.append(spaces.accuracy(*vectors))
        assert frame.loc[(layer, method), "accuracy"] == pytest.approx(np.mean(scores, axis=0)[0])
    assert findings.tables["summary"]["source"].iloc[0] == "this run, best layer"
    assert len(next(iter(findings.figures.values())).axes[0].lines) == 4


def test_languages_without_fit_text_are_left_out_or_refused(asked, workdir, write_tatoeba):
    write_tatoeba(workdir, 20, ["deu", "jpn"])
    findings = lsar_accuracy.analyse_layers(dataclasses.replace(asked, languages=("deu-Latn", "jpn-Jpan")))
    assert findings.tables["layers"]["languages"].unique() == [1]
    assert any("lacks them: Japanese" in note for note in findings.notes)
    with pytest.raises(LanguageError, match=r"lingua, newstest have deu-Latn, .*; choose among these"):
        lsar_accuracy.analyse_layers(dataclasses.replace(asked, languages=("jpn-Jpan",)))
