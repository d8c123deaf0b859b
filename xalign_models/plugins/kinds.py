"""The registries, and the functions that add to them."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from xalign_models.builtin import SOURCES as BUILTIN_SOURCES
from xalign_models.errors import AlignmentError, DataError, ModelError, PluginError
from xalign_models.plugins.registry import Registry, imported
from xalign_models.specs import BackboneSpec

Value = TypeVar("Value")

_NAME = r"(?!.*__)[A-Za-z0-9][\w.+-]*"
_RULE = "of letters, digits, '.', '+', '-' and single '_'"
ALIGNMENTS: Registry[type[Any]] = Registry(
    "alignment", AlignmentError, "", r"(?!.*__)[A-Za-z][\w.]*", "of letters, digits, '.' and single '_'"
)
BACKBONES: Registry[BackboneSpec] = Registry("backbone", ModelError, "xalign models", _NAME, _RULE)
SOURCES: Registry[Callable[[str], Any]] = Registry(
    "source", ModelError, "", r"[a-z][a-z0-9]+", "of lower-case letters and digits"
)
CORPORA: Registry[Any] = Registry(
    "corpus", DataError, "xalign corpora", r"[A-Za-z][\w-]*", "of letters, digits, '-' and '_'"
)
MODULES: Registry[type[Any]] = Registry("module", ModelError, "", r"[\w.]+", "a class's full name")
TASKS: Registry[type[Any]] = Registry("task", DataError, "xalign tasks", _NAME, _RULE)
BENCHMARKS: Registry[Any] = Registry("benchmark", DataError, "xalign tasks", r"\S.*\S", "of two characters or more")
ANALYSES: Registry[Callable[..., Any]] = Registry("analysis", DataError, "xalign analyse", _NAME, _RULE)


@dataclass(frozen=True)
class Part:
    """The part of a task that belongs to a benchmark.

    Attributes:
        task: Name of the task, ours or mteb's.
        subsets: Subsets that count; empty for all.
        splits: Splits that count; empty for the task's own.
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
        board: Function of results, name and models that makes the leaderboard, or its ``"module:attr"``; None for the
            default.
    """

    parts: tuple[Part, ...]
    description: str
    board: Any = None

    @property
    def whole(self) -> bool:
        """Whether every subset and split of the tasks counts."""
        return not any(part.subsets or part.splits for part in self.parts)

    def make_board(self, results: Any, name: str, models: Any) -> Any:
        """Make the leaderboard, or raise an XAlignError if there are no results."""
        return (imported(self.board) if isinstance(self.board, str) else self.board)(results, name, models)


def task_facts(cls: Any) -> dict[str, Any]:
    """Facts that lists and the page show about a task: main score, numbers of languages and subsets, description."""
    metadata = cls.metadata
    return {
        "score": metadata.main_score,
        "languages": len(metadata.languages),
        "subsets": len(metadata.hf_subsets),
        "description": metadata.description,
        "type": metadata.type,
        "domains": list(metadata.domains or ()),
        "reference": metadata.reference,
    }


class Register:
    """Adds plug-ins to the registries; each method registers one kind.

    A name that is invalid or taken raises a PluginError.

    Examples:
        >>> from xalign_models import register
        >>> from xalign_models.plugins import BACKBONES
        >>> spec = register.backbone("my-encoder", "organisation/model", layer=8)
        >>> "my-encoder" in BACKBONES
        True
    """

    def alignment(self, cls: type[Value]) -> type[Value]:
        """Register a subclass of :class:`~xalign_models.alignments.Alignment` under its ``method``; a decorator.

        Raises:
            PluginError: The class has no ``method``, its name is invalid or taken, or it overrides ``apply`` without
                ``module``: its encoder would apply another map than its vectors.
        """
        if not inspect.isclass(cls) or not isinstance(getattr(cls, "method", None), str):
            raise PluginError(f"alignment {cls!r} cannot be registered: it must be a class with a `method`, its name.")
        owners = [next((kind for kind in cls.__mro__ if part in vars(kind)), cls) for part in ("apply", "module")]
        if cls.__mro__.index(owners[0]) < cls.__mro__.index(owners[1]):
            raise PluginError(
                f"alignment {cls.__name__} cannot be registered: it overrides `apply`, so it needs a `module` that "
                "returns the torch module of that map; see `Alignment.module`."
            )
        description = (inspect.getdoc(cls) or "").split("\n")[0]
        method: Any = cls
        ALIGNMENTS.register(method.method, method, parallel=method.parallel, description=description)
        return cls

    def module(self, cls: type[Value]) -> type[Value]:
        """Register a torch module, so that saved models may name it; a decorator.

        A module that treats each text by itself sets ``takes_packs = True``. Otherwise the texts of a batch are padded
        before it, which is slower, as it might mix those of a pack.
        """
        MODULES.register(f"{cls.__module__}.{cls.__qualname__}", cls)
        return cls

    def backbone(self, spec: BackboneSpec | str, model: str = "", **fields: Any) -> BackboneSpec:
        """Register a backbone. ``xalign`` then also knows its models with each registered alignment.

        Args:
            spec: The spec, or the backbone's name.
            model: With a name: asset name, directory or hub id.
            **fields: With a name: further fields of a BackboneSpec, such as ``layer`` or ``prompts``.

        Raises:
            ModelError: A field has an invalid value.
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
        """
        SOURCES.register(scheme, source, description=description)

    def corpus(
        self, name: str, *, kind: str = "parallel", trains: Iterable[str] = (), description: str = ""
    ) -> Callable[[Value], Value]:
        """Register a corpus: a decorator of the function that opens it.

        ``load(part, path=None, local=False)`` returns a :class:`~xalign_models.corpora.Corpus`, from ``path`` if given,
        and without downloads if ``local``.

        Args:
            name: Name of the corpus, after which users may write a colon and a part.
            kind: ``monolingual``, ``parallel`` or ``pairs``.
            trains: Names of the tasks and data sets that contain its text.
            description: One line.

        Raises:
            PluginError: The kind is unknown.
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
            cls: The class, or ``"module:Class"``, which keeps lists fast and needs the other arguments.
            name: Name in the class's metadata.
            **facts: The class's :func:`task_facts`.
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
            name: Name of the benchmark.
            tasks: Names of tasks, ours or mteb's, or a :class:`Part` of each.
            description: One line.
            board: ``board(results, name, models)`` makes the leaderboard; None for the default.
        """
        parts = tuple(Part(task) if isinstance(task, str) else task for task in tasks)
        description = description or ", ".join(part.task for part in parts)
        BENCHMARKS.register(name, Benchmark(parts, description, board), description=description)

    def analysis(self, name: str, description: str, analyse: Any = None, options: Iterable[str] | None = None) -> Any:
        """Register an analysis, which answers a question about models with tables and figures.

        Args:
            name: Name for ``xalign analyse``.
            description: One line.
            analyse: Function of a :class:`~xalign_models.analysis.Request` that returns
                :class:`~xalign_models.analysis.Findings`, or its ``"module:attr"``. None returns a decorator.
            options: Options that it reads, by default all; the command refuses the others among models, results, rows,
                languages and tasks. ``results`` among them says that it reads results alone, so that
                its models are those of the results.
        """

        def add(analyse: Any) -> Any:
            read = {} if options is None else {"options": tuple(options)}
            ANALYSES.register(name, analyse, description=description, **read)
            return analyse

        return add if analyse is None else add(analyse)


register = Register()

for _scheme, (_place, _description) in BUILTIN_SOURCES.items():
    register.source(_scheme, _place, _description)
