"""Finds and loads plug-ins."""

import ast
import hashlib
import importlib.util
import inspect
import logging
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from itertools import accumulate
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from xalign_models.builtin import TASKS
from xalign_models.errors import PluginError, one_line, without_exit

logger = logging.getLogger(__name__)

DISTRIBUTION = "xalign"
GROUP = "xalign.plugins"
VARIABLE = "XALIGN_PLUGINS"
PACKAGE = "xalign_plugins"
"""Package of the modules of plug-in files: ``xalign_plugins.whitening`` for ``whitening.py``. Saved models name classes
by it. It does not exist on disk."""

_loading: list[str] = []
_undo: list[Callable[[], object]] = []
loaded: dict[str, str] = {}
"""Modules of the loaded plug-ins, by file path or module name."""


def load_plugins(sources: Iterable[str] = ()) -> None:
    """Load the plug-ins of installed packages, of ``XALIGN_PLUGINS`` and of ``sources``, each once.

    Raises:
        PluginError: A named plug-in or the built-in one cannot be loaded; for other installed ones this is a warning.
    """
    if _loading:  # a plug-in that is being loaded looks something up
        return
    if failure := _load_installed():
        raise PluginError(failure)
    named = [source.strip() for source in os.environ.get(VARIABLE, "").split(",")]
    for source in (*filter(None, named), *sources):
        _load(source)


def current() -> str:
    """Name of the plug-in that is being loaded; empty if there is none or it is the built-in one."""
    return _loading[-1] if _loading else ""


def on_failure(undo: Callable[[], object]) -> None:
    """Call ``undo`` if the plug-in that is being loaded fails later; our own registrations stay."""
    if current():
        _undo.append(undo)


@contextmanager
def _registering(plugin: str) -> Iterator[None]:
    """A context in which registrations are a plug-in's, or our own without its name; nothing else is loaded in it.

    If it fails, the plug-in's registrations are undone.
    """
    _loading.append(plugin)
    try:
        with without_exit():
            yield
    except BaseException:
        while plugin and _undo:
            _undo.pop()()
        raise
    finally:
        _loading.pop()
        if not _loading:
            _undo.clear()


def built_in() -> AbstractContextManager[None]:
    """A context in which registrations are our own, also while a plug-in is loaded that imports us."""
    return _registering("") if _loading else nullcontext()


def add_plugin(source: str) -> None:
    """Load a ``.py`` file or module in this process and, through ``XALIGN_PLUGINS``, in its child processes.

    Raises:
        PluginError: The plug-in cannot be loaded, or its path contains a comma, which separates plug-ins.
    """
    named = _canonical(source)
    if "," in named:
        raise PluginError(f"Plug-in {named}: a comma separates plug-ins in {VARIABLE}; give it a path without one.")
    listed = [plugin for plugin in os.environ.get(VARIABLE, "").split(",") if plugin.strip()]
    load_plugins([named])
    if named not in listed:
        os.environ[VARIABLE] = ",".join([*listed, named])


def sources() -> tuple[str, ...]:
    """The plug-ins loaded by name, to load in another process."""
    return tuple(loaded)


def code_digest(cls: type[Any]) -> str:
    """Sha256 (hex) of the code of a plug-in's class: of its file, and of those beside it or in its package it imports.

    A class of an interactive session has its compiled methods and constants instead, without what they refer to. The
    digest is empty for a class in the folders of this distribution, which has a version.
    """
    file = Path()
    with suppress(OSError, TypeError):  # a class of an interactive session
        file = Path(inspect.getfile(cls))
    if not file.is_file():
        return hashlib.sha256(repr((cls.__module__, cls.__qualname__, _compiled(cls))).encode()).hexdigest()
    if _is_ours(file):
        return ""
    root = file.parent
    while (root.parent / "__init__.py").is_file():
        root = root.parent
    files = _imported(file, root, set())
    digests = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    return digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()


def _imported(file: Path, root: Path, found: set[Path]) -> set[Path]:
    """``found`` with a file and the Python files below ``root`` that it imports, directly or through others.

    Python's library, installed packages and xalign do not count, although the folder may contain them.
    """
    found.add(file)
    paths = (Path(place) for name, place in sysconfig.get_paths().items() if name.endswith("lib"))
    installed = [place for place in (*paths, *_folders()) if place.is_relative_to(root)]
    for name in _imports(file, root):
        place = getattr(sys.modules.get(name), "__file__", None)
        below = [folder.joinpath(*name.split(".")) for folder in (root, root.parent)]  # imported when it is used
        unused = [path for base in below for path in (base.with_suffix(".py"), base / "__init__.py")]
        for near in map(Path, [place] if place else unused):
            counts = near.suffix == ".py" and near.is_relative_to(root) and near.is_file()
            if counts and near not in found and not any(map(near.is_relative_to, installed)):
                _imported(near, root, found)
    return found


