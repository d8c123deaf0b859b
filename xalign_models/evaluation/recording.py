"""Records the texts that a task encodes, with their languages where the task provides them."""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

import datasets
import mteb
import numpy as np
import numpy.typing as npt
from mteb.models.model_meta import ModelMeta, ScoringFunction

from xalign_models.evaluation.run import QUIET, make_task
from xalign_models.languages import LanguageText, canonical
from xalign_models.models.encoder import XAlignEncoder

DIMENSION = 8


class Recorder(XAlignEncoder):
    """A stand-in for a model that records the texts to encode."""

    def __init__(self) -> None:
        fields = {"name": "xalign/recorder", "revision": "1", "similarity_fn_name": ScoringFunction.COSINE}
        nothing: Any = None
        super().__init__(nothing, [], {}, None, ModelMeta.create_empty(fields), needs_language=True)
        self.seen: dict[tuple[LanguageText, str], None] = {}

    def encode_texts(
        self,
        texts: Sequence[str],
        languages: Sequence[str | None],
        prompt: str | None = None,
        progress: str | None = None,
        side: str = "",
    ) -> npt.NDArray[np.float32]:
        """Record texts, languages and side, and return vectors (n, d) that differ between texts."""
        codes = (code and canonical(code) for code in languages)
        self.seen |= dict.fromkeys((text, side) for text in zip(texts, codes, strict=True))
        seeds = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8] for text in texts)
        noise = [np.random.default_rng(list(seed)).standard_normal(DIMENSION) for seed in seeds]
        return np.stack(noise).astype(np.float32)


def task_texts(name: str, languages: Collection[str] | None = None) -> list[LanguageText]:
    """The texts that a task encodes, in the subsets of the chosen languages.

    Args:
        name: Name of the task in mteb; xalign's tasks must be registered first.
        languages: Canonical codes; None for all.

    Raises:
        DataError: The task is unknown, or its data is missing.
        LanguageError: The task has nothing in these languages.
    """
    return list(dict.fromkeys(text for text, _ in _seen(name, languages)))


def task_sides(name: str, languages: Collection[str] | None = None) -> dict[str, list[LanguageText]]:
    """The texts of :func:`task_texts` by side: ``query`` and ``document`` in retrieval, else ``""``."""
    sides: dict[str, list[LanguageText]] = {}
    for text, side in _seen(name, languages):
        sides.setdefault(side, []).append(text)
    return sides


def _seen(name: str, languages: Collection[str] | None) -> dict[tuple[LanguageText, str], None]:
    recorder, shown = Recorder(), datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()  # a bar for each subset that mteb reads
    try:
        mteb.evaluate(recorder, make_task(name, languages), cache=None, **QUIET)
    finally:
        if shown:
            datasets.enable_progress_bars()
    return recorder.seen
