"""Options that several commands share. A command with a parameter that is a dataclass has its fields as options."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from typer import Context, Option

from xalign_models.backbones.endpoints.settings import BUDGET, PRICE, Settings
from xalign_models.cli.common import given, language_codes, split_list, tell
from xalign_models.errors import DataError, ModelError
from xalign_models.plugins import TASKS
from xalign_models.specs import Dtype, Pooling, Precision, Vectors

if TYPE_CHECKING:
    from xalign_models.cluster import Cluster


def _model_names(incomplete: str) -> list[str]:
    from xalign_models.models.catalogue import specs

    names = (name.removeprefix("xalign/") for name in specs())
    return [name for name in names if name.startswith(incomplete)]


def _task_names(incomplete: str) -> list[str]:
    return [name for name in TASKS if name.startswith(incomplete)]


def known_languages(values: list[str] | None) -> list[str] | None:
    """Refuse unknown language codes before the seconds that a command's imports take."""
    language_codes([code for code in split_list(values) if code not in {"all", "core"}], None)
    return values


Json = Annotated[bool, Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str | None, Option(help="cpu, cuda or mps; by default the fastest available.")]
Devices = Annotated[str | None, Option("--device", help="cpu, cuda or mps, or several: cuda:0,cuda:1 or cuda:all.")]
Output = Annotated[str, Option("--output", "-o", help="Folder that contains results/.")]
Models = Annotated[
    list[str] | None,
    Option("--models", "-m", help="Names, directories or hub ids of models.", autocompletion=_model_names),
]
Tasks = Annotated[
    list[str] | None, Option("--tasks", "-t", help="Names of tasks, xalign's or mteb's.", autocompletion=_task_names)
]
Languages = Annotated[list[str] | None, Option(help="Language codes; by default `all`.", callback=known_languages)]
ForUse = Annotated[
    Literal["retrieval", "similarity", "classification"],
    Option("--for", help="Use that must not suffer, beside retrieval and similarity."),
]
Limit = Annotated[int | None, Option(min=1, help="Maximum number of rows per language and text.")]
Data = Annotated[
    list[str] | None,
    Option(help="Your own text as NAME=DIR or NAME=test:DIR, for OwnParallel-NAME, or OwnParallel if NAME is own."),
]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: each parameter that is a dataclass is replaced by the dataclass's fields."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: own.annotation for name, own in signature.parameters.items() if is_dataclass(own.annotation)
    }
    options = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        made = {name: group(**{field: values.pop(field) for field in options[name]}) for name, group in groups.items()}
        command(**values, **made)

    nested = [options[name].values() if name in groups else [own] for name, own in signature.parameters.items()]
    flat = [own.replace(kind=inspect.Parameter.KEYWORD_ONLY) for own in chain.from_iterable(nested)]
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {own.name: own.annotation for own in flat}
    return run


def refuse_idle(context: Context, names: Collection[str], needed: str) -> None:
    """Refuse options that have no effect without another one.

    Raises:
        ModelError: The command line has such an option.
    """
    if idle := ", ".join(given(context, names)):
        raise ModelError(f"{idle}: no effect without {needed}; add {needed}, or leave out {idle}.")


@dataclass(frozen=True)
class VectorOptions:
    """Fields of a backbone's spec that reduce its vectors."""

    truncate_dim: Annotated[int | None, Option(help="Keep this many leading dimensions (Matryoshka models).")] = None
    vectors: Annotated[
        Vectors | None, Option(help="Form of the vectors: of unit length, 8-bit integers, or the signs as bits.")
    ] = None


@dataclass(frozen=True)
class BackboneOptions(VectorOptions):
    """Fields of a backbone's spec."""

    layer: Annotated[int | None, Option(help="Layer whose output is pooled; 0 for the embeddings.")] = None
    pooling: Annotated[Pooling | None, Option(help="How to pool token vectors into one vector.")] = None
    dtype: Annotated[Dtype | None, Option(help="Type of weights and activations.")] = None
    precision: Annotated[
        Precision | None,
        Option(help="Precision of matrix products: int8 on CPUs, tf32 on NVIDIA GPUs; part of the model's name."),
    ] = None
    backend: Annotated[
        str | None,
        Option(help="Runtime: torch, compiled (torch on GPUs), onnx, openvino, or the model's onnx/NAME.onnx."),
    ] = None
    max_tokens: Annotated[int | None, Option(help="Cut texts at this many tokens.")] = None
    prompt: Annotated[list[str] | None, Option(help='Text before inputs as KEY=TEXT, e.g. "default=query: ".')] = None

    def fields(self) -> dict[str, Any]:
        """The options as fields of a BackboneSpec; None where an option was not given.

        Raises:
            ModelError: A prompt has no key, or a key that nothing looks up.
        """
        pairs = [tuple(option.split("=", 1)) for option in self.prompt or ()]
        if bad := [pair for pair in pairs if len(pair) != 2]:
            raise ModelError(f'--prompt {bad[0][0]!r} has no key; write it as --prompt "default=query: ".')
        if unused := [key for key, *_ in pairs if not _is_prompt_key(key)]:
            raise ModelError(
                f"--prompt {unused[0]}=...: nothing looks up this key; give default, query, document, a language such "
                "as deu-Latn, or the name or type of a task (`xalign tasks`)."
            )
        given = asdict(self)
        return {"prompts": tuple(pairs) or None, **{name: given[name] for name in given if name != "prompt"}}


def _is_prompt_key(key: str) -> bool:
    """Whether a key can select one of BackboneSpec's prompts."""
    from xalign_models.languages import canonical, is_canonical

    if is_canonical(key):
        return canonical(key) == key
    if key in {"default", "query", "document"}:
        return True
    from xalign_models.models.mteb import check_task

    with suppress(DataError):
        check_task(key)
        return True
    from mteb.abstasks.task_metadata import TaskType

    return key in get_args(TaskType)


@dataclass(frozen=True)
class SpendingOptions:
    """Limits on what endpoints may cost."""

    budget: Annotated[str | None, Option(help="Limit of spending at endpoints: tokens (2M) or dollars (5usd).")] = None
    price_per_million: Annotated[float | None, Option(help="Price of a million tokens in dollars.")] = None

    def set(self) -> None:
        """Set the environment variables that endpoints read.

        Raises:
            ModelError: A value is not an amount.
        """
        for variable, value in ((BUDGET, self.budget), (PRICE, self.price_per_million)):
            if value is not None:
                os.environ[variable] = str(value)
        Settings.from_environment()


@dataclass(frozen=True)
class EngineOptions:
    """Where the work is done: in this process, or on the workers of a Ray cluster."""

    engine: Annotated[
        Literal["local", "ray"], Option(help="Work in this process, or on the workers of a Ray cluster.")
    ] = "local"
    address: Annotated[
        str | None, Option(help="Address of a running Ray cluster; by default xalign starts one here.")
    ] = None
    cpus_per_task: Annotated[int, Option(help="Cores and threads of each Ray task.")] = 1

    def cluster(self, gpus: float | None, device: str | None = None) -> Cluster | None:
        """The cluster to use, with the GPUs of a task and the workers' device; None for this process.

        Raises:
            ModelError: A value is out of range.
        """
        if self.engine == "local":
            return None
        from xalign_models.cluster import Cluster

        return Cluster(self.address, self.cpus_per_task, gpus, device, tell)

    def mapping(self) -> dict[str, Any]:
        """The argument ``each`` of functions that map parts or batches of vectors; none for this process."""
        cluster = self.cluster(gpus=0)
        return {"each": cluster.map} if cluster else {}
