"""IsomorphismStudy: planted rotations are found, mistakes show, and ranks agree with a slow formula of another kind."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from xalign_models.errors import DataError
from xalign_models.ranking import pairs as turning
from xalign_models.ranking.pairs import rotated_ranks
from xalign_models.ranking.ranks import normalise, precision_at
from xalign_tasks.isomorphism import STAGES, IsomorphismStudy, IsomorphismStudyRaw

LANGUAGES = ("deu", "eng", "fra")
PAIRS = {f"{a}_Latn-{b}_Latn" for a in LANGUAGES for b in LANGUAGES if a != b}
FIT, TEST = range(100), range(1000, 1300)


def _revision(task):
    """The data revision that a task takes of the text at hand."""
    task.identify()
    return task.metadata.revision


def rotation(seed, d):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d))).Q


TURN = {one: rotation(seed, 32) for seed, one in enumerate(LANGUAGES)}


@pytest.fixture
def noisy(planted):
    @dataclass
    class Noisy(planted):
        """Planted vectors, each with noise of its own."""

        dim: int = 32
        noise: float = 1e-3

        def vector(self, language, meaning):
            own = np.random.default_rng(zlib.crc32(f"{language} {meaning}".encode()))
            return super().vector(language, meaning) + self.noise * own.standard_normal(self.dim)

    return Noisy


def write(folder, meanings, name):
    folder.mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        (folder / name.format(language)).write_text("".join(f"{language} {one}\n" for one in meanings))


@pytest.fixture
def data(workdir):
    """Made-up text in the publishers' layouts."""
    write(workdir / "data" / "ntrex" / "NTREX-128", FIT, "newstest2019-ref.{}.txt")
    write(workdir / "data" / "flores200_dataset" / "devtest", TEST, "{}_Latn.devtest")
    source = workdir / "data" / "ntrex" / "NTREX-128" / "newstest2019-ref.eng.txt"
    source.rename(source.with_name("newstest2019-src.eng.txt"))
    return workdir / "data"


def shuffle(path):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(np.random.default_rng(0).permutation(lines)))


def scores(encoder, task=None, subsets=PAIRS, folder=None):
    task = task or IsomorphismStudy()
    return task.evaluate(
        encoder, subsets_to_run=list(subsets), encode_kwargs={"batch_size": 32}, prediction_folder=folder
    )


def test_planted_rotations_score_chance_before_and_one_after(data, noisy, make_encoder):
    found = scores(make_encoder(noisy(turn=TURN)))
    assert found.keys() == PAIRS
    for one in found.values():
        assert one["before_precision_at_1"] < 5 / 300
        assert one["before_precision_at_10"] < 25 / 300
        assert [one[f"after_precision_at_{k}"] for k in (1, 5, 10)] == [1, 1, 1]
        assert one["main_score"] == one["after_precision_at_5"]


@pytest.mark.parametrize(
    "path", ["ntrex/NTREX-128/newstest2019-ref.deu.txt", "flores200_dataset/devtest/deu_Latn.devtest"]
)
def test_rows_of_one_language_in_another_order_fall_to_chance(data, noisy, make_encoder, path):
    shuffle(data / path)
    for subset, one in scores(make_encoder(noisy(turn=TURN))).items():
        assert one["after_precision_at_1"] < 10 / 300 if "deu" in subset else one["after_precision_at_1"] == 1


