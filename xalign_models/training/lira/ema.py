"""The moving average of trained weights, with which LaSR is evaluated and saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

DECAY = 0.999
"""The most that a step keeps of the average; early ones keep ``(1 + t) / (10 + t)``, so as to forget the start."""


class EMA:
    """The average of a module's trainable weights over its steps.

    Args:
        module: Its trainable parameters are followed, from their present values on.
    """

    def __init__(self, module: nn.Module) -> None:
        self.steps = 0
        self._module = module
        self._average = {name: value.detach().clone() for name, value in self._trained()}

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, value) for name, value in self._module.named_parameters() if value.requires_grad)

    @torch.no_grad()
    def update(self) -> None:
        """Take a step's weights in: ``a <- d a + (1 - d) w``, ``d = min(0.999, (1 + t) / (10 + t))``."""
        decay = min(DECAY, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        for name, value in self._trained():
            self._average[name].lerp_(value.detach().to(self._average[name]), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The module has the averages inside, and its own weights again afterwards."""
        own = {name: value.detach().clone() for name, value in self._trained()}
        self._load(self._average)
        try:
            yield
        finally:
            self._load(own)

    def keep(self) -> None:
        """Give the module the averages for good."""
        self._load(self._average)

    @torch.no_grad()
    def _load(self, weights: dict[str, Tensor]) -> None:
        for name, value in self._trained():
            value.copy_(weights[name])

    def state_dict(self) -> dict[str, Tensor | int]:
        """For a checkpoint."""
        return {"steps": self.steps, **{f"average.{name}": value for name, value in self._average.items()}}

    def load_state_dict(self, state: dict[str, Tensor | int]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.steps = int(state["steps"])
        for name, value in self._average.items():
            value.copy_(torch.as_tensor(state[f"average.{name}"]))
