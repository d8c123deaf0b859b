"""``xalign translate`` and ``xalign train lira``."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xalign_models.cli.common import Device, Json, check_output, err, language_codes, out, print_rows, split_list
from xalign_models.cli.training import OVER, Change, group, say
from xalign_models.errors import DataError, ModelError
from xalign_models.specs import Dtype

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xalign_models.training.lira.config import LiraConfig

PARTS = ("critic", "embeds", "translations", "multilingual", "queue")


class Stages(StrEnum):
    """Stages of a training to run."""

    ARCA = "arca"
    LASR = "lasr"
    ALL = "all"
    UNTRAINED = "untrained"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(translate)
    group.command(name="lira")(lira)
    group.command(name="lira-variant")(variant)


Translators = Annotated[
    list[str] | None,
    typer.Option(
        help="llm:MODEL, mt:MODEL, reference:CORPUS, corrupted:CORPUS, file:PATH; options like llm:MODEL?temperature=1."
    ),
]


def translate(
    texts: Annotated[
        list[str] | None, typer.Option(help="A .txt or .jsonl file, a corpus, or a task whose texts are translated.")
    ] = None,
    translators: Translators = None,
    config: Annotated[list[str] | None, typer.Option(help="Texts and translators of a training of LiRA.")] = None,
    change: Change = None,
    model: Annotated[Path | None, typer.Option(help="Translators of a trained LiRA.")] = None,
    critic: Annotated[
        str | None,
        typer.Option(help="Have it score them too: expected_score:MODEL or generate:MODEL; by default the config's."),
    ] = None,
    languages: Annotated[list[str] | None, typer.Option(help="Language codes; by default `all`.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Most rows of a corpus, per language.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the translations; by default in the cache.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts at a time: the most that a crash loses.")] = 16,
    dtype: Annotated[Dtype | None, typer.Option(help="By default bfloat16 on a GPU, else float32.")] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Translate texts into English in advance, for `xalign train lira` and the models it makes.

    The same command resumes after an interruption; nothing is translated twice.
    """
    from xalign_models.generation.critics import Scores, make_critic
    from xalign_models.generation.translators import Translations, make_translator, translate_all
    from xalign_models.training.lira.candidates import judge_all
    from xalign_models.training.lira.config import load_config

    named = split_list(translators)
    read = load_config(split_list(config), change or ()) if config else None
    designs = [read.design] if read else []
    if model is not None:
        from xalign_models.training.lira.run import open_lira

        designs.append(open_lira(model).design)
    named += [name for design in designs for name in design.translators] + [*(read.arca.extra if read else ())]
    critic = critic or next((design.critic for design in designs if design.critic), None)
    if not named or (not texts and read is None):
        raise DataError("Name --texts and --translators, or a --config that has both.")
    if change and not config:
        raise DataError("--set changes fields of a --config; name one.")
    codes = language_codes(languages, (), all=())
    journals = [Translations(make_translator(name, device, dtype), output, batch_size) for name in dict.fromkeys(named)]
    stream = _texts(split_list(texts), codes, rows, read)
    listed = list(stream) if critic else []
    summaries = translate_all(listed or stream, journals)
    if critic:
        judge_all(listed, journals, Scores(make_critic(critic, device, dtype), output, batch_size))
    generated = [journal for journal in journals if not journal.translator.instant]
    folders = {str(journal.translator.spec): str(journal.path) for journal in generated}
    print_rows(
        [
            {
                "translator": name,
                "translated": summary.translated,
                "known": summary.known,
                "problems": ", ".join(f"{count} {problem}" for problem, count in summary.problems.most_common()),
                "file": folders[name],
            }
            for name, summary in summaries.items()
            if name in folders
        ],
        json,
        right=("translated", "known"),
    )


