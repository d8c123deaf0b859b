"""The torch code of alignments that are small networks: their module and their training.

The import path of the module is a file format: do not move it.
"""

import numpy as np
import torch
from torch import Tensor

from xalign_models.alignments.module import Aligned
from xalign_models.linalg.arrays import AnyFloats, Float64


class RectifiedAligned(Aligned):
    """``y = x + relu(x A + a) B``, with A (L, d, h), a (L, h) and B (L, h, d) by language, or L = 1."""

    tensors = ("inner", "bias", "outer")

    def map_rows(self, x: Tensor, index: int) -> Tensor:
        """Map rows (n, d) by the network at ``index``."""
        inner, bias, outer = (getattr(self, name)[index].to(x.dtype) for name in self.tensors)
        y: Tensor = x + torch.relu(x @ inner + bias) @ outer
        return y


@torch.enable_grad()
def residual(
    x: AnyFloats, y: AnyFloats, *, hidden: int, steps: int, validation: float, seed: int
) -> tuple[Float64, Float64, Float64]:
    """Train A, a and B of ``x + relu(x A + a) B`` towards y by the mean squared distance, from the difference of means.

    Adam runs on all rows except a held-out share. The step with the lowest held-out error gives the weights.

    Args:
        x: Embeddings (n, d).
        y: Row-aligned target (n, d).
        hidden: Units h.
        steps: Number of steps.
        validation: Share of the rows that is held out; with fewer than ten rows, no row is.
        seed: Seed of the division and of the first weights.

    Returns:
        A (d, h + 1), a (h + 1,) and B (h + 1, d); the last unit is constant and adds a shift.
    """
    random = torch.Generator().manual_seed(seed)
    n, d = x.shape
    order = torch.randperm(n, generator=random)
    scale = float(np.sqrt(np.square(y).sum(axis=1).mean())) or 1.0
    source, target = (torch.from_numpy(np.asarray(side, np.float64) / scale)[order].float() for side in (x, y))
    held = int(n * validation) if n >= 10 else 0
    inner = torch.randn(d, hidden, generator=random) / d**0.5
    weights = [inner, torch.zeros(hidden), torch.zeros(hidden, d), (target - source).mean(dim=0)]
    optimiser = torch.optim.Adam([weight.requires_grad_() for weight in weights], lr=1e-3)

    def error(rows: slice) -> Tensor:
        moved = source[rows] + torch.relu(source[rows] @ weights[0] + weights[1]) @ weights[2] + weights[3]
        distance: Tensor = (moved - target[rows]).square().sum(dim=1).mean()
        return distance

    least, best = np.inf, [weight.detach().clone() for weight in weights]
    for _ in range(steps + 1):  # the last round only judges; its own step goes unused
        with torch.no_grad():
            if (now := float(error(slice(held) if held else slice(None)))) < least:
                least, best = now, [weight.detach().clone() for weight in weights]
        optimiser.zero_grad()
        error(slice(held, None)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    inner, bias, outer, shift = (weight.double().numpy() for weight in best)
    bias, shift = scale * bias, scale * shift  # a relu's output scales with its input
    return (np.pad(inner, ((0, 0), (0, 1))), np.append(bias, 1.0), np.concatenate([outer, shift[None]]))


@torch.enable_grad()
def autoencoder(
    x: AnyFloats, shares: Float64, *, units: int, sparsity: float, steps: int, seed: int
) -> tuple[Float64, Float64, Float64]:
    """Train a sparse autoencoder, ``x = mu + relu(x E + e) D``, to minimise ``|x - mu - z D|^2 + sparsity |z|_1``.

    Args:
        x: Embeddings (n, d).
        shares: Probability of each row in a batch, (n,); mu is the mean weighted by it.
        units: Number h of units.
        sparsity: Weight of the penalty, for embeddings whose mean squared distance from mu is 1.
        steps: Number of steps of Adam, each on 256 rows.
        seed: Seed of the first weights and the batches.

    Returns:
        E (d, h), e (h,) and D (h, d), whose rows have unit length.
    """
    random = torch.Generator().manual_seed(seed)
    mean = shares @ x
    scale = float(np.sqrt(shares @ np.square(x - mean).sum(axis=1))) or 1.0
    rows, odds = torch.from_numpy((x - mean) / scale).float(), torch.from_numpy(shares)
    decoder = torch.nn.functional.normalize(torch.randn(units, x.shape[1], generator=random), dim=1)
    weights = [decoder.T.clone(), torch.zeros(units), decoder]
    optimiser = torch.optim.Adam([weight.requires_grad_() for weight in weights], lr=1e-3)
    for _ in range(steps):
        batch = rows[torch.multinomial(odds, 256, replacement=True, generator=random)]
        code = torch.relu(batch @ weights[0] + weights[1])
        loss = (batch - code @ weights[2]).square().sum(dim=1).mean() + sparsity * code.sum(dim=1).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        with torch.no_grad():
            weights[2] /= weights[2].norm(dim=1, keepdim=True).clamp_min(1e-12)
    encoder, bias, atoms = (weight.detach().double().numpy() for weight in weights)
    return encoder, scale * bias - mean @ encoder, atoms
