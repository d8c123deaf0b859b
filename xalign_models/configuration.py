"""Configurations: dataclasses out of YAML files and single fields, and as plain data."""

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

Config = TypeVar("Config")


def shipped(package: str) -> list[str]:
    """Names of the configurations that come with a package, in its folder ``configs``."""
    folder = files(package).joinpath("configs")
    return sorted(one.name.removesuffix(".yaml") for one in folder.iterdir() if one.name.endswith(".yaml"))


def read(kind: type[Config], package: str, names: Sequence[str], changes: Sequence[str] = ()) -> Config:
    """A configuration of YAML files, each one's fields over those of the ones before it, and of single fields.

    Args:
        kind: A dataclass.
        package: Where the shipped ones are.
        names: Shipped names or paths; mappings within are merged, all else is replaced.
        changes: ``FIELD=VALUE``, the value as in YAML, e.g. ``arca.epochs=3``.

    Raises:
        ModelError: No such file or field, or a value of the wrong kind or out of its range; the message names it.
    """
    given: dict[Any, Any] = {}
    for name in names:
        given = merged(given, _file(name, package))
    for change in changes:
        _put(given, change)
    try:
        return from_mapping(kind, given)
    except ModelError as error:
        raise ModelError(f"--config {','.join(names)}: {error}") from None


def merged(under: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """One mapping's fields over another's: mappings within are merged likewise, all else is replaced."""
    both = {
        key: merged(under[key], value) if isinstance(value, Mapping) and isinstance(under.get(key), Mapping) else value
        for key, value in over.items()
    }
    return {**under, **both}


def from_mapping(kind: type[Config], given: Any, where: str = "") -> Config:
    """A dataclass of plain data, as YAML and JSON have it: lists for tuples, texts for enumerations.

    Raises:
        ModelError: A field that there is not or that is missing, or a value of the wrong kind; the message names it.
    """
    if not isinstance(given, Mapping):
        raise ModelError(f"{where or 'the configuration'}: fields were expected, not {given!r}.")
    hints = typing.get_type_hints(kind)
    known = {one.name: one for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := [name for name in given if name not in known]:
        raise ModelError(f"{_field(where, unknown[0])}: no such field; there are {', '.join(sorted(known))}.")
    values = {name: _value(hints[name], value, _field(where, name)) for name, value in given.items()}
    for name, one in known.items():
        if name not in values and one.default is one.default_factory is dataclasses.MISSING:
            raise ModelError(f"{_field(where, name)} is missing.")
    return kind(**values)


def to_mapping(config: Any) -> dict[str, Any]:
    """Plain data for JSON; the inverse of :func:`from_mapping`, also after a trip through it."""
    plain: dict[str, Any] = _plain(dataclasses.asdict(config))
    return plain


def _file(name: str, package: str) -> dict[Any, Any]:
    known = files(package).joinpath("configs", f"{name}.yaml")
    path = known if known.is_file() else Path(name)
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise ModelError(
            f"--config {name}: no such file, and the shipped ones are {', '.join(shipped(package))}."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ModelError(f"--config {name} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ModelError(f"--config {name}: fields were expected, not {found!r}.")
    return found


def _put(target: Any, change: str) -> None:
    path, separator, value = change.partition("=")
    if not separator:
        raise ModelError(f"--set {change!r}: write FIELD=VALUE.")
    *parents, last = path.split(".")
    for name in parents:
        target = target.setdefault(_key(target, name), {})
        if not isinstance(target, dict):
            raise ModelError(f"--set {path}: {name} has no fields.")
    try:
        target[_key(target, last)] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ModelError(f"--set {change!r} is not YAML: {' '.join(str(error).split())}") from None


def _key(target: Mapping[Any, Any], name: str) -> Any:
    """The key that is written so; YAML reads some as numbers."""
    return next((key for key in target if str(key) == name), name)


def _field(where: str, name: Any) -> str:
    return f"{where}.{name}" if where else str(name)


def _value(hint: Any, value: Any, where: str) -> Any:
    kind = typing.get_origin(hint) or hint
    if kind in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _value(next(one for one in typing.get_args(hint) if one is not types.NoneType), value, where)
    if dataclasses.is_dataclass(kind):
        return from_mapping(kind, value, where)  # type: ignore[arg-type]
    if kind is tuple:
        return tuple(_items(typing.get_args(hint), [value] if isinstance(value, str) else value, where))
    if kind is Mapping:
        if not isinstance(value, Mapping):
            raise ModelError(f"{where}: fields were expected, not {value!r}.")
        of_keys, of_values = typing.get_args(hint)
        return {_name(of_keys, key, where): _value(of_values, one, _field(where, key)) for key, one in value.items()}
    return _scalar(kind, value, where)


def _items(hints: tuple[Any, ...], values: Any, where: str) -> list[Any]:
    if not isinstance(values, list | tuple):
        raise ModelError(f"{where} {values!r}: a list was expected.")
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(values)
    if len(hints) != len(values):
        raise ModelError(f"{where} {values!r}: {len(hints)} values were expected.")
    return [_value(hint, one, where) for hint, one in zip(hints, values, strict=True)]


def _name(hint: Any, key: Any, where: str) -> Any:
    # JSON and the command line have texts for numbers.
    return _scalar(hint, int(key) if hint is int and str(key).isdecimal() else key, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is Any or type(value) is hint:
        return value
    try:
        if issubclass(hint, Enum):
            return hint(value)
        if hint is float and isinstance(value, int | str) and not isinstance(value, bool):
            return float(value)  # YAML takes 5e-4 for a text
    except ValueError:
        allowed = f"; one of {', '.join(map(str, hint))}" if issubclass(hint, Enum) else ""
        raise ModelError(f"{where} {value!r} is no {hint.__name__}{allowed}.") from None
    raise ModelError(f"{where} {value!r}: {hint.__name__} was expected.")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Enum) else value
