"""Fits maps when their language and prompt are first used: a run on three languages encodes text in three languages."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import nn

from xalign_models.alignments import Alignment, find_method
from xalign_models.alignments.base import rows_by_language
from xalign_models.alignments.groups import merged
from xalign_models.alignments.module import Aligned, module_of
from xalign_models.models.fitting import pivot_of
from xalign_models.specs import AlignmentSpec

Fit = Callable[[AlignmentSpec, str], Alignment]
"""Fits a spec on text under a prompt, or returns the cached fit."""


class FittedOnDemand(nn.Module):
    """Applies an alignment by language and prompt, and fits missing maps.

    Args:
        spec: Method, hyperparameters and text; ``spec.languages`` lists all languages.
        fit: Fits a spec under a prompt.
        cached: Returns the cached fit of all languages under a prompt, or None.
    """

    def __init__(self, spec: AlignmentSpec, fit: Fit, cached: Callable[[str], Alignment | None]) -> None:
        super().__init__()
        self._spec, self._fit, self._cached = spec, fit, cached
        self._fits: dict[str, Alignment | None] = {}
        self._modules_of: dict[str, Aligned] = {}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Map ``features["sentence_embedding"]`` (n, d) by its "lang", (n,), and its "prompt", fitting missing maps.

        Raises:
            LanguageError: A language is missing, or not in the spec.
            XAlignError: Fit text is missing, or the method cannot be fitted on it.
        """
        prompt: str = features["prompt"]
        if prompt not in self._fits:  # an earlier run may have fitted every language
            self._fits[prompt] = self._cached(prompt)
        codes: Sequence[Any] = features.get("lang") or []
        if find_method(self._spec.method).language_dependent:
            rows_by_language(codes or None, len(codes), self._spec.languages or (), self._spec.label)  # refuses others
        missing = self._missing(prompt, {*codes})
        with torch.inference_mode(False):  # encoding runs in inference mode, which forbids training
            if missing or prompt not in self._modules_of:
                parts = [fit for fit in (self._fits[prompt],) if fit] + [self._fit(spec, prompt) for spec in missing]
                fitted_all = self._fits[prompt] = parts[0] if len(parts) == 1 else merged(parts)
                self._modules_of[prompt] = module_of({prompt: fitted_all})
        return self._modules_of[prompt](features, **kwargs)  # type: ignore[no-any-return]

    def _missing(self, prompt: str, codes: Collection[str]) -> list[AlignmentSpec]:
        """The specs of the fits that a prompt's texts still need, one per language where the method allows it."""
        known, method = self._fits[prompt], find_method(self._spec.method)
        if not method.by_language:
            return [] if known else [self._spec]
        pivot = pivot_of(self._spec) if method.parallel or hasattr(method, "pivot") else None
        missing = sorted(set(codes) - set(known.languages_ if known else ()))
        if pivot and missing == [pivot]:  # the pivot's map is the identity, whatever else is fitted
            missing = [next(code for code in self._spec.languages or () if code != pivot)]
        return [
            dataclasses.replace(self._spec, languages=(code, pivot) if pivot else (code,))
            for code in missing
            if code != pivot
        ]

    @property
    def fit_seconds(self) -> float | None:
        """Average seconds to fit a language; None before the first fit or if unknown."""
        return next((module.fit_seconds for module in self._modules_of.values()), None)
