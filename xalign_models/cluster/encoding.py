"""One big corpus, encoded by Ray actors, each with a copy of the model on its own part of the cluster."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xalign_models.cluster.cluster import RETRIES, Cluster, use_threads
from xalign_models.errors import ModelError
from xalign_models.files import read_json
from xalign_models.models.building import load_encoder
from xalign_models.paths import atomic_file, atomic_write_text
from xalign_models.progress import live
from xalign_models.specs import digest

if TYPE_CHECKING:
    from xalign_models.models.encoder import XAlignEncoder

logger = logging.getLogger(__name__)

SHARD = 16_384
"""Texts of a shard: they are sorted by length and batched together, as in an encode on one machine."""
_AHEAD = 2  # shards that an actor has in hand, so that it never waits for the driver
MANIFEST = "corpus.json"


def encode_corpus(
    model: str,
    texts: Iterable[str],
    language: str | None,
    folder: Path,
    cluster: Cluster,
    *,
    actors: int,
    prompt: str | None = None,
    shard: int = SHARD,
    half: bool = False,
    overrides: dict[str, Any] | None = None,
) -> list[Path]:
    """Vectors of any number of texts, written in shards by the workers to a folder that all machines share.

    The driver holds ``2 x actors`` shards of text and no vectors. A shard that is there and of the same texts is not
    encoded again, so that a stopped run goes on and a corpus can grow; one of other texts is replaced. A lost actor is
    started anew and its shards are encoded again. The vectors are, bit for bit on processors of one kind, what the
    model gives for a shard's texts on one machine, whatever the number of actors.

    Args:
        model: A name, a directory or a hub id.
        texts: Read once, in order.
        language: Of all of them, any code; None where the model does not ask.
        folder: Where ``00000000.npy``, ... of (shard, d) vectors, with a ``.json`` each that has the count and a digest
            of the texts, and a manifest are written.
        cluster: Where, and the resources of an actor.
        actors: Copies of the model.
        prompt: Before every text, or around it where it has ``[TEXT]``; by default the model's own, ``""`` is none.
        shard: Texts of a shard.
        half: Keep float16 instead of float32.
        overrides: Fields of the backbone's spec.

    Returns:
        The shards' files, in the order of the texts; ``np.load(path, mmap_mode="r")`` opens one.

    Raises:
        ModelError: ``actors`` or ``shard`` is below 1, the folder has another model's vectors, or an actor was lost too
            often.
        XAlignError: The model cannot be loaded, or a text not be encoded.
    """
    for name, value in (("actors", actors), ("shard", shard)):
        if value < 1:
            raise ModelError(f"{name} {value}: at least 1.")
    given = overrides or {}
    with cluster.connect() as ray:
        options = {**cluster.resources(ray), "max_restarts": RETRIES, "max_task_retries": RETRIES}
        pool = [
            ray.remote(**options)(_Embedder).remote(model, cluster, given, str(folder), half) for _ in range(actors)
        ]
        try:
            _claim(folder, {"model": ray.get(pool[0].identity.remote()), "language": language, "prompt": prompt,
                            "shard": shard, "dtype": "float16" if half else "float32"})  # fmt: skip
            paths: list[Path] = []
            busy: dict[Any, Any] = {}
            idle = pool * _AHEAD
            with live(desc=f"encode on {actors} actors", unit=" texts") as bar:
                for index, piece in enumerate(_pieces(texts, shard)):
                    paths.append(folder / f"{index:08d}.npy")
                    if _is_of(paths[-1], piece):
                        bar.update(len(piece))
                        continue
                    if not idle:
                        idle.append(_one_done(ray, busy, bar))
                    free = idle.pop(0)
                    busy[free.encode.remote(index, piece, language, prompt)] = free
                while busy:
                    _one_done(ray, busy, bar)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise ModelError(f"An actor was lost {RETRIES + 1} times ({type(error).__name__}); run it again.") from None
        finally:
            for worker in pool:
                ray.kill(worker)
    if (rest := folder / f"{len(paths):08d}.npy").is_file():
        logger.warning("%s and what follows it is of a longer corpus; remove it unless that is to go on.", rest)
    return paths


def _one_done(ray: Any, busy: dict[Any, Any], bar: Any) -> Any:
    (ref,), _ = ray.wait([*busy], num_returns=1)
    bar.update(ray.get(ref))
    return busy.pop(ref)


def _pieces(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(texts)
    while piece := list(islice(rest, size)):
        yield piece


def _contents(texts: Sequence[str]) -> str:
    return json.dumps({"texts": len(texts), "sha256": digest(texts)})


def _is_of(path: Path, texts: Sequence[str]) -> bool:
    """Whether a shard is there, whole and of these texts."""
    beside = path.with_suffix(".json")
    return path.is_file() and beside.is_file() and beside.read_text(encoding="utf-8") == _contents(texts)


def _claim(folder: Path, identity: dict[str, Any]) -> None:
    """Make the folder this corpus', or refuse it."""
    path = folder / MANIFEST
    if not path.is_file():
        atomic_write_text(path, json.dumps(identity, indent=2) + "\n")
    written = read_json(path)
    if differing := sorted(key for key in identity if written.get(key) != identity[key]):
        raise ModelError(f"{folder} has vectors of another {', '.join(differing)}; choose another folder.")


class _Embedder:
    """An actor: a model that writes what it encodes."""

    def __init__(self, model: str, cluster: Cluster, given: dict[str, Any], folder: str, half: bool) -> None:
        use_threads(cluster.cpus)
        self.load = partial(load_encoder, model, device=cluster.device, **given)
        self.folder, self.dtype = Path(folder), np.float16 if half else np.float32

    @cached_property
    def encoder(self) -> XAlignEncoder:  # not in __init__, whose errors Ray takes for a lost actor
        return self.load()

    def identity(self) -> str:
        meta = self.encoder.mteb_model_meta
        return f"{meta.name}@{meta.revision}"

    def encode(self, index: int, texts: Sequence[str], language: str | None, prompt: str | None) -> int:
        vectors = self.encoder.encode_texts(texts, [language] * len(texts), prompt)
        path = self.folder / f"{index:08d}.npy"
        path.with_suffix(".json").unlink(missing_ok=True)  # first and last: what is between is encoded again
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, vectors.astype(self.dtype, copy=False))
        atomic_write_text(path.with_suffix(".json"), _contents(texts))
        return len(texts)
