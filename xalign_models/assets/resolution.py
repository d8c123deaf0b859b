"""Resolves model ids to loadable models with a fingerprint of their weights."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from xalign_models.assets.catalogue import NO_MODELS, get_asset, list_assets
from xalign_models.assets.inspection import Inspected
from xalign_models.assets.installation import fetches, install, where
from xalign_models.claims import Claim, named
from xalign_models.errors import AssetError, ModelError, one_line
from xalign_models.paths import expanded

PACKAGED = Path(__file__).parents[1] / "models" / "packaged"
"""Folder of the trained models that come with xalign, in folders with their names."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT = 5
"""Seconds to wait for the hub's answer."""
_PAUSE = 300
"""Seconds before an unreachable hub is tried again."""
_REFUSALS = frozenset({401, 403, 404, 410, 451})
"""Statuses that concern one repository. Others, such as too many requests, concern the hub as a whole."""
unreachable: tuple[float, str] | None = None
"""Time and reason of the last failure to reach the hub."""


@dataclass(frozen=True)
class ResolvedModel:
    """A model that can be loaded: ``from_pretrained(path_or_id, revision=revision)``.

    Attributes:
        path_or_id: The directory, or the hub id.
        revision: The commit on the hub; None for a directory.
        fingerprint: Identifies the weights.
        source: An installed asset, another directory, or the hub.
        opened: The files of a directory, which were hashed for the fingerprint.
    """

    path_or_id: str
    revision: str | None
    fingerprint: str
    source: Literal["package", "local", "hub"]
    opened: Inspected | None = field(default=None, compare=False, repr=False)

    @cached_property
    def files(self) -> Inspected:
        """The files; of a model on the hub, the JSON files alone, fetched now. Raises AssetError if they cannot be."""
        if self.source == "hub":
            return Inspected(_fetched(self.path_or_id, str(self.revision)), self.path_or_id)
        return self.opened or Inspected(Path(self.path_or_id))

    def confirm(self) -> None:
        """Refuse files that are no longer those of the fingerprint; see :meth:`Inspected.confirm`.

        Raises:
            ModelError: A file has changed.
        """
        if self.opened is not None:
            self.opened.confirm()


@lru_cache(maxsize=64)
def _fetched(model: str, commit: str) -> Path:
    """The folder in the hub's cache with the JSON files of a model; a commit never changes."""
    from huggingface_hub import snapshot_download

    wanted, away = ["*.json"], hub_is_away() or not fetches.get()
    try:
        return Path(snapshot_download(model, revision=commit, allow_patterns=wanted, local_files_only=away))
    except Exception as error:
        raise AssetError(f"{model} cannot be downloaded from the hub ({one_line(error)}).") from None


def resolve(
    model_id: str, revision: str | None = None, files: Inspected | None = None, above: frozenset[Path] = frozenset()
) -> ResolvedModel:
    """Resolve an asset, else a packaged model, a local directory, or a hub id ``org/name``, in this order.

    A directory ``$XALIGN_MODELS/org/name``, a local mirror of the hub's repository, precedes the hub for any revision;
    its content identifies it. Missing assets are installed. Hub revisions are pinned to commits: ``None`` and branch
    names are looked up on the hub, or in the local hub cache if the hub is unreachable.

    Args:
        model_id: The name, path or hub id.
        revision: A branch, tag or commit; for hub ids only.
        files: The files of the directory, if some of them were read already.
        above: The directories of adapters that name this model as their base.

    Raises:
        ModelError: Adapters name each other as their base.
        LicenceError: The asset's terms must be accepted first.
        ModelError: Only a file names the model.
        AssetError: The model is unknown or unavailable, or has no revisions and one was given.
    """
    is_asset = model_id in {asset.name for asset in list_assets()}
    directory = packaged(model_id) or expanded(model_id if is_asset else named(model_id))
    if not is_asset and not directory.is_dir():
        mirrored = mirror(model_id)
        return _local(mirrored, above=above) if mirrored else _resolve_hub(model_id, revision)
    if revision is not None:
        raise AssetError(f"{model_id} is not on the hub and has no revision {revision!r}; leave the revision out.")
    if not is_asset:
        return _local(directory, files, above)
    if (kind := get_asset(model_id).kind) in NO_MODELS:
        raise AssetError(f"{model_id} is a {kind}, not a model.")
    path = where(model_id) or install(model_id)
    files = Inspected(path)
    return ResolvedModel(str(path), None, files.fingerprint(), "package", files)


def packaged(name: str) -> Path | None:
    """The directory of a model that comes with xalign, by its name or the first part of it; None for other models."""
    short = name.removeprefix("xalign/")
    return next((folder for folder in PACKAGED.iterdir() if short in (folder.name, folder.name.split("__")[0])), None)


def place(model: str) -> Path:
    """The directory of a model that comes with xalign, else the path of this name, which may not exist."""
    return packaged(model) or Path(model)


