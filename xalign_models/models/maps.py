"""Applies the maps of a model without its backbone, to align existing vectors."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch
from sentence_transformers.sentence_transformer.modules import Normalize

from xalign_models import alignments
from xalign_models.alignments.module import Aligned, module_of
from xalign_models.backbones import policy
from xalign_models.errors import ModelError
from xalign_models.models.building import open_recipe
from xalign_models.models.card import read_card
from xalign_models.models.names import find_spec
from xalign_models.portable.apply_map import Array
from xalign_models.portable.loading import SavedMap, settings_of
from xalign_models.specs import Unknown, digest


class Maps(SavedMap):
    """The maps of a model, applied by its own module, possibly from a plug-in.

    Args:
        aligned: The module, on the CPU.
        normalise: Whether mapped rows get unit length afterwards, as in the model.
        prompts: The model's prompts by name.
    """

    def __init__(self, aligned: Aligned, normalise: bool, prompts: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(settings_of(aligned.get_config_dict(), prompts, normalise), {})
        self.aligned = aligned

    @property
    def fingerprint(self) -> str:
        """Sha256 (hex) of everything that determines the mapped rows."""
        content = hashlib.sha256(digest(self.aligned.get_config_dict(), self.settings["normalise"]).encode())
        for name, tensor in sorted(self.aligned.state_dict().items()):
            content.update(name.encode() + tensor.contiguous().numpy().tobytes())
        return content.hexdigest()

    def apply(self, x: Array, number: int) -> Array:
        """Map rows (n, d), float32 or float64, by the module's map of this number."""
        with torch.inference_mode():
            mapped: Array = self.aligned.map_rows(torch.from_numpy(x), number).numpy()
        return mapped


def load_maps(
    model: str,
    *,
    default_lang: str | None = None,
    unknown: Unknown | None = None,
    device: str | None = None,
) -> Maps:
    """The maps of a model, without opening the weights of a saved one.

    Args:
        model: A saved aligned model, the directory of a saved alignment, or a registered name, whose alignment is
            fitted now unless an earlier fit is in the cache.
        default_lang: Language of rows without one; by default the model's own.
        unknown: Treatment of rows in languages that were not fitted, as in :class:`Aligned`; by default the model's
            own.
        device: Device of the backbone, for a registered name.

    Raises:
        ModelError: The model has no alignment.
        AlignmentError: ``unknown`` is ``unaligned`` and the maps move every language.
        XAlignError: Files are damaged, or weights or fit text are missing.
    """
    directory = Path(model)
    prompts: Mapping[str, str] = {}
    if (directory / "alignment.json").is_file():
        module, normalise = module_of({"": alignments.load(directory)}), False
    elif (directory / "modules.json").is_file():
        module, normalise, prompts = _saved(directory)
    else:
        spec = find_spec(model)
        if spec.alignment is None:
            raise ModelError(f"{model} has no alignment; give an aligned model, e.g. from `xalign fit`.")
        recipe = open_recipe(spec, device)
        module, normalise, prompts = module_of(recipe.fits), True, recipe.backbone.prompts
    if default_lang or unknown:
        module.set_handling(default_lang or module.default_lang, unknown or module.unknown)
    return Maps(module.to("cpu").eval(), normalise, prompts)


def _saved(directory: Path) -> tuple[Aligned, bool, Mapping[str, str]]:
    files = read_card(directory).files  # raises if the maps do not match the card
    policy.check(files)
    classes = policy.module_classes(files)
    aligned: Aligned | None = None
    normalise = False
    for entry in files.json("modules.json", list):
        kind = classes[entry["type"]]
        if issubclass(kind, Aligned):
            aligned = kind.load(str(directory), subfolder=entry["path"])
        normalise |= aligned is not None and issubclass(kind, Normalize)
    if aligned is None:
        raise ModelError(f"{directory} has no separate maps; give a model from `xalign fit` without --standalone.")
    return aligned, normalise, files.settings("config_sentence_transformers.json").get("prompts") or {}
