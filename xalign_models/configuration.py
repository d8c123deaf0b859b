"""Configurations: validated dataclasses, read from YAML files and single fields, and written as plain data."""

import dataclasses
import functools
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from xalign_models.errors import FileError, ModelError, one_line
from xalign_models.files import read_bytes

Config = TypeVar("Config")

Count = Annotated[int, Field(ge=0, lt=2**63)]
AtLeastOne = Annotated[int, Field(ge=1, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


def _as_tuple(value: Any) -> Any:
    if isinstance(value, list | tuple | None):
        return tuple(value or ())
    return (value,) if isinstance(value, str) else value  # YAML reads ``no``, a language's code, as false


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""Tuple of texts; a single text counts as a tuple of one, and None as an empty one."""

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_LIMITS = {
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "it must be above {gt:g}",
    "less_than": "it must be below {lt:g}",
    "less_than_equal": "at most {le:g}",
    "enum": "one of {expected}",
    "literal_error": "one of {expected}",
    "too_short": "at least {min_length} item",
    "dataclass_type": "fields were expected",
    "dict_type": "fields were expected",
    "mapping_type": "fields were expected",
}


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def configuration_class(kind: type[Config]) -> type[Config]:
    """Make a frozen dataclass that checks its fields and raises a :class:`ModelError` of one line."""
    validated: Any = dataclass(frozen=True, config=_STRICT)(kind)
    create, names = validated.__init__, [field.name for field in dataclasses.fields(validated)]

    @functools.wraps(create)
    def checked(self: Any, *args: Any, **fields: Any) -> None:
        try:
            create(self, **dict(zip(names, args, strict=False)), **fields)
        except ValidationError as error:
            raise ModelError(_line(kind, error)) from None

    validated.__init__ = checked
    decorated: type[Config] = validated
    return decorated


class _Loader(yaml.SafeLoader):
    """Loader that reads 5e-4 as a number, which YAML 1.1 reads as text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)

_NOT_YAML = (yaml.YAMLError, ValueError, OverflowError, RecursionError)
"""Errors of the loader; dates that do not exist and numbers beyond all measure raise errors of Python's own."""


def shipped(package: str) -> list[str]:
    """Names of the configurations in a package's folder ``configs``."""
    folder = files(package).joinpath("configs")
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def read(kind: type[Config], package: str, names: Sequence[str], changes: Sequence[str] = ()) -> Config:
    """Read a configuration from YAML files, of which later ones override earlier ones, and from single fields.

    Args:
        kind: A dataclass.
        package: Package of the shipped configurations.
        names: Shipped names or paths; nested mappings are merged, other values replaced.
        changes: ``FIELD=VALUE``, the value as in YAML, e.g. ``arca.epochs=3``.

    Raises:
        ModelError: Unknown file or field, or a value of the wrong type or out of range; the message names it.
    """
    fields: dict[Any, Any] = {}
    for name in names:
        fields = merged(fields, _file(name, package))
    for change in changes:
        _put(fields, change)
    try:
        return from_mapping(kind, fields)
    except ModelError as error:
        raise ModelError(f"--config {','.join(names)}: {error}" if names else str(error)) from None


def merged(under: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Merge two mappings, ``over`` taking precedence; nested mappings are merged too."""
    both = {
        key: merged(under[key], value) if isinstance(value, Mapping) and isinstance(under.get(key), Mapping) else value
        for key, value in over.items()
    }
    return {**under, **both}


def from_mapping(kind: type[Config], data: Any) -> Config:
    """Make a dataclass from plain data, with lists for tuples and texts for enumerations.

    Raises:
        ModelError: An unknown or missing field, or a value of the wrong type; the message names it.
    """
    try:
        adapter: TypeAdapter[Config] = _adapter(typing.cast(Any, kind))
        return adapter.validate_json(json.dumps(data, default=str), strict=True, extra="forbid")
    except ValidationError as error:
        raise ModelError(_line(kind, error)) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"A field has a key or value that JSON cannot express ({one_line(error)}).") from None


_adapter: Callable[[Any], TypeAdapter[Any]] = functools.cache(TypeAdapter)


def to_mapping(config: Any) -> dict[str, Any]:
    """Plain data for JSON; :func:`from_mapping` reads it back."""
    return dict(_plain(dataclasses.asdict(config)))


def _file(name: str, package: str) -> dict[Any, Any]:
    packaged = files(package).joinpath("configs", f"{name}.yaml")
    try:
        text = packaged.read_bytes() if packaged.is_file() else read_bytes(Path(name), 1 << 20)
        content = yaml.load(text.decode("utf-8"), _Loader)
    except FileError as error:
        if Path(name).exists() and not Path(name).is_dir():
            raise ModelError(f"--config {error}") from None
        raise ModelError(f"--config {name}: no such file; shipped ones are {', '.join(shipped(package))}.") from None
    except _NOT_YAML as error:
        raise ModelError(f"--config {name} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ModelError(f"--config {name}: fields were expected, not {content!r}.")
    return content


def _put(target: Any, change: str) -> None:
    path, separator, text = change.partition("=")
    if not separator:
        raise ModelError(f"--set {change!r}: write FIELD=VALUE.")
    *parents, last = (int(name) if name.isdecimal() else name for name in path.split("."))  # as YAML reads keys
    try:
        value = yaml.load(text, _Loader)
    except _NOT_YAML as error:
        raise ModelError(f"--set {change!r} is not YAML: {' '.join(str(error).split())}") from None
    for name in parents:
        target = target.setdefault(name, {})
        if not isinstance(target, dict):
            raise ModelError(f"--set {path}: {name} has no fields.")
    target[last] = value


def _line(kind: Any, error: ValidationError) -> str:
    """One line on the error that explains most: an unknown field, then a wrong value, then a missing field."""
    details = error.errors(include_url=False)
    worst = max(details, key=lambda item: (item["type"] == "unexpected_keyword_argument", item["type"] != "too_short"))
    names = [str(name) for name in worst["loc"] if name != "[key]"]
    field = ".".join(names) or "the configuration"
    if worst["type"] == "missing":
        return f"{field} is missing."
    if worst["type"] == "unexpected_keyword_argument":
        return f"{field}: no such field; there are {', '.join(sorted(_fields(kind, names[:-1])))}."
    text = _LIMITS.get(worst["type"], worst["msg"].replace("Input should", "it must")).format(**worst.get("ctx", {}))
    return f"{field} {worst['input']!r}: {text}."


def _fields(kind: Any, names: Sequence[str]) -> list[str]:
    """The fields of the dataclass at a path of field names, through mappings and lists."""
    for name in names:
        kind = _inner(typing.get_type_hints(kind).get(name, kind))
    return [field.name for field in dataclasses.fields(kind)]


def _inner(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    return next(filter(None, map(_inner, typing.get_args(hint))), None)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Enum) else value
