"""The registries, and the functions that register."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from xalign_models.errors import AlignmentError, DataError, ModelError, PluginError
from xalign_models.plugins.registry import Registry, imported
from xalign_models.specs import BackboneSpec

if TYPE_CHECKING:
    from xalign_models.alignments import Alignment

Value = TypeVar("Value")

_NAME = r"(?!.*__)[A-Za-z0-9][\w.+-]*"
_RULE = "of letters, digits, '.', '+', '-' and single '_'"
ALIGNMENTS: Registry[type[Alignment]] = Registry(
    "alignment",
    AlignmentError,
    "",
    r"(?!.*__)[A-Za-z][\w.]*",
    "of letters, digits, '.' and single '_'",
    "xalign_models.alignments",
)
BACKBONES: Registry[BackboneSpec] = Registry(
    "backbone", ModelError, "xalign models", _NAME, _RULE, "xalign_models.models.catalogue"
)
SOURCES: Registry[Callable[[str], Any]] = Registry(
    "source", ModelError, "", r"[a-z][a-z0-9]+", "of small letters and digits", "xalign_models.backbones.sources"
)
CORPORA: Registry[Any] = Registry(
    "corpus",
    DataError,
    "xalign corpora",
    r"[A-Za-z][\w-]*",
    "of letters, digits, '-' and '_'",
    "xalign_models.corpora",
)
MODULES: Registry[type[Any]] = Registry("module", ModelError, "", r"[\w.]+", "a class' full name")
TASKS: Registry[type[Any]] = Registry("task", DataError, "xalign tasks", _NAME, _RULE)
BENCHMARKS: Registry[Any] = Registry("benchmark", DataError, "xalign tasks", r"\S.*\S", "of two characters or more")
ANALYSES: Registry[Callable[..., Any]] = Registry("analysis", DataError, "xalign analyse", _NAME, _RULE)


@dataclass(frozen=True)
class Part:
    """A part of a task that belongs to a benchmark.

    Attributes:
        task: Its name, ours or mteb's.
        subsets: Its subsets; empty for all.
        splits: Its splits; empty for the task's own.
    """

    task: str
    subsets: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """Tasks that are scored together.

    Attributes:
        parts: The tasks.
        description: One line.
        board: Function of results, name and models that makes its leaderboard, or its ``"module:attr"``; None for the
            default.
    """

    parts: tuple[Part, ...]
    description: str
    board: Any = None

    @property
    def whole(self) -> bool:
        """Whether all subsets and splits of its tasks count."""
        return not any(part.subsets or part.splits for part in self.parts)

    def make_board(self, results: Any, name: str, models: Any) -> Any:
        """Its own leaderboard.

        Raises:
            XAlignError: There are no results.
        """
        return (imported(self.board) if isinstance(self.board, str) else self.board)(results, name, models)


def task_facts(cls: Any) -> dict[str, Any]:
    """A task's entry in lists: main score, numbers of languages and subsets, description."""
    metadata = cls.metadata
    return {
        "score": metadata.main_score,
        "languages": len(metadata.languages),
        "subsets": len(metadata.hf_subsets),
        "description": metadata.description,
    }


