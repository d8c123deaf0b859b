"""Precision tasks: what a planted rotation scores, what is encoded, narrowed, resumed and kept item by item."""

from __future__ import annotations

from unittest.mock import Mock

import mteb
import numpy as np
import pytest
import torch

from xalign_models.errors import DataError, ModelError
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.models import fitting
from xalign_models.ranking.neighbours import NAMES
from xalign_models.ranking.ranks import precision_at
from xalign_models.specs import AlignmentSpec
from xalign_tasks.own_parallel import OwnParallel
from xalign_tasks.parallel import FloresPrecision
from xalign_tasks.precision import pair_subsets

TURN = {
    one: np.linalg.qr(np.random.default_rng(seed).standard_normal((16, 16))).Q
    for seed, one in enumerate(("deu", "fra"))
}
PAIRS = {f"{a}_Latn-{b}_Latn" for a in ("deu", "eng", "fra") for b in ("deu", "eng", "fra") if a != b}


def _revision(task):
    """The data revision that a task takes of the text at hand."""
    task.identify()
    return task.metadata.revision


@pytest.fixture
def task(workdir, planted):
    return OwnParallel(path=planted.write(workdir / "test", range(1000, 1300)))


@pytest.fixture
def fitted(workdir, planted):
    text = planted.write(workdir / "fit", range(40))
    return fitting.fit(AlignmentSpec("procrustes", "procrustes", corpora=(f"own:{text}",)), planted(turn=TURN).encode)


def scores(task, encoder, subsets=None, folder=None):
    return task.evaluate(encoder, subsets_to_run=subsets, encode_kwargs={"batch_size": 32}, prediction_folder=folder)


def test_a_planted_rotation_scores_chance_before_and_one_after(task, planted, make_encoder, fitted):
    raw = planted(turn=TURN)
    before, after = scores(task, make_encoder(raw)), scores(task, make_encoder(raw, fitted))
    assert set(before) == set(after) == PAIRS
    for subset in PAIRS:
        assert before[subset]["precision_at_1"] < 5 / 300
        assert before[subset]["precision_at_10"] < 25 / 300
        assert after[subset].keys() == before[subset].keys() >= set(NAMES)
        perfect = {*after[subset]} - {"hubness_skewness", "never_found"}
        assert {name: after[subset][name] for name in perfect} == dict.fromkeys(perfect, 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_whose_vectors_are_not_finite_is_refused(task, planted, make_encoder, value):
    encoder = make_encoder(planted(shift={"deu": np.array([value, *[0] * 15])}))
    with pytest.raises(ModelError, match="'deu 1000' is not finite"):
        scores(task, encoder)


class Foreign:
    """An encoder of another library: vectors by a planted one, in the form that ``change`` gives them."""

    def __init__(self, raw, change):
        self.raw, self.change = raw, change

    def encode(self, inputs, **kwargs):
        return self.change(self.raw.encode([text for batch in inputs for text in batch["text"]]))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda rows: rows[:-1], r"vectors of shape \(299, 16\); return one per text \(300\)"),
        (lambda rows: rows[:, 0], r"shape \(300,\)"),
        (lambda rows: None, r"shape \(\)"),
        (lambda rows: [*rows[:-1], rows[0, 1:]], "not a matrix of numbers: "),
        (lambda rows: ["a"] * len(rows), "not a matrix of numbers: "),
        (lambda rows: [torch.zeros(2, device="meta")] * len(rows), "not a matrix of numbers: "),
    ],
)
def test_what_is_not_a_vector_per_text_is_refused(task, planted, change, why):
    with pytest.raises(ModelError, match=why) as caught:
        scores(task, Foreign(planted(), change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: torch.tensor(rows, requires_grad=True),
        lambda rows: torch.tensor(rows).to_sparse(),
        lambda rows: torch.tensor(rows).to_sparse_csr(),
        lambda rows: [*torch.tensor(rows, dtype=torch.bfloat16)],
        lambda rows: rows.tolist(),
    ],
)
def test_vectors_of_any_library_are_scored(task, planted, change):
    found = scores(task, Foreign(planted(), change))
    assert {round(found[subset]["precision_at_1"], 2) for subset in PAIRS} == {1.0}


