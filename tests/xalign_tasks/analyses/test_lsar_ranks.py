"""Peeling is projecting; the sweep's ends are the alignments themselves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from xalign_models.alignments import LIR
from xalign_models.analysis import Request
from xalign_models.errors import LanguageError
from xalign_tasks.analyses import lsar_accuracy, spaces
from xalign_tasks.analyses.lsar_accuracy import chosen, peel


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
    return Request((str(tiny_model),), workdir, "cpu", languages=("deu-Latn", "fra-Latn", "tur-Latn"))


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
    from xalign_models import corpora

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


def test_languages_without_fit_text_are_left_out_and_named(asked, workdir, write_tatoeba):
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
