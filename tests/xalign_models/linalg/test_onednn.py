"""Products by oneDNN are exact, and taken where they may be."""

from __future__ import annotations

from contextlib import nullcontext
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from xalign_models.linalg import onednn

pytestmark = pytest.mark.skipif(onednn.product() is None, reason="this torch has no oneDNN for float32")


@pytest.fixture
def counted(monkeypatch):
    """The product, counted."""
    found = Mock(wraps=onednn.product())
    monkeypatch.setattr(onednn, "product", lambda: found)
    return found


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


@pytest.mark.parametrize("shape", [(16,), (0, 16), (300, 16), (2, 3, 16)])
@pytest.mark.parametrize("biased", [True, False])
def test_the_product_is_float32_to_its_last_digits(shape, biased):
    x, weight, bias = draw(*shape), draw(8, 16), draw(8) if biased else None
    exact = nn.functional.linear(x.double(), weight.double(), bias if bias is None else bias.double())
    torch.testing.assert_close(onednn.product()(x, weight, bias).double(), exact, rtol=0, atol=5e-6)


def test_rows_that_do_not_lie_together_are_read_as_they_are():
    x, weight = draw(7, 5, 16).transpose(0, 1), draw(16, 8).T
    torch.testing.assert_close(onednn.product()(x, weight, None), nn.functional.linear(x, weight), rtol=0, atol=5e-6)


def test_layers_are_computed_by_it_and_are_the_same(counted):
    layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4, bias=False))
    x = draw(2, 5, 16)
    with torch.no_grad():
        expected = layers(x)
        assert not counted.called
        with onednn.Linear():
            found = layers(x)
    assert counted.call_count == 2
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_numbers_are_left_alone(dtype, counted):
    layer, x = nn.Linear(16, 4).to(dtype), draw(3, 16, dtype=dtype)
    with onednn.Linear():
        found = layer(x)
    assert torch.equal(found, layer(x))
    assert not counted.called


@pytest.mark.parametrize("frozen", [(), ("x",), ("weight", "bias"), ("bias",)])
@pytest.mark.parametrize("shape", [(16,), (3, 16), (2, 3, 16)])
def test_gradients_are_the_same(shape, frozen, counted):
    given = {"x": draw(*shape), "weight": draw(4, 16), "bias": draw(4)}
    found = []
    for mode in (nullcontext(), onednn.Linear()):
        copies = {name: one.clone().requires_grad_(name not in frozen) for name, one in given.items()}
        with mode:
            nn.functional.linear(*copies.values()).square().sum().backward()
        found.append({name: one.grad for name, one in copies.items()})
    assert counted.call_count == 1 + sum(name in ("x", "weight") and name not in frozen for name in given)
    assert {name for name, grad in found[1].items() if grad is None} == set(frozen)
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-4)


def test_autocast_is_left_alone(counted):
    layer = nn.Linear(16, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16), onednn.Linear():
        assert layer(draw(3, 16)).dtype == torch.bfloat16
    assert not counted.called


@pytest.mark.parametrize("reason", ["rounded", "broken", "another meaning"])
def test_it_is_left_where_it_is_not_exact(reason, monkeypatch, request):
    if reason == "rounded":
        torch.set_float32_matmul_precision("medium")
        request.addfinalizer(lambda: torch.set_float32_matmul_precision("highest"))
    else:
        answer = Mock(side_effect=RuntimeError) if reason == "broken" else Mock(return_value=torch.zeros(2, 16, 16))
        monkeypatch.setattr(onednn, "linear_pointwise", answer)
        onednn._product.cache_clear()
        request.addfinalizer(onednn._product.cache_clear)
    assert onednn.product() is None
    layer, x = nn.Linear(16, 4), draw(3, 16)
    with torch.no_grad(), onednn.Linear():
        assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize("seconds", [{"half": 2.0, "float32": 1.0}, {"half": 0.5, "float32": 1.0}])
def test_halves_are_slow_where_a_product_takes_longer(monkeypatch, caplog, seconds):
    kinds = {torch.float32: "float32", torch.bfloat16: "half"}
    monkeypatch.setattr(onednn, "product_seconds", lambda multiply, x, weight: seconds[kinds[x.dtype]])
    caches = onednn.is_slow, onednn._ratio
    for cached in caches:
        cached.cache_clear()
    try:
        slow = seconds["half"] > seconds["float32"]
        assert {onednn.is_slow("bfloat16", "So be it.") for _ in range(3)} == {slow}
        assert [record.getMessage() for record in caplog.records] == slow * [
            "This processor takes 2.0 times as long for bfloat16 as for float32. So be it."
        ]  # said once
    finally:
        for cached in caches:
            cached.cache_clear()
