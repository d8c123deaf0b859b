"""What is encoded for a fit, what is refused, and that a fit is done once."""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from xalign_models import corpora, fit
from xalign_models.errors import AlignmentError, DataError, LanguageError, ModelError
from xalign_models.models import api, fitting
from xalign_models.specs import AlignmentSpec

ROTATED = {"deu": np.linalg.qr(np.random.default_rng(9).standard_normal((16, 16))).Q}


@pytest.fixture
def text(workdir, planted):
    return planted.write(workdir / "fit", range(40))


def spec(method="centered", *folders, **fields):
    return AlignmentSpec(method, method, **{"corpora": tuple(f"own:{one}" for one in folders), **fields})


def test_centered_learns_the_mean_of_the_texts_of_all_corpora(text, workdir, planted):
    other = planted.write(workdir / "other", range(100, 110), ("deu", "tur"))
    raw = planted(shift={"deu": np.ones(16)})
    alignment = fitting.fit(spec("centered", text, other), raw.encode)
    assert alignment.languages_ == ("deu-Latn", "eng-Latn", "fra-Latn", "tur-Latn")
    halves = [np.mean([raw.vector("deu", one) for one in rows], axis=0) for rows in (range(40), range(100, 110))]
    expected = np.mean(halves, axis=0)  # each corpus counts the same
    np.testing.assert_allclose(alignment.means_[0], expected, atol=1e-6)
    assert "tur 105" in raw.encoded
    assert "fra 105" not in raw.encoded


def test_limit_and_languages_narrow_the_text(text, planted):
    raw = planted()
    alignment = fitting.fit(spec("centered", text, limit=5, languages=("deu-Latn",)), raw.encode)
    assert alignment.languages_ == ("deu-Latn",)
    assert set(raw.encoded) == {f"deu {i}" for i in range(5)}


def test_the_work_is_said_before_it_begins(text, planted, monkeypatch, caplog):
    monkeypatch.setattr(fitting, "MANY", 40)

    def refuse(*_, **__):
        raise RuntimeError("encodes")

    for limit, hint in ((None, True), (20, False)):
        caplog.clear()
        with pytest.raises(RuntimeError, match="encodes"):
            fitting.fit(spec("centered", text, limit=limit), refuse)
        (said,) = caplog.messages
        assert f"is fitted on {3 * (limit or 40)} texts in 3 languages" in said
        assert ("--limit 1000" in said) == hint
    caplog.clear()
    fitting.fit(spec("centered", text, limit=10), planted().encode)
    assert not caplog.messages
    fitting.fit(spec("centered", text, limit=9), planted().encode)
    assert caplog.messages == [
        "centered is fitted on few rows (deu-Latn 9, eng-Latn 9, fra-Latn 9), whose means are mostly chance."
    ]


def test_procrustes_finds_a_planted_rotation(text, planted):
    raw = planted(turn=ROTATED)
    alignment = fitting.fit(spec("procrustes", text), raw.encode)
    assert alignment.languages_ == ("eng-Latn", "deu-Latn", "fra-Latn")
    np.testing.assert_allclose(alignment.weights_[1], ROTATED["deu"].T, atol=1e-5)
    np.testing.assert_allclose(alignment.weights_[2], np.eye(16), atol=1e-5)


def test_any_language_of_row_parallel_text_can_be_the_pivot(text, workdir, planted, monkeypatch):
    raw = planted(turn=ROTATED)
    chosen = spec("procrustes", text, params=(("pivot", "deu-Latn"),))
    alignment = fitting.fit(chosen, raw.encode)
    assert alignment.languages_ == ("deu-Latn", "eng-Latn", "fra-Latn")
    np.testing.assert_allclose(alignment.weights_[1], ROTATED["deu"], atol=1e-5)
    assert fitting.fingerprint(chosen) != fitting.fingerprint(spec("procrustes", text))
    folder = workdir / "data" / "tatoeba_pairs"
    folder.mkdir()
    for language in ("deu", "fra"):
        (folder / f"eng-{language}.tsv").write_text("".join(f"eng {i}\t{language} {i}\n" for i in range(20)))
    pairs = AlignmentSpec("p", "procrustes", (("pivot", "deu-Latn"),), ("tatoeba_pairs",))
    with pytest.raises(DataError, match="pairs every language with English, so deu-Latn cannot be its pivot"):
        fitting.fit(pairs, raw.encode)