def test_each_language_is_encoded_once_for_all_pairs(task, planted, make_encoder):
    raw = planted(turn=TURN)
    scores(task, make_encoder(raw))
    assert set(raw.encoded.values()) == {1}
    assert len(raw.encoded) == 3 * 300
    assert len(raw.prompts) == 3


def test_only_the_chosen_pairs_are_encoded_and_scored(task, planted, make_encoder):
    raw = planted()
    assert set(scores(task, make_encoder(raw), ["deu_Latn-eng_Latn"])) == {"deu_Latn-eng_Latn"}
    assert {text[:3] for text in raw.encoded} == {"deu", "eng"}
    task.hf_subsets = ["fra_Latn-eng_Latn", "eng_Latn-fra_Latn"]
    assert set(scores(task, make_encoder(raw))) == set(task.hf_subsets)


def test_directions_differ_where_one_side_repeats_itself(workdir, planted, make_encoder):
    folder = planted.write(workdir / "own", range(10), ("deu", "eng"))
    (folder / "eng.txt").write_text("eng 0\n" * 2 + "".join(f"eng {i}\n" for i in range(2, 10)))
    found = scores(OwnParallel(path=folder), make_encoder(planted()))
    # deu 0 finds eng 0 twice, a tie; deu 1 finds none; to the index of German both English rows are deu 0
    assert found["deu_Latn-eng_Latn"]["precision_at_1"] == 8 / 10
    assert found["eng_Latn-deu_Latn"]["precision_at_1"] == 9 / 10


def test_items_reproduce_the_scores_and_are_kept(task, planted, make_encoder, tmp_path):
    encoder = make_encoder(planted(turn={"deu": TURN["deu"]}))
    first = scores(task, encoder, ["eng_Latn-fra_Latn"], tmp_path / "items")
    rest = scores(task, encoder, sorted(PAIRS - first.keys()), tmp_path / "items")
    with np.load(tmp_path / "items" / "OwnParallel.npz") as items:
        assert set(items.files) == PAIRS
        for subset, expected in {**first, **rest}.items():
            assert items[subset].shape == (300,)
            assert items[subset].min() >= 1
            assert precision_at(items[subset]).items() <= expected.items()


def test_a_second_run_adds_what_is_missing(task, planted, make_encoder, tmp_path):
    raw, cache = planted(), SafeResultCache(tmp_path)
    encoder = make_encoder(raw)

    def run(subsets):
        raw.encoded.clear()
        task.hf_subsets = subsets
        (result,) = mteb.evaluate(encoder, task, cache=cache, show_progress_bar=False).task_results
        return {one["hf_subset"] for one in result.scores["test"]}, {text[:3] for text in raw.encoded}

    small = ["deu_Latn-eng_Latn", "eng_Latn-deu_Latn"]
    assert run(small) == (set(small), {"deu", "eng"})
    assert run([*small, "fra_Latn-eng_Latn"]) == ({*small, "fra_Latn-eng_Latn"}, {"fra", "eng"})
    assert run(["deu_Latn-eng_Latn"])[1] == set()


def test_an_interrupted_run_goes_on_at_the_next_pair(task, planted, make_encoder, tmp_path, monkeypatch):
    from xalign_models.ranking import pairs as mining

    encoder = make_encoder(planted(turn=TURN))
    expected = scores(task, encoder)
    seen = []

    def ranked(a, b):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(inner(a, b))
        return seen[-1]

    inner = mining.measured_ranks
    monkeypatch.setattr(mining, "measured_ranks", ranked)
    with pytest.raises(KeyboardInterrupt):
        scores(task, encoder, folder=tmp_path / "items")
    assert sorted(path.name for path in (tmp_path / "items").iterdir()) == [
        ".OwnParallel.ranks",
        ".OwnParallel.ranks.lock",
    ]
    seen.clear()
    assert scores(task, encoder, folder=tmp_path / "items") == expected
    assert len(seen) == 1
    assert [path.name for path in (tmp_path / "items").iterdir()] == ["OwnParallel.npz"]
    with np.load(tmp_path / "items" / "OwnParallel.npz") as items:
        assert {one: precision_at(items[one])["precision_at_1"] for one in items.files} == {
            one: found["main_score"] for one, found in expected.items()
        }


