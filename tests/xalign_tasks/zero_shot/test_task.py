"""Zero-shot tasks on made-up text in each publisher's layout: the protocol, the languages, the items, the errors."""

from __future__ import annotations

import os
from pathlib import Path

import mteb
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold, cross_val_score

from xalign_models.errors import DataError
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.evaluation.run import run_one
from xalign_models.models import fitting
from xalign_models.specs import AlignmentSpec
from xalign_tasks.zero_shot import AmazonReviewsZeroShot, AmazonStarsZeroShot, SIB200ZeroShot, TweetSentimentZeroShot
from xalign_tasks.zero_shot.reviews import LANGUAGES, PER_STAR
from xalign_tasks.zero_shot.sib200 import DEVTEST
from xalign_tasks.zero_shot.task import STRENGTHS, TEST, TRAIN, classifier

TURN = {
    one: np.linalg.qr(np.random.default_rng(seed).standard_normal((16, 16))).Q
    for seed, one in enumerate(("ara", "deu", "fra"))
}
SIZES = {TRAIN: range(1000, 1150), TEST: range(2000, 2040)}
WIDTH = np.random.default_rng(9).standard_normal(16)


def label(meaning: int) -> str:
    """What a linear classifier can learn of a planted vector: the side of two planes."""
    return str(int(np.digitize(np.random.default_rng(meaning).standard_normal(16) @ WIDTH, [-1.5, 1.5])))


def write_tweets(folder: Path) -> None:
    for name, language in LANGUAGES.items():
        place = folder / language
        place.mkdir(parents=True, exist_ok=True)
        for part, meanings in SIZES.items():
            (place / f"{part}_text.txt").write_text(
                "".join(f"{name[:3].replace('arb', 'ara')} {i}\n" for i in meanings)
            )
            (place / f"{part}_labels.txt").write_text("".join(f"{label(i)}\n" for i in meanings))


@pytest.fixture
def tweets(workdir):
    folder = workdir / "data" / "xlmt_sentiment" / "sentiment"
    write_tweets(folder)
    return folder


@pytest.fixture
def fitted(workdir, planted):
    def fit(raw, languages):
        text = planted.write(workdir / f"fit-{len(languages)}", range(60), languages)
        spec = AlignmentSpec("procrustes", "procrustes", corpora=(f"own:{text}",))
        return fitting.fit(spec, lambda texts, language, progress=None: raw.encode(texts))

    return fit


SPOKEN = ("ara", "deu", "eng", "fra", "hin", "ita", "por", "spa")


def scores(encoder, **kwargs):
    return TweetSentimentZeroShot().evaluate(encoder, encode_kwargs={}, **kwargs)


