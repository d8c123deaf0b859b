"""``encode_corpus``: a large corpus, encoded in shards by workers that each keep a copy of the model."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from socket import gethostname
from time import time
from typing import Any

import numpy as np

from xalign_models.backbones.inputs import require_texts
from xalign_models.cluster.cluster import Cluster
from xalign_models.errors import ModelError
from xalign_models.files import read_json
from xalign_models.languages import canonical
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.metadata import meta_of
from xalign_models.models.names import locate
from xalign_models.paths import atomic_file, atomic_write_text
from xalign_models.progress import live
from xalign_models.specs import digest

logger = logging.getLogger(__name__)

SHARD = 16_384
"""Texts of a shard, which are sorted by length and batched together, as on a single machine."""
MANIFEST = "corpus.json"
ABANDONED = 3600
"""Seconds after which a half-written file has no writer, because a shard is written in one go."""


def encode_corpus(
    model: str,
    texts: Iterable[str],
    language: str | None,
    folder: Path,
    cluster: Cluster,
    *,
    prompt: str | None = None,
    shard: int = SHARD,
    half: bool = False,
    overrides: dict[str, Any] | None = None,
) -> list[Path]:
    """Encode any number of texts in shards, which the workers write to a folder that all machines share.

    The driver holds four shards of text per worker and no vectors. Existing shards of the same texts are kept, so an
    interrupted run resumes and a corpus can grow; shards of other texts are replaced. If a worker is lost, its shard is
    encoded again. On processors of one kind, the vectors are bit for bit the same as for these shards encoded on one
    machine.

    Args:
        model: A name, a directory or a hub id.
        texts: The texts, read once and in order.
        language: Language of all texts, any code; None if the model needs none.
        folder: Folder for files with (shard, d) vectors, whose names are the number of the shard and a digest of its
            texts, and for a manifest.
        cluster: The cluster and the resources of a worker, which has a copy of the model.
        prompt: Prompt before every text, or around ``[TEXT]``; by default the model's own; ``""`` for no prompt.
        shard: Texts of a shard.
        half: Store float16 instead of float32.
        overrides: Fields of the backbone's spec.

    Returns:
        The files of the shards, in the order of the texts; ``np.load(path, mmap_mode="r")`` opens one.

    Raises:
        WorkerLostError: The worker of a shard was lost too often.
        DataError: A text is None, a number or bytes.
        ModelError: ``shard`` is below 1, the texts are one string, or the folder has vectors of another model.
        XAlignError: The model cannot be loaded, the language is unknown, or a text cannot be encoded, e.g. in half
            precision.
    """
    if shard < 1:
        raise ModelError(f"shard {shard}: give at least 1.")
    if isinstance(texts, str):  # it would be encoded letter by letter
        raise ModelError("The texts are one string; give a list of texts.")
    ((model,), given), folder = whole_paths([model], overrides), folder.resolve()
    language = language and canonical(language)
    dtype = "float16" if half else "float32"
    meta = meta_of(locate(model, **given))
    identity = {"model": f"{meta.name}@{meta.revision}", "language": language, "prompt": prompt}
    _claim(folder, {**identity, "shard": shard, "dtype": dtype})
    for leftover in folder.glob(".*.part"):
        with suppress(FileNotFoundError):  # another driver was faster
            if leftover.stat().st_mtime < time() - ABANDONED:
                leftover.unlink()
    work = (meta.revision, model, cluster.device, given), language, prompt, dtype
    stream, paths = iter(texts), list[Path]()

    def missing() -> Iterator[tuple[Path, list[str]]]:
        for number, piece in enumerate(iter(lambda: list(islice(stream, shard)), [])):
            require_texts(piece, number * shard)
            paths.append(path := folder / f"{number:08d}-{digest(piece)[:32]}.npy")
            if path.is_file():
                bar.update(len(piece))
            else:
                yield path, piece

    with live(desc="encode", unit=" texts") as bar:
        for count in cluster.map(_encode, work, missing()):
            bar.update(count)
    for rest in folder.glob(f"{len(paths):08d}-*.npy"):
        logger.warning("%s and later shards are from a longer corpus; remove them unless you resume it.", rest)
    return paths


def whole_paths(models: Iterable[str], overrides: Mapping[str, Any] | None) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Models and overrides, with absolute paths for directories, because workers may run in another folder."""

    def absolute(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(str(Path(name).resolve()) if Path(name).is_dir() else name for name in names)

    given = dict(overrides or {})
    if (trusted := given.get("trust_remote_code")) and not isinstance(trusted, bool):  # a bool is refused later
        given["trust_remote_code"] = absolute((trusted,) if isinstance(trusted, str) else trusted)
    return absolute(models), given


def _claim(folder: Path, identity: dict[str, Any]) -> None:
    """Reserve the folder for this corpus.

    Raises:
        ModelError: The folder has another corpus.
    """
    path = folder / MANIFEST
    if not path.is_file():
        atomic_write_text(path, json.dumps(identity, indent=2) + "\n")
    written = read_json(path)
    if differing := sorted(key for key in identity if written.get(key) != identity[key]):
        raise ModelError(f"{folder} is for vectors of another {', '.join(differing)}; remove it, or choose another.")


def _encode(work: tuple[Any, ...], item: tuple[Path, Sequence[str]]) -> int:
    """In a worker: encode a shard and write its vectors."""
    (*model, given), language, prompt, dtype = work
    path, texts = item
    with np.errstate(over="ignore"):  # overflow in half precision is refused
        vectors = kept_encoder(*model, **given).encode_texts(texts, [language] * len(texts), prompt).astype(dtype)
    if (bad := np.flatnonzero(~np.isfinite(vectors).all(axis=1))).size:
        raise ModelError(f"The vector of {texts[bad[0]][:80]!r} is not finite in {dtype}; store it without half=True.")
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, vectors)
    for other in path.parent.glob(f"{path.name[:8]}-*.npy"):
        if other != path:  # of other texts
            other.unlink(missing_ok=True)
    return len(texts)


_kept: dict[str, XAlignEncoder] = {}


def kept_encoder(revision: str, model: str, device: str | None, **given: Any) -> XAlignEncoder:
    """The encoder that a worker reuses for its units.

    Raises:
        ModelError: The model on this machine has another revision.
    """
    if (key := digest(revision, model, device, given)) not in _kept:
        _kept.clear()
        encoder = load_encoder(model, device=device, **given)
        if encoder.mteb_model_meta.revision != revision:
            raise ModelError(f"{model} on {gethostname()} differs from the driver's; give all machines the same model.")
        _kept[key] = encoder
    return _kept[key]
