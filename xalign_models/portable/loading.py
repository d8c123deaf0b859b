"""Reads the maps of saved models and alignments without torch."""

import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from xalign_models.errors import AlignmentError, LanguageError
from xalign_models.files import is_number, read_json, safetensors_header
from xalign_models.linalg.arrays import median_length
from xalign_models.portable.apply_map import Array, ByRow, Map

KINDS = {"Aligned", "RectifiedAligned"}
"""Names of the module types that hold maps."""
FORMAT = 1
"""Version of the format of maps that this version reads and writes."""
OTHER = 2.5
"""Ratio of median lengths from which vectors are other ones than those of a fit."""
READY = Path(__file__).with_name("ready")
"""Folder of the maps that come with xalign, from a model of queries to the model of an index."""


class SavedMap(Map):
    """Maps that take languages in any code, and give a language that was not fitted to its nearest relative's map."""

    def misfit(self, x: npt.ArrayLike) -> str:
        """Why the first vectors of (n, d) are not as long as those of the fit; empty if they may be, or if any may."""
        fitted, length = self.settings.get("length"), median_length(np.asarray(x)[:100])
        if not fitted or not length or 1 / OTHER < length / fitted < OTHER:
            return ""
        advice = "Fit with --vectors unit" if abs(length - 1) < 0.01 else "Give the vectors of the model before its map"
        return f"The vectors have length {length:.3g}, those of the fit {fitted:.3g}. {advice}."

    def transform(self, x: npt.ArrayLike, lang: ByRow = None, prompt: ByRow = None) -> Array:
        """Map embeddings (n, d) as the maps were fitted on; they are never changed.

        A model's maps are fitted on the vectors of its backbone before it normalises them, or with ``vectors="unit"``
        on those of unit length. A warning says if the lengths differ.

        Args:
            x: Embeddings (n, d).
            lang: Language of all rows, in any code, or one per row; None for the model's ``default_lang``.
            prompt: Name or text of the prompt that all rows were encoded with, or one per row; None for the default.

        Returns:
            Vectors (n, d) of the same float dtype (float64 for integers), of unit length if they are in the model.

        Raises:
            LanguageError: A language is missing or was not fitted, and the model's ``unknown`` is ``error``.
            AlignmentError: ``x`` has another dimension or another number of rows than ``lang`` or ``prompt``, or the
                prompt was not fitted.
        """
        try:
            mapped = super().transform(x, lang, prompt)
        except ValueError as error:
            raise AlignmentError(str(error)) from None
        if reason := self.misfit(x):
            warnings.warn(reason, stacklevel=2)
        return mapped

    def places(self, lang: str | None) -> list[int]:
        """The places of the maps whose mean maps a language's rows."""
        languages, lang = self.settings["languages"], lang or self.settings["default_lang"]
        if languages and lang not in {*languages, None, "und"}:
            lang = _fitted(lang, tuple(languages), self.settings["unknown"] == "related")
        try:
            return super().places(lang)
        except ValueError as error:
            raise LanguageError(str(error)) from None


@lru_cache(maxsize=4096)
def _fitted(code: str, languages: tuple[str, ...], related: bool) -> str:
    from xalign_models.languages import canonical, match

    found = match(code, languages)
    if found in languages or not related:
        return found
    from xalign_models.typology import relative

    return relative(canonical(code), languages) or found


def load_map(directory: str | Path) -> SavedMap:
    """The maps of a directory, which numpy and safetensors apply; torch is not imported, and no weights are opened.

    Args:
        directory: A saved aligned model; a folder that ``xalign export --numpy`` wrote; a saved alignment, whose prompt
            is any and whose vectors keep their length; or ``map:multilingual-e5-small->all-MiniLM-L6-v2``, a map that
            comes with xalign and takes vectors of unit length.

    Raises:
        AlignmentError: The directory has no maps, they are damaged, or no map of the name comes with xalign.
        FileError: A file is damaged.

    Examples:
        >>> import numpy as np
        >>> import xalign_models
        >>> model = xalign_models.fit("centered", backbone="all-MiniLM-L6-v2", corpus="own:parallel", device="cpu")
        >>> xalign_models.save(model, "aligned_model")
        >>> vectors = np.ones((2, model.get_embedding_dimension()))
        >>> xalign_models.load_map("aligned_model").transform(vectors, ["de", "en"]).shape == vectors.shape
        True
    """
    folder = Path(directory)
    if str(directory).startswith("map:"):
        ready = {f"map:{folder.name.replace('--', '->')}": folder for folder in sorted(READY.iterdir())}
        if str(directory) not in ready:
            raise AlignmentError(f"there is no map {directory}; there are {', '.join(ready)}.")
        folder = ready[str(directory)]
    try:
        if (folder / "map.json").is_file():
            settings, weights = read_json(folder / "map.json"), folder / "map.safetensors"
        elif (folder / "modules.json").is_file():
            settings, weights = _of_model(folder)
        elif (folder / "alignment.json").is_file():
            return _of_alignment(folder)
        else:
            raise AlignmentError(f"{folder} has no maps; name a saved aligned model, or export one with --numpy.")
        safetensors_header(weights)
        return _checked(settings, load_file(weights))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, MemoryError, SafetensorError):
        raise AlignmentError(f"the maps in {folder} are damaged; fit and save the model again.") from None


