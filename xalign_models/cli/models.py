"""``xalign models | tasks | corpora | fit``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from typer import Argument, Option

from xalign_models.cli.common import (
    check_inputs,
    check_output,
    given,
    language_codes,
    out,
    print_rows,
    say,
    split_list,
    tell,
)
from xalign_models.cli.options import (
    BackboneOptions,
    Devices,
    ForUse,
    Json,
    Languages,
    Limit,
    SpendingOptions,
    with_options,
)
from xalign_models.errors import ModelError
from xalign_models.plugins import ALIGNMENTS, BENCHMARKS, CORPORA, TASKS
from xalign_models.specs import BackboneSpec, Unknown

MIGRATION = {"method", "output", "old", "new", "corpus", "limit", "languages", "device", "budget", "price_per_million"}
"""Parameters of ``fit`` that a map between two models heeds."""


class FitCommand(typer.core.TyperCommand):
    """The command ``fit``, whose help ends with a list of all methods, including those of plug-ins."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the list of methods."""
        with formatter.section("Methods"):
            lines = [(name, str(ALIGNMENTS.facts(name)["description"]).replace("``", "")) for name in ALIGNMENTS]
            formatter.write_dl(lines)


def models(
    match: Annotated[str, Argument(help="List the full names that contain this; `xalign/` lists all.")] = "",
    json: Json = False,
) -> None:
    """List the registered models by backbone.

    A match also finds models that were trained here or come with xalign. Commands take any model directory or hub id
    besides. `xalign models mteb:` lists the models of mteb.
    """
    from xalign_models.models.catalogue import fits, specs
    from xalign_models.models.names import known_specs

    if match.startswith("mteb:"):
        from xalign_models.backbones.mteb import registry

        part = match.removeprefix("mteb:").lower()
        listed = [(name, note) for name, note in sorted(registry().items()) if part in name.lower()]
        _print_found([{"model": f"mteb:{name}", "note": note or "a backbone"} for name, note in listed], match, json)
        return
    found = known_specs() if match or json else specs()  # the list of backbones needs no cards of trained models
    registered = sorted(found.items(), key=lambda item: (item[1].backbone.name, item[1].data, item[0]))
    if match or json:
        rows = [
            {
                "model": spec.name,
                "backbone": spec.backbone.model,
                "layer": _layer(spec.backbone),
                "fitted on": "+".join(spec.alignment.corpora) if spec.alignment else "",
            }
            for name, spec in registered
            if match.lower() in name.lower()
        ]
        _print_found(rows, match, json)
        return
    backbones = [spec.backbone for _, spec in registered if spec.alignment is None and not spec.backbone.tuned]
    print_rows([{"backbone": spec.name, "weights": spec.model, "layer": _layer(spec)} for spec in backbones], json)
    if not out.is_terminal:
        return
    methods = ", ".join(fits()[""])
    say(
        "\nFor a backbone X, plain__X is the model itself and METHOD__X the model aligned on its default text, for the "
        f"methods {methods}. METHOD__X__gettext is aligned on text from the package index alone. "
        f"`xalign models {backbones[0].name}` lists the names."
    )


def _print_found(rows: list[dict[str, Any]], match: str, json: bool) -> None:
    print_rows(rows, json)
    if not rows:
        tell(f"No name of a model contains {match!r}.")
        raise typer.Exit(1)


def _layer(backbone: BackboneSpec) -> str:
    return "last" if backbone.layer is None else str(backbone.layer)


def tasks(json: Json = False) -> None:
    """List the tasks and benchmarks of xalign; `xalign run` also runs mteb's."""
    empty = {"score": None, "languages": None, "subsets": None}
    fields = (*empty, "description")
    rows = [{"task": name} | {field: TASKS.facts(name)[field] for field in fields} for name in TASKS]
    rows += [{"task": name, **empty, **BENCHMARKS.facts(name)} for name in BENCHMARKS]
    print_rows(rows, json, right=("languages", "subsets"))


def corpora(json: Json = False) -> None:
    """List the corpora for fitting and scoring; own:DIR and --data NAME=DIR add your own."""
    print_rows([{"corpus": name, **CORPORA.facts(name)} for name in CORPORA], json)