def slow_ranks(fit_a, fit_b, a, b):
    """Rank of b_i for each a_i by sorting all cosines."""
    similarity = (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T
    weight = orthogonal_procrustes(fit_a, fit_b)[0]
    after = (a @ weight / np.linalg.norm(a @ weight, axis=1, keepdims=True)) @ (
        b / np.linalg.norm(b, axis=1, keepdims=True)
    ).T
    own = np.arange(len(a))[:, None]
    return np.stack([np.argmax(np.argsort(-one, axis=1) == own, axis=1) + 1 for one in (similarity, after)])


def two_languages(n, m, d, noise, inner=None, seed=0):
    """Fit and test rows (n + m, d) of two rotations of one content, which spans ``inner`` dimensions."""
    rng = np.random.default_rng(seed)
    content = rng.standard_normal((n + m, inner or d))
    sides = (
        (content + noise * rng.standard_normal(content.shape)) @ rotation(seed, d)[: inner or d] for seed in (1, 2)
    )
    a, b = (normalise(side) for side in sides)
    return a[:n], b[:n], a[n:], b[n:]


@pytest.mark.parametrize(("n", "d", "inner"), [(200, 24, 24), (40, 64, 24), (40, 100, 24)], ids=str)
def test_ranks_of_both_directions_equal_scipy_and_a_sort_per_ordered_pair(n, d, inner):
    """With fewer rows than dimensions, the content is one that the rows span: there W is determined."""
    fit_a, fit_b, a, b = two_languages(n, 150, d, noise=1.0, inner=inner)
    forward, backward = rotated_ranks(fit_a, fit_b, a, b)
    np.testing.assert_array_equal(forward, slow_ranks(fit_a, fit_b, a, b))
    np.testing.assert_array_equal(backward, slow_ranks(fit_b, fit_a, b, a))
    for ranks in (forward, backward):
        before, after = (precision_at(one)["precision_at_5"] for one in ranks)
        assert before < 0.1
        assert 0.2 < after < 1  # the numbers tell something


@pytest.mark.parametrize(("n", "d"), [(60, 16), (20, 32), (20, 100)])
def test_the_other_direction_is_the_transpose(n, d):
    fit_a, fit_b, a, b = two_languages(n, 80, d, noise=0.5)
    forward, backward = rotated_ranks(fit_a, fit_b, a, b)
    again = rotated_ranks(fit_b, fit_a, b, a)
    np.testing.assert_array_equal(again[0], backward)
    np.testing.assert_array_equal(again[1], forward)


@pytest.mark.parametrize(("n", "d"), [(60, 16), (20, 32), (20, 100)])
def test_equal_spaces_are_not_turned(n, d):
    fit, _, a, _ = two_languages(n, 80, d, noise=0.5)
    b = normalise(a + 0.2 * np.random.default_rng(1).standard_normal(a.shape))
    for before, after in rotated_ranks(fit, fit, a, b):
        np.testing.assert_array_equal(before, after)
        assert before.max() > 1


def test_one_fit_and_two_score_matrices_serve_both_directions(data, noisy, make_encoder, monkeypatch):
    counts = dict.fromkeys(("procrustes", "gold_ranks"), 0)

    def counted(name, inner):
        def call(*args):
            counts[name] += 1
            return inner(*args)

        return call

    for name in counts:
        monkeypatch.setattr(turning, name, counted(name, getattr(turning, name)))
    raw = noisy(turn=TURN)
    scores(make_encoder(raw))
    assert counts == {"procrustes": 3, "gold_ranks": 6}
    assert len(raw.encoded) == 3 * (len(FIT) + len(TEST))
    assert set(raw.encoded.values()) == {1}
    assert len(raw.prompts) == 3


def test_only_the_chosen_pairs_are_encoded_and_scored(data, noisy, make_encoder):
    raw = noisy(turn=TURN)
    assert scores(make_encoder(raw), subsets=["fra_Latn-deu_Latn"]).keys() == {"fra_Latn-deu_Latn"}
    assert {text[:3] for text in raw.encoded} == {"deu", "fra"}


def test_items_reproduce_the_scores(data, noisy, make_encoder, tmp_path):
    found = scores(make_encoder(noisy(turn=TURN, noise=1.0)), folder=tmp_path / "items")
    with np.load(tmp_path / "items" / "IsomorphismStudy.npz") as items:
        assert set(items.files) == PAIRS
        for subset, expected in found.items():
            assert items[subset].shape == (2, len(TEST))
            for stage, ranks in zip(STAGES, items[subset], strict=True):
                assert {f"{stage}_{key}": v for key, v in precision_at(ranks).items()}.items() <= expected.items()
            assert expected["before_precision_at_5"] < expected["after_precision_at_5"] < 1


@pytest.mark.parametrize("task", [IsomorphismStudy, IsomorphismStudyRaw])
def test_the_rows_of_the_fit_have_unit_length_or_their_own(data, noisy, make_encoder, tmp_path, task):
    raw = noisy(turn=TURN, noise=1.0)
    encoder = make_encoder(raw)
    scores(encoder, task(), ["deu_Latn-fra_Latn"], tmp_path)
    assert len(encoder.tail) == 1
    fit, test = ([raw.encode([f"{one} {i}" for i in rows]) for one in ("deu", "fra")] for rows in (FIT, TEST))
    unit = [normalise(side) for side in fit]
    test = [normalise(side) for side in test]
    expected, other = (rotated_ranks(*rows, *test)[0] for rows in ((unit, fit) if task.normalised else (fit, unit)))
    assert not np.array_equal(expected, other)
    with np.load(tmp_path / f"{task.metadata.name}.npz") as items:
        np.testing.assert_array_equal(items["deu_Latn-fra_Latn"], expected)


def test_dev_is_searched_too_where_it_is_at_hand(data, noisy, make_encoder, tmp_path):
    before = _revision(IsomorphismStudy())
    write(data / "flores200_dataset" / "dev", range(2000, 2200), "{}_Latn.dev")
    scores(make_encoder(noisy(turn=TURN)), folder=tmp_path)
    with np.load(tmp_path / "IsomorphismStudy.npz") as items:
        assert items["deu_Latn-fra_Latn"].shape == (2, 500)
    assert _revision(IsomorphismStudy()) != before


@pytest.mark.parametrize(
    "path", ["ntrex/NTREX-128/newstest2019-ref.deu.txt", "flores200_dataset/devtest/deu_Latn.devtest"]
)
def test_the_revision_is_that_of_both_texts(data, path):
    before = _revision(IsomorphismStudy())
    assert before.startswith("local-")
    assert _revision(IsomorphismStudy()) == before
    shuffle(data / path)
    assert _revision(IsomorphismStudy()) != before


def test_missing_fit_text_is_said_before_anything_is_encoded(data, noisy, make_encoder):
    for file in (data / "ntrex" / "NTREX-128").iterdir():
        file.unlink()
    raw = noisy()
    with pytest.raises(DataError, match="NTREX"):
        scores(make_encoder(raw))
    assert not raw.encoded


def test_all_languages_that_both_corpora_have():
    languages = {one for pair in IsomorphismStudy.metadata.eval_langs.values() for one in pair}
    assert len(languages) == 112
    assert "fuv-Latn" not in languages  # NTREX-128 has Pulaar under this code
    assert {"eng-Latn", "arb-Arab", "zho-Hans", "jpn-Jpan", "rus-Cyrl", "deu-Latn", "spa-Latn"} <= languages
    assert len(IsomorphismStudy.metadata.hf_subsets) == 112 * 111
