"""Prepares a saved model for the hub: its files, and a card with scores in the format of mteb and the hub."""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, product
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData

from xalign_models.errors import FileError, ModelError, ResultsError, one_line
from xalign_models.files import read_json, read_log
from xalign_models.models.card import read_card
from xalign_models.models.metadata import model_meta
from xalign_models.models.mteb import absent
from xalign_models.paths import CARD, atomic_directory, files_below
from xalign_models.results.layout import META, SETTINGS, folder_name, results_folder
from xalign_models.results.reading import Results

TAGS = ("sentence-transformers", "sentence-similarity", "feature-extraction", "mteb", "xalign")
_LEAST_MTEB = 2
"""Minimum major version of mteb."""


def prepare(model: Path, folder: Path, results: Results | None = None) -> Path:
    """Copy a saved model and add a card with its scores; an existing folder is replaced as a whole.

    Args:
        model: Output of ``xalign fit``, ``train`` or ``save``.
        folder: Folder to write.
        results: Results with its scores, on tasks registered with mteb; None for a card without scores.

    Returns:
        The folder.

    Raises:
        ModelError: There is no saved model, or the folder cannot be written.
    """
    check(model)
    try:
        with atomic_directory(folder, CARD, files_below(model)) as temporary:
            shutil.copytree(model, temporary, dirs_exist_ok=True)
            (temporary / "README.md").write_text(card_text(model, results), encoding="utf-8")
    except OSError as error:
        raise ModelError(f"Cannot write {folder}: {error.strerror}; choose another --to.") from None
    return folder


def check(model: Path) -> None:
    """Check that a directory is a saved model.

    Raises:
        ModelError: The directory has no ``modules.json``.
    """
    if not (model / "modules.json").is_file():
        raise ModelError(f"{model} is not a saved model; write one with `xalign fit ... -o DIR` and publish DIR.")


def card_text(model: Path, results: Results | None = None) -> str:
    """The model's README.md after the hub's metadata: tags, licence, languages, base, and scores by subset."""
    path = model / "README.md"
    card = ModelCard(path.read_text(encoding="utf-8") if path.is_file() else "")
    metadata: dict[str, Any] = card.data.to_dict()  # type: ignore[no-untyped-call]
    spec, meta = read_card(model).spec, model_meta(str(model))
    scores = list(_scores(meta.name, meta.revision, results)) if results else []
    fields = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "license": meta.license,
        "base_model": spec.backbone.mteb_name if spec else None,
        "model_name": metadata.get("model_name") or model.resolve().name,
        **{key: value for key, value in metadata.items() if key not in {"tags", "model-index"}},
        "tags": list(dict.fromkeys([*(metadata.get("tags") or ()), *TAGS])),
    }
    data = ModelCardData(**{key: value for key, value in fields.items() if value}, eval_results=scores or None)
    body = card.text.strip() or f"# {model.resolve().name}\n\nA sentence-transformers model made by xalign."
    return f"---\n{data.to_yaml()}\n---\n\n{body}\n"


def _scores(name: str | None, revision: str | None, results: Results) -> Iterator[EvalResult]:
    """Each subset's main score, in mteb's format; tasks unknown to mteb and other revisions are left out."""
    import mteb

    for task in results.tasks:
        with suppress(KeyError):  # the model was not scored on it, or mteb does not know it
            table, metadata = results.tables[str(name), task], mteb.get_task(task).metadata
            for split, subset, _, score in table.rows() if table.revision == revision else ():
                yield EvalResult(
                    task_type="sentence-similarity",
                    task_name=metadata.type,
                    dataset_type=metadata.dataset["path"],
                    dataset_name=f"{task} ({subset})",
                    dataset_config=subset,
                    dataset_split=split,
                    dataset_revision=table.dataset_revision,
                    metric_type=metadata.main_score,
                    metric_value=score,
                    source_name="MTEB",
                    source_url="https://github.com/embeddings-benchmark/mteb/",
                )


def upload(folder: Path, repository: str, *, private: bool = False) -> str:
    """Upload a folder of :func:`prepare` to ``org/name`` on the hub, created if missing, and return its address.

    Raises:
        ModelError: The hub is unreachable or refuses.
    """
    try:
        api = HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        return str(api.upload_folder(folder_path=str(folder), repo_id=repository, commit_message="Publish by xalign"))
    except Exception as error:  # from the hub, its client or the network
        reason = f"{repository} cannot be written on the hub ({one_line(error)})"
        raise ModelError(f"{reason}; `hf auth login` signs in.") from None


