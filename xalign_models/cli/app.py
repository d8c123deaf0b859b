"""The application: its commands, the global options, and the handling of errors."""

import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core
import typer.main
from typer import Option

from xalign_models import __version__
from xalign_models.cli.analysis import analyse
from xalign_models.cli.assets import group as assets_group
from xalign_models.cli.atlas import choose
from xalign_models.cli.atlas import group as import_group
from xalign_models.cli.atlas import updates as atlas_group
from xalign_models.cli.common import fail, out
from xalign_models.cli.gate import group as gate_group
from xalign_models.cli.index import group as index_group
from xalign_models.cli.leaderboard import leaderboard
from xalign_models.cli.lira import translate
from xalign_models.cli.models import FitCommand, corpora, fit, models, tasks
from xalign_models.cli.publishing import mteb_command, paper, publish, submit
from xalign_models.cli.recommend import recommend
from xalign_models.cli.run import run
from xalign_models.cli.serve import serve
from xalign_models.cli.store import group as store_group
from xalign_models.cli.training import group as train_group
from xalign_models.cli.trial import try_
from xalign_models.cli.vectors import apply, export, parity
from xalign_models.cli.verify import audit, reproduce, verify
from xalign_models.errors import XAlignError, one_line, plain
from xalign_models.plugins import add_plugin

GROUPS = {
    "Try": ("try", "recommend", "choose"),
    "Score": ("run", "leaderboard", "analyse", "audit", "reproduce", "verify"),
    "Fit": ("fit", "train", "translate"),
    "Deploy": ("apply", "export", "serve", "parity"),
    "Index": ("index",),
    "Guard": ("gate",),
    "Publish": ("paper", "publish", "submit"),
    "List": ("models", "tasks", "corpora"),
    "Maintain": ("assets", "store", "atlas", "import", "mteb"),
}
"""Commands by what people do, in the order of the help."""


class Commands(typer.core.TyperGroup):
    """The application, whose help lists the commands by :data:`GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group of commands."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(1000)) for name in names])


app = typer.Typer(
    cls=Commands,
    help="Fit, score and compare cross-lingually aligned text embeddings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_command: Callable[..., None]
for _command in (
    analyse, apply, audit, choose, corpora, export, leaderboard, models, paper, parity, publish, recommend, reproduce,
    run, serve, submit, tasks, translate, verify,
):  # fmt: skip
    app.command()(_command)
app.command("try")(try_)
app.command(cls=FitCommand)(fit)
_all_to_mteb = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
app.command("mteb", context_settings=_all_to_mteb)(mteb_command)
for _name, _group in {
    "assets": assets_group, "atlas": atlas_group, "gate": gate_group, "import": import_group, "index": index_group,
    "store": store_group, "train": train_group,
}.items():  # fmt: skip
    app.add_typer(_group, name=_name)
_EXTRAS = {
    "accelerate": "train",
    "faiss": "faiss",
    "gguf": "llm",
    "lancedb": "lancedb",
    "matplotlib": "plots",
    "onnx": "onnx",
    "peft": "train",
    "psycopg": "postgres",
    "qdrant_client": "qdrant",
    "sacrebleu": "train",
    "sentencepiece": "llm",
    "starlette": "serve",
    "uvicorn": "serve",
}
"""Optional package -> the extra that installs it."""
_INTERRUPTED = 130  # typer's exit status for a keyboard interrupt


class _Level(logging.Formatter):
    """The level before a message, as Python's own warnings have it; information is printed as it is."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno == logging.INFO else f"{record.levelname.lower()}: {text}"


def _plug_in(sources: list[str] | None) -> None:
    for source in sources or ():
        add_plugin(source)


def _version(requested: bool) -> None:
    if requested:
        out.print(f"xalign {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, Option("--debug", help="Show tracebacks and debug messages.")] = False,
    version: Annotated[
        bool, Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    plugin: Annotated[
        list[str] | None,
        Option(
            "--plugin",
            metavar="FILE|MODULE",
            help="Python file or module that registers models, tasks or methods.",
            callback=_plug_in,
            is_eager=True,
            expose_value=False,
        ),
    ] = None,
) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Level())
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler])
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # one line, without a source line
    if not debug:  # information of ours, and none of other packages
        logging.getLogger("xalign_models").setLevel(logging.INFO)
        for name in ("mteb", "sentence_transformers", "httpx"):
            logging.getLogger(name).setLevel(logging.ERROR)
        for name in ("DATASETS", "HF_HUB", "TRANSFORMERS"):  # these set their level when they are imported
            os.environ.setdefault(f"{name}_VERBOSITY", "error")


def _complete(command: Any, plugin: Any) -> None:
    """Give all subcommands the option ``--plugin``, and a summary that is not cut in the list of commands."""
    for below in getattr(command, "commands", {}).values():
        below.params.append(plugin)
        below.short_help = " ".join((below.help or "").split()).partition(". ")[0].rstrip(".")
        _complete(below, plugin)


def root() -> Any:
    """The application as a command of click's, complete with all subcommands."""
    command: Any = typer.main.get_command(app)
    _complete(command, next(option for option in command.params if option.name == "plugin"))
    return command


def main() -> None:
    """Run a command. Exits with 0 when done, 1 when done with failures or regressions, and 2 on an error."""
    try:
        status = root()(prog_name="xalign", standalone_mode=False)
    except typer.Abort:
        fail("aborted.")
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: click's way to print its help
            error.show()  # type: ignore[attr-defined]
            sys.exit(2)
        if "--debug" in sys.argv:
            raise
        if isinstance(error, ModuleNotFoundError) and (name := str(error.name).partition(".")[0]) in _EXTRAS:
            fail(f"This needs {name}, which is not installed; run: pip install 'xalign[{_EXTRAS[name]}]'.")
        if isinstance(error, XAlignError | OSError):  # OSError: a full disk, a folder that cannot be written
            fail(one_line(error))
        if isinstance(error, RuntimeError) and "home directory" in str(error):  # of pathlib, in mteb
            fail("This user has no home directory. Set HOME to a folder.")
        if hasattr(error, "format_message"):  # a usage error, of typer's own copy of click
            context = getattr(error, "ctx", None)  # of the last command that there is; click's parser gives none
            path = context.command_path if context else "xalign"
            message = " ".join(error.format_message().split()).rstrip(".")
            end = "" if message.endswith("?") else "."
            fail(f"{plain(message)}{end} `{path} --help` lists what is possible.")
        if isinstance(error, UnicodeEncodeError) and (
            odd := [text for text in sys.argv if text.encode(errors="ignore").decode() != text]
        ):
            fail(f"{plain(repr(odd[0]))} is not UTF-8. Type it again in a UTF-8 terminal.")
        fail(f"{one_line(error)}. This is unexpected; `xalign --debug ...` shows where it happened.")
    if status == _INTERRUPTED:
        raise KeyboardInterrupt
    sys.exit(status or 0)
