"""``xalign train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xalign_models.cli.app import Device, out, split_list
from xalign_models.errors import ModelError
from xalign_models.specs import Dtype

group = typer.Typer(help="Train weights that align a backbone.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="train")


@group.callback()
def _group() -> None:
    """Keep `train` a group while it has one command."""


@group.command()
def contrastive(
    backbone: Annotated[str, typer.Option(help="Registered backbone, directory or hub id.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write the model to.")],
    pairs: Annotated[
        str, typer.Option(help="Parallel text: ntrex, flores, gettext, tatoeba_pairs, own:DIR.")
    ] = "ntrex",
    samples: Annotated[int, typer.Option(help="Rows per language, from the top.")] = 1000,
    languages: Annotated[list[str] | None, typer.Option(help="Paired with English; by default ar,es.")] = None,
    epochs: Annotated[int | None, typer.Option(help="By default 10 for at most 100 samples, else 3.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Optimisation steps, instead of epochs.")] = None,
    batch_size: Annotated[int, typer.Option(help="Pairs encoded together: one's negatives are the others.")] = 32,
    accumulation: Annotated[int, typer.Option(help="Batches per optimisation step.")] = 4,
    cached: Annotated[bool, typer.Option("--cached", help="All pairs of a step as one batch of negatives.")] = False,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 5e-4,
    rank: Annotated[int, typer.Option(help="Of the LoRA matrices.")] = 64,
    tau: Annotated[float, typer.Option(help="Temperature.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Of LoRA's matrices, the order of pairs and dropout.")] = 0,
    dtype: Annotated[Dtype | None, typer.Option(help="Of the backbone while training; by default its own.")] = None,
    device: Device = None,
) -> None:
    """Draw translations together with a few pairs (LoRA on all linear layers) and write the model.

    Interrupted, the same command goes on from its last checkpoint.
    """
    from xalign_models import registry
    from xalign_models.contrastive.config import PAPER_LANGUAGES, ContrastiveConfig
    from xalign_models.contrastive.run import train
    from xalign_models.contrastive.training import is_main_process
    from xalign_models.languages import canonical

    if output.is_file() or (output.is_dir() and any(output.iterdir()) and not (output / "modules.json").is_file()):
        raise ModelError(f"--output {output} is there and is no model; choose a new directory.")
    codes = tuple(canonical(one) for one in split_list(languages))
    config = ContrastiveConfig(
        pairs=pairs, samples=samples, languages=codes or PAPER_LANGUAGES, epochs=epochs, max_steps=max_steps,
        batch_size=batch_size, accumulation=accumulation, cached=cached, learning_rate=lr, rank=rank, tau=tau,
        seed=seed, dtype=dtype,
    )  # fmt: skip
    spec = train(registry.find_spec(backbone), config, output, device)
    if is_main_process():
        out.print(f"{spec.name}: {output}", highlight=False, soft_wrap=True)
