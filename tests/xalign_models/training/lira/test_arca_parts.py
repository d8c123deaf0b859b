"""Pooling, adaptor, actor, reward and average: each against an independent formula, and its degenerate inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from xalign_models.errors import ModelError
from xalign_models.training.lira import actor as actors
from xalign_models.training.lira.actor import Actor, RewardWeights, policy_loss, reward, sample
from xalign_models.training.lira.adaptor import Adaptor, AlignedStreams, CollapseMonitor, Sentence, anchor_loss, cosines
from xalign_models.training.lira.lasr import averaged
from xalign_models.training.lira.network import temporal_pool


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bins", [1, 4, 8, 32])
@pytest.mark.parametrize("side", ["left", "right"])
def test_pooling_is_torchs_and_padding_does_not_leak(bins: int, side: str) -> None:
    lengths = torch.arange(1, 41)
    tokens = random(40, 45, 6)
    place = torch.arange(45)
    mask = place < lengths[:, None] if side == "right" else place >= 45 - lengths[:, None]
    tokens[~mask] = torch.nan
    pooled = temporal_pool(tokens, mask, bins)
    for row, length in enumerate(lengths):
        own = tokens[row][mask[row]]
        assert len(own) == length
        expected = nn.functional.adaptive_avg_pool1d(own.T[None], bins)[0].T
        torch.testing.assert_close(pooled[row], expected, rtol=0, atol=1e-6)


def test_pooling_without_tokens_is_zero_and_halves_are_summed_in_single() -> None:
    tokens = random(2, 5, 4).bfloat16().requires_grad_()
    mask = torch.tensor([[False] * 5, [True] * 5])
    pooled = temporal_pool(tokens, mask, 3)
    assert pooled.dtype == torch.float32
    assert bool((pooled[0] == 0).all())
    cosines(pooled.flatten(1), pooled.flatten(1)).sum().backward()
    assert tokens.grad is not None and bool(tokens.grad.isfinite().all())


def test_adaptor_maps_the_multilingual_side_alone_unless_shared() -> None:
    one = Adaptor(6, 10, AlignedStreams.ONE_SIDED, Sentence.FLATTEN)
    shared = Adaptor(6, 10, AlignedStreams.SHARED, Sentence.MEAN)
    bins, english = random(2, 4, 6), random(2, 4, 10)
    assert one.multilingual(bins).shape == shared.multilingual(bins).shape == (2, 4, 10)
    assert one.english(english) is english
    torch.testing.assert_close(shared.english(english), shared.net(english))
    assert one.pool(english).shape == (2, 40)
    torch.testing.assert_close(shared.pool(english), english.mean(dim=1))
    assert isinstance(Adaptor(10, 10, AlignedStreams.SHARED, Sentence.MEAN).project, nn.Identity)


def test_anchor_is_one_minus_cosine() -> None:
    a, b = random(5, 7), random(5, 7, seed=1)
    expected = 1 - np.mean([np.dot(x, y) / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(a, b, strict=True)])
    assert float(anchor_loss(a, b)) == pytest.approx(expected, abs=1e-6)
    assert float(anchor_loss(a, 3 * a)) == pytest.approx(0, abs=1e-6)
    assert float(anchor_loss(a[:0], b[:0])) == 0


def test_zero_vectors_have_finite_gradients() -> None:
    a = torch.zeros(2, 4, requires_grad=True)
    anchor_loss(a, random(2, 4)).backward()
    assert a.grad is not None and bool(a.grad.isfinite().all())


def trained(sides: AlignedStreams) -> CollapseMonitor:
    """The anchor loss learned on pairs that have nothing in common, measured on others."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        adaptor = Adaptor(12, 12, sides, Sentence.MEAN)
    optimizer = torch.optim.Adam(adaptor.parameters(), 1e-2)
    for step in range(150):
        pairs = random(2, 64, 3, 12, seed=step)
        left, right = adaptor.pool(adaptor.multilingual(pairs[0])), adaptor.pool(adaptor.english(pairs[1]))
        optimizer.zero_grad()
        anchor_loss(left, right).backward()
        optimizer.step()
    monitor = CollapseMonitor()
    left, right = random(2, 64, 3, 12, seed=999)
    monitor.update(adaptor.pool(adaptor.multilingual(left)), adaptor.pool(adaptor.english(right)))
    return monitor


def test_the_monitor_fires_at_the_collapse_of_the_shared_mode_and_not_otherwise() -> None:
    shared, one_sided = trained(AlignedStreams.SHARED), trained(AlignedStreams.ONE_SIDED)
    assert shared.collapsed and shared.mismatched > 0.95
    assert not one_sided.collapsed and abs(one_sided.mismatched) < 0.2


def test_the_monitor_tells_own_from_other_pairs() -> None:
    monitor = CollapseMonitor()
    assert math.isnan(monitor.matched) and not monitor.collapsed
    a, b = random(6, 5), random(6, 5, seed=1)
    monitor.update(a[:4], b[:4])
    monitor.update(a[4:], b[4:])
    table = cosines(a[:, None], b[None])
    same = torch.block_diag(torch.ones(4, 4), torch.ones(2, 2)).bool() & ~torch.eye(6, dtype=torch.bool)
    assert monitor.matched == pytest.approx(float(table.diagonal().mean()), abs=1e-6)
    assert monitor.mismatched == pytest.approx(float(table[same].mean()), abs=1e-6)


