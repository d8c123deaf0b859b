"""``xalign train``."""

import dataclasses
import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperOption

from xalign_models.cli.common import check_output, language_codes, print_rows, say, split_list, tell
from xalign_models.cli.options import Device
from xalign_models.errors import ModelError

if TYPE_CHECKING:
    from xalign_models.training.plan import Row

OVER = "Repeat it or separate with commas: later ones override fields of earlier ones."
Change = Annotated[
    list[str] | None,
    Option(
        "--set", help="Set one field of the configuration as FIELD=VALUE; dots reach nested fields. May be repeated."
    ),
]
Trained = Annotated[
    Path | None, Option("--output", "-o", help="Directory to write to; by default named after the model.")
]

group = typer.Typer(help="Train weights that align a backbone.", no_args_is_help=True)


def report(name: str, directory: Path) -> None:
    """Print a trained model's name and directory, and on standard error the outcome; only in the main process."""
    from xalign_models.training.processes import is_main_process
    from xalign_models.training.records import training_record

    if is_main_process():
        say(f"{name}: {directory}")
        if verdict := training_record(directory).get("verdict"):
            tell(str(verdict))


def print_plan(rows: Sequence["Row"]) -> None:
    """Print a plan and its total; one beyond all measure is an error."""
    from xalign_models.training.plan import checked

    print_rows([row._asdict() for row in checked(rows)], right=("number", "seconds", "gigabytes", "hours"))


def as_changes(**fields: Any) -> list[str]:
    """Options that set fields, as values of ``--set``; None sets nothing."""
    return [f"{name}={json.dumps(value)}" for name, value in fields.items() if value is not None]


def field_help(kind: type[Any]) -> dict[str, str]:
    """The documentation and default of each field of a configuration class, for the help of options."""
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", inspect.getdoc(kind) or "", re.MULTILINE)
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    shown = {name: ",".join(value) if isinstance(value, tuple) else value for name, value in defaults.items()}
    return {name: f"{' '.join(text.split())}  [default: {shown[name]}]" for name, text in entries}


class _ContrastiveCommand(TyperCommand):
    """Shows the configuration's fields: as the help of the options named after them, and as a list for ``--set``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from xalign_models.training.contrastive.config import ContrastiveConfig

        texts = field_help(ContrastiveConfig)
        for parameter in self.params:
            if isinstance(parameter, TyperOption) and not parameter.help:
                parameter.help = texts.pop(str(parameter.name), None)
        super().format_help(ctx, formatter)
        with formatter.section("Fields for --set"):
            formatter.write_dl(list(texts.items()))


@group.command(cls=_ContrastiveCommand)
def contrastive(
    backbone: Annotated[str, Option(help="Registered name, directory or hub id of the backbone.")],
    output: Annotated[Path, Option("--output", "-o", help="Directory to write the model to.")],
    config: Annotated[list[str] | None, Option(help=f"few (100 rows), or a YAML file. {OVER}")] = None,
    change: Change = None,
    pairs: Annotated[str | None, Option()] = None,
    samples: Annotated[int | None, Option()] = None,
    languages: Annotated[list[str] | None, Option()] = None,
    seed: Annotated[int | None, Option()] = None,
    device: Device = None,
) -> None:
    """Align languages by LoRA on all linear layers, trained on a few translations, and write the model.

    The same command resumes an interrupted training from its last checkpoint.
    """
    from xalign_models.models.names import find_spec
    from xalign_models.training.contrastive.config import load_config
    from xalign_models.training.contrastive.training import train

    check_output(output)
    changes = as_changes(pairs=pairs, samples=samples, languages=language_codes(languages, None), seed=seed)
    read = load_config(split_list(config), [*(change or ()), *changes])
    spec = train(find_spec(backbone), read, output, device)
    report(spec.name, output)


@group.command()
def lusifer(
    config: Annotated[list[str], Option(help=f"small, paper, one of its ablations, or a YAML file. {OVER}")],
    stage: Annotated[
        int | None,
        Option(
            min=0, max=2, help="1 alignment, 2 representation fine-tuning, 0 the untrained baseline; --plan shows all."
        ),
    ] = None,
    output: Trained = None,
    start: Annotated[
        Path | None, Option(help="Stage 2: directory of stage 1's model; by default where stage 1 wrote it.")
    ] = None,
    change: Change = None,
    plan: Annotated[bool, Option("--plan", help="Print steps, time and memory on an H100; train nothing.")] = False,
    device: Device = None,
) -> None:
    """Join a multilingual encoder to an English language model with English text alone, and write the model.

    The same command resumes an interrupted training from its last checkpoint.
    """
    from xalign_models.training.lusifer.config import load_config
    from xalign_models.training.lusifer.run import default_output, train, untrained
    from xalign_models.training.lusifer.run import plan as plan_stage

    read = load_config(split_list(config), change or ())
    if plan:
        numbers = (stage,) if stage else filter(read.stages.get, read.stages)
        print_plan([plan_stage(read, number) for number in numbers])
        return
    if stage is None:
        raise ModelError("--stage is missing: 1 is alignment, 2 representation fine-tuning, 0 the untrained baseline.")
    output = output or default_output(read, stage)
    check_output(output)
    spec, directory = train(read, stage, output, start, device) if stage else untrained(read, output)
    report(spec.name, directory)