def test_ranks_of_another_revision_are_not_gone_on_with(task, planted, make_encoder, tmp_path, monkeypatch):
    from xalign_tasks import base

    monkeypatch.setattr(base, "save_items", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        scores(task, make_encoder(planted(turn=TURN), revision="1"), folder=tmp_path)
    monkeypatch.undo()
    other = make_encoder(planted(), revision="2")
    assert scores(task, other, folder=tmp_path) == scores(task, other)


def test_the_languages_reach_the_encoder(task, planted, make_encoder, fitted):
    encoder = make_encoder(planted(turn=TURN), fitted)
    seen = {}
    inner = encoder.encode_texts

    def spy(texts, languages, *args):
        seen.update(zip(texts, languages, strict=True))
        return inner(texts, languages, *args)

    encoder.encode_texts = spy
    scores(task, encoder)
    assert {(text[:3], language) for text, language in seen.items()} == {
        ("deu", "deu-Latn"),
        ("eng", "eng-Latn"),
        ("fra", "fra-Latn"),
    }


def test_pair_subsets_are_all_ordered_pairs():
    assert pair_subsets(["eng-Latn", "deu-Latn", "zho-Hans"]) == {
        "deu_Latn-eng_Latn": ["deu-Latn", "eng-Latn"],
        "deu_Latn-zho_Hans": ["deu-Latn", "zho-Hans"],
        "eng_Latn-deu_Latn": ["eng-Latn", "deu-Latn"],
        "eng_Latn-zho_Hans": ["eng-Latn", "zho-Hans"],
        "zho_Hans-deu_Latn": ["zho-Hans", "deu-Latn"],
        "zho_Hans-eng_Latn": ["zho-Hans", "eng-Latn"],
    }
    assert len(FloresPrecision.metadata.eval_langs) == 204 * 203


def test_into_and_from_by_hand():
    from xalign_models.results.languages import into_and_from

    into, leaving = into_and_from({"a-b": 0.1, "c-b": 0.3, "b-a": 0.5, "c-a": 0.7, "a-c": 0.2})
    assert into == {"a": pytest.approx(0.6), "b": pytest.approx(0.2), "c": 0.2}
    assert leaving == {"a": pytest.approx(0.15), "b": 0.5, "c": pytest.approx(0.5)}


def test_missing_data_fail_when_loaded_not_when_listed(workdir):
    task = FloresPrecision()
    assert task.metadata.revision == FloresPrecision.metadata.revision
    with pytest.raises(DataError, match=r"XALIGN_DATA.*flores200_dataset.*github.com/facebookresearch/flores"):
        task.load_data()


def test_the_revision_is_the_texts_or_the_hubs(workdir, planted, monkeypatch):
    from xalign_models.corpora.base import from_columns

    hub = from_columns("flores", ("FloresPrecision",), {"deu-Latn": ["a"], "eng-Latn": ["b"]}, "hub@1")
    monkeypatch.setattr("xalign_models.corpora.registry.from_hub", lambda *_: hub)
    task = FloresPrecision()
    task.load_data()
    assert task.metadata.revision == FloresPrecision.metadata.revision  # so that the next run finds its results
    folder = workdir / "data" / "flores200_dataset" / "devtest"
    folder.mkdir(parents=True)
    (folder / "deu_Latn.devtest").write_text("deu 1\n")
    task = FloresPrecision()
    local = _revision(task)
    assert local.startswith("local-")
    task.load_data()
    task.unload_data()
    assert task.metadata.revision == local
    (folder / "deu_Latn.devtest").write_text("deu 2\n")
    assert _revision(FloresPrecision()) != local