def test_features_and_reward_are_the_equations_and_carry_no_gradient() -> None:
    scores = torch.tensor([[[8.0, 6.0, 10.0], [1.0, 1.0, 1.0]]], requires_grad=True)
    similarity = torch.tensor([[0.5, -1.0]], requires_grad=True)
    found = reward(scores, similarity, RewardWeights())
    assert found.tolist()[0] == pytest.approx([0.1 * (0.4 * 8 + 0.3 * 6 + 0.3 * 10) + 0.5, 0.1 - 1])
    seen = actors.features(scores, similarity)
    assert seen[0, 0].tolist() == pytest.approx([0.8, 0.6, 1.0, 0.5])
    assert not found.requires_grad and not seen.requires_grad
    with pytest.raises(ModelError, match="at least 0"):
        RewardWeights(semantic=-1)


def test_actor_does_not_mind_the_order_or_masked_candidates() -> None:
    actor, seen = Actor(), random(3, 5, 4)
    mask = torch.tensor([[True] * 5, [True, True, False, True, False], [True] * 5])
    order = torch.tensor([3, 1, 4, 0, 2])
    found = actor(seen, mask)
    torch.testing.assert_close(actor(seen[:, order], mask[:, order]), found[:, order])
    changed = seen.clone()
    changed[~mask] = 100
    torch.testing.assert_close(actor(changed, mask)[mask], found[mask])
    torch.testing.assert_close(found.exp().sum(dim=1), torch.ones(3))
    assert float(found.detach().exp()[~mask].max()) == 0


def test_sampling_follows_the_policy_and_never_takes_the_masked() -> None:
    log_p = torch.log(torch.tensor([0.2, 0.8, 0.0])).clamp(min=-1e30).expand(4000, 3)
    drawn = sample(log_p, torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {0, 1}
    assert float((drawn == 1).float().mean()) == pytest.approx(0.8, abs=0.03)


def gradients(logits: torch.Tensor, rewards: torch.Tensor, *, baseline: bool) -> torch.Tensor:
    """Gradient of eq. 8 in the logits for each action, (K actions, K)."""
    rows = []
    for action in range(len(logits)):
        leaf = logits.clone().requires_grad_()
        log_p = torch.log_softmax(leaf[None], dim=-1)
        mask = torch.ones(1, len(logits), dtype=torch.bool)
        policy_loss(log_p, torch.tensor([action]), rewards[None], mask, baseline=baseline).backward()
        assert leaf.grad is not None
        rows.append(leaf.grad)
    return torch.stack(rows)


def test_baseline_leaves_the_expected_gradient_and_lowers_its_variance() -> None:
    logits, rewards = random(4).double(), 1 + random(4, seed=1).double() / 10
    with_it, without = (gradients(logits, rewards, baseline=one) for one in (True, False))
    p = torch.softmax(logits, 0)[:, None]
    mean = (p * without).sum(0)
    torch.testing.assert_close((p * with_it).sum(0), mean, rtol=0, atol=1e-12)
    spread = [float((p * (one - mean).square()).sum()) for one in (with_it, without)]
    assert spread[0] < spread[1] / 5
    # The expected gradient of the loss is minus that of the expected reward: the policy gradient theorem.
    leaf = logits.clone().requires_grad_()
    (torch.softmax(leaf, 0) * rewards).sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(mean, -leaf.grad)


@pytest.mark.parametrize("baseline", [True, False])
def test_a_single_candidate_teaches_nothing(baseline: bool) -> None:
    actor = Actor()
    mask = torch.tensor([[True, False], [True, False]])
    log_p = actor(random(2, 2, 4), mask)
    loss = policy_loss(log_p, torch.zeros(2, dtype=torch.long), torch.ones(2, 2), mask, baseline=baseline)
    loss.backward()
    assert all(p.grad is None or float(p.grad.abs().max()) < 1e-7 for p in actor.parameters())


def test_rows_without_candidates_are_skipped() -> None:
    actor, mask = Actor(), torch.tensor([[True, True], [False, False]])
    seen, rewards = random(2, 2, 4), torch.tensor([[1.0, 0.0], [float("nan"), float("nan")]])
    log_p = actor(seen, mask)
    both = policy_loss(log_p, torch.tensor([0, 1]), rewards, mask)
    alone = policy_loss(log_p[:1], torch.tensor([0]), rewards[:1], mask[:1])
    torch.testing.assert_close(both, alone)
    nothing = policy_loss(log_p[1:], torch.tensor([1]), rewards[1:], mask[1:])
    nothing.backward()
    assert float(nothing.detach()) == 0
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in actor.parameters())


def test_policy_learns_the_better_candidate() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        actor = Actor()
    optimizer, generator = torch.optim.Adam(actor.parameters(), 1e-2), torch.Generator().manual_seed(0)
    mask = torch.ones(64, 3, dtype=torch.bool)
    for _ in range(60):
        similarity, scores = torch.rand(64, 3, generator=generator), torch.zeros(64, 3, 3)
        log_p = actor(actors.features(scores, similarity), mask)
        rewards = reward(scores, similarity, RewardWeights())
        optimizer.zero_grad()
        policy_loss(log_p, sample(log_p, generator), rewards, mask).backward()
        optimizer.step()
    similarity = torch.rand(200, 3, generator=torch.Generator().manual_seed(7))
    chosen = actor(actors.features(torch.zeros(200, 3, 3), similarity), torch.ones(200, 3, dtype=torch.bool)).argmax(1)
    assert float((chosen == similarity.argmax(1)).float().mean()) > 0.9


def test_average_follows_its_recursion() -> None:
    weight, average, expected = torch.zeros(2, 2), list[torch.Tensor](), torch.zeros(2, 2)
    for step in range(5):
        weight += 1
        average = averaged(average, [weight], step)
        decay = min(0.999, (1 + step) / (10 + step)) if step else 0.0  # the first step's weights as they are
        expected = decay * expected + (1 - decay) * weight
    torch.testing.assert_close(average[0], expected)
