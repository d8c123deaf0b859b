"""Scores models on tasks: resumable, encoding each text once, only in languages that the alignment knows."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mteb
from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from xalign_models import assets
from xalign_models.alignments.pivot import few_pairs_said_once
from xalign_models.device import pick_device
from xalign_models.errors import DataError, LanguageError, ModelError, one_line, without_exit
from xalign_models.evaluation.cache import SafeResultCache, hardware
from xalign_models.languages import canonical
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.mteb import get_task
from xalign_models.models.names import locate_all
from xalign_models.models.sides import with_sides
from xalign_models.plugins import Part
from xalign_models.results.items import Level, full_folder
from xalign_models.results.reading import check_main_scores, read_result
from xalign_models.store import EmbeddingStore

logger = logging.getLogger(__name__)

CORE = tuple(canonical(code) for code in "ar bn de en es fr hi id it ja ms pt ru sw ta te th tl tr ur vi zh".split())
"""The languages of a default run."""
QUIET: dict[str, Any] = {"show_progress_bar": False, "co2_tracker": False}
"""Options of ``mteb.evaluate``."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one model on one task.

    Attributes:
        model: Name of the model.
        task: Name of the task.
        result: mteb's result; None on an error.
        fresh: Whether anything was computed rather than read from earlier results.
        unfitted: Languages left out because the alignment does not know them.
        error: The reason for a missing result.
        revision: Revision of the model.
    """

    model: str
    task: str
    result: TaskResult | None
    fresh: bool = False
    unfitted: tuple[str, ...] = ()
    error: str = ""
    revision: str | None = None


def run(
    models: Sequence[str | XAlignEncoder],
    tasks: Sequence[str | AbsTask],
    output: Path,
    *,
    languages: Collection[str] | None = CORE,
    device: str | None = None,
    store: EmbeddingStore | None = None,
    items: Level = "outcomes",
    overrides: dict[str, Any] | None = None,
    begin: Callable[..., str] = lambda *_: "",
) -> Iterator[Outcome]:
    """Score every model on every task and write the results under ``output/results``.

    Existing results of the same model revision and data are reused. Models that cannot be loaded and tasks with missing
    data give outcomes with an error; the run continues.

    Args:
        models: Registered names, directories, hub ids, or encoders.
        tasks: Names, ours or mteb's, or tasks with chosen subsets, which ``languages`` does not narrow.
        output: Root of the results.
        languages: Codes; a subset is scored if all its languages, including its pool's, are among them. None for
            all. The default, :data:`CORE`, does not narrow Tatoeba36, LanguageIdentity and others whose protocol fixes
            the languages.
        device: cpu, cuda or mps; several, separated by commas, encode in one process each.
        store: Store of raw vectors.
        items: Data of single items to keep: none, the outcomes for significance tests, or everything.
        overrides: Fields of the backbones' specs.
        begin: Function called with the model's name before opening it, and with the model's and the task's name before
            scoring. If it returns a text, the step is skipped for this reason.

    Yields:
        One outcome per model and task, as soon as it is available.

    Raises:
        ModelError: A model or the device does not exist, or two models have the same name.
        DataError: A task does not exist.
        LanguageError: A task has nothing in the chosen languages.
        ResultsError: ``output`` cannot be written.
    """
    fields = overrides or {}
    located = locate_all((model for model in models if isinstance(model, str)), **fields)  # before hours of work
    names = [located[model].name if isinstance(model, str) else str(model.mteb_model_meta.name) for model in models]
    device = pick_device(device, several=True)
    cache = SafeResultCache(output)
    chosen = [make_task(task, languages) if isinstance(task, str) else _adopted(task) for task in tasks]
    for model, model_name in zip(models, names, strict=True):
        try:
            if reason := begin(model_name):
                raise ModelError(reason)
            with without_exit():
                encoder = load_encoder(model, device=device, store=store, **fields) if isinstance(model, str) else model
            if encoder.mteb_model_meta.revision is None:
                raise ModelError(f"{model_name} has no revision to store results under.")
        except Exception as error:  # a broken model may raise anything and must not stop the others
            logger.debug("%s cannot be loaded", model_name, exc_info=True)
            yield from (Outcome(model_name, task.metadata.name, None, error=one_line(error)) for task in chosen)
            continue
        cache.hardware, cache.costs = hardware(encoder.raw.device), encoder.measured
        for task in chosen:
            name = task.metadata.name
            if reason := begin(model_name, name):
                yield Outcome(model_name, name, None, error=reason, revision=encoder.mteb_model_meta.revision)
            else:
                yield run_one(encoder, task, cache, items)


def make_task(name: str, languages: Collection[str] | None) -> AbsTask:
    """A task by name, with the subsets whose languages are all among ``languages``.

    Raises:
        DataError: The task is unknown.
    """
    task = get_task(Part(name))
    identify(task)
    if languages is not None and (languages is not CORE or getattr(task, "narrows", True)):
        by_subset = {subset: {canonical(code) for code in codes} for subset, codes in languages_of(task).items()}
        requested = {canonical(code) for code in languages}
        subsets = [subset for subset in task.hf_subsets if by_subset[subset] <= requested]
        if not subsets:
            lacking = (sorted(by_subset[subset] - requested) for subset in task.hf_subsets)
            least = min(lacking, key=lambda codes: (len(codes), "eng-Latn" not in codes))
            raise LanguageError(
                f"{name} has no subset in the chosen languages; add {', '.join(least)} to --languages, for "
                "example, or choose `all`."
            )
        task.hf_subsets = subsets
    return task


def run_one(encoder: XAlignEncoder, task: AbsTask, cache: SafeResultCache, items: Level) -> Outcome:
    """Score one model on the task's chosen subsets that are still missing; errors are outcomes."""
    meta, name = encoder.mteb_model_meta, task.metadata.name
    everything = list(task.hf_subsets)
    by_subset = languages_of(task)
    unfitted = tuple(encoder.unfitted({language for subset in everything for language in by_subset[subset]}))
    folder = None if items == "none" else full_folder(cache.path_of(name, meta).parent)
    try:
        if unfitted:
            task.hf_subsets = [subset for subset in everything if not encoder.unfitted(by_subset[subset])]
            if not task.hf_subsets:
                raise LanguageError(f"No subset can be scored: {encoder.refusal(unfitted)}.")
        requested = [*task.hf_subsets, *["default"] * task.is_aggregate]  # noted here: loading own text sets all
        with cache.turn(name, meta), ExitStack() as last:
            last.callback(cache.keep_only_usable(task, meta))
            if (known := cache.load_task_result(name, meta)) and not known.get_missing_evaluations(task):
                return Outcome(
                    str(meta.name), name, of_subsets(known, requested), False, unfitted, revision=meta.revision
                )
            before = _modified(cache.path_of(name, meta))
            with reachable(task), few_pairs_said_once(), without_exit():
                result = mteb.evaluate(
                    encoder, task, cache=cache, overwrite_strategy="only-missing", prediction_folder=folder, **QUIET
                )
            if result.exceptions:  # mteb's report of an unavailable private data set
                raise DataError(result.exceptions[0].exception)
            check_main_scores(read_result(cache.path_of(name, meta)))
            fresh = _modified(cache.path_of(name, meta)) != before
            if folder is not None and items != "full":
                remove_items(folder, name)
        found = of_subsets(result.task_results[0], requested)
        return Outcome(str(meta.name), name, found, fresh, unfitted, revision=meta.revision)
    except Exception as error:  # from the model, or from mteb's own tasks when the hub cannot be reached
        logger.debug("%s on %s", meta.name, name, exc_info=True)
        return Outcome(str(meta.name), name, None, unfitted=unfitted, error=one_line(error), revision=meta.revision)
    finally:
        task.hf_subsets = everything
        if task.data_loaded:  # when a task fails, mteb leaves its data loaded, cut to this model's languages
            task.unload_data()