def resolve_base(
    files: Inspected, name: str = "adapter_config.json", above: frozenset[Path] = frozenset()
) -> ResolvedModel:
    """The checkpoint that an adapter names as its base, which is a claim; errors are those of :func:`resolve`."""
    return resolve(Claim(files.json(name, dict).get("base_model_name_or_path")), above=above)


def _local(directory: Path, files: Inspected | None = None, above: frozenset[Path] = frozenset()) -> ResolvedModel:
    files, place = files or Inspected(directory), directory.resolve()
    if place in above:
        raise ModelError(f"{directory}: adapters name each other as their base.")
    digest = files.fingerprint()
    for name in files.adapters:
        files.bases[name] = resolve_base(files, name, above | {place})
        digest = sha256(f"{digest} {files.bases[name].fingerprint}".encode()).hexdigest()
    return ResolvedModel(str(place), None, digest, "local", files)


def mirror(model_id: str) -> Path | None:
    """``$XALIGN_MODELS/org/name`` if it exists.

    Raises:
        AssetError: The variable names something that is not a directory.
    """
    root = os.environ.get("XALIGN_MODELS")
    if not root or not _is_hub_id(model_id):
        return None
    folder = expanded(root)
    if not folder.is_dir():
        raise AssetError(f"XALIGN_MODELS={root} is not a directory; point it at a mirror of the hub, or unset it.")
    directory = folder / model_id
    return directory if directory.is_dir() else None


def hub_is_away() -> bool:
    """Whether the hub was unreachable a short while ago; only its local cache is used then."""
    return unreachable is not None and time.monotonic() - unreachable[0] < _PAUSE


@contextmanager
def hub_or_cache(dataset: str) -> Iterator[None]:
    """Within the context, an unreachable hub makes a data set load from its local cache at once, or fail at once.

    A download that fails is an OSError, of whichever library the error is.
    """
    from datasets.exceptions import DatasetsError
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    http: Any = HfHubHTTPError.__bases__[0]  # of httpx or httpx2, which the library's version decides

    with suppress(HfHubHTTPError, HFValidationError):  # loading gives the better message
        _ask_hub("dataset_info", dataset)
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or hub_is_away() or not fetches.get()
    try:
        yield
    except (DatasetsError, http) as error:
        if isinstance(error, OSError):
            raise
        raise ConnectionError(f"{dataset}: {one_line(error)}") from error
    finally:
        constants.HF_HUB_OFFLINE = before


def _ask_hub(question: str, *args: Any, **options: Any) -> Any:
    """The answer of a method of the hub's API; None if the hub is unreachable. A failure is remembered for a while.

    Raises:
        HFValidationError: The name is not a valid repository name.
        HfHubHTTPError: The hub refuses this repository or revision, e.g. because it does not exist.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    global unreachable  # noqa: PLW0603  # the network is shared by the whole process
    if not hub_is_away():
        try:
            return getattr(HfApi(), question)(*args, **options, timeout=_TIMEOUT)
        except Exception as error:
            refused = isinstance(error, HfHubHTTPError) and error.response.status_code in _REFUSALS
            if refused or isinstance(error, HFValidationError):
                raise
            unreachable = time.monotonic(), one_line(error)
    return None


def _resolve_hub(model_id: str, revision: str | None) -> ResolvedModel:
    if not _is_hub_id(model_id):
        names = ", ".join(asset.name for asset in list_assets() if asset.kind not in NO_MODELS)
        raise AssetError(f"There is no model {model_id!r}: give an asset ({names}), a directory, or a hub id org/name.")
    commit = revision if revision and _COMMIT.fullmatch(revision) else hub_commit(model_id, revision or "main")
    return ResolvedModel(model_id, commit, f"{model_id}@{commit}", "hub")


def _is_hub_id(text: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # documented, not in __all__

    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return "/" in text


def hub_commit(model_id: str, revision: str) -> str:
    """The current commit of a branch or tag of a hub model.

    Raises:
        AssetError: The hub has no such model or revision, or is unreachable and the local cache lacks it.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    found, trouble = None, None
    cached = try_to_load_from_cache(model_id, "config.json", revision=revision)
    try:
        if fetches.get() or isinstance(cached, str):
            found = _ask_hub("model_info", model_id, revision=revision)
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise AssetError(
            f"The hub has no model {model_id} with revision {revision!r}, or you have no access to it."
        ) from error
    except HfHubHTTPError as error:  # or a proxy on the way refuses; the local cache may still have it
        trouble = f"refuses to answer ({one_line(error)})"
    if found is not None and found.sha is not None:
        return str(found.sha)
    if not isinstance(cached, str):
        trouble = trouble or f"cannot be reached ({unreachable[1] if unreachable else 'it names no commit'})"
        raise AssetError(
            f"The Hugging Face hub {trouble} and {model_id} is not in its local cache; "
            "give a local directory, a mirror in XALIGN_MODELS, or one of the assets of `xalign assets list`."
        )
    return Path(cached).parent.name
