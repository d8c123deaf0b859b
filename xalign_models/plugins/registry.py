"""Registries of named values."""

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pkgutil import resolve_name
from typing import Any, TypeVar

from xalign_models.builtin import HOMES
from xalign_models.errors import PluginError, XAlignError
from xalign_models.plugins.loading import built_in, current, load_plugins, on_failure

Value = TypeVar("Value")


@dataclass(frozen=True)
class Entry:
    """A registered value or its ``"module:attr"``, facts for lists, and the plug-in's name, empty if built in."""

    value: Any
    facts: Mapping[str, Any] = field(default_factory=dict)
    plugin: str = ""


class Registry(Mapping[str, Value]):
    """Values of one kind by name, in order of registration.

    Args:
        kind: The kind, for messages.
        error: Exception for unknown names.
        listing: Command that lists them.
        pattern: Regular expression that names match.
        rule: The pattern in words.
    """

    def __init__(self, kind: str, error: type[XAlignError], listing: str, pattern: str, rule: str) -> None:
        self.kind, self.error, self.listing = kind, error, listing
        self._pattern, self._rule = re.compile(pattern), rule
        self._entries: dict[str, Entry] = {}
        self._hooks: list[Callable[[], object]] = []
        self._transient: tuple[str, ...] = ()

    def register(self, name: str, value: Value | str, **facts: Any) -> None:
        """Register a value, or its ``"module:attr"``, with facts that lists show about it.

        Raises:
            PluginError: The name is invalid or taken.
        """
        self._import_home()
        if not isinstance(name, str) or not self._pattern.fullmatch(name):
            raise PluginError(f"{self.kind} {name!r} cannot be registered: its name must be {self._rule}.")
        earlier = self._entries.get(name)
        if earlier and not _is_again(earlier.value, value):
            owner = f", from {earlier.plugin}" if earlier.plugin else ""
            raise PluginError(
                f"{self.kind} {name!r} cannot be registered: the name is taken already{owner}; choose another."
            )
        if isinstance(value, str) and not re.fullmatch(r"[\w.]+:\w+", value):
            raise PluginError(f'{self.kind} {name!r}: {value!r} is not of the form "module:attr".')
        on_failure(partial(self._restore, name, earlier))
        self._entries[name] = Entry(value, facts, earlier.plugin if earlier else current())

    def _restore(self, name: str, entry: Entry | None) -> None:
        if entry is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = entry

    def __getitem__(self, name: str) -> Value:
        """The value of this name, imported now if registered as ``"module:attr"``.

        Raises:
            XAlignError: Unknown name; the message suggests similar ones.
            PluginError: It cannot be imported.
        """
        self.check(name)
        value: Any = self._entries[name].value
        return imported(value) if isinstance(value, str) else value  # type: ignore[no-any-return]

    def facts(self, name: str) -> Mapping[str, Any]:
        """Facts that lists show about a value, without importing it; :meth:`check` refuses an unknown name."""
        self.check(name)
        return self._entries[name].facts

    def check(self, name: str) -> None:
        """Refuse an unknown name with the error of this kind, which suggests similar names."""
        if name not in self:
            known = f"Choose from {', '.join(self)}; --plugin adds a plug-in's own."
            lists = f"`{self.listing}` lists them." if self.listing else known
            raise self.error(f"Unknown {self.kind} {name!r}.{did_you_mean(name, self)} {lists}")

    def __contains__(self, name: object) -> bool:
        self._look()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._look()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        self._look()
        return len(self._entries)

    def places(self) -> dict[str, Any]:
        """The values by name, without importing those that are registered as ``"module:attr"``."""
        self._look()
        return {name: entry.value for name, entry in self._entries.items()}

    def before_look(self, hook: Callable[[], object]) -> None:
        """Call ``hook`` before each look-up; the values it registers last until the next look-up."""
        self._hooks.append(hook)

    def _look(self) -> None:
        self._import_home()
        load_plugins()
        for name in self._transient:
            self._entries.pop(name, None)
        lasting = len(self._entries)
        for hook in self._hooks:
            hook()
        self._transient = tuple(self._entries)[lasting:]

    def _import_home(self) -> None:
        home = HOMES.get(self.kind)
        if home and home not in sys.modules:
            with built_in():
                import_module(home)


def _is_again(old: Any, new: Any) -> bool:
    """Whether a value is equal, or a definition replaces an earlier one of an interactive session.

    Both are so when a notebook's cell runs again.
    """
    names = [(getattr(value, "__module__", ""), getattr(value, "__qualname__", "")) for value in (old, new)]
    return bool(old == new) or (names[0] == names[1] and names[0][0] == "__main__")


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`` Did you mean a, b?`` with the names most similar to ``name``, or an empty text."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=cutoff)
    return f" Did you mean {', '.join(by_lower[candidate] for candidate in near)}?" if near else ""


def imported(place: str) -> Any:
    """The object at ``module:attr``.

    Raises:
        PluginError: It cannot be imported.
    """
    try:
        return resolve_name(place)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"{place} cannot be imported: {error}.") from None
