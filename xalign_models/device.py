"""The devices that models run on."""

from xalign_models.errors import ModelError


def pick_device(device: str | None = None, *, several: bool = False) -> str:
    """``cpu``, ``cuda`` or ``mps``: the requested device, by default the best available.

    Args:
        device: One device; or several, such as ``cuda:0,cuda:1``, or all GPUs, ``cuda:all``.
        several: Whether several devices are supported.

    Returns:
        One device; or several, each with its number, with commas between.

    Raises:
        ModelError: A requested device is unavailable, or several are requested where only one is supported.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    usable = {"cpu": 1, "cuda": gpus, "mps": int(torch.backends.mps.is_available())}
    if device is None:
        return "cuda" if gpus else "mps" if usable["mps"] else "cpu"
    if device == "cuda:all" and gpus:
        device = ",".join(f"cuda:{number}" for number in range(gpus))
    chosen = each(device)
    if len(chosen) > 1 and not several:
        raise ModelError(f"--device {device}: only one device is supported here; give one of them.")
    for name in chosen:
        kind, _, number = name.partition(":")
        if not usable.get(kind) or (number and not (number.isdecimal() and int(number) < usable[kind])):
            names = ", ".join(name for name, count in usable.items() if count)
            raise ModelError(f"--device {device} is not usable on this machine; usable: {names}.")
    return device


def each(device: str) -> list[str]:
    """The single devices in a result of :func:`pick_device`."""
    return device.split(",")
