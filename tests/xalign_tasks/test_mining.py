"""Mining: xsim by LASER's definition written out, planted errors of xsim++, F1 by scikit-learn's, thresholds apart."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from xalign_models.ranking.ranks import normalise
from xalign_tasks import mining
from xalign_tasks.mining import KINDS, FloresMining, NTREXMining, found_own, mining_f1
from xalign_tasks.perturbations import perturbed

ENGLISH = [
    f"In {1900 + i} the river was crossed by {name}, and Anna knew {other}."
    for i, (name, other) in enumerate(
        zip(["Peter", "Mary", "Paul"] * 8, ["Berlin", "Rome", "Oslo", "Lima"] * 6, strict=True)
    )
]


def noisy(rng, n, d=24, noise=1.1):
    x = rng.standard_normal((n, d))
    return normalise(x + rng.standard_normal(d)), normalise(x + noise * rng.standard_normal((n, d)))


def xsim_by_definition(x, y, k=4):
    """Each source's best of its k nearest by cosine, where the margin divides by the mean of both neighbourhoods."""
    cosines = [[float(a @ b) for b in y] for a in x]
    columns = list(zip(*cosines, strict=True))
    errors = 0
    for i, row in enumerate(cosines):
        nearest = sorted(range(len(y)), key=lambda j: -row[j])[:k]
        r_x = sum(row[j] for j in nearest) / k
        margin = {j: row[j] / ((r_x + sum(sorted(columns[j], reverse=True)[:k]) / k) / 2) for j in nearest}
        errors += max(margin, key=margin.get) != i
    return errors / len(x)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("further", [0, 40])
def test_xsim_is_lasers(seed, further):
    rng = np.random.default_rng(seed)
    x, y = noisy(rng, 60)
    pool = np.concatenate([y, normalise(rng.standard_normal((further, y.shape[1])) + y[:further])]) if further else y
    expected = xsim_by_definition(x.astype(float), pool.astype(float))
    assert 0.1 < expected < 0.9
    assert 1 - found_own(x, pool)[0].mean() == pytest.approx(expected)


def test_a_tie_counts_against_the_model():
    x = normalise(np.random.default_rng(0).standard_normal((8, 5)))
    assert found_own(x, x)[0].all()
    found, rival = found_own(x, np.concatenate([x, x[:2]]))
    assert found.tolist() == [False, False] + [True] * 6
    assert rival[:2].tolist() == [8, 9]


def f1_by_definition(x, y):
    """All pairs of a half as labelled examples, predicted where each is the other's best above the threshold."""
    halves = []
    for half in (0, 1):
        rows = [i for i in range(len(x)) if i % 6 in (half, half + 2)]
        columns = [j for j in range(len(y)) if j % 6 in (half, half + 4)]
        margin = mining.margins(x[rows], y[columns])
        truth = np.array([[i == j for j in columns] for i in rows])
        best = (margin == margin.max(axis=1, keepdims=True)) & (margin == margin.max(axis=0))
        halves.append((margin, best, truth))
    found = []
    for (margin, best, truth), (margin_there, best_there, truth_there) in (halves, halves[::-1]):
        scored = {t: f1_score(truth.ravel(), (best & (margin >= t)).ravel()) for t in margin[best]}
        last = max(scored, key=lambda t: (scored[t], t))
        threshold = (last + max((t for t in margin[best] if t < last), default=last)) / 2
        found.append(f1_score(truth_there.ravel(), (best_there & (margin_there >= threshold)).ravel()))
    return np.mean(found)


@pytest.mark.parametrize("seed", range(3))
def test_mining_f1_is_scikit_learns(seed):
    x, y = noisy(np.random.default_rng(seed), 241, noise=0.9)
    expected = f1_by_definition(x, y)
    assert 0.3 < expected < 0.95
    assert mining_f1(x, y) == pytest.approx(expected)


def test_the_threshold_turns_unpaired_sentences_away():
    """Every sentence without a partner has some best other; a space that knows their meaning rejects it."""
    x = normalise(np.random.default_rng(0).standard_normal((300, 64)))
    assert mining_f1(x, x) == 1
    assert mining_f1(x, np.roll(x, 1, axis=0)) < 0.1


def write(root, languages=("deu", "hin"), english=ENGLISH):
    folder = root / "data" / "flores200_dataset" / "devtest"
    folder.mkdir(parents=True)
    scripts = {"deu": "deu_Latn", "hin": "hin_Deva"}
    for code in languages:
        (folder / f"{scripts[code]}.devtest").write_text("".join(f"{code} {i}\n" for i in range(len(english))))
    (folder / "eng_Latn.devtest").write_text("".join(f"{text}\n" for text in english))


class Reads:
    """German has the vector of its English; Hindi that of the form with another number; forms lie around their text."""

    def __init__(self, encoder):
        rng = np.random.default_rng(0)
        self.vectors = dict(zip(ENGLISH, rng.standard_normal((len(ENGLISH), 256)), strict=True))
        for kind in KINDS:
            for text, form in zip(ENGLISH, perturbed(ENGLISH, kind), strict=True):
                if form:
                    self.vectors[form] = self.vectors[text] + 2 * rng.standard_normal(256)
        numbers = perturbed(ENGLISH, "numbers")
        for i, text in enumerate(ENGLISH):
            self.vectors[f"deu {i}"], self.vectors[f"hin {i}"] = self.vectors[text], self.vectors[numbers[i]]
        self.encoded: list[str] = []
        encoder.encode_texts = self.encode_texts

    def encode_texts(self, texts, languages, *_):
        self.encoded += texts
        return np.stack([self.vectors[text] for text in texts]).astype(np.float32)


def test_changed_sentences_mislead_a_model_that_does_not_read_numbers(workdir, planted, make_encoder, tmp_path):
    write(workdir)
    encoder = make_encoder(planted())
    reads, task = Reads(encoder), FloresMining()
    found = task.evaluate(
        encoder, "devtest", ["deu_Latn-eng_Latn", "hin_Deva-eng_Latn"], encode_kwargs={}, prediction_folder=tmp_path
    )
    german, hindi = found["deu_Latn-eng_Latn"], found["hin_Deva-eng_Latn"]
    assert german["xsim"] == german["xsim_pp"] == 0
    assert german["main_score"] == german["one_minus_xsim_pp"] == german["mining_f1"] == 1
    assert hindi["xsim"] == 0
    assert hindi["xsim_pp"] == hindi["xsim_pp_numbers"] == 1
    assert hindi["main_score"] == hindi["xsim_pp_names"] == hindi["xsim_pp_negation"] == 0
    with np.load(tmp_path / "FloresMining.npz") as items:
        assert {subset: items[subset].mean() for subset in items.files} == {
            subset: of_subset["main_score"] for subset, of_subset in found.items()
        }
    assert len(reads.encoded) == len(set(reads.encoded))  # every text once


def test_subsets_end_in_english():
    assert len(FloresMining.metadata.hf_subsets) == 203
    assert {subset.split("-")[1] for subset in NTREXMining.metadata.hf_subsets} == {"eng_Latn"}


@pytest.mark.realdata
@pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "flores200_dataset").is_dir(),
    reason="XALIGN_DATA has no FLORES-200",
)
def test_most_sentences_of_flores_can_be_changed():
    english = FloresMining().corpus.texts("eng-Latn")
    counts = {kind: sum(form is not None for form in perturbed(english, kind)) for kind in KINDS}
    assert min(counts.values()) > 250
    assert len(english) < sum(counts.values()) < 3 * len(english)
