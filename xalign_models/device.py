"""The device that models run on."""

from __future__ import annotations

from xalign_models.errors import ModelError


def pick_device(device: str | None = None) -> str:
    """``cpu``, ``cuda`` or ``mps``: the requested device, by default the best available.

    Raises:
        ModelError: The requested device is unavailable.
    """
    import torch

    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device is None:
        return "cuda" if usable["cuda"] else "mps" if usable["mps"] else "cpu"
    kind, _, number = device.partition(":")
    if not usable.get(kind, False) or (number and not (number.isdecimal() and _is_there(kind, int(number)))):
        names = ", ".join(name for name, available in usable.items() if available)
        raise ModelError(f"--device {device} is not usable on this machine; usable: {names}.")
    return device


def _is_there(kind: str, number: int) -> bool:
    import torch

    return number < (torch.cuda.device_count() if kind == "cuda" else 1)
