"""Counts the texts that a run will send to endpoints, over all models and tasks, before the first request.

Each task runs with noise in place of vectors. A text counts once per endpoint, and not at all if its vector is stored.
"""

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import mteb
import numpy as np
from mteb.abstasks import AbsTask
from mteb.models.model_meta import ModelMeta

from xalign_models import alignments
from xalign_models.backbones.endpoints.endpoint import Endpoint
from xalign_models.backbones.endpoints.settings import METER, Settings, estimated_tokens
from xalign_models.backbones.inputs import prompted
from xalign_models.backbones.pointer import pointed
from xalign_models.backbones.raw import RawEncoder
from xalign_models.backbones.sources import find_source
from xalign_models.errors import FileError, XAlignError, without_exit
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.evaluation.run import QUIET, languages_of, make_task, reachable
from xalign_models.models import fitting
from xalign_models.models.building import load_encoder
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.models.metadata import meta_of
from xalign_models.models.names import Located, locate
from xalign_models.models.recipe import Recipe
from xalign_models.results.reading import check_main_scores, read_result
from xalign_models.specs import ModelSpec, Vectors
from xalign_models.store import EmbeddingStore

logger = logging.getLogger(__name__)


class Counting(RawEncoder):
    """Counts the texts that the store lacks, and returns noise for them.

    Args:
        raw: The encoder to replace.
        dimension: Dimension of the vectors.
        tokens: Receives the estimated number of tokens of each text, by its key.
    """

    def __init__(self, raw: RawEncoder, dimension: int, tokens: dict[bytes, int]) -> None:
        super().__init__(raw.namespace, tuple, raw.device, raw.store)
        self._dimension, self._tokens = dimension, tokens

    def encode_missing(
        self, keys: list[bytes], texts: list[str], prompt: str, known: dict[bytes, Any], progress: str | None
    ) -> None:
        """Count the tokens of the texts, and return a vector of noise for each."""
        noise = np.random.default_rng(0).standard_normal((len(keys), self._dimension)).astype(np.float32)
        known.update(zip(keys, noise, strict=True))
        self._tokens.update(zip(keys, (estimated_tokens(prompted(prompt, text)) for text in texts), strict=True))


def announce(
    models: Sequence[str],
    tasks: Sequence[str | AbsTask],
    output: Path,
    *,
    languages: Collection[str] | None,
    device: str | None = None,
    store: EmbeddingStore | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> None:
    """Announce the number of texts that a run will send and their cost, if there is a price or a budget.

    Only the endpoint's probe is sent. The arguments are the run's; models without an endpoint and subsets with scores
    do not count.

    Raises:
        ModelError: The run would exceed the budget.
        XAlignError: A model or a task does not exist.
    """
    settings = Settings.from_environment()
    if settings.price is None and settings.most_tokens is None:
        return
    located = {model: locate(model, **(overrides or {})) for model in models}
    served = {model: source for model, place in located.items() if (source := _endpoint(place))}
    if not served:
        return
    cache = SafeResultCache(output)
    chosen = [make_task(task, languages) if isinstance(task, str) else task for task in tasks]
    codes = {code for task in chosen for subset in task.hf_subsets for code in languages_of(task)[subset]}
    tokens: dict[str, dict[bytes, int]] = {}
    uncounted: list[str] = []
    for model, source in served.items():
        place = located[model]
        try:
            unaligned = model if place.saved or place.spec is None else ModelSpec(place.spec.backbone.whole)
            encoder = load_encoder(unaligned, device=device, store=store)
            counts = tokens.setdefault(encoder.raw.namespace, {})
            encoder.raw, encoder.tail = Counting(encoder.raw, source.probe.dimension, counts), []
            if not place.saved:
                _count_fit(encoder, place, codes)
        except XAlignError as error:  # the run reports it too
            logger.debug("%s: %s", model, error)
            uncounted.append(model)
            continue
        meta = meta_of(place)
        uncounted += [task.metadata.name for task in chosen if not _count(encoder, task, cache, meta)]
    each = [count for counts in tokens.values() for count in counts.values()]
    METER.announce_run(len(each), sum(each), settings, tuple(dict.fromkeys(uncounted)))


def _endpoint(located: Located) -> Endpoint | None:
    spec = pointed(located.saved.files) if located.saved else located.spec and located.spec.backbone
    source = find_source(spec.model) if spec else None
    return source if isinstance(source, Endpoint) else None


def _count_fit(encoder: XAlignEncoder, located: Located, codes: Collection[str]) -> None:
    """Count the text that an alignment and the ranges of int8 vectors are fitted on."""
    spec = located.spec
    int8 = spec is not None and spec.backbone.vectors is Vectors.INT8
    if spec is None or not (spec.alignment or int8):
        return
    text = Recipe(spec).calibration
    method = alignments.find_method(spec.alignment.method) if spec.alignment else None
    if method and method.language_dependent:
        have = fitting.fit_languages(text, fitting.load_corpora(text))
        encoder.languages = frozenset(have)
        if method.by_language and not int8:
            chosen = {*codes, fitting.pivot_of(text)} & {*have}
            text = dataclasses.replace(text, languages=tuple(sorted(chosen)))
    recipe = Recipe(ModelSpec(spec.backbone.whole), encoder.raw)
    for prompt in recipe.prompts:
        recipe.fit_vectors(text, prompt)


def _count(encoder: XAlignEncoder, task: AbsTask, cache: SafeResultCache, meta: ModelMeta) -> bool:
    """Let a task encode the subsets without scores; False if it cannot run on noise."""
    subsets, by_subset = list(task.hf_subsets), languages_of(task)
    scored = _scored(cache.path_of(task.metadata.name, meta), task)
    task.hf_subsets = [subset for subset in subsets if subset not in scored and not encoder.unfitted(by_subset[subset])]
    try:
        if not task.hf_subsets:
            return True
        with reachable(task), without_exit():
            return not mteb.evaluate(encoder, task, cache=None, **QUIET).exceptions
    except Exception:  # a task may raise anything; the run reports it too
        logger.debug("%s cannot be counted", task.metadata.name, exc_info=True)
        return False
    finally:
        task.hf_subsets = subsets
        if task.data_loaded:
            task.unload_data()


def _scored(path: Path, task: AbsTask) -> set[str]:
    """The subsets that an earlier run scored on the same text."""
    try:
        check_main_scores(result := read_result(path))
    except FileError:  # there is none, or the run sets it aside
        return set()
    named = [*zip(result.frame.splits, result.frame.subsets, strict=True)]
    by_split = [{subset for part, subset in named if part == split} for split in task.eval_splits]
    return set.intersection(*by_split) if by_split and result.dataset_revision == task.metadata.revision else set()