def test_a_pair_corpus_pairs_each_language_with_its_own_english(workdir, monkeypatch, planted):
    folder = workdir / "data" / "tatoeba_pairs"
    folder.mkdir()
    for language, meanings in (("deu", range(40)), ("fra", range(50, 90))):
        lines = (f"eng {one}\t{language} {one}\n" for one in meanings)
        (folder / f"eng-{language}.tsv").write_text("".join(lines))
    raw = planted(turn=ROTATED)
    alignment = fitting.fit(spec("procrustes", corpora=("tatoeba_pairs",), limit=30), raw.encode)
    np.testing.assert_allclose(
        alignment.transform(raw.encode(["deu 45"]), "deu-Latn"), raw.encode(["eng 45"]), atol=1e-5
    )
    assert raw.encoded["eng 60"] == 1
    assert "eng 85" not in raw.encoded


def test_a_pair_corpus_has_english_for_methods_without_translations(workdir, planted):
    """Its English sides in turn, each once, as many as the longest language has; whatever languages are chosen."""
    folder = workdir / "data" / "tatoeba_pairs"
    folder.mkdir()
    for language, meanings in (("deu", range(3)), ("fra", range(2, 7))):
        lines = (f"eng {one}\t{language} {one}\n" for one in meanings)
        (folder / f"eng-{language}.tsv").write_text("".join(lines))
    centered = spec("centered", corpora=("tatoeba_pairs",))
    texts = {language: side for language, (side,) in fitting.fit_texts(centered)}
    assert texts["eng-Latn"] == ["eng 0", "eng 2", "eng 1", "eng 3", "eng 4"]
    assert [*texts] == ["deu-Latn", "eng-Latn", "fra-Latn"]
    few = dataclasses.replace(centered, languages=("eng-Latn", "fra-Latn"))
    assert dict(fitting.fit_texts(few))["eng-Latn"] == [texts["eng-Latn"]]
    alone = dataclasses.replace(centered, languages=("eng-Latn",))
    before = fitting.fingerprint(alone), fitting.fingerprint(dataclasses.replace(centered, languages=("fra-Latn",)))
    (folder / "eng-deu.tsv").write_text("eng 9\tdeu 9\n")
    after = fitting.fingerprint(alone), fitting.fingerprint(dataclasses.replace(centered, languages=("fra-Latn",)))
    assert before[0] != after[0] and before[1] == after[1]


def test_swapping_two_labels_makes_centering_useless(text, planted):
    """Fitted with German and French exchanged, Centered moves the languages apart rather than together."""
    rng = np.random.default_rng(3)
    raw = planted(shift={one: 5 * rng.standard_normal(16) for one in ("deu", "fra")})
    alignment = fitting.fit(spec("centered", text), raw.encode)
    x, y = (raw.encode([f"{one} {i}" for i in range(200, 500)]) for one in ("deu", "fra"))

    def precision(first, second):
        a, b = alignment.transform(x, first), alignment.transform(y, second)
        a, b = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (a, b))
        return np.mean((a @ b.T).argmax(axis=1) == np.arange(len(a)))

    assert precision("deu-Latn", "fra-Latn") == 1
    assert precision("fra-Latn", "deu-Latn") < 0.8


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"corpora": ()}, DataError, "no fit text"),
        ({"corpora": ("nonsense",)}, DataError, "Unknown corpus 'nonsense'"),
        ({"corpora": ("ntrex",), "method": "procrustes"}, DataError, r"XALIGN_DATA.*github.com/MicrosoftTranslator"),
        ({"languages": ("deu-Latn", "tha-Thai")}, LanguageError, "no tha-Thai; it has deu-Latn"),
        ({"method": "procrustes", "languages": ("eng-Latn",)}, DataError, "has text in the pivot only"),
        ({"method": "procrustes", "params": (("pivot", "tur-Latn"),)}, LanguageError, "no tur-Latn"),
        ({"params": (("nonsense", 1),)}, AlignmentError, "centered has no nonsense"),
        ({"method": "lir", "params": (("k", "three"),)}, AlignmentError, "k='three'; it must be a valid integer"),
        ({"method": "lir", "params": (("k", 17),)}, AlignmentError, "k=17 directions"),
        ({"method": "affine", "params": (("ridge", 0),), "limit": 10}, AlignmentError, "10 pairs do not determine"),
    ],
)
def test_refusals(text, planted, change, error, match):
    with pytest.raises(error, match=match):
        fitting.fit(dataclasses.replace(spec("centered", text), **change), planted().encode)