@with_options
def fit(
    context: typer.Context,
    method: Annotated[
        str, Argument(help="Alignment, a chain such as centered+procrustes, or auto to choose by held-out text.")
    ],
    output: Annotated[Path, Option("--output", "-o", help="Directory to write the model to.")],
    backbone: Annotated[str | None, Option(help="Registered name, vectors:FILE, directory or hub id.")] = None,
    old: Annotated[str | None, Option("--from", help="Model of an existing index; replaces --backbone.")] = None,
    new: Annotated[
        str | None, Option("--to", help="New model whose queries are mapped into the space of the index.")
    ] = None,
    corpus: Annotated[
        list[str] | None, Option(help="Text to fit on: ntrex, lingua, own:DIR, ...; by default the registered model's.")
    ] = None,
    param: Annotated[list[str] | None, Option(help="Parameter of the method as NAME=VALUE, e.g. k=15.")] = None,
    limit: Limit = None,
    languages: Languages = None,
    label: Annotated[str | None, Option(help="First part of the model's name; by default the method.")] = None,
    adapter: Annotated[bool, Option("--adapter", help="Write the maps and a pointer to the backbone.")] = False,
    standalone: Annotated[
        bool, Option("--standalone", help="Write modules that load without xalign installed.")
    ] = False,
    default_lang: Annotated[str | None, Option(help="Language of texts that have none, or `auto`.")] = None,
    unknown: Annotated[Unknown, Option(help="Policy for texts in languages not fitted.")] = "related",
    prompts: Annotated[str | None, Option(help="Comma-separated names of the prompts to fit; by default all.")] = None,
    judge: Annotated[list[str] | None, Option(help="Other text or tasks to judge the candidates of auto on.")] = None,
    use: ForUse = "retrieval",
    *,
    backbone_options: BackboneOptions,
    device: Devices = None,
    spending: SpendingOptions,
) -> None:
    """Fit an alignment to a backbone and write both as one model.

    The model is a sentence-transformers directory.
    """
    spending.set()
    check_output(output)
    text: dict[str, Any] = {
        "corpus": split_list(corpus) if corpus else None,
        "languages": language_codes(languages, None, all=None),
        "limit": limit,
        "device": device,
    }
    if old or new:
        idle = given(context, {own.name for own in context.command.params} - MIGRATION)
        if idle or not (old and new and text["corpus"]):
            without = f", without {', '.join(idle)}" if idle else ""
            raise ModelError(f"--from, --to and --corpus go together{without}.")
    elif backbone is None:
        raise ModelError("--backbone is missing: name a registered backbone, vectors:FILE, a directory or a hub id.")
    params = dict(_parameter(assignment) for assignment in param or ())
    named = {"corpora": text["corpus"], "languages": text["languages"]}
    if old:
        check_inputs(old, new, method=method, params=params)
        check_inputs(method="centered", **named)  # a map between models needs no translations
    else:
        check_inputs(backbone, method=method, params=params, **named)
    from xalign_models.models import api, migration
    from xalign_models.models.saving import save

    if old and new:
        model = migration.fit(method, old=old, new=new, **text)
        save(model, output)
    elif backbone:
        judged: dict[str, Any] = {"use": use, "overrides": backbone_options.fields()}
        judged["prompts"] = split_list([prompts]) if prompts else None
        model = api.fit(
            method,
            backbone=backbone,
            label=label,
            default_lang=default_lang,
            unknown=unknown,
            judge=split_list(judge),
            **judged,
            **text,
            **params,
        )
        card = model.xalign_claims.get("card")
        if card is None:
            rows = api.harm_card(model.xalign_spec, backbone=backbone, device=device, **judged)
            card = [row.cells() for row in rows]
        if card:
            model.xalign_claims = {**model.xalign_claims, "card": card}
        save(model, output, adapter=adapter, standalone=standalone, lang=default_lang)
        if card:
            print_rows(card)
    say(f"{model.xalign_spec.name}: {output}")


def _parameter(assignment: str) -> tuple[str, Any]:
    name, separator, value = assignment.partition("=")
    if not separator:
        raise ModelError(f"--param {assignment!r} is not NAME=VALUE.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
