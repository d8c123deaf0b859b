"""``xalign publish | submit | paper | mteb``."""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from xalign_models.cli.common import print_json, say, split_list
from xalign_models.cli.options import Json, Output, Tasks
from xalign_models.errors import ModelError, ResultsError, plural
from xalign_models.paths import unwritable

SHOWN = 20
"""Maximum number of problems that a terminal shows."""


def publish(
    model: Annotated[Path, Argument(help="Directory of a saved model.")],
    to: Annotated[str, Option("--to", help="Directory to write to, or `hub` to upload.")],
    repository: Annotated[str | None, Option(help="Repository on the hub as org/name.")] = None,
    output: Output = ".",
    private: Annotated[bool, Option("--private", help="Make the repository on the hub private.")] = False,
    write: Annotated[bool, Option("--write", help="Publish; without this, only list the files.")] = False,
) -> None:
    """Publish a saved model with its scores; a dry run without --write."""
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
        for path in sorted(model.rglob("*")):
            if path.is_file() and path != model / "README.md":
                say(f"{path.stat().st_size:>12,}  {path.relative_to(model)}")
        say(f"{len(card.encode()):>12,}  README.md, with {plural(card.count('dataset:'), 'score')}")
        say(f"would go to {target}; add --write to publish.")
    elif to == "hub":
        with tempfile.TemporaryDirectory() as folder:
            prepared = publishing.prepare(model, Path(folder) / "model", results)
            say(f"published {publishing.upload(prepared, str(repository), private=private)}")
    else:
        say(f"wrote {publishing.prepare(model, Path(to), results)}")


def submit(
    output: Output = ".",
    check: Annotated[bool, Option("--check", help="List what the repository would refuse.")] = False,
    json: Json = False,
) -> None:
    """Check results against the rules of mteb's public repository.

    Exits with 0 if the repository would accept them and with 1 if not.
    """
    from xalign_models.evaluation.publishing import problems

    if not check:
        raise ResultsError("Add --check: this command only checks results; `xalign mteb submit-results` sends them.")
    refusals = problems(Path(output))
    if json:
        print_json(refusals)
    else:
        for line in refusals[:SHOWN]:
            say(line)
        if len(refusals) > SHOWN:
            say(f"... and {len(refusals) - SHOWN} more; --json has all.")
        say(f"{plural(len(refusals), 'problem')}." if refusals else "The repository's checks pass.")
    raise typer.Exit(1 if refusals else 0)


def paper(
    new: Annotated[str, Option("--new", help="Your model: its name, directory or hub id.")],
    to: Annotated[Path, Option("--to", help="Directory to write paper.tex and its parts to.")],
    against: Annotated[
        list[str] | None,
        Option("--against", help="Models to compare with, or methods on the same backbone, such as lsar,affine."),
    ] = None,
    tasks: Tasks = None,
    output: Output = ".",
) -> None:
    """Write a model's comparison with others as LaTeX: table, figure, methods, references.

    All means are over the languages that every model has. The unaligned backbone is compared, too. `reproduce.sh`
    repeats the comparison, and `provenance.json` lists the revisions of models and text.
    """
    from xalign_models.boards.paper import compare, write_paper
    from xalign_models.models.mteb import described
    from xalign_models.results.reading import read_results

    names, chosen = split_list(against), split_list(tasks)
    comparison = compare(read_results(Path(output)), new, names, chosen or None)
    scored = list(dict.fromkeys(task for _, task in comparison.tables))
    others = [row.name for row in comparison.board.rows if row.name != comparison.new]
    command = ["xalign", "paper", "--new", comparison.new, "--against", ",".join(others), "--tasks", ",".join(scored)]
    if to.is_file() or unwritable(to):
        raise ResultsError(f"--to {to} cannot be written; choose a new directory.")
    write_paper(comparison, to, described(scored), [*command, "--to", "."])
    say(f"wrote {to / 'paper.tex'}: {comparison.label} against {plural(len(others), 'model')} on {', '.join(scored)}")


def mteb_command(context: typer.Context) -> None:
    """Run mteb's command line with the tasks and models of xalign."""
    import mteb.cli

    from xalign_models.models.mteb import register_with_mteb

    register_with_mteb()
    sys.argv = ["xalign mteb", *(context.args or ["--help"])]
    mteb.cli.main()
