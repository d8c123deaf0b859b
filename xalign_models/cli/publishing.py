"""``xalign publish | submit | mteb``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from xalign_models.cli.common import Json, Output, out, print_json
from xalign_models.errors import ModelError, ResultsError

SHOWN = 20
"""Maximum number of problems that a terminal shows."""


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(publish)
    app.command()(submit)
    app.command(
        "mteb",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )(mteb_command)


def publish(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    to: Annotated[str, typer.Option("--to", help="A directory, or hub.")],
    repository: Annotated[str | None, typer.Option(help="Of the hub: org/name.")] = None,
    output: Output = ".",
    private: Annotated[bool, typer.Option("--private", help="Of the hub: let no others see it.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Do it; without this, say what would be done.")] = False,
) -> None:
    """Publish a saved model with a card that has its scores; a dry run unless --write is given."""
    from xalign_models.evaluation import publishing
    from xalign_models.results.reading import read_results

    publishing.check(model)
    if to == "hub" and not repository:
        raise ModelError("--to hub needs --repository org/name.")
    try:
        results = read_results(Path(output))
    except ResultsError:
        results = None  # a card without scores
    else:
        from xalign_models.models.mteb import register_with_mteb

        register_with_mteb()
    target = f"https://huggingface.co/{repository}" if to == "hub" else to
    if not write:
        card = publishing.card_text(model, results)
        for path, size in publishing.contents(model):
            if path != "README.md":
                out.print(f"{size:>12,}  {path}", highlight=False, markup=False, soft_wrap=True)
        scores = card.count("dataset:")
        out.print(f"{len(card.encode()):>12,}  README.md, with {scores} scores", highlight=False, markup=False)
        out.print(f"would go to {target}; --write does it.", highlight=False, markup=False, soft_wrap=True)
    elif to == "hub":
        with tempfile.TemporaryDirectory() as folder:
            address = publishing.upload(
                publishing.prepare(model, Path(folder) / "model", results), str(repository), private=private
            )
        out.print(f"published {address}", highlight=False, markup=False, soft_wrap=True)
    else:
        out.print(
            f"wrote {publishing.prepare(model, Path(to), results)}", highlight=False, markup=False, soft_wrap=True
        )


def submit(
    output: Output = ".",
    check: Annotated[bool, typer.Option("--check", help="Say what the repository would refuse.")] = False,
    json: Json = False,
) -> None:
    """Check results as mteb's public results repository does: exit 0 if it would take them, 1 if not."""
    from xalign_models.evaluation.submission import problems
    from xalign_models.tables.escaping import escape

    if not check:
        raise ResultsError("Add --check: this command only checks results; `xalign mteb submit-results` sends them.")
    refusals = problems(Path(output))
    if json:
        print_json(refusals)
    else:
        for line in refusals[:SHOWN]:
            out.print(escape(line), highlight=False, markup=False, soft_wrap=True)
        if len(refusals) > SHOWN:
            out.print(f"... and {len(refusals) - SHOWN} more; --json has all.", highlight=False)
        out.print(f"{len(refusals)} problems." if refusals else "The repository's checks pass.", highlight=False)
    raise typer.Exit(1 if refusals else 0)


def mteb_command(context: typer.Context) -> None:
    """Mteb's own command line, which knows our tasks, benchmarks and models here."""
    import mteb.cli

    from xalign_models.models.mteb import register_with_mteb

    register_with_mteb()
    sys.argv = ["xalign mteb", *context.args]
    mteb.cli.main()
