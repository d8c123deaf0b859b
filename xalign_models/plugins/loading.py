"""Finds and loads plug-ins."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from xalign_models.errors import PluginError

logger = logging.getLogger(__name__)

GROUP = "xalign.plugins"
VARIABLE = "XALIGN_PLUGINS"
PACKAGE = "xalign_plugins"
"""Package of the modules of plug-in files: ``xalign_plugins.whitening`` for ``whitening.py``. It begins their classes'
names in saved models and does not exist on disk."""

_loading: list[str] = []
_modules: dict[str, str] = {}
"""Modules of the loaded plug-ins, by file path or module name."""


def load_plugins(sources: Iterable[str] = ()) -> None:
    """Load the plug-ins of installed packages, of ``XALIGN_PLUGINS`` and of ``sources``, each once.

    Raises:
        PluginError: A named plug-in cannot be loaded; for installed ones this is a warning.
    """
    if _loading:  # a plug-in looks something up while it is loaded
        return
    _load_installed()
    named = [source.strip() for source in os.environ.get(VARIABLE, "").split(",")]
    for source in (*filter(None, named), *sources):
        _load(source)


def current() -> str:
    """The plug-in being loaded, or an empty text."""
    return _loading[-1] if _loading else ""


def add_plugin(source: str) -> None:
    """Load a plug-in in this process and, by ``XALIGN_PLUGINS``, in its child processes.

    Args:
        source: A ``.py`` file or a module.

    Raises:
        PluginError: It cannot be loaded.
    """
    named = _canonical(source)
    listed = [plugin for plugin in os.environ.get(VARIABLE, "").split(",") if plugin.strip()]
    if named not in listed:
        os.environ[VARIABLE] = ",".join([*listed, named])
    load_plugins()


def sources() -> tuple[str, ...]:
    """The named plug-ins, for another process."""
    return tuple(_modules)


def code_digest(cls: type[Any]) -> str:
    """Sha256 (hex) of the file of a plug-in's class, which identifies its code.

    It is empty for classes of this project, which have versions.
    """
    if cls.__module__.split(".")[0] in {"xalign_models", "xalign_tasks"}:
        return ""
    file = inspect.getsourcefile(cls)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


@cache
def _load_installed() -> None:
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name != "xalign_tasks", point.name))
    for point in points:
        _loading.append(point.name)
        try:
            point.load()
        except Exception as error:
            logger.warning("Plug-in %s (%s) is left out: %s", point.name, point.value, " ".join(str(error).split()))
        finally:
            _loading.pop()


def _canonical(source: str) -> str:
    return str(Path(source).expanduser().resolve()) if source.endswith(".py") else source


def _load(source: str) -> None:
    source = _canonical(source)
    if source in _modules:
        return
    _loading.append(Path(source).name)
    try:
        _modules[source] = (_from_file(Path(source)) if source.endswith(".py") else import_module(source)).__name__
    except PluginError as error:
        raise PluginError(f"Plug-in {source}: {error}") from None
    except Exception as error:
        reason = " ".join(str(error).split())
        hint = "" if source.endswith(".py") else " Name a file that ends in .py, or an importable module."
        raise PluginError(f"Plug-in {source} cannot be loaded: {type(error).__name__}: {reason}.{hint}") from None
    finally:
        _loading.pop()


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PluginError("there is no such file.")
    if not path.stem.isidentifier():
        raise PluginError(f"{path.stem!r} is no name of a Python module; rename the file.")
    name = f"{PACKAGE}.{path.stem}"
    if name in sys.modules:
        raise PluginError(f"another plug-in's file, {sys.modules[name].__file__}, has its name; rename one of them.")
    if PACKAGE not in sys.modules:
        package = ModuleType(PACKAGE, "The modules of plug-in files.")
        package.__path__ = []
        sys.modules[PACKAGE] = package
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError("it is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
