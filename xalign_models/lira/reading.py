"""Configurations from YAML: presets by name, files, and single fields from the command line."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml

from xalign_models.errors import ModelError
from xalign_models.lira.config import Ablation, LiraConfig

Config = TypeVar("Config")
_PRESETS = files("xalign_models.lira") / "presets"


def presets() -> list[str]:
    """Names of the configurations that come with the package."""
    return sorted(one.name.removesuffix(".yaml") for one in _PRESETS.iterdir() if one.name.endswith(".yaml"))


def read_config(name: str, changes: Sequence[str] = (), ablation: Ablation | None = None) -> LiraConfig:
    """A preset or a YAML file, with some fields changed.

    Args:
        name: Of a preset, or a path.
        changes: ``field=value``, the value as in YAML, e.g. ``arca.epochs=3`` or ``design.bins=4``.
        ablation: What is left out.

    Raises:
        ModelError: No such configuration or field, or a value of the wrong kind.
    """
    if name in presets():
        text = (_PRESETS / f"{name}.yaml").read_text(encoding="utf-8")
    elif Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8")
    else:
        raise ModelError(f"--config {name}: neither a preset ({', '.join(presets())}) nor a file.")
    try:
        given = yaml.safe_load(text) or {}
        for change in changes:
            path, separator, value = change.partition("=")
            if not separator:
                raise ModelError(f"--set {change!r}: write FIELD=VALUE, e.g. --set arca.epochs=3.")
            _put(given, path.split("."), yaml.safe_load(value))
    except yaml.YAMLError as error:
        raise ModelError(f"--config {name} is not YAML: {' '.join(str(error).split())}") from None
    config = from_mapping(LiraConfig, given)
    return config.without(ablation) if ablation else config


def _put(target: Any, path: list[str], value: Any) -> None:
    for name in path[:-1]:
        if not isinstance(target, dict):
            break
        target = target.setdefault(name, {})
    if not isinstance(target, dict):
        raise ModelError(f"--set {'.'.join(path)}: {path[-2]} has no fields.")
    target[path[-1]] = value


def from_mapping(kind: type[Config], given: Any, where: str = "") -> Config:
    """A configuration of plain data, as YAML and JSON have it.

    Raises:
        ModelError: A field that there is not, or a value of the wrong kind; the message names it.
    """
    if not isinstance(given, Mapping):
        raise ModelError(f"{where or 'the configuration'}: fields were expected, not {given!r}.")
    hints = typing.get_type_hints(kind)
    known = [one.name for one in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in given if name not in known]:
        raise ModelError(
            f"{where + '.' if where else ''}{unknown[0]}: no such field; there are {', '.join(sorted(known))}."
        )
    values = {name: _value(hints[name], value, f"{where}.{name}" if where else name) for name, value in given.items()}
    return kind(**values)


def _value(hint: Any, value: Any, where: str) -> Any:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if value is None:
            return None
        hint = next(one for one in typing.get_args(hint) if one is not types.NoneType)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_mapping(hint, value, where)
    if typing.get_origin(hint) is tuple:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ModelError(f"{where} {value!r}: a list was expected.")
        return tuple(_value(typing.get_args(hint)[0], one, where) for one in items)
    try:
        if isinstance(hint, type) and issubclass(hint, Enum):
            return hint(value)
        if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
            return float(value)  # YAML takes 5e-4 for a text
    except ValueError:
        allowed = f"; one of {', '.join(map(str, hint))}" if issubclass(hint, Enum) else ""
        raise ModelError(f"{where} {value!r} is no {hint.__name__}{allowed}.") from None
    if type(value) is not hint:
        raise ModelError(f"{where} {value!r}: {getattr(hint, '__name__', hint)} was expected.")
    return value


def to_mapping(config: Any) -> dict[str, Any]:
    """Plain data as it comes back from JSON; the inverse of :func:`from_mapping`."""
    plain: dict[str, Any] = _plain(dataclasses.asdict(config))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Enum) else value