def of_subsets(result: TaskResult, subsets: Collection[str]) -> TaskResult:
    """The part of a result in the given subsets; a file may have more from other runs."""
    scores = {
        split: [entry for entry in entries if entry["hf_subset"] in subsets] for split, entries in result.scores.items()
    }
    return result.model_copy(update={"scores": scores})


def languages_of(task: AbsTask) -> dict[str, set[str]]:
    """Subset to the languages that a model must know."""
    pool = getattr(task, "needs", ())
    return {subset: {*pool, *codes} for subset, codes in task.metadata.hf_subsets_to_langscripts.items()}


def remove_items(folder: Path, task: str) -> None:
    """Remove a task's full item data, once the outcomes are written."""
    for name in (f"{task}.npz", f"{task}_predictions.json"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # it still has another run's items
        folder.rmdir()


def _adopted(task: AbsTask) -> AbsTask:
    """A task made by mteb or the caller, completed as :func:`make_task` would."""
    if hasattr(task, "identify"):
        if not str(task.metadata.revision).startswith("local-"):
            identify(task)
        return task
    adopted: AbsTask = object.__new__(with_sides(type(task)))
    vars(adopted).update(vars(task))
    return adopted


def identify(task: AbsTask) -> None:
    """Let an xalign task set its revision, which identifies its results, to its text's fingerprint."""
    getattr(task, "identify", lambda: None)()


def reachable(task: AbsTask) -> AbstractContextManager[None]:
    """Keep mteb's own tasks from waiting long for an unreachable hub; xalign's tasks do so themselves."""
    own = hasattr(task, "identify") or "path" not in task.metadata.dataset
    return nullcontext() if own else assets.hub_or_cache(task.metadata.dataset["path"])


def _modified(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.is_file() else None
