"""``xalign translate`` and ``xalign train lira``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xalign_models.cli.common import Device, Json, check_output, err, language_codes, print_rows, split_list
from xalign_models.cli.training import OVER, Change, Trained, as_changes, group, report
from xalign_models.errors import DataError, ModelError
from xalign_models.specs import Dtype

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xalign_models.training.lira.config import LiraConfig


class Stages(StrEnum):
    """Stages of a training."""

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
        help="llm:MODEL, mt:MODEL, reference:CORPUS, corrupted:CORPUS or file:PATH; options as in llm:MODEL?seed=1."
    ),
]


def translate(
    texts: Annotated[
        list[str] | None, typer.Option(help="Texts to translate: a .txt or .jsonl file, a corpus, or a task.")
    ] = None,
    translators: Translators = None,
    config: Annotated[list[str] | None, typer.Option(help="Configuration of LiRA: translate its texts.")] = None,
    change: Change = None,
    model: Annotated[Path | None, typer.Option(help="Trained LiRA: use its translators and critic.")] = None,
    critic: Annotated[
        str | None,
        typer.Option(
            help="Critic to score the translations: expected_score:MODEL or generate:MODEL; by default the config's."
        ),
    ] = None,
    languages: Annotated[list[str] | None, typer.Option(help="Language codes; by default all.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows of a corpus per language.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the translations; by default in the cache.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per batch; a crash loses at most one batch.")] = 16,
    dtype: Annotated[
        Dtype | None, typer.Option(help="Number format; by default bfloat16 on a GPU, else float32.")
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Translate texts into English in advance, for `xalign train lira` and the models it trains.

    The same command resumes after an interruption; no text is translated twice.
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
        raise DataError("Give --texts and --translators, or a --config that names both.")
    if change and not config:
        raise DataError("--set changes fields of a --config; give one.")
    codes = language_codes(languages, (), all=())
    journals = [Translations(make_translator(name, device, dtype), output, batch_size) for name in dict.fromkeys(named)]
    stream = texts_to_translate(split_list(texts), codes, rows, read)
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


def texts_to_translate(
    names: Sequence[str], languages: Sequence[str], rows: int | None, config: LiraConfig | None
) -> Iterator[tuple[str, str | None]]:
    """Texts of files, corpora, tasks and a training, each with its language if it is known."""
    from xalign_models.corpora import CORPORA, ENGLISH
    from xalign_models.evaluation.recording import task_texts
    from xalign_models.training.lira import texts as sources

    if config is not None:
        yield from sources.training_texts(config)
    for name in names:
        if Path(name).is_file():
            yield from sources.file_texts(Path(name), languages)
        elif name.partition(":")[0] in CORPORA:
            yield from sources.corpus_texts(name, languages, rows)
        else:
            err.print(f"reading {name} ...", highlight=False) if err.is_terminal else None
            texts = sources.with_prompts(task_texts(name, [*languages, ENGLISH] if languages else None))
            yield from (item for item in texts if item[1] != ENGLISH and (not languages or item[1] in languages))


def lira(
    stage: Annotated[
        Stages, typer.Option(help="Stage to train: arca, lasr (from a model of arca), all, or untrained, the baseline.")
    ],
    output: Trained = None,
    config: Annotated[
        list[str] | None, typer.Option(help=f"small (the default), mini, base, large, max, or a YAML file. {OVER}")
    ] = None,
    change: Change = None,
    source: Annotated[Path | None, typer.Option("--from", help="Directory of arca's model, for stage lasr.")] = None,
    ablate: Annotated[
        str | None, typer.Option(help="Leave out critic, embeds, translations, multilingual or queue.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of both stages.")] = None,
    device: Device = None,
) -> None:
    """Train LiRA: choose and anchor to translations (arca), then fuse both paths (lasr), and write the model.

    Missing translations are made first. The same command resumes an interrupted training from its last
    checkpoint.
    """
    from xalign_models.models.names import directory_of
    from xalign_models.training.lira import run
    from xalign_models.training.lira.config import load_config

    if (stage is Stages.LASR) != (source is not None):
        raise ModelError("--from names the directory of arca's model; give it with --stage lasr only.")
    changes = [*(change or ()), *as_changes(**{"arca.seed": seed, "lasr.seed": seed})]
    read = load_config(split_list(config) or ["small"], changes, ablate)
    label = {Stages.ARCA: read.arca_label, Stages.UNTRAINED: "plain"}.get(stage, read.label)
    name = run.lasr_name(read, source) if source else (label, run.names(read.design))
    output = output or directory_of("__".join(name))
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
    report(spec.name, output)


def variant(
    source: Annotated[Path, typer.Argument(help="Directory of a trained LiRA.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write to.")],
    label: Annotated[str, typer.Option(help="Suffix of the model's name, e.g. pass1.")],
    pass_at: Annotated[
        int | None, typer.Option(help="Number of candidates from language models; other translators fill the rest.")
    ] = None,
    online: Annotated[
        bool | None, typer.Option(help="Translate missing texts when the model is used, or fail on them.")
    ] = None,
    translators: Annotated[
        list[str] | None, typer.Option(help="Translators in place of the model's own, or `none`.")
    ] = None,
    paths: Annotated[str | None, typer.Option(help="Streams to fuse: both, multilingual or english.")] = None,
) -> None:
    """Write a trained LiRA that translates or fuses differently, under a new name, without training."""
    from xalign_models.training.lira.run import variant as make

    check_output(output)
    if paths not in (None, "both", "multilingual", "english"):
        raise ModelError(f"--paths {paths}: choose both, multilingual or english.")
    spec = make(
        source,
        output,
        label,
        pass_at=pass_at,
        online=online,
        paths=paths,
        translators=[name for name in split_list(translators) if name != "none"] if translators else None,
    )
    report(spec.name, output)