def test_parallel_methods_refuse_monolingual_text(workdir, planted):
    folder = workdir / "data" / "lingua_sentences" / "sentences"
    folder.mkdir(parents=True)
    for code in ("de", "en"):
        (folder / f"{code}.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"needs translations; 'lingua' has none"):
        fitting.fit(spec("procrustes", corpora=("lingua",)), planted().encode)


def test_rows_that_do_not_align_are_refused(text, planted):
    (text / "fra.txt").write_text("fra 1\n")
    with pytest.raises(DataError, match="fra-Latn has 1 row and eng-Latn 40"):
        fitting.fit(spec("affine", text), planted().encode)


@pytest.mark.parametrize("method", ["centered", "lsar", "procrustes"])
def test_a_fit_is_done_once(text, planted, method):
    raw = planted(shift={"deu": np.ones(16), "fra": np.arange(16)})
    first = fitting.fit_cached(spec(method, text), "backbone", raw.encode)
    raw.encoded.clear()
    again = fitting.fit_cached(spec(method, text), "backbone", raw.encode)
    assert not raw.encoded
    assert again.fingerprint() == first.fingerprint()
    fitting.fit_cached(spec(method, text), "another backbone", raw.encode)
    assert raw.encoded


def test_a_fit_that_two_want_at_once_is_done_once(text, planted):
    raw, begun, found = planted(), threading.Event(), []

    def encode(texts, language, *, progress=None):
        begun.set()
        time.sleep(0.1)  # the other comes in the middle of it
        return raw.encode(texts)

    def run():
        found.append(fitting.fit_cached(spec("centered", text), "backbone", encode))

    first = threading.Thread(target=run)
    first.start()
    begun.wait()
    run()
    first.join()
    assert set(raw.encoded.values()) == {1}
    assert found[0].fingerprint() == found[1].fingerprint()


def test_a_damaged_fit_is_done_again(text, planted, workdir):
    raw = planted()
    first = fitting.fit_cached(spec("centered", text), "backbone", raw.encode)
    (weights,) = (workdir / "cache" / "alignments").rglob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-4])
    assert fitting.fit_cached(spec("centered", text), "backbone", raw.encode).fingerprint() == first.fingerprint()


def test_the_fingerprint_follows_the_text_and_not_its_place(text, workdir):
    base = fitting.fingerprint(spec("centered", text))
    moved = shutil.copytree(text, workdir / "moved")
    assert fitting.fingerprint(spec("centered", moved)) == base
    changed = [
        spec("lsar", text),
        spec("centered", text, limit=7),
        spec("centered", text, languages=("deu-Latn",)),
        spec("centered", text, text),
        spec("centered", text, params=(("k", 1),)),
    ]
    (moved / "fra.txt").write_text((text / "fra.txt").read_text().replace("fra 7\n", "fra 8\n"))
    assert len({base, *map(fitting.fingerprint, [*changed, spec("centered", moved)])}) == 7
    only_german = {fitting.fingerprint(spec("centered", one, languages=("deu-Latn",))) for one in (text, moved)}
    assert len(only_german) == 1


def test_a_cache_that_cannot_be_written_keeps_no_fit_and_says_so(text, planted, workdir, monkeypatch, caplog):
    (workdir / "file").write_text("")
    monkeypatch.setenv("XALIGN_CACHE", str(workdir / "file" / "cache"))
    assert fitting.fit_cached(spec("centered", text), "backbone", planted().encode).dim_ == 16
    assert "The fit is not cached" in caplog.text


@pytest.mark.parametrize("corpus", [{"en": ["a"], "de": ["b"]}, Path("own"), [1], 3])
def test_a_corpus_that_is_no_name_is_refused(corpus):
    for method in ("centered", "auto"):
        with pytest.raises(DataError, match="own:FILE"):
            fit(method, backbone="all-MiniLM-L6-v2", corpus=corpus)


@pytest.mark.parametrize("corpus", ["", " ", [], ["gettext:fit", ""]])
def test_an_empty_corpus_is_refused(corpus):
    for method in ("centered", "auto"):
        with pytest.raises(DataError, match="--corpus is empty"):
            fit(method, backbone="all-MiniLM-L6-v2", corpus=corpus)
    with pytest.raises(DataError, match="--corpus is empty"):
        api.recommend(backbone="all-MiniLM-L6-v2", corpus=corpus)


def test_a_model_that_is_no_name_is_refused():
    with pytest.raises(ModelError, match="not by a value of type object"):
        fit("centered", backbone=object(), corpus="gettext:fit")


def test_a_place_in_the_place_of_a_corpus_is_pointed_at(workdir):
    (workdir / "texts").mkdir()
    with pytest.raises(DataError, match="own:texts is your own text"):
        corpora.load("texts")
