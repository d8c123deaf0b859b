"""Planted truths: duplicates, damage, offsets of languages, rows of another model, bounds that hold."""

from __future__ import annotations

import numpy as np
import pytest

from tests.xalign_models.index.conftest import Data, put_parquet, rows
from xalign_models.errors import DataError
from xalign_models.index.auditing import Sample, contents, foreign, gather, thresholds
from xalign_models.index.base import Rows, open_index
from xalign_models.index.expecting import Expectation, best, fit_text
from xalign_models.index.migrating import conformal
from xalign_models.recommend.candidates import PLAIN, Candidate


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def test_facts_are_counted(tmp_path, request):
    data = rows(60)
    data.vectors[5] = data.vectors[4]
    data.vectors[[7, 8]] = 0
    data.vectors[9, 3] = np.inf
    data.vectors[10] *= 3
    facts = gather(open_index(put_parquet(data, tmp_path, request)[0])).facts
    assert facts["rows"] == 60
    assert (facts["zero"], facts["not finite"], facts["without a vector"]) == (2, 1, 0)
    assert facts["repeated vectors"] == 1
    assert facts["repeated texts"] == 0
    assert facts["greatest norm"] == pytest.approx(3, abs=1e-3)


def test_a_text_with_two_vectors_is_counted(tmp_path, request):
    class Repeated(Data):
        @property
        def texts(self):
            return ["same"] * 3 + [f"text {number}" for number in range(57)]

    data = rows(60)
    data.vectors[1] = data.vectors[0]
    facts = gather(open_index(put_parquet(Repeated(data.vectors, data.langs, data.ids), tmp_path, request)[0])).facts
    assert facts["repeated texts"] == 2
    assert facts["texts with several vectors"] == 1


def test_missing_texts_are_no_equal_texts(tmp_path, request):
    class Missing(Data):
        @property
        def texts(self):
            return [None] * 30 + ["same"] * 2 + [f"text {number}" for number in range(28)]

    data = rows(60)
    sample = gather(open_index(put_parquet(Missing(data.vectors, data.langs, data.ids), tmp_path, request)[0]))
    assert (sample.facts["repeated texts"], sample.facts["texts with several vectors"]) == (1, 1)
    assert not any(row["text"] == "None" for row in contents(sample)["Rows that are nearest most often"])


@pytest.mark.filterwarnings("error")
def test_very_long_and_short_rows_are_audited_as_usual_and_equal_ones_without_a_warning(tmp_path, request):
    data = rows(60)
    usual = contents(gather(open_index(put_parquet(data, tmp_path, request)[0])))
    for length in (1e25, 1e-30):
        long = Data(data.vectors * np.float32(length), data.langs, data.ids)
        tables = contents(gather(open_index(put_parquet(long, tmp_path, request)[0])))
        for row, other in zip(
            *(found["Scores of unrelated rows by languages"] for found in (tables, usual)), strict=True
        ):
            assert row["median"] == pytest.approx(other["median"], abs=1e-3)
    data.vectors[:] = data.vectors[0]
    assert contents(gather(open_index(put_parquet(data, tmp_path, request)[0])))


def test_languages_that_lie_apart_have_a_lift(tmp_path, request):
    tables = contents(gather(open_index(put_parquet(rows(300), tmp_path, request)[0])))
    (languages,) = [table for title, table in tables.items() if title.startswith("Languages")]
    assert all(row["lift"] > 1.5 and row["chance"] == "beyond" for row in languages)
    assert {row["language"] for row in languages} == {"deu-Latn", "eng-Latn", "fra-Latn"}


def test_languages_that_mix_have_a_lift_of_one_whatever_their_share():
    codes, lifts, marks = np.array(["deu-Latn"] * 4 + ["eng-Latn"] * 28 + ["fra-Latn"] * 8 + ["spa-Latn"]), [], []
    for seed in range(200):
        vectors = np.random.default_rng(seed).standard_normal((41, 16)).astype(np.float32)
        (languages, *_) = [rows for rows in contents(Sample(Rows(range(41), vectors), codes, {})).values() if rows]
        lifts.append([row["lift"] for row in languages])
        marks.append([row["chance"] for row in languages])
    *several, single = np.array(lifts, float).T
    assert np.isnan(single).all()
    np.testing.assert_allclose(np.mean(several, axis=1), 1, atol=0.15)
    assert max(several[0]) > 2  # by chance, as the mark says
    *several, single = np.array(marks).T
    assert not any(single)
    assert all(np.mean(side == "beyond") < 0.08 for side in several)


def test_repeated_rows_change_neither_lifts_nor_thresholds():
    vectors = np.random.default_rng(0).standard_normal((60, 16)).astype(np.float32)
    codes = np.array(["deu-Latn"] * 20 + ["eng-Latn"] * 40)
    once, thrice = (
        contents(Sample(Rows(range(60 * times), np.tile(vectors, (times, 1))), np.tile(codes, times), {}))
        for times in (1, 3)
    )
    (first, again) = (
        next(table for title, table in tables.items() if "nearest of" in title) for tables in (once, thrice)
    )
    assert [row["rows"] for row in again] == [3 * row["rows"] for row in first]
    assert [row["lift"] for row in again] == [row["lift"] for row in first]
    for title in ("Scores of unrelated rows by languages", "Rows that are nearest most often"):
        assert thrice[title] == once[title]


@pytest.mark.parametrize(
    ("count", "title"), [(5, "4 nearest of 5 rows"), (1, "0 nearest of 1 row"), (40, "10 nearest of")]
)
def test_a_small_index_has_fewer_neighbours(count, title):
    sample = Sample(Rows(range(count), np.eye(count, dtype=np.float32)), np.array(["deu-Latn"] * count), {})
    assert f"Languages of the {title}" in " ".join(contents(sample))