def _texts(
    names: Sequence[str], languages: Sequence[str], rows: int | None, config: LiraConfig | None
) -> Iterator[tuple[str, str | None]]:
    from xalign_models.corpora import ENGLISH
    from xalign_models.training.lira import recording

    if config is not None:
        yield from recording.training_texts(config)
    for name in names:
        if Path(name).is_file():
            yield from recording.file_texts(Path(name), languages)
        elif recording.is_corpus(name):
            yield from recording.corpus_texts(name, languages, rows)
        else:
            err.print(f"reading {name} ...", highlight=False) if err.is_terminal else None
            texts = recording.task_texts(name, [*languages, ENGLISH] if languages else None)
            yield from (item for item in texts if item[1] != ENGLISH and (not languages or item[1] in languages))


def lira(
    stage: Annotated[Stages, typer.Option(help="arca; lasr, from arca's directory on; both; or none, the baseline.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory; by default where the model's name finds it.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(help=f"small (the default), mini, base, large, max, or a YAML file. {OVER}")
    ] = None,
    change: Change = None,
    source: Annotated[Path | None, typer.Option("--from", help="Directory of stage arca, for stage lasr.")] = None,
    ablate: Annotated[str | None, typer.Option(help=f"Leave out one of {', '.join(PARTS)}.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of both stages.")] = None,
    device: Device = None,
) -> None:
    """Train LiRA: choose translations and anchor to them (arca), fuse both paths (lasr), and write the model.

    Missing translations are made first. The same command resumes an interrupted training from its last
    checkpoint.
    """
    from xalign_models import models
    from xalign_models.training.lira import run
    from xalign_models.training.lira.config import Ablation, load_config

    if ablate is not None and ablate not in PARTS:
        raise ModelError(f"--ablate {ablate}: one of {', '.join(PARTS)}.")
    if (stage is Stages.LASR) != (source is not None):
        raise ModelError("--from names the directory of stage arca, for stage lasr and no other.")
    read = load_config(split_list(config) or ["small"], change or (), Ablation(ablate) if ablate else None)
    if seed is not None:
        read = dataclasses.replace(
            read, arca=dataclasses.replace(read.arca, seed=seed), lasr=dataclasses.replace(read.lasr, seed=seed)
        )
    label = {Stages.ARCA: read.arca_label, Stages.UNTRAINED: "plain"}.get(stage, read.label)
    name = run.lasr_name(read, source) if source else (label, run.names(read.design))
    output = output or models.directory_of("__".join(name))
    check_output(output)
    if stage is Stages.UNTRAINED:
        spec = run.untrained(read, output, device)
    elif stage is Stages.ARCA:
        spec = run.train_arca(read, output, device)
    else:
        if source is None:
            source = output.with_name(f"{output.name}-arca")
            check_output(source)
            run.train_arca(read, source, device)
        spec = run.train_lasr(read, source, output, device)
    say(spec.name, output)


def variant(
    source: Annotated[Path, typer.Argument(help="Directory of a trained LiRA.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write to.")],
    label: Annotated[str, typer.Option(help="Added to the model's name, e.g. pass1.")],
    pass_at: Annotated[int | None, typer.Option(help="Candidates by language models; the others by others.")] = None,
    online: Annotated[bool | None, typer.Option(help="Translate what is missing, or fail at it.")] = None,
    translators: Annotated[list[str] | None, typer.Option(help="Instead of its own, or `none`.")] = None,
    paths: Annotated[str | None, typer.Option(help="Streams to fuse: both, multilingual or english.")] = None,
) -> None:
    """Write a trained LiRA that translates or fuses differently, under its own name; nothing is trained."""
    from xalign_models.training.lira.run import variant as make

    check_output(output)
    if paths not in (None, "both", "multilingual", "english"):
        raise ModelError(f"--paths {paths}: both, multilingual or english.")
    spec = make(
        source,
        output,
        label,
        pass_at=pass_at,
        online=online,
        paths=paths,
        translators=[name for name in split_list(translators) if name != "none"] if translators else None,
    )
    out.print(f"{spec.name}: {output}", highlight=False, soft_wrap=True)
