"""Applies maps of text embeddings by language and prompt, with numpy and safetensors alone.

Copy this file beside the ``map.json`` and ``map.safetensors`` that ``xalign export --numpy`` wrote. The embeddings are
like those of the fit: of unit length if it had ``--vectors unit``, else before the backbone normalises them:

    vectors = Map.load("folder").transform(embeddings, lang=["de", "th"], prompt="query")
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

Array = npt.NDArray[Any]
ByRow = str | Sequence[str | None] | None


class Map:
    """The maps of a model, stacked prompt by prompt and within a prompt language by language."""

    def __init__(self, settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.settings, self.arrays = settings, arrays

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read ``map.json`` and ``map.safetensors``."""
        folder = Path(folder)
        return cls(json.loads((folder / "map.json").read_text("utf-8")), load_file(folder / "map.safetensors"))

    def transform(self, x: npt.ArrayLike, lang: ByRow = None, prompt: ByRow = None) -> Array:
        """Map embeddings (n, d); ``lang`` and ``prompt`` are one value for all rows or one per row."""
        rows = np.asarray(x)
        if rows.ndim != 2 or rows.shape[1] != self.settings["dim"]:
            raise ValueError(
                f"shape {rows.shape}: the maps take embeddings (n, {self.settings['dim']}) of their backbone."
            )
        keys = zip(*(self._by_row(value, len(rows)) for value in (lang, prompt)), strict=True)
        groups: dict[tuple[str | None, str | None], list[int]] = {}
        for row, key in enumerate(keys):
            groups.setdefault(key, []).append(row)
        y = rows.astype(np.result_type(rows.dtype, np.float32))
        for (code, name), chosen in groups.items():
            first, part = self.first(name), y[chosen]
            if mapped := [self.apply(part, first + place) for place in self.places(code)]:
                y[chosen] = mapped[0] if len(mapped) == 1 else np.mean(mapped, axis=0)
        if self.settings["normalise"]:
            y /= np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-12)
        return y.astype(rows.dtype) if rows.dtype.kind == "f" else y

    @staticmethod
    def _by_row(value: ByRow, count: int) -> Sequence[str | None]:
        by_row = [value] * count if value is None or isinstance(value, str) else value
        if len(by_row) != count:
            raise ValueError(f"{len(by_row)} languages or prompts for {count} rows; pass one, or one per row.")
        return by_row

    def first(self, prompt: str | None) -> int:
        """The number of the first map of a prompt, by its name or text."""
        prompts = self.settings["prompts"]
        if prompt is None or prompt in prompts or not prompts or self.settings["unknown_prompt"] == "default":
            return int(prompts.get(prompt, 0))
        raise ValueError(f"no map for the prompt {prompt!r}; the maps are for {', '.join(map(repr, prompts))}.")

    def places(self, lang: str | None) -> list[int]:
        """The places of a language's maps within a prompt's; the mean of several counts, and none leaves vectors.

        A doubtful language, ``und``, gets the mean of all maps, unless languages that were not fitted have none.
        """
        languages = self.settings["languages"]
        lang = lang or self.settings["default_lang"]
        if languages and lang and lang not in languages:  # zh-TW may be there, and de-AT is de
            shorter = re.sub(r"[-_]([A-Za-z]{2}|\d{3})$", "", lang)
            lang = shorter if shorter in languages else lang
        if languages is None or lang in languages:
            return [languages[lang] if languages else 0]
        unknown = self.settings["unknown"]
        if lang != "und" and (unknown == "error" or (lang is None and unknown == "related")):
            first_codes = {place: code for code, place in reversed(languages.items())}  # others are spellings of them
            known = ", ".join(reversed(first_codes.values()))
            raise ValueError(f"no map for texts in {lang or 'an unknown language'}; give lang, one of {known}.")
        return [] if unknown == "unaligned" else sorted({*languages.values()})

    def apply(self, x: Array, number: int) -> Array:
        """Map rows (n, d): ``y = x W``, then ``y - (y C) C^T + b``; or ``x + relu(x A + a) B``."""
        part = {name: stack[number if len(stack) > 1 else 0].astype(x.dtype) for name, stack in self.arrays.items()}
        y: Array = x @ part["weight"] if "weight" in part else x
        if "inner" in part:
            y = x + np.maximum(x @ part["inner"] + part["bias"], 0) @ part["outer"]
        if "basis" in part:
            y = y - (y @ part["basis"]) @ part["basis"].T
        return y + part["shift"] if "shift" in part else y
