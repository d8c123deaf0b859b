"""``xalign translate`` and ``xalign train lira``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from xalign_models.cli.common import check_output, err, language_codes, print_rows, split_list, tell
from xalign_models.cli.options import Device, Json, Languages
from xalign_models.cli.training import OVER, Change, Trained, as_changes, group, print_plan, report
from xalign_models.errors import DataError, ModelError
from xalign_models.specs import Dtype

if TYPE_CHECKING:
    from xalign_models.training.lira.config import LiraConfig


def translate(
    texts: Annotated[
        list[str] | None, Option(help="Texts to translate: a .txt or .jsonl file, a corpus, or a task.")
    ] = None,
    translators: Annotated[
        list[str] | None,
        Option(
            help="llm:MODEL, mt:MODEL, reference:CORPUS, corrupted:CORPUS or file:PATH; options as in llm:MODEL?seed=1."
        ),
    ] = None,
    config: Annotated[list[str] | None, Option(help="Configuration of LiRA whose texts to translate.")] = None,
    change: Change = None,
    model: Annotated[Path | None, Option(help="Trained LiRA whose translators and critic to use.")] = None,
    critic: Annotated[
        str | None,
        Option(
            help="Critic to score the translations: expected_score:MODEL or generate:MODEL; by default the config's."
        ),
    ] = None,
    languages: Languages = None,
    rows: Annotated[int | None, Option(min=1, help="Maximum number of rows of a corpus per language.")] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Folder for the translations; by default in the cache.")
    ] = None,
    batch_size: Annotated[int, Option(min=1, help="Texts per batch; a crash loses at most one batch.")] = 16,
    dtype: Annotated[
        Dtype | None,
        Option(help="Number format; by default bfloat16 on a GPU, else float32. Output in any format is reused."),
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Translate texts into English in advance, for `xalign train lira` and the models it trains.

    The same command resumes after an interruption; no text is translated twice.
    """
    from xalign_models.generation.critics import Critic, Scores
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
    if critic and len(journals) == 1:
        tell("The critic will score nothing: it compares translations of a text. Give two or more translators.")
    stream = texts_to_translate(split_list(texts), codes, rows, read)
    listed = list(stream) if critic else []
    summaries = translate_all(listed or stream, journals)
    if critic:
        judge_all(listed, journals, Scores(Critic(critic, device, dtype), output, batch_size))
    folders = {str(made.translator.spec): str(made.path) for made in journals if not made.translator.instant}
    table = [
        {
            "translator": name,
            "translated": summary.translated,
            "known": summary.known,
            "problems": ", ".join(f"{count} {problem}" for problem, count in summary.problems.most_common()),
            "file": folders[name],
        }
        for name, summary in summaries.items()
        if name in folders
    ]
    print_rows(table, json, right=("translated", "known"))


def texts_to_translate(
    names: Sequence[str], languages: Sequence[str], rows: int | None, config: LiraConfig | None
) -> Iterator[tuple[str, str | None]]:
    """Texts of files, corpora, tasks and a training, each with its language if it is known."""
    from xalign_models.corpora import CORPORA, ENGLISH
    from xalign_models.evaluation.recording import task_texts
    from xalign_models.training.lira import data as sources

    if config is not None:
        yield from sources.training_texts(config)
    for name in names:
        if Path(name).is_file():
            yield from sources.file_texts(Path(name), languages)
        elif name.partition(":")[0] in CORPORA:
            yield from sources.corpus_texts(name, languages, rows)
        else:
            tell(f"reading {name} ...") if err.is_terminal else None
            texts = sources.with_prompts(task_texts(name, [*languages, ENGLISH] if languages else None))
            yield from (item for item in texts if item[1] != ENGLISH and (not languages or item[1] in languages))


@group.command()
def lira(
    stage: Annotated[
        Literal["arca", "lasr", "all", "untrained"],
        Option(help="Stage to train: arca, lasr (from a model of arca), all, or untrained, the baseline."),
    ] = "all",
    output: Trained = None,
    config: Annotated[
        list[str] | None, Option(help=f"small (the default), mini, base, large, max, or a YAML file. {OVER}")
    ] = None,
    change: Change = None,
    source: Annotated[Path | None, Option("--from", help="Directory of arca's model, for stage lasr.")] = None,
    ablate: Annotated[str | None, Option(help="Leave out critic, embeds, translations, multilingual or queue.")] = None,
    seed: Annotated[int | None, Option(help="Seed of both stages.")] = None,
    plan: Annotated[
        bool, Option("--plan", help="Print texts to translate, steps, time and memory on an H100; train nothing.")
    ] = False,
    device: Device = None,
) -> None:
    """Train LiRA: learn to choose translations as anchors (arca), then fuse both paths (lasr), and write the model.

    Missing translations are made first. The same command resumes an interrupted training from its last
    checkpoint.
    """
    from xalign_models.models.names import directory_of
    from xalign_models.training.lira import run
    from xalign_models.training.lira.config import load_config

    if (stage == "lasr") != (source is not None):
        raise ModelError("--from names the directory of arca's model; give it with --stage lasr only.")
    changes = [*(change or ()), *as_changes(**{"arca.seed": seed, "lasr.seed": seed})]
    read = load_config(split_list(config) or ["small"], changes, ablate)
    if plan:
        from xalign_models.training.lira.data import training_texts

        print_plan(run.plan(read, len(set(training_texts(read)))))
        return
    label = {"arca": read.arca_label, "untrained": "plain"}.get(stage, read.label)
    name = run.lasr_name(read, source) if source else (label, run.names(read.design))
    output = output or directory_of("__".join(name))
    check_output(output)
    if stage == "untrained":
        spec = run.untrained(read, output)
    elif stage == "arca":
        spec = run.train_arca(read, output, device)
    else:
        if source is None:
            source = output.with_name(f"{output.name}-arca")
            check_output(source)
            run.train_arca(read, source, device)
        spec = run.train_lasr(read, source, output, device)
    report(spec.name, output)


@group.command("lira-variant")
def variant(
    source: Annotated[Path, Argument(help="Directory of a trained LiRA.")],
    output: Annotated[Path, Option("--output", "-o", help="Directory to write to.")],
    label: Annotated[str, Option(help="Suffix of the model's name, e.g. pass1.")],
    pass_at: Annotated[
        int | None, Option(help="Number of candidates from language models; other translators fill the rest.")
    ] = None,
    online: Annotated[
        bool | None, Option(help="Translate missing texts when the model is used, or fail on them.")
    ] = None,
    translators: Annotated[list[str] | None, Option(help="Translators in place of the model's own, or `none`.")] = None,
    paths: Annotated[Literal["both", "multilingual", "english"] | None, Option(help="Streams to fuse.")] = None,
) -> None:
    """Write a trained LiRA that translates or fuses differently, under a new name, without training."""
    from xalign_models.training.lira.run import variant as make

    check_output(output)
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