class Register:
    """Registers things of each kind: ``from xalign_models import register``."""

    def alignment(self, cls: type[Value]) -> type[Value]:
        """Register a subclass of :class:`~xalign_models.alignments.Alignment` under its ``method``; a decorator.

        Raises:
            PluginError: It is no alignment class, or its name is invalid or taken.
        """
        if not inspect.isclass(cls) or not isinstance(getattr(cls, "method", None), str):
            raise PluginError(f"alignment {cls!r} cannot be registered: it must be a class with a `method`, its name.")
        description = (inspect.getdoc(cls) or "").split("\n")[0]
        method: Any = cls
        ALIGNMENTS.register(method.method, method, parallel=method.parallel, description=description)
        return cls

    def module(self, cls: type[Value]) -> type[Value]:
        """Register the torch module of an alignment, so that saved models may name it; a decorator.

        Raises:
            PluginError: Its name is taken.
        """
        MODULES.register(f"{cls.__module__}.{cls.__qualname__}", cls)
        return cls

    def backbone(self, spec: BackboneSpec | str, model: str = "", **fields: Any) -> BackboneSpec:
        """Register a backbone, which gives a model with each registered alignment too.

        Args:
            spec: The spec, or a name.
            model: With a name: asset name, directory or hub id.
            **fields: With a name: further fields of a BackboneSpec, such as ``layer`` or ``prompts``.

        Raises:
            PluginError: The name is invalid or taken.
            ModelError: A field is out of its limits.
        """
        spec = BackboneSpec(spec, model, **fields) if isinstance(spec, str) else spec
        BACKBONES.register(spec.name, spec)
        return spec

    def source(self, scheme: str, source: Callable[[str], Any] | str, description: str = "") -> None:
        """Register the source of vectors for backbones whose ``model`` is ``scheme:...``.

        Args:
            scheme: The text before the colon.
            source: A :class:`~xalign_models.backbones.sources.Source`, or ``"module:Class"``.
            description: One line.

        Raises:
            PluginError: The scheme is invalid or taken.
        """
        SOURCES.register(scheme, source, description=description)

    def corpus(
        self, name: str, *, kind: str = "parallel", trains: Iterable[str] = (), description: str = ""
    ) -> Callable[[Value], Value]:
        """Register a corpus: a decorator of the function that opens it.

        ``load(part, path=None, local=False)`` returns a :class:`~xalign_models.corpora.Corpus`, from ``path`` if given,
        and without downloads if ``local``.

        Args:
            name: Its name, after which users may write a colon and a part.
            kind: ``monolingual``, ``parallel`` or ``pairs``.
            trains: Names of the tasks and data sets that contain its text.
            description: One line.

        Raises:
            PluginError: The name is invalid or taken, or the kind is unknown.
        """
        if kind not in {"monolingual", "parallel", "pairs"}:
            raise PluginError(f"corpus {name!r}: kind {kind!r} is not monolingual, parallel or pairs.")

        def add(load: Value) -> Value:
            CORPORA.register(name, load, kind=kind, trains=tuple(trains), description=description)
            return load

        return add

    def task(self, cls: Any, name: str = "", **facts: Any) -> Any:
        """Register an mteb task; a decorator of its class.

        Args:
            cls: The class, or ``"module:Class"``, which keeps lists fast; then the other arguments are needed.
            name: As in the class' metadata.
            **facts: The class' :func:`task_facts`.

        Raises:
            PluginError: The name is invalid or taken.
        """
        if not isinstance(cls, str):
            if not hasattr(cls, "metadata"):
                raise PluginError(f"task {cls!r} cannot be registered: it must be an mteb task with `metadata`.")
            name, facts = cls.metadata.name, task_facts(cls)
        TASKS.register(name, cls, **facts)
        return cls

    def benchmark(self, name: str, tasks: Iterable[Any], description: str = "", board: Any = None) -> None:
        """Register a benchmark.

        Args:
            name: Its name.
            tasks: Names of tasks, ours or mteb's; or :class:`Part` of them.
            description: One line.
            board: ``board(results, name, models)`` makes its leaderboard; None for the default.

        Raises:
            PluginError: The name is invalid or taken.
        """
        parts = tuple(Part(task) if isinstance(task, str) else task for task in tasks)
        description = description or ", ".join(part.task for part in parts)
        BENCHMARKS.register(name, Benchmark(parts, description, board), description=description)

    def analysis(self, name: str, description: str, analyse: Any = None) -> Any:
        """Register an analysis, which answers a question about models with tables and figures.

        Args:
            name: Its name for ``xalign analyse``.
            description: One line.
            analyse: Function of a :class:`~xalign_models.analysis.Request` that returns
                :class:`~xalign_models.analysis.Findings`, or its ``"module:attr"``. None returns a decorator.

        Raises:
            PluginError: The name is invalid or taken.
        """

        def add(analyse: Any) -> Any:
            ANALYSES.register(name, analyse, description=description)
            return analyse

        return add if analyse is None else add(analyse)


register = Register()
