"""What a training is read by: a planted model, chance, and rows that are set aside."""

from __future__ import annotations

import math

import pytest
import torch

from xalign_models.errors import DataError
from xalign_models.training.objective import Retrieval, set_aside


class Planted(torch.nn.Module):
    """A text ``q7`` or ``p7`` is direction 7 of ``count``, all of them moved by ``shift``."""

    device = torch.device("cpu")

    def __init__(self, count, shift=0.0, wrong=()):
        super().__init__()
        self.count, self.shift, self.wrong = count, shift, wrong

    def preprocess(self, texts, prompt=None):
        return {"place": torch.tensor([int(text[1:]) + (text in self.wrong) for text in texts]), "modality": "text"}

    def forward(self, features):
        return {"sentence_embedding": torch.eye(self.count)[features["place"] % self.count] + self.shift}


PAIRS = [(f"q{i}", f"p{i}") for i in range(10)]


def test_retrieval_of_a_planted_model():
    found = Retrieval(Planted(10, wrong=("q3", "q4")), PAIRS, tau=0.05, batch_size=3).measure()
    assert found["accuracy"] == pytest.approx(0.8) and found["chance"] == 0.1
    assert found["chance_loss"] == pytest.approx(math.log(10))
    assert found["mean_cosine"] == pytest.approx(0, abs=1e-6)
    assert found["held_out_loss"] == pytest.approx(0.2 * 20, abs=1e-3)  # two pairs lose a cosine of 1 at 1 / tau
    assert Retrieval(Planted(10, shift=5.0), PAIRS, 0.05).measure()["mean_cosine"] > 0.9


def test_every_query_counts_and_finds_the_passage_it_shares():
    shared = [*PAIRS, ("q0", "p0"), ("q12", "p2"), ("q5", "p4")]  # of which the last alone is wrong
    found = Retrieval(Planted(10), shared, tau=0.05, batch_size=3).measure()
    assert found["accuracy"] == pytest.approx(12 / 13) and found["chance"] == 0.1
    assert found["held_out_loss"] == pytest.approx(20 / 13, abs=1e-3)
    assert found["mean_cosine"] == pytest.approx(0, abs=1e-6)


def test_passages_count_once_and_one_alone_measures_nothing():
    assert Retrieval(Planted(10), [*PAIRS, ("q1", "p0")], 0.05).measure()["chance"] == 0.1
    assert Retrieval(Planted(10), PAIRS[:1], 0.05).measure() == {}


@pytest.mark.parametrize(
    ("before", "after", "learnt"), [(0.1, 0.8, True), (0.8, 0.8, False), (0.9, 0.8, False), (0.0, 0.1, False)]
)
def test_what_is_no_better_than_before_or_than_chance_was_not_learnt(before, after, learnt):
    said = {"chance": 0.1, "held_out_loss": 2.0, "chance_loss": 2.3}
    verdict = Retrieval(Planted(10), PAIRS, 0.05).verdict({**said, "accuracy": before}, {**said, "accuracy": after})
    assert verdict.learnt == learnt
    assert verdict.text.endswith(": nothing was learnt.") == (not learnt)
    assert f"{after:.1%} ({before:.1%} before, chance 10.0%)" in verdict.text


@pytest.mark.parametrize("count", [10, 16, 128])
def test_guessing_is_seldom_called_learnt(count):
    method = Retrieval(Planted(count), [(f"q{i}", f"p{i}") for i in range(count)], 0.05)
    said = {"accuracy": 0.0, "chance": 1 / count, "held_out_loss": 2.0, "chance_loss": 2.3}
    hits = range(count + 1)
    learnt = [hit for hit in hits if method.verdict(said, {**said, "accuracy": hit / count}).learnt]
    wrong = sum(math.comb(count, hit) * (count - 1) ** (count - hit) / count**count for hit in learnt)
    assert learnt == [*hits][-len(learnt) :]
    assert 0 < wrong < 0.025


def test_rows_are_set_aside_with_their_texts():
    rows = [(f"a{i}", f"b{i % 5}", "task") for i in range(20)]
    train, held_out = set_aside(rows, 0.1)
    assert held_out == [0, 10]
    assert train == [i for i in range(20) if i % 5]  # of the same b as rows 0 and 10
    assert set_aside(rows, 0.04) == (list(range(20)), [])
    assert len(set_aside([(str(i), f"{i} b") for i in range(100)], 0.9, most=7)[1]) == 7
    with pytest.raises(DataError, match=r"^held_out 0\.9: every row shares a text with a held-out one"):
        set_aside([(str(i), "") for i in range(100)], 0.9)
