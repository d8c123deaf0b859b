"""Fits maps when their language is first used: a run on three languages encodes fit text in three languages."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from torch import nn

from xalign_models.alignments import Alignment, find_method
from xalign_models.alignments.module import Aligned
from xalign_models.corpora import ENGLISH
from xalign_models.errors import LanguageError
from xalign_models.models import fitting
from xalign_models.specs import AlignmentSpec


class FittedOnDemand(nn.Module):
    """Applies an alignment with a separate map per language, and fits missing maps.

    Args:
        spec: Method, hyperparameters and text; ``spec.languages`` lists all languages.
        backbone: Fingerprint of ``encode``, prompt included.
        encode: Texts to raw vectors (n, d).
    """

    def __init__(self, spec: AlignmentSpec, backbone: str, encode: fitting.Encode) -> None:
        super().__init__()
        self._spec, self._backbone, self._encode = spec, backbone, encode
        self._fitted = fitting.cached(spec, backbone)  # an earlier run may have fitted every language
        self._aligned: Aligned | None = Aligned.of(self._fitted) if self._fitted else None

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Map ``features["sentence_embedding"]`` (n, d) by ``features["lang"]``, fitting missing maps.

        Raises:
            LanguageError: A language is missing, or not in the spec.
            XAlignError: Fit text is missing, or the method cannot be fitted on it.
        """
        codes = features.get("lang") or []
        fitted = self._spec.languages or ()
        if not codes or (unknown := {code for code in codes if code not in fitted}):
            names = ", ".join(sorted(map(str, unknown))) if codes else "texts without a language"
            raise LanguageError(f"{self._spec.label} is not fitted for {names}; fitted languages: {', '.join(fitted)}.")
        self._fit({*codes})
        assert self._aligned is not None
        return self._aligned(features, **kwargs)  # type: ignore[no-any-return]

    def _fit(self, codes: Collection[str]) -> None:
        have = self._fitted.languages_ if self._fitted else ()
        missing = sorted(set(codes) - set(have))
        if self._parallel and missing == [ENGLISH]:  # the pivot's map is the identity, whatever else is fitted
            missing = [next(code for code in self._spec.languages or () if code != ENGLISH)]
        if fits := [self._fit_one(code) for code in missing if not (self._parallel and code == ENGLISH)]:
            self._fitted = merged([self._fitted, *fits] if self._fitted else fits)
            self._aligned = Aligned.of(self._fitted)

    @property
    def fit_seconds(self) -> float | None:
        """Average seconds of fitting a language; None before the first and where unknown."""
        return None if self._aligned is None else self._aligned.fit_seconds

    @property
    def _parallel(self) -> bool:
        return find_method(self._spec.method).parallel

    def _fit_one(self, code: str) -> Alignment:
        languages = (code, ENGLISH) if self._parallel else (code,)
        spec = dataclasses.replace(self._spec, languages=tuple(dict.fromkeys(languages)))
        return fitting.fit_cached(spec, self._backbone, self._encode)


def merged(fits: Sequence[Alignment]) -> Alignment:
    """Merge fits of equal hyperparameters; each language's maps come from the first fit that has it.

    The first axis of every array follows the languages.
    """
    rows: dict[str, tuple[Alignment, int]] = {}
    for fit in fits:
        for index, language in enumerate(fit.languages_):
            rows.setdefault(language, (fit, index))
    combined = copy.copy(fits[0])
    for name in combined.arrays:
        setattr(combined, name, np.stack([getattr(fit, name)[index] for fit, index in rows.values()]))
    combined.languages_ = tuple(rows)
    seconds = [fit.seconds_ for fit in fits if fit.seconds_ is not None]
    combined.seconds_ = sum(seconds) if len(seconds) == len(fits) else None
    return combined