def test_the_classifier_is_the_papers():
    """Z-scores, then the strength that 5-fold cross-validation on the training text likes best."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 5)) * [1, 10, 0.1, 3, 0] + 7  # one column is constant
    y = (x[:, 0] + x[:, 1] / 10 + rng.standard_normal(120) > 7.7).astype(int)
    z = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    folds = StratifiedKFold(5)
    accuracy = [cross_val_score(LogisticRegression(C=c), z, y, cv=folds).mean() for c in STRENGTHS]
    assert np.allclose(np.log10(STRENGTHS), np.linspace(-4, 4, 10))
    ours = classifier().fit(x, y)
    assert np.isclose(ours[-1].C_, STRENGTHS[np.argmax(accuracy)]).all()
    best = LogisticRegression(C=STRENGTHS[np.argmax(accuracy)]).fit(z, y)
    np.testing.assert_allclose(ours.predict_proba(x), best.predict_proba(z), atol=2e-3)


def test_english_is_learned_and_every_language_tested(tweets, planted, make_encoder, tmp_path):
    raw = planted(turn={"deu": TURN["deu"]})
    encoder, task = make_encoder(raw), TweetSentimentZeroShot()
    seen, inner = set(), encoder.encode_texts

    def spy(texts, languages, *args):
        seen.update(zip((text[:3] for text in texts), languages, strict=True))
        return inner(texts, languages, *args)

    encoder.encode_texts = spy
    (result,) = mteb.evaluate(
        encoder, task, cache=SafeResultCache(tmp_path), prediction_folder=tmp_path, show_progress_bar=False
    ).task_results
    assert seen == {(one[:3].replace("arb", "ara"), one) for one in LANGUAGES}
    assert set(raw.encoded.values()) == {1}
    assert {int(text.split()[1]) for text in raw.encoded if text.startswith("eng")} == {*SIZES[TRAIN], *SIZES[TEST]}
    assert {int(text.split()[1]) for text in raw.encoded if text.startswith("ita")} == {*SIZES[TEST]}
    assert result.dataset_revision == task.metadata.revision
    assert result.dataset_revision.startswith("local-")

    found = {one["hf_subset"]: one for one in result.scores["test"]}
    assert found.keys() == LANGUAGES.keys()
    truth = [label(i) for i in SIZES[TEST]]
    with np.load(tmp_path / "TweetSentimentZeroShot.npz") as items:
        for language, of_language in found.items():
            predicted, true = items[language].T
            assert true.tolist() == truth
            assert of_language["main_score"] == of_language["accuracy"] == pytest.approx(np.mean(predicted == true))
            f1 = f1_score(true, predicted, average="macro")
            assert of_language["macro_f1"] == pytest.approx(f1, abs=1e-6)
            assert (of_language["accuracy"] > 0.85) == (language != "deu-Latn")  # which is turned away
    assert scores(make_encoder(raw))["ita-Latn"] == pytest.approx(
        {key: found["ita-Latn"][key] for key in ("accuracy", "macro_f1", "main_score")}, abs=1e-6
    )  # again the same


def test_swapped_languages_cannot_hide(tweets, planted, make_encoder, fitted):
    """The alignment undoes each language's own turn, so that text under another language's name is lost."""
    raw = planted(turn=TURN)
    encoder = make_encoder(raw, fitted(raw, SPOKEN))
    right = scores(encoder)
    assert min(one["accuracy"] for one in right.values()) > 0.85
    (tweets / "german").rename(tweets / "x")
    (tweets / "french").rename(tweets / "german")
    (tweets / "x").rename(tweets / "french")
    wrong = scores(encoder)
    for language in ("deu-Latn", "fra-Latn"):
        assert wrong[language]["accuracy"] < right[language]["accuracy"] - 0.2
    assert wrong["spa-Latn"] == right["spa-Latn"]


def test_a_language_that_a_model_lacks_is_left_out_but_english_is_needed(
    tweets, planted, make_encoder, fitted, tmp_path
):
    raw = planted()
    encoder = make_encoder(raw, fitted(raw, ("deu", "eng", "fra")))
    outcome = run_one(encoder, TweetSentimentZeroShot(), SafeResultCache(tmp_path), items=False)
    assert {one["hf_subset"] for one in outcome.result.scores["test"]} == {"deu-Latn", "eng-Latn", "fra-Latn"}
    assert set(outcome.unfitted) == LANGUAGES.keys() - {"deu-Latn", "eng-Latn", "fra-Latn"}
    encoder.languages = frozenset({"deu-Latn"})
    outcome = run_one(encoder, TweetSentimentZeroShot(), SafeResultCache(tmp_path / "2"), items=False)
    assert outcome.result is None
    assert "eng-Latn" in outcome.error


def test_a_narrowed_run_reads_the_chosen_languages_and_english(tweets, planted, make_encoder):
    raw, task = planted(), TweetSentimentZeroShot()
    task.hf_subsets = ["spa-Latn"]
    assert set(task.evaluate(make_encoder(raw), encode_kwargs={})) == {"spa-Latn"}
    assert {text[:3] for text in raw.encoded} == {"eng", "spa"}


def test_tweets_that_lack_something_are_refused(tweets, workdir, monkeypatch):
    (tweets / "german" / "test_labels.txt").write_text("1\n")
    with pytest.raises(DataError, match=r"test_text.txt has 40 lines and .*test_labels.txt has 1"):
        TweetSentimentZeroShot().load_data()
    (tweets / "german" / "test_labels.txt").unlink()
    with pytest.raises(DataError, match=r"test_labels.txt is missing; get it from github.com/cardiffnlp/xlm-t"):
        TweetSentimentZeroShot().load_data()
    monkeypatch.setenv("XALIGN_DATA", str(workdir / "cache"))
    (workdir / "cache").mkdir(exist_ok=True)
    with pytest.raises(DataError, match=r"XALIGN_DATA .* xlmt_sentiment/.* The hub's copy is unavailable"):
        TweetSentimentZeroShot().load_data()


def hub(expected, tables):
    def load(path, name, split, revision):
        assert path == expected
        assert len(revision) == 40
        return tables[name, split]

    return load


def test_without_files_the_hub_is_asked(workdir, monkeypatch):
    tables = {
        (name, part): {"text": [f"{name} {part}"], "label": [1]}
        for name in LANGUAGES.values()
        for part in (TRAIN, TEST)
    }
    monkeypatch.setattr("datasets.load_dataset", hub("mteb/tweet_sentiment_multilingual", tables))
    task = TweetSentimentZeroShot()
    task.load_data()
    assert task.dataset["deu-Latn"] == {TEST: (["german test"], ["1"])}
    assert task.dataset["eng-Latn"] == {TEST: (["english test"], ["1"]), TRAIN: (["english train"], ["1"])}
    assert task.metadata.revision == TweetSentimentZeroShot.metadata.revision


@pytest.fixture
def sib(workdir):
    root = workdir / "data" / "flores200_dataset"
    for part in ("dev_sib", "devtest"):
        (root / part).mkdir(parents=True)
    (root / "sib_labels.tsv").write_text(
        f"index_id\tsplit\tcategory\n3\ttrain\ttravel\n5\ttest\tsports\n{DEVTEST}\ttest\ttravel\n"
        f"{DEVTEST + 2}\ttrain\tsports\n{DEVTEST + 1}\tdev\tsports\n"
    )
    for code in ("eng_Latn", "deu_Latn", "nqo_Nkoo"):
        (root / "dev_sib" / f"{code}.tsv").write_text(f'3\t{code} "three"\n5\t{code} five\n')
        if code != "nqo_Nkoo":
            (root / "devtest" / f"{code}.devtest").write_text("".join(f"{code} line {i}\n" for i in range(4)))
    return root


def test_sib200_takes_its_sentences_from_both_parts_of_flores(sib):
    task = SIB200ZeroShot()
    task.hf_subsets = ["deu-Latn", "eng-Latn"]
    task.load_data()
    assert task.dataset["eng-Latn"][TRAIN] == (['eng_Latn "three"', "eng_Latn line 2"], ["travel", "sports"])
    assert task.dataset["deu-Latn"] == {TEST: (["deu_Latn five", "deu_Latn line 0"], ["sports", "travel"])}
    task = SIB200ZeroShot()
    task.hf_subsets = ["fra-Latn"]
    with pytest.raises(DataError, match="SIB200ZeroShot has no files of fra-Latn; it has deu-Latn, eng-Latn"):
        task.load_data()
    (sib / "dev_sib" / "eng_Latn.tsv").write_text("5\tfive\n")
    task.hf_subsets = ["eng-Latn"]
    with pytest.raises(DataError, match=r"SIB-200: sentence 3 of .*sib_labels.tsv is neither in .*eng_Latn.tsv nor"):
        task.load_data()


def test_sib200_on_the_hub(workdir, monkeypatch):
    tables = {("eng_Latn", part): {"text": [part], "category": ["travel"]} for part in (TRAIN, TEST)}
    monkeypatch.setattr("datasets.load_dataset", hub("mteb/sib200", tables))
    task = SIB200ZeroShot()
    task.hf_subsets = ["eng-Latn"]
    task.load_data()
    assert task.dataset["eng-Latn"] == {part: ([part], ["travel"]) for part in (TRAIN, TEST)}


def review(rating, text):
    return f"<item><rating>{rating}</rating><summary>So &amp; so</summary><text>{text}</text></item>"


def test_amazon_reviews_are_good_or_bad(workdir):
    root = workdir / "data" / "cls-acl10-unprocessed"
    for folder in ("en", "de", "fr", "jp"):
        for category in ("books", "dvd", "music"):
            for part in (TRAIN, TEST):
                path = root / folder / category / f"{part}.review"
                path.parent.mkdir(parents=True, exist_ok=True)
                rows = [review(rating, f"{folder} {category} {part} {rating}") for rating in (1.0, 3.0, 5.0)]
                path.write_text(f"<items>{''.join(rows)}</items>")
    task = AmazonReviewsZeroShot()
    task.load_data()
    assert set(task.dataset) == {"eng-Latn", "deu-Latn", "fra-Latn", "jpn-Jpan"}
    texts, labels = task.dataset["jpn-Jpan"][TEST]
    assert labels == ["bad", "good"] * 3
    assert texts[:3] == ["So & so jp books test 1.0", "So & so jp books test 5.0", "So & so jp dvd test 1.0"]
    assert len(task.dataset["eng-Latn"][TRAIN][0]) == 6
    path.write_text("<items><item>")
    with pytest.raises(DataError, match=r"test.review is not in the layout of Webis-CLS-10"):
        AmazonReviewsZeroShot().load_data()
    path.unlink()
    with pytest.raises(DataError, match=r"test.review is missing; get it from Webis-CLS-10"):
        AmazonReviewsZeroShot().load_data()


def test_reviews_that_are_nowhere_are_said_to_be(workdir):
    with pytest.raises(DataError, match=r"set XALIGN_DATA to a folder that has cls-acl10-unprocessed/"):
        AmazonReviewsZeroShot().load_data()
    with pytest.raises(DataError, match=r"mteb/AmazonReviewsClassification.* The hub's copy is unavailable too"):
        AmazonStarsZeroShot().load_data()


def test_the_stars_are_learned_from_the_first_reviews_of_each(workdir, monkeypatch):
    many = [*range(PER_STAR + 5), *range(3)]
    tables = {
        (code, part): {"text": [f"{part} {i}" for i in many], "label": [0] * (PER_STAR + 5) + [1] * 3}
        for code in "en de es fr ja zh".split()
        for part in (TRAIN, TEST)
    }
    monkeypatch.setattr("datasets.load_dataset", hub("mteb/AmazonReviewsClassification", tables))
    task = AmazonStarsZeroShot()
    task.load_data()
    texts, labels = task.dataset["eng-Latn"][TRAIN]
    assert (labels.count("0"), labels.count("1")) == (PER_STAR, 3)
    assert texts[:2] == ["train 0", "train 1"]
    assert len(task.dataset["zho-Hans"][TEST][0]) == len(many)


@pytest.mark.realdata
@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "flores200_dataset" / "sib_labels.tsv").is_file(),
    reason="XALIGN_DATA has no SIB-200",
)
def test_the_published_sizes_of_sib200():
    task = SIB200ZeroShot()
    task.load_data()
    assert len(task.hf_subsets) == 204
    assert len(set(task.dataset["eng-Latn"][TRAIN][1])) == 7
    assert len(task.dataset["eng-Latn"][TRAIN][0]) == 701
    assert {len(task.dataset[one][TEST][0]) for one in task.hf_subsets} == {204}


@pytest.mark.realdata
@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "xlmt_sentiment").is_dir(),
    reason="XALIGN_DATA has no xlmt_sentiment",
)
def test_the_published_sizes_of_the_tweets():
    task = TweetSentimentZeroShot()
    task.load_data()
    assert len(task.dataset["eng-Latn"][TRAIN][0]) == 1839
    assert {len(task.dataset[one][TEST][0]) for one in task.hf_subsets} == {870}