def test_only_a_sample_of_a_large_index_is_kept(tmp_path, request):
    sample = gather(open_index(put_parquet(rows(100), tmp_path, request)[0]), most=30)
    assert sample.facts["rows"] == 100
    assert sample.facts["rows compared, drawn at random"] == 30
    assert "rows compared, drawn at random" not in gather(open_index(f"{tmp_path / 'docs.parquet'}")).facts
    assert len(sample.codes) == len(sample.rows.ids) == len(sample.rows.vectors) == 30


@pytest.mark.parametrize("batch", [3, 1000])
def test_a_sample_has_the_shares_of_an_index_whose_languages_alternate(tmp_path, request, monkeypatch, batch):
    monkeypatch.setattr("xalign_models.vector_files.parquet.BATCH_BYTES", batch * 4 * 8)
    data = rows(300)
    data.langs = ["de", "fr"] * 150
    index = open_index(put_parquet(data, tmp_path, request)[0])
    for most in (40, 200, 299):
        sample = gather(index, most=most)
        assert len(sample.codes) == len({*sample.rows.ids}) == most
        assert (sample.codes == "deu-Latn").mean() == pytest.approx(0.5, abs=0.15)
        assert gather(index, most=most).rows.ids == sample.rows.ids == sorted(sample.rows.ids)
        np.testing.assert_array_equal(sample.rows.vectors, data.vectors[sample.rows.ids])


def test_a_sample_of_texts_is_drawn_from_the_rows_that_have_one(tmp_path, request):
    class Few(Data):
        @property
        def texts(self):
            return [None if number % 10 else f"text {number}" for number in range(300)]

    data = rows(300)
    index = open_index(put_parquet(Few(data.vectors, data.langs, data.ids), tmp_path, request)[0])
    assert gather(index, most=30, written=True).rows.ids == [*range(0, 300, 10)]
    assert all(gather(index, most=20, written=True).rows.texts)


def test_a_threshold_keeps_its_rate_on_other_rows():
    rng = np.random.default_rng(0)
    offset = rng.standard_normal((2, 32))

    def draw():
        return unit(np.concatenate([rng.standard_normal((300, 32)) + shift for shift in offset]))

    codes = np.repeat(["deu-Latn", "eng-Latn"], 300)
    other = draw()
    for row in thresholds(draw(), codes, rng):
        scores = other[codes == row["query"]] @ other[codes == row["document"]].T
        scores = scores[~np.eye(300, dtype=bool)]
        assert (scores > row["at 1% false positives"]).mean() == pytest.approx(0.01, abs=0.006)
        assert row["median"] == pytest.approx(np.median(scores), abs=0.02)
        assert row["spread"] == pytest.approx(np.quantile(scores, 0.99) - np.median(scores), rel=0.1)


def model(seed, dim=384):
    """Draws rows as a model makes them: few strong directions, a mean, and offsets of topics and of languages."""
    rng = np.random.default_rng(seed)
    basis = np.arange(1, dim + 1)[:, None] ** -0.5 * np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    mean = rng.standard_normal(dim) @ basis

    def draw(count):
        groups = rng.standard_normal((5, dim))[rng.integers(5, size=count)]
        return unit(mean + (groups + rng.standard_normal((count, dim))) @ basis)

    return draw


@pytest.mark.parametrize("share", [0.03, 0.2, 0.45])
def test_rows_of_another_model_are_found(share):
    planted = np.random.default_rng(9).random(3000) < share
    vectors = np.where(planted[:, None], model(2)(3000), model(1)(3000))
    found = foreign(vectors)
    assert (found == planted).mean() > 0.99


def test_a_few_rows_hold_no_row_of_another_model():
    """Clusters of a few rows share directions of variance, or not, by chance."""
    for seed in range(5):
        for count in (11, 20, 50):
            vectors = np.random.default_rng(seed).standard_normal((count, 24)).astype(np.float32)
            tables = contents(Sample(Rows(range(count), vectors), np.array(["deu-Latn"] * count), {}))
            assert not tables["Rows that look like another model's"]


@pytest.mark.parametrize("seed", range(3))
def test_topics_of_one_model_are_not_foreign(seed):
    assert not foreign(model(seed)(3000)).any()


def test_the_conformal_bound_covers_new_queries():
    rng = np.random.default_rng(0)
    covered = [rng.beta(1, 5) <= conformal(rng.beta(1, 5, size=39), 0.1) for _ in range(4000)]
    assert 0.88 < np.mean(covered) < 0.93  # (n + 1) 0.9 = 36 exactly
    assert conformal(np.zeros(5), 0.1) == 1.0


def test_the_simplest_method_near_the_best_mean_is_chosen():
    def row(name, same, across):
        return Expectation(Candidate(name) if name else PLAIN, same, across)

    plain = row("", 0.9, 0.5)
    assert best([plain, row("a", 0.9, 0.693), row("b", 0.9, 0.7), row("c", 0.7, 0.8)]).candidate.method == "a"
    assert best([plain, row("a", 0.5, 0.7), row("b", None, None)]) == plain
    assert best([row("", None, 0.5), row("a", None, 0.6)]).candidate.method == "a"


@pytest.mark.parametrize("languages", [("deu", "fra"), ("eng", "spa")])
def test_text_without_english_or_another_language_of_the_index_is_refused(tmp_path, write_text, languages):
    text = write_text(tmp_path / "text", 40, languages)
    with pytest.raises(DataError, match="must have English and another language of the index"):
        fit_text(f"own:{text}", {"deu-Latn", "fra-Latn"}, 30)
