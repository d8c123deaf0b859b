"""Prepares a saved model for the hub: its files, and a card with scores in the format of mteb and the hub."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models.errors import ModelError, one_line
from xalign_models.models.card import read_card
from xalign_models.models.metadata import model_meta
from xalign_models.models.names import name_of
from xalign_models.paths import atomic_directory
from xalign_models.results.reading import Results

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

TAGS = ("sentence-transformers", "sentence-similarity", "feature-extraction", "mteb", "xalign")


def prepare(model: Path, folder: Path, results: Results | None = None) -> Path:
    """Copy a saved model and add a card with its scores; an existing folder is replaced as a whole.

    Args:
        model: Output of ``xalign fit``, ``train`` or ``save``.
        folder: Folder to write.
        results: Results with its scores, on tasks registered with mteb; None for a card without scores.

    Returns:
        The folder.

    Raises:
        ModelError: No saved model is there, or the folder cannot be written.
    """
    check(model)
    try:
        with atomic_directory(folder) as temporary:
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
        raise ModelError(f"{model} is no saved model; `xalign fit ... -o DIR` writes one, and DIR is what to publish.")


def card_text(model: Path, results: Results | None = None) -> str:
    """The model's README.md with the hub's metadata before it: tags, licence, languages, base, and scores by subset."""
    from huggingface_hub import ModelCard, ModelCardData

    path = model / "README.md"
    card = ModelCard(path.read_text(encoding="utf-8") if path.is_file() else "")
    metadata: dict[str, Any] = card.data.to_dict()  # type: ignore[no-untyped-call]
    scores = list(_scores(name_of(str(model)), results)) if results else []
    spec = read_card(model).spec
    fields = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "license": model_meta(str(model)).license,
        "base_model": spec.backbone.mteb_name if spec else None,
        "model_name": metadata.get("model_name") or model.resolve().name,
        **{key: value for key, value in metadata.items() if key not in {"tags", "model-index"}},
        "tags": list(dict.fromkeys([*(metadata.get("tags") or ()), *TAGS])),
    }
    data = ModelCardData(**{key: value for key, value in fields.items() if value}, eval_results=scores or None)
    body = card.text.strip() or f"# {model.resolve().name}\n\nA sentence-transformers model made by xalign."
    return f"---\n{data.to_yaml()}\n---\n\n{body}\n"


def _scores(name: str, results: Results) -> Iterator[EvalResult]:
    """Each subset's main score, in the format of mteb's cards; tasks unknown to mteb are left out."""
    import mteb
    from huggingface_hub import EvalResult

    for (model, task), table in results.tables.items():
        if model != name:
            continue
        with suppress(KeyError):
            metadata = mteb.get_task(task).metadata
            for split, subset, _, scores in table.entries:
                yield EvalResult(
                    task_type="sentence-similarity",
                    task_name=metadata.type,
                    dataset_type=metadata.dataset["path"],
                    dataset_name=f"{task} ({subset})",
                    dataset_config=subset,
                    dataset_split=split,
                    dataset_revision=table.dataset_revision,
                    metric_type=metadata.main_score,
                    metric_value=scores["main_score"],
                    source_name="MTEB",
                    source_url="https://github.com/embeddings-benchmark/mteb/",
                )


def upload(folder: Path, repository: str, *, private: bool = False) -> str:
    """Upload a folder of :func:`prepare` to ``org/name`` on the hub, created if missing, and return its address.

    Raises:
        ModelError: The hub is unreachable or refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        api = HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        return str(api.upload_folder(folder_path=str(folder), repo_id=repository, commit_message="Publish by xalign"))
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError, ValueError) as error:
        reason = f"{repository} cannot be written on the hub: {one_line(error)}"
        raise ModelError(f"{reason} `hf auth login` signs in.") from None