def _imports(file: Path, root: Path) -> set[str]:
    """Full names of all that may be modules in a file's import statements, and of the packages that hold them."""
    names: set[str] = set()
    tree = ast.Module([], [])
    with suppress(SyntaxError, ValueError):  # compiled, or changed since it was imported
        tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = getattr(node, "module", None) or ""
            if level := getattr(node, "level", 0):
                folder = file.parents[level - 1]
                parts = folder.relative_to(root.parent).parts if folder.is_relative_to(root) else ()
                start = ".".join((*parts, start))
            full = (f"{start}.{alias.name}".strip(".") for alias in node.names)
            names.update(part for name in full for part in accumulate(name.split("."), "{}.{}".format))
    return names


def _compiled(value: Any) -> Any:
    """The code of a class or function, in a form that is the same in each session."""
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, [_compiled(constant) for constant in value.co_consts]
    if isinstance(value, type):
        return [(name, _compiled(member)) for name, member in sorted(vars(value).items()) if name != "__doc__"]
    if (code := getattr(getattr(value, "__func__", getattr(value, "fget", value)), "__code__", None)) is not None:
        return _compiled(code), _compiled(getattr(value, "__defaults__", None))
    if isinstance(value, tuple | set | frozenset):
        parts = [repr(_compiled(part)) for part in value]
        return parts if isinstance(value, tuple) else sorted(parts)
    return repr(value) if isinstance(value, str | int | float | bytes | None) else type(value).__name__


@cache
def _folders() -> tuple[Path, ...]:
    """Folders of the two packages of this distribution: those that run, and the installed ones."""
    library = Path(__file__).resolve().parents[1]
    clone = library.parent / "tasks" / TASKS
    folders = [library, clone if clone.is_dir() else library.parent / TASKS]
    with suppress(PackageNotFoundError):
        installed = Path(str(distribution(DISTRIBUTION).locate_file(""))).resolve()
        folders += [installed / library.name, installed / TASKS]
    return tuple(folders)


def _is_ours(path: Path) -> bool:
    return any(path.resolve().is_relative_to(folder) for folder in _folders())


@cache
def _load_installed() -> str:
    """Load the plug-ins of installed packages, the built-in one first.

    Returns:
        The reason why the built-in plug-in cannot be loaded; empty if it is.
    """
    for point in sorted(entry_points(group=GROUP), key=lambda point: (not _is_built_in(point), point.name)):
        built_in = _is_built_in(point)
        try:
            with _registering("" if built_in else point.name):
                if built_in:
                    _check_origin(TASKS)
                point.load()
        except Exception as error:
            if built_in:
                return f"{point.value}, a part of xalign, cannot be loaded: {one_line(error)}"
            logger.warning("Plug-in %s (%s) is left out: %s", point.name, point.value, one_line(error))
    return ""


def _is_built_in(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == DISTRIBUTION and point.module.partition(".")[0] == TASKS


def _check_origin(package: str) -> None:
    """Refuse a package of the same name that comes first on the module path, without running its code."""
    spec = importlib.util.find_spec(package)
    for place in [] if spec is None else spec.submodule_search_locations or [str(spec.origin)]:
        if not _is_ours(Path(place)):
            raise PluginError(f"{place} hides xalign's own package {package}; rename or remove it.")


def _canonical(source: str) -> str:
    return str(Path(source).expanduser().resolve()) if source.endswith(".py") else source


def _load(source: str) -> None:
    source = _canonical(source)
    if source in loaded:
        return
    try:
        with _registering(Path(source).name), _forgotten(source):
            loaded[source] = (_from_file(Path(source)) if source.endswith(".py") else import_module(source)).__name__
    except PluginError as error:
        raise PluginError(f"Plug-in {source}: {error}") from None
    except Exception as error:
        reason = " ".join(str(error).split())
        hint = "" if source.endswith(".py") else " Name a file that ends in .py, or an importable module."
        raise PluginError(f"Plug-in {source} cannot be loaded: {type(error).__name__}: {reason}.{hint}") from None


@contextmanager
def _forgotten(source: str) -> Iterator[None]:
    """A context that, if it fails, forgets new modules of a plug-in's package or folder: the next try runs them."""
    before = set(sys.modules)
    try:
        yield
    except BaseException:
        for name in sys.modules.keys() - before:
            beside = Path(getattr(sys.modules[name], "__file__", None) or os.sep).parent == Path(source).parent
            if beside or name.partition(".")[0] == source.partition(".")[0]:
                del sys.modules[name]
                parent, _, leaf = name.rpartition(".")
                vars(sys.modules.get(parent, ModuleType(""))).pop(leaf, None)  # or `from parent import leaf` finds it
        raise


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PluginError("the file does not exist.")
    if not path.stem.isidentifier():
        raise PluginError(f"{path.stem!r} is not a valid module name; rename the file.")
    name = f"{PACKAGE}.{path.stem}"
    if name in sys.modules:
        raise PluginError(f"the plug-in {sys.modules[name].__file__} has the same name; rename one of them.")
    if PACKAGE not in sys.modules:
        package = ModuleType(PACKAGE, "The modules of plug-in files.")
        package.__path__ = []
        sys.modules[PACKAGE] = package
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError("the file is not a Python module.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
