"""``xalign train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xalign_models.cli.common import Device, check_output, err, language_codes, out, split_list
from xalign_models.specs import Dtype

OVER = "Several, or with commas: later ones go over earlier ones."
Change = Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE over --config; dots lead to subfields.")]

group = typer.Typer(help="Train weights that align a backbone.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="train")


def say(name: str, directory: Path) -> None:
    """Print a trained model's name and directory, and on standard error the outcome; only in the main process."""
    from xalign_models.training.processes import is_main_process
    from xalign_models.training.records import verdict

    if is_main_process():
        out.print(f"{name}: {directory}", highlight=False, soft_wrap=True)
        if text := verdict(directory):
            err.print(text, highlight=False, soft_wrap=True)


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
    rank: Annotated[int, typer.Option(help="Rank of the LoRA matrices.")] = 64,
    tau: Annotated[float, typer.Option(help="Temperature.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Seed of LoRA's matrices, the order of pairs and dropout.")] = 0,
    dtype: Annotated[Dtype | None, typer.Option(help="Type of weights in training; by default the backbone's.")] = None,
    device: Device = None,
) -> None:
    """Draw translations together with a few pairs (LoRA on all linear layers) and write the model.

    The same command resumes an interrupted training from its last checkpoint.
    """
    from xalign_models import models
    from xalign_models.training.contrastive.config import PAPER_LANGUAGES, ContrastiveConfig
    from xalign_models.training.contrastive.run import train

    check_output(output)
    config = ContrastiveConfig(
        pairs=pairs, samples=samples, languages=language_codes(languages, PAPER_LANGUAGES), epochs=epochs,
        max_steps=max_steps, batch_size=batch_size, accumulation=accumulation, cached=cached, learning_rate=lr,
        rank=rank, tau=tau, seed=seed, dtype=dtype,
    )  # fmt: skip
    spec = train(models.find_spec(backbone), config, output, device)
    say(spec.name, output)


@group.command()
def lusifer(
    stage: Annotated[
        int, typer.Option(min=0, max=2, help="1 alignment, 2 representation fine-tuning; 0 neither, the baseline.")
    ],
    config: Annotated[list[str], typer.Option(help=f"small, paper, an ablation of them, or a YAML file. {OVER}")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory; by default where the model's name finds it.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="Stage 2: directory of stage 1's model; by default where stage 1 wrote it.")
    ] = None,
    change: Change = None,
    device: Device = None,
) -> None:
    """Join a multilingual encoder to an English language model, with English text, and write the model.

    The same command resumes an interrupted training from its last checkpoint.
    """
    from xalign_models.training.lusifer.config import load_config
    from xalign_models.training.lusifer.run import train, untrained

    if output is not None:
        check_output(output)
    read = load_config(split_list(config), change or ())
    spec, directory = train(read, stage, output, start, device) if stage else untrained(read, output)
    say(spec.name, directory)
