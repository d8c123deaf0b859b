"""``encode_corpus``: a large corpus, encoded by Ray actors that each have a copy of the model."""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xalign_models.cluster.cluster import RETRIES, Cluster, finished, result_of
from xalign_models.errors import ModelError
from xalign_models.files import read_json
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.paths import atomic_file, atomic_write_text
from xalign_models.progress import live
from xalign_models.specs import digest

logger = logging.getLogger(__name__)

SHARD = 16_384
"""Texts of a shard, which are sorted by length and batched together, as in an encode on one machine."""
AHEAD = 2
"""Shards submitted to each actor, so that none waits for the driver."""
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
    """Encode any number of texts in shards, which the workers write to a folder that all machines share.

    The driver holds ``2 x actors`` shards of text and no vectors. Existing shards of the same texts are kept, so that
    an interrupted run resumes and a corpus can grow; shards of other texts are replaced. A lost actor is restarted. On
    processors of one kind the vectors are, bit for bit, those of the same shards encoded on one machine.

    Args:
        model: A name, a directory or a hub id.
        texts: The texts, read once and in order.
        language: Language of all texts, any code; None if the model needs none.
        folder: Folder for ``00000000.npy``, ... with (shard, d) vectors, a ``.json`` beside each with the count and the
            digest of its texts, and a manifest.
        cluster: The cluster and the resources of an actor.
        actors: Copies of the model.
        prompt: Prompt before every text, or around ``[TEXT]``; by default the model's own, and ``""`` for none.
        shard: Texts of a shard.
        half: Store float16 instead of float32.
        overrides: Fields of the backbone's spec.

    Returns:
        The files of the shards, in the order of the texts; ``np.load(path, mmap_mode="r")`` opens one.

    Raises:
        WorkerLostError: An actor was lost too often.
        ModelError: ``actors`` or ``shard`` is below 1, or the folder has vectors of another model.
        XAlignError: The model cannot be loaded, or a text cannot be encoded.
    """
    for name, value in (("actors", actors), ("shard", shard)):
        if value < 1:
            raise ModelError(f"{name} {value}: at least 1.")
    given, dtype = overrides or {}, "float16" if half else "float32"
    stream = iter(texts)
    pieces = enumerate(iter(lambda: list(islice(stream, shard)), []))
    paths: list[Path] = []
    with cluster.connect() as ray, live(desc=f"encode on {actors} actors", unit=" texts") as bar:
        embedder = ray.remote(**cluster.resources(ray), max_restarts=RETRIES, max_task_retries=RETRIES)(_Embedder)
        pool = [embedder.remote(model, cluster, given, folder, dtype) for _ in range(actors)]
        idle = pool * AHEAD

        def begin(_: int) -> Iterator[tuple[Any, Any]]:
            while idle and (numbered := next(pieces, None)):
                paths.append(path := folder / f"{numbered[0]:08d}.npy")
                if _is_of(path, numbered[1]):
                    bar.update(len(numbered[1]))
                else:
                    actor = idle.pop(0)
                    yield actor.encode.remote(*numbered, language, prompt), actor

        try:
            identity = result_of(ray, pool[0].identity.remote())
            _claim(folder, {"model": identity, "language": language, "prompt": prompt, "shard": shard, "dtype": dtype})
            for actor, reference in finished(ray, begin):
                bar.update(result_of(ray, reference))
                idle.append(actor)
        finally:
            for actor in pool:
                ray.kill(actor)
    if (rest := folder / f"{len(paths):08d}.npy").is_file():
        logger.warning("%s and what follows it is of a longer corpus; remove it unless you resume that corpus.", rest)
    return paths


def _contents(texts: Sequence[str]) -> str:
    return json.dumps({"texts": len(texts), "sha256": digest(texts)})


def _is_of(path: Path, texts: Sequence[str]) -> bool:
    """Whether a shard exists, is whole and has these texts."""
    beside = path.with_suffix(".json")
    return path.is_file() and beside.is_file() and beside.read_text(encoding="utf-8") == _contents(texts)


def _claim(folder: Path, identity: dict[str, Any]) -> None:
    """Reserve the folder for this corpus.

    Raises:
        ModelError: It has another corpus.
    """
    path = folder / MANIFEST
    if not path.is_file():
        atomic_write_text(path, json.dumps(identity, indent=2) + "\n")
    written = read_json(path)
    if differing := sorted(key for key in identity if written.get(key) != identity[key]):
        raise ModelError(f"{folder} has vectors of another {', '.join(differing)}; choose another folder.")


class _Embedder:
    """An actor: a model that encodes shards and writes their vectors."""

    def __init__(self, model: str, cluster: Cluster, given: dict[str, Any], folder: Path, dtype: str) -> None:
        torch.set_num_threads(cluster.cpus)
        self.load = partial(load_encoder, model, device=cluster.device, **given)
        self.folder, self.dtype = folder, dtype

    @cached_property
    def encoder(self) -> XAlignEncoder:  # not in __init__, whose errors Ray treats as a lost actor
        return self.load()

    def identity(self) -> str:
        meta = self.encoder.mteb_model_meta
        return f"{meta.name}@{meta.revision}"

    def encode(self, index: int, texts: Sequence[str], language: str | None, prompt: str | None) -> int:
        vectors = self.encoder.encode_texts(texts, [language] * len(texts), prompt)
        path = self.folder / f"{index:08d}.npy"
        path.with_suffix(".json").unlink(missing_ok=True)  # until it is written again, the shard counts as missing
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, vectors.astype(self.dtype, copy=False))
        atomic_write_text(path.with_suffix(".json"), _contents(texts))
        return len(texts)
