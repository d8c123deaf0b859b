"""A planted map is found: it gains, a rotation is one, and nothing of the training text is tested on."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

from xalign_models.alignments import dilation
from xalign_models.analysis import Request
from xalign_models.errors import DataError, LanguageError
from xalign_models.linalg.solvers import affine_distance, affine_lsq
from xalign_tasks.analyses import linear_mapping
from xalign_tasks.analyses.linear_mapping import FROM_ENGLISH, MEASURES, TO_ENGLISH, directions, shape
from xalign_tasks.analyses.mapping_texts import held_out, newstest_pairs, open_texts
from xalign_tasks.orthogonality import compared


@pytest.fixture
def encoder(planted, make_encoder, monkeypatch):
    """German is English turned, French is English turned and moved, Turkish is skewed."""
    rng = np.random.default_rng(0)
    turn = {one: np.linalg.qr(rng.standard_normal((16, 16))).Q for one in ("deu", "fra")}
    turn["tur"] = np.eye(16) + 0.8 * rng.standard_normal((16, 16))
    made = make_encoder(planted(turn=turn, shift={"fra": 0.5 * np.ones(16)}))
    monkeypatch.setattr(Request, "load", lambda self, name: made)
    monkeypatch.setattr(linear_mapping, "affine_distance", partial(affine_distance, steps=10))  # enough without noise
    return made


@pytest.fixture
def texts(workdir, planted):
    """Tatoeba's pairs in three languages, FLORES-200 in two, newstest in one; WikiNews is not there."""
    folder = workdir / "data" / "tatoeba_pairs"
    folder.mkdir()
    for language, rows in (("deu", 300), ("fra", 300), ("tur", 200)):
        (folder / f"eng-{language}.tsv").write_text("".join(f"eng {i}\t{language} {i}\n" for i in range(rows)))
    flores = workdir / "data" / "flores200_dataset" / "devtest"
    flores.mkdir(parents=True)
    for language in ("eng", "deu"):
        (flores / f"{language}_Latn.devtest").write_text("".join(f"{language} {i}\n" for i in range(900, 950)))
    news = workdir / "data" / "wmt_newstest" / "2008"
    news.mkdir(parents=True)
    for code, language in (("en", "eng"), ("de", "deu")):
        (news / f"newstest2008.{code}").write_text("".join(f"{language} {i}\n" for i in range(1000, 1250)))
    return workdir


def test_planted_maps_gain_in_both_directions_and_both_fits(texts, encoder):
    asked = Request(("planted",), texts, "cpu", rows=300, languages=("deu-Latn", "fra-Latn"))
    findings = linear_mapping.analyse(asked)
    gains = findings.tables["gains"]
    assert set(gains["direction"]) == {FROM_ENGLISH, TO_ENGLISH}
    assert set(gains["fit"]) == {"lsq", "distance"}
    assert set(gains[gains["language"] == "deu-Latn"]["test"]) == {"Tatoeba", "newstest", "Flores"}
    assert set(gains[gains["language"] == "fra-Latn"]["test"]) == {"Tatoeba"}
    german = gains[gains["language"] == "deu-Latn"]
    assert (german[["dD", "dC"]] > 0).all(axis=None)
    assert (german[["fD", "fC"]] == 1).all(axis=None)
    sizes = gains[(gains["fit_text"] == "Tatoeba") & (gains["test"] == "Tatoeba")]
    assert (sizes["fit_pairs"] + sizes["test_pairs"] == 300).all()
    assert any("WikiNews is unavailable" in note for note in findings.notes)
    assert set(findings.data) == {"Tatoeba", "newstest", "Flores"}
    assert len(findings.figures) == 3


def test_a_planted_rotation_has_the_shape_of_one_and_a_skew_has_not(texts, encoder):
    shapes = linear_mapping.analyse(Request(("planted",), texts, "cpu", rows=200)).tables["shapes"]
    shapes = shapes[shapes["fit_text"] == "Tatoeba"].set_index(["language", "direction"])
    rotation, skew = shapes.loc[("deu-Latn", FROM_ENGLISH)], shapes.loc[("tur-Latn", FROM_ENGLISH)]
    assert rotation["p_mean_abs"] < 1e-3
    assert rotation["alpha_std"] < 1e-3
    assert not rotation["p_exceeds_0.383"]
    assert skew["p_mean_abs"] > 0.1
    assert skew["p_exceeds_0.383"]
    assert (shapes["pairs"] == 150).all()
    assert (shapes["p_mean_abs"] < shapes["p_mean_abs_shuffled"]).loc[["deu-Latn", "fra-Latn"]].all()
    assert ("tur-Latn", TO_ENGLISH) not in shapes.index  # not of the paper's six: its shape only


def test_by_default_languages_with_fewer_pairs_are_left_out(texts, encoder):
    shapes = linear_mapping.analyse(Request(("planted",), texts, "cpu", rows=250)).tables["shapes"]
    assert set(shapes["language"]) == {"deu-Latn", "fra-Latn"}
    asked = Request(("planted",), texts, "cpu", rows=250, languages=("tur-Latn",))
    assert set(linear_mapping.analyse(asked).tables["shapes"]["language"]) == {"tur-Latn"}