def problems(root: Path) -> list[str]:
    """Reasons why the repository would refuse results, one line each; empty if it would accept.

    Args:
        root: The parent folder of ``results/``, or that folder.

    Raises:
        ResultsError: There are no results.
    """
    folder = results_folder(root)
    models = sorted(path for path in folder.glob("[!.]*") if path.is_dir())
    if not models:
        raise ResultsError(f"No results under {folder}; score models with `xalign run`, or name another folder.")
    files = [path for model in models for path in model.glob("*/*.json") if path.name != META]
    names = {"models": (model.name.replace("__", "/", 1) for model in models), "tasks": (path.stem for path in files)}
    unknown = ((kind, absent(kind, own)) for kind, own in names.items())
    wanted = [
        f"{kind} that are not in mteb: {len(missing)}, such as {missing[0]}; add them to mteb first, in a pull request"
        for kind, missing in unknown
        if missing
    ]
    return [*(line for model in models for line in _of_model(model)), *wanted]


def _of_model(model: Path) -> Iterator[str]:
    revisions: dict[str, list[str]] = defaultdict(list)
    for revision in sorted(path for path in model.iterdir() if not path.name.startswith(".")):
        place = f"{model.name}/{revision.name}"
        if not revision.is_dir():
            yield f"{place} is a file; only folders of revisions belong here"
            continue
        yield from _of_meta(place, model, revision)
        settings = _settings(revision / SETTINGS)
        for path in sorted(revision.glob("*.json")):
            if path.name != META:
                revisions[path.stem].append(revision.name)
                yield from _of_result(f"{place}/{path.name}", path, settings)
    for task, names in revisions.items():
        if len(names) > 1:
            yield f"{model.name}: {task} has results under {len(names)} revisions, {', '.join(names)}; keep one"


def _of_meta(place: str, model: Path, revision: Path) -> Iterator[str]:
    try:
        meta = read_json(revision / META)
        name, number = str(meta["name"]), str(meta["revision"])
    except (FileError, KeyError) as error:
        damaged = f"{place}/{META} is not a model's metadata ({one_line(error)})"
        yield damaged if (revision / META).exists() else f"{place}: {META} is missing"
        return
    if "/" not in name:
        yield f"{place}/{META}: the name {name!r} has no organisation; write org/name"
    if folder_name(name) != model.name:
        yield f"{place}/{META}: the name {name!r} differs from the folder's"
    if number != revision.name:
        yield f"{place}/{META}: the revision {number!r} differs from the folder's"
    if not re.fullmatch(r"[0-9a-f]{40}|.", number):
        yield f"{place}: the revision has {len(number)} characters; it must have 40 hexadecimal digits or one"


def _settings(path: Path) -> set[tuple[str, str, str]] | None:
    """(task, split, subset) that the settings cover; None if there are no readable settings."""
    try:
        lines, damaged = read_log(path)
        groups = [product([entry["task"]], entry["splits"], entry["subsets"]) for entry in lines]
        covered = {*chain.from_iterable(groups)}
    except (FileError, KeyError, TypeError):
        return None
    return covered if path.is_file() and not damaged else None


def _of_result(place: str, path: Path, settings: set[tuple[str, str, str]] | None) -> Iterator[str]:
    from mteb.results import TaskResult

    try:
        read_json(path)  # within bounds
        result: Any = TaskResult.from_disk(path)
    except Exception as error:  # a damaged file may make mteb raise anything
        yield f"{place} is not a result that mteb can read ({type(error).__name__})"
        return
    if result.task_name != path.stem:
        yield f"{place} is a result of the task {result.task_name!r}"
    if not (version := re.match(r"\d+", str(result.mteb_version))) or int(version[0]) < _LEAST_MTEB:
        yield f"{place}: made with mteb {result.mteb_version}; {_LEAST_MTEB} or newer is required"
    if settings is None:
        yield f"{place}: {SETTINGS} is missing or damaged"
        return
    scored = {(result.task_name, split, row["hf_subset"]) for split, rows in result.scores.items() for row in rows}
    if missing := sorted(scored - settings):
        yield f"{place}: {SETTINGS} does not cover {len(missing)} of its scores, such as {'/'.join(missing[0][1:])}"
