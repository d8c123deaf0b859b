"""A planted map is found and described; few pairs are refused; gains are those of the equations."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.corpora import ENGLISH
from xalign_models.errors import DataError
from xalign_models.evaluation import run as running
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.languages import BEYOND_FLORES, FLORES_200, to_flores
from xalign_tasks import orthogonality
from xalign_tasks.orthogonality import LANGUAGES, OrthogonalityTask, map_gains, map_shape


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch):
    """As many as the tests write."""
    monkeypatch.setattr(orthogonality, "PAIRS", 400)


def write(root, language, meanings):
    folder = root / "data" / "tatoeba_pairs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"eng-{language}.tsv").write_text("".join(f"eng {one}\t{language} {one}\n" for one in meanings))


def evaluate(encoder, *subsets, folder=None):
    task = OrthogonalityTask()
    task.hf_subsets = list(subsets)
    return task.evaluate(encoder, encode_kwargs={}, prediction_folder=folder)


def scores(encoder, subset, folder=None):
    return evaluate(encoder, subset, folder=folder)[subset]


def test_a_rotation_is_orthogonal_and_another_map_is_not(workdir, planted, make_encoder):
    rng = np.random.default_rng(0)
    skew = np.eye(16) + 0.8 * rng.standard_normal((16, 16))
    raw = planted(turn={"deu": np.linalg.qr(rng.standard_normal((16, 16))).Q, "tur": skew})
    for language in ("deu", "tur"):
        write(workdir, language, range(400))
    rotated = scores(make_encoder(raw), "eng_Latn-deu_Latn", workdir)
    assert rotated["main_score"] == rotated["rotation"] == pytest.approx(1, abs=1e-6)
    assert rotated["orthogonality"] == pytest.approx(1, abs=1e-3)
    assert rotated["dilation_std"] < 1e-6
    assert rotated["p_mean_abs"] < 1e-6 < rotated["p_mean_abs_shuffled"]
    assert rotated["fD"] == rotated["fC"] == 1
    assert rotated["pairs"] == 400
    skewed = scores(make_encoder(raw), "eng_Latn-tur_Latn", workdir)
    assert skewed["orthogonality"] < 0.9
    assert skewed["rotation"] < 0.9 < skewed["r2_affine"]
    with np.load(workdir / "Orthogonality.npz") as items:
        assert items["eng_Latn-deu_Latn"].shape == (80, 4)  # the held-out fifth
        assert items.files == ["eng_Latn-deu_Latn", "eng_Latn-tur_Latn"]


def test_every_language_has_the_same_pairs_however_many_there_are(workdir, planted, make_encoder):
    for language, count in (("deu", 450), ("tur", 400)):
        write(workdir, language, range(count))
    raw = planted(shift={"deu": np.ones(16)})
    found = evaluate(make_encoder(raw), "eng_Latn-deu_Latn", "eng_Latn-tur_Latn")
    assert {scores["pairs"] for scores in found.values()} == {400}
    assert "eng 400" not in raw.encoded


def test_more_pairs_are_used_where_the_dimension_asks_for_them(workdir, planted, make_encoder):
    write(workdir, "deu", range(850))
    assert scores(make_encoder(planted(dim=328)), "eng_Latn-deu_Latn")["pairs"] == 2.5 * 328


def test_languages_with_too_few_pairs_are_left_out_and_named(workdir, planted, make_encoder, caplog):
    for language, count in (("deu", 20), ("fra", 399), ("tur", 400)):
        write(workdir, language, range(count))
    encoder = make_encoder(planted())
    subsets = [f"eng_Latn-{code}_Latn" for code in ("deu", "fra", "tur")]
    assert list(evaluate(encoder, *subsets)) == subsets[2:]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "compares 400 pairs in every language, which eng_Latn-deu_Latn, eng_Latn-fra_Latn lack" in warning
    with pytest.raises(DataError, match=r"400 pairs .*, which eng_Latn-deu_Latn, eng_Latn-fra_Latn lack; choose"):
        evaluate(encoder, *subsets[:2])


def test_one_short_language_does_not_keep_the_others_from_being_scored(workdir, planted, make_encoder):
    for language, count in (("deu", 20), ("tur", 400)):
        write(workdir, language, range(count))
    task, cache = OrthogonalityTask(), SafeResultCache(workdir)
    task.hf_subsets = ["eng_Latn-deu_Latn", "eng_Latn-tur_Latn"]
    for _ in range(2):  # the second finds all that can be had
        outcome = running.run_one(make_encoder(planted()), task, cache, items=True)
        assert not outcome.error
        assert [row["hf_subset"] for row in outcome.result.scores["test"]] == ["eng_Latn-tur_Latn"]


def test_shape_of_a_map_by_hand():
    """Columns of e' = A e are rows of W: here (2, 0) and (1, 1), whose cosine is 1 / sqrt(2)."""
    shape = map_shape(np.array([[2.0, 0.0], [1.0, 1.0]]))
    assert shape["p_mean_abs"] == pytest.approx(1 / np.sqrt(2))
    assert shape["p_max"] == pytest.approx(1 / np.sqrt(2))


def test_gains_by_hand():
    x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    mapped = np.array([[0.0, 1.0], [1.0, 0.0]])  # the first arrives, the second leaves
    gains, items = map_gains(x, y, mapped)
    assert gains == {"dD": 0, "dC": 0, "fD": 0.5, "fC": 0.5}
    np.testing.assert_allclose(items, [[np.sqrt(2), 0, 0, 1], [0, np.sqrt(2), 1, 0]], atol=1e-7)
    gains, _ = map_gains(x, y, (x + y) / 2)
    assert gains["dD"] == pytest.approx(1)  # half the distance is left: the fall is as large as what is left
    assert gains["fD"] == 0.5
    assert gains["dC"] == pytest.approx(np.sqrt(0.5) / 2)


def test_every_language_is_a_subset_of_its_own_with_english():
    by_subset = OrthogonalityTask.metadata.eval_langs
    assert len(by_subset) == len(LANGUAGES) == 42
    assert list(by_subset.values()) == [
        [ENGLISH, one] for one in LANGUAGES if one in FLORES_200 or one in BEYOND_FLORES
    ]
    assert all(subset == f"{to_flores(a)}-{to_flores(b)}" for subset, (a, b) in by_subset.items())