def settings_of(config: Mapping[str, Any], prompts: Mapping[str, str], normalise: bool) -> dict[str, Any]:
    """The settings of :class:`~xalign_models.portable.apply_map.Map`, from the configuration of a model's ``Aligned``.

    Args:
        config: The module's ``config.json``.
        prompts: The model's prompts by name.
        normalise: Whether mapped rows get unit length.
    """
    fitted, languages = config.get("prompts") or [], config["languages"]
    count = len(languages) if languages else 1
    stride = 0 if {shape[0] for shape in config["shapes"].values()} <= {count} else count
    default = config.get("default_lang")
    return {
        "format": config["format"],
        "method": config["method"],
        "dim": config["dim"],
        "normalise": normalise,
        "languages": languages and {code: place for place, code in enumerate(languages)},
        "default_lang": None if default == "auto" else default,
        "unknown": config.get("unknown", "error"),
        "prompts": {text: stride * place for place, text in enumerate(fitted)}
        | {name: stride * fitted.index(text) for name, text in prompts.items() if text in fitted},
        "unknown_prompt": config.get("unknown_prompt", "error"),
        "length": config.get("length"),
    }


def _of_model(folder: Path) -> tuple[dict[str, Any], Path]:
    entries = read_json(folder / "modules.json", list)
    kinds = [str(entry.get("type") if isinstance(entry, dict) else "").rpartition(".")[2] for entry in entries]
    number = next((number for number, kind in enumerate(kinds) if kind in KINDS), None)
    if number is None:
        raise AlignmentError(f"{folder} has no separate maps; give a model from `xalign fit` without --standalone.")
    path = PurePosixPath(str(entries[number].get("path")))
    if path.is_absolute() or ".." in path.parts:
        raise AlignmentError(f"{folder}: modules.json names {str(path)!r:.100}, which is not in the directory.")
    config, whole = read_json(folder / path / "config.json"), folder / "config_sentence_transformers.json"
    prompts = read_json(whole).get("prompts") if whole.is_file() else None
    return settings_of(config, prompts or {}, "Normalize" in kinds[number:]), folder / path / "model.safetensors"


def _of_alignment(folder: Path) -> SavedMap:
    from xalign_models import alignments  # scipy

    fitted = alignments.load(folder)
    arrays = fitted.factors()
    languages = list(fitted.languages_) if fitted.language_dependent else None
    config = {"format": FORMAT, "method": fitted.method, "dim": fitted.dim_, "languages": languages}
    config["shapes"] = {name: stack.shape for name, stack in arrays.items()}
    return SavedMap(settings_of(config, {}, normalise=False), arrays)


def _checked(settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> SavedMap:
    """The maps, tried once: every number in the settings is that of a map, and the maps are finite."""
    if settings["format"] != FORMAT or not {"dim", "normalise", "unknown_prompt"} <= settings.keys():
        raise AlignmentError(
            f"the maps have format {settings['format']!r}, but this version reads {FORMAT}; save again."
        )
    maps = SavedMap(settings, arrays)
    row = np.zeros((1, settings["dim"]), np.float32)
    firsts, places = settings["prompts"].values(), (settings["languages"] or {"": 0}).values()
    measured = settings.get("length") is None or (is_number(settings["length"]) and settings["length"] > 0)
    numbered = all(isinstance(number, int) and number >= 0 for number in (*firsts, *places))
    counts = {len(stack) for stack in arrays.values()}
    finite = all(np.isfinite(stack).all() for stack in arrays.values())
    fits = counts <= {1, max(firsts, default=0) + max(places) + 1} and maps.apply(row, 0).shape == row.shape
    if not (measured and numbered and finite and fits and isinstance(settings["default_lang"], str | None)):
        raise ValueError
    return maps