def test_languages_without_pairs_are_refused_before_a_model_is_loaded(texts):
    for languages in (("spa-Latn",), ("deu-Latn", "eng-Latn", "spa-Latn")):
        with pytest.raises(LanguageError, match="have deu-Latn, eng-Latn, fra-Latn, tur-Latn; choose among these"):
            linear_mapping.analyse(Request(("none",), texts, "cpu", languages=languages))


def test_too_few_pairs_and_missing_texts_are_one_error(texts, encoder, workdir):
    with pytest.raises(DataError, match="No language has enough of its first 15 pairs for a map; raise --rows"):
        linear_mapping.analyse(Request(("planted",), texts, "cpu", rows=15))
    (workdir / "data" / "tatoeba_pairs").rename(workdir / "elsewhere")
    with pytest.raises(DataError, match="Corpus 'tatoeba_pairs' is missing"):
        linear_mapping.analyse(Request(("planted",), texts, "cpu"))


def test_no_sentence_is_on_both_sides_of_the_split(texts):
    path = texts / "data" / "tatoeba_pairs" / "eng-deu.tsv"
    path.write_text("".join(f"eng {i // 3}\tdeu {i}\n" for i in range(300)))
    tatoeba = open_texts()[0][0]
    (_, fit), (_, test) = tatoeba.sides("deu-Latn", None)
    assert not set(fit) & set(test)
    assert len(fit) + len(test) == 300
    assert 0.1 < len(test) / 300 < 0.3
    assert all(map(held_out, test))


def test_newstest_is_paired_file_by_file(texts):
    news = texts / "data" / "wmt_newstest"
    (news / "2009").mkdir()
    (news / "2009" / "newstest2009.it").write_text("ita 1\nita 2\n\n")
    (news / "2008" / "newstest2008.it").write_text("".join(f"ita {i}\n" for i in range(1000, 1250)))
    corpus = newstest_pairs()
    assert corpus.languages == ("deu-Latn", "ita-Latn")  # 2009 has no English
    side, english = corpus.pair("ita-Latn")
    assert (side[0], english[0], len(side)) == ("ita 1000", "eng 1000", 250)
    (news / "2009" / "newstest2009.en").write_text("eng 1\neng 2\neng 3\n")
    side, _ = newstest_pairs().pair("ita-Latn")
    assert side[-2:] == ["ita 1", "ita 2"]  # the third is empty
    (news / "2009" / "newstest2009.en").write_text("eng 1\n")
    with pytest.raises(DataError, match=r"\.it and \.en files differ in their number of lines"):
        newstest_pairs().pair("ita-Latn")


def test_shape_has_the_tasks_numbers(spoilt):
    x, y = spoilt
    ours, task = shape(x, y), compared(np.vstack([x, x[:250]]), np.vstack([y, y[:250]]))[0]  # a fifth is held out there
    assert ours["p_mean_abs"] == pytest.approx(task["p_mean_abs"], rel=1e-9)
    assert ours["p_mean_abs_shuffled"] == pytest.approx(task["p_mean_abs_shuffled"], rel=1e-9)
    assert ours["alpha_range"] == pytest.approx(task["dilation_range"], rel=1e-9)


def test_a_direction_without_variance_does_not_decide_the_shape(spoilt):
    """Where an encoder ends in a LayerNorm, least squares alone is arbitrary in a direction."""
    x, y = spoilt
    assert shape(x, y)["alpha_range"] < 0.2
    assert dilation(affine_lsq(x, y)[0]).range > 10


@pytest.fixture
def spoilt():
    """1,000 rows of x, whose last dimension has next to no variance, and y, noisily turned."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 16))
    x[:, -1] = 1e-5 * rng.standard_normal(1000)
    return x, x @ np.linalg.qr(rng.standard_normal((16, 16))).Q + 0.3 * rng.standard_normal((1000, 16))


def test_directions_count_the_cells():
    key = {"model": "m", "fit": "lsq", "direction": FROM_ENGLISH, "fit_text": "Tatoeba"}
    gains = pd.DataFrame(
        [
            {**key, "test": "Flores", **dict.fromkeys(MEASURES, 0.6)},
            {**key, "test": "Flores", **dict.fromkeys(MEASURES, 0.4)},
            {**key, "test": "Flores", "direction": TO_ENGLISH, **dict.fromkeys(MEASURES, -1.0)},
        ]
    )
    shapes = pd.DataFrame(
        [
            {**key, "language": "deu-Latn", "p_mean_abs": 0.1, "alpha_std": 0.3},
            {**key, "language": "fra-Latn", "p_mean_abs": 0.3, "alpha_std": 0.1},
            {**key, "language": "ber-Latn", "p_mean_abs": 0.2, "alpha_std": 0.4},
            {**key, "language": "deu-Latn", "fit_text": "newstest", "p_mean_abs": 0.2, "alpha_std": 0.1},
        ]
    )
    found = {row["the_paper_says"]: (row["holds"], row["of"]) for row in directions(gains, shapes).to_dict("records")}
    assert found.pop("mean |p| lower if fitted on Tatoeba than on formal text (theirs UN, ours newstest)") == (1, 1)
    assert found == {
        "dD > 0 on Flores": (2, 2),
        "dC > 0 on Flores": (2, 2),
        "fD > 0.5 on Flores": (1, 2),
        "fC > 0.5 on Flores": (1, 2),
        "Berber: mean |p| above others'": (1, 2),
        "Berber: sigma(alpha) / mean above others'": (2, 2),
    }
