"""``xalign run``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from xalign_models.cli.common import err, language_codes, print_json, set_data, split_list, tell
from xalign_models.cli.leaderboard import make, show
from xalign_models.cli.options import (
    BackboneOptions,
    Data,
    Devices,
    EngineOptions,
    Json,
    Models,
    Output,
    SpendingOptions,
    Tasks,
    known_languages,
    with_options,
)
from xalign_models.cli.survival import SURVIVOR
from xalign_models.errors import ModelError
from xalign_models.plugins import BENCHMARKS

if TYPE_CHECKING:
    from xalign_models.evaluation.run import Outcome

_FITTED = ("centered", "lir-1", "lsar", "procrustes", "affine")
EMBEDDED_MODELS = (
    "all-MiniLM-L6-v2",
    "xalign/plain__multilingual-e5-small-q4",
    *(f"xalign/{method}__multilingual-e5-small-q4__gettext" for method in _FITTED),
)
"""Default models of ``xalign run``, from the package index."""


@with_options
def run(
    models: Models = None,
    tasks: Tasks = None,
    benchmark: Annotated[str | None, Option(help='Benchmark to run, e.g. "XAlign(parallel)".')] = None,
    languages: Annotated[
        list[str] | None, Option(help="Language codes, `core` (22, the default) or `all`.", callback=known_languages)
    ] = None,
    data: Data = None,
    output: Output = ".",
    *,
    backbone: BackboneOptions,
    trust_remote_code: Annotated[
        list[str] | None,
        Option(help="MODEL or MODEL@COMMIT of --models whose own code may run; recorded in the model's name."),
    ] = None,
    device: Devices = None,
    spending: SpendingOptions,
    items: Annotated[
        Literal["none", "outcomes", "full"],
        Option(help="Detail per item to store: outcomes suffice for significance tests; full adds ranks."),
    ] = "outcomes",
    where: EngineOptions,
    gpus_per_task: Annotated[
        float | None, Option(help="GPUs of each Ray task; 0.25 lets four tasks share a GPU.")
    ] = None,
    timeout: Annotated[
        float | None, Option(min=0.01, help="Maximum minutes per model and task; then the next task begins.")
    ] = None,
    json: Json = False,
) -> None:
    """Score models on tasks and print the leaderboard.

    Without options, it scores models and text from the package index. The same command resumes an interrupted run;
    nothing is scored or encoded twice. A model that crashes or runs out of memory costs only its own row.
    """
    set_data(data)
    spending.set()
    from xalign_models.models.mteb import check_task, tasks_of
    from xalign_models.models.names import locate_all, trust_in

    names: list[Any] = split_list(tasks)
    chosen_models = split_list(models) or list(EMBEDDED_MODELS)
    fields = {**backbone.fields(), "trust_remote_code": tuple(split_list(trust_remote_code)) or None}
    for text in fields["trust_remote_code"] or ():
        if not any(trust_in(model, text) for model in chosen_models):
            raise ModelError(f"--trust-remote-code {text} is none of the run's models; write it as in --models.")
    cluster = where.cluster(gpus_per_task, device)
    if cluster and (spending.budget or timeout):
        raise ModelError("--budget and --timeout limit a single process; neither can be combined with --engine ray.")
    for name in names:  # before the seconds that mteb takes to import
        check_task(name)
    locate_all(chosen_models, **fields)
    if benchmark and benchmark in BENCHMARKS and (languages or BENCHMARKS[benchmark].whole):
        names += [part.task for part in BENCHMARKS[benchmark].parts]
    elif benchmark:
        scored_by = tasks_of(benchmark)
        names += [task.metadata.name for task in scored_by] if languages else scored_by
    tell("loading mteb ...") if err.is_terminal else None
    from xalign_models.evaluation.planning import announce
    from xalign_models.evaluation.run import CORE
    from xalign_models.evaluation.run import run as run_here
    from xalign_models.store import open_store

    chosen, chosen_tasks = language_codes(languages, CORE, core=CORE, all=None), names or ["GettextPrecision"]
    arguments: dict[str, Any] = {"languages": chosen, "items": items, "overrides": fields}
    if cluster:
        from xalign_models.cluster import run as run_on_cluster

        run_all = partial(run_on_cluster, cluster=cluster)
    else:
        resources: dict[str, Any] = {"device": device, "store": open_store()}
        begin = SURVIVOR.watch(len(chosen_models) * len(chosen_tasks), timeout)
        run_all = partial(run_here, begin=begin, **resources)
        announce(chosen_models, chosen_tasks, Path(output), languages=chosen, overrides=fields, **resources)
    outcomes = [_told(outcome) for outcome in run_all(chosen_models, chosen_tasks, Path(output), **arguments)]
    SURVIVOR.begin()  # what follows is no model's
    scored = [row for row in outcomes if row["scored"]]
    if json:
        print_json(outcomes)
    elif scored:
        show(make({row["model"] for row in scored}, {row["task"] for row in scored}, Path(output), benchmark))
    if len(scored) < len(outcomes):
        raise typer.Exit(1 if scored else 2)


def _told(outcome: Outcome) -> dict[str, Any]:
    """Print the outcome of a model on a task, and return it as a row with the main scores by split and subset."""
    state = "scored" if outcome.fresh else "was scored already"
    if outcome.unfitted:
        state += f" (not fitted for {', '.join(outcome.unfitted)})"
    if outcome.result is None:
        state = f"not scored. {outcome.error}"
    tell(f"{outcome.model}  {outcome.task}: {state}")
    return {
        "model": outcome.model,
        "task": outcome.task,
        "scored": outcome.result is not None,
        "scores": {
            split: {entry["hf_subset"]: entry["main_score"] for entry in entries}
            for split, entries in (outcome.result.scores if outcome.result else {}).items()
        },
        "fresh": outcome.fresh,
        "unfitted": list(outcome.unfitted),
        "error": outcome.error,
    }
