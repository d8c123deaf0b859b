"""Applies the maps of a model without its backbone, to align existing vectors."""

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers.sentence_transformer.modules import Normalize

from xalign_models import alignments
from xalign_models.alignments.module import Aligned, module_of
from xalign_models.backbones import policy
from xalign_models.device import pick_device
from xalign_models.errors import AlignmentError, LanguageError, ModelError
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.models.building import raw_encoder
from xalign_models.models.card import read_card
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.specs import Unknown, digest
from xalign_models.store import open_store


@dataclass(frozen=True)
class Maps:
    """The maps of a model, its prompts by name, and whether mapped rows get unit length afterwards, as in the model."""

    aligned: Aligned
    normalise: bool
    prompts: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Sha256 (hex) of everything that determines the mapped rows."""
        content = hashlib.sha256(digest(self.aligned.get_config_dict(), self.normalise).encode())
        for name, tensor in sorted(self.aligned.state_dict().items()):
            content.update(name.encode() + tensor.contiguous().numpy().tobytes())
        return content.hexdigest()

    def _text(self, prompt: str | None) -> str | None:
        """The fitted prompt that a name or a text means; None is the default prompt.

        Raises:
            AlignmentError: The prompt was not fitted.
        """
        fitted = self.aligned.prompts
        if prompt is None or fitted is None:
            return fitted[0] if fitted else None
        if prompt not in {*self.prompts, *fitted}:
            names = sorted(name for name, text in self.prompts.items() if text in fitted)
            known = ", ".join(names or map(repr, fitted))
            raise AlignmentError(
                f"{self.aligned.method} is not fitted for vectors with the prompt {prompt!r}; {known} are."
            )
        return self.prompts.get(prompt, prompt)

    def index(self, codes: Iterable[str | None], prompt: str | None = None) -> dict[str | None, int | None]:
        """The number of each language's map, as in :meth:`Aligned.numbers`, or None for rows that stay unchanged.

        Args:
            codes: Language codes of rows, in any form; None for an unknown language.
            prompt: Name or text of the prompt that the rows were encoded with; None for the default one.

        Raises:
            LanguageError: A language is missing or was not fitted, and the model's ``unknown`` is ``error``.
            AlignmentError: The prompt was not fitted.
        """
        module, text = self.aligned, self._text(prompt)
        numbers: dict[str | None, int | None] = {}
        missing = []
        for code in codes:
            try:
                ((numbers[code], _),) = module.numbers(module.codes([None], code, 1), 1, text)
            except LanguageError:
                missing.append("none at all" if code is None else code)
        if missing:
            raise LanguageError(
                f"{module.method} is not fitted for rows in {', '.join(sorted(missing)[:20])}; fitted languages are "
                f"{', '.join(module.languages or ())}. With --unknown related such rows get a relative's map."
            )
        return numbers

    def apply(self, rows: AnyFloats, numbers: npt.NDArray[np.int64] | int | None) -> AnyFloats:
        """Mapped rows in their own float type; half precision is mapped in float32.

        Args:
            rows: (n, d), never changed.
            numbers: The map of each row, -1 for none; or one map for all rows, None for none.

        Raises:
            ModelError: The rows have another dimension than the maps.
        """
        if rows.shape[1] != self.aligned.dim:
            raise ModelError(
                f"The vectors have dimension {rows.shape[1]}, but the maps {self.aligned.dim}; give vectors of the "
                "backbone that the maps were fitted on."
            )
        with torch.inference_mode(), warnings.catch_warnings(), np.errstate(over="ignore"):
            warnings.simplefilter("ignore")  # the rows may be read-only
            x = torch.from_numpy(rows.astype(np.result_type(rows.dtype, np.float32), copy=False))
            if numbers is None or isinstance(numbers, int):
                y = x if numbers is None else self.aligned.mapped(x, numbers)
            else:
                y = torch.empty_like(x)
                for number in np.unique(numbers):
                    chosen = torch.from_numpy(np.flatnonzero(numbers == number))
                    part = x.index_select(0, chosen)
                    y.index_copy_(0, chosen, part if number < 0 else self.aligned.mapped(part, int(number)))
            if self.normalise:
                y = torch.nn.functional.normalize(y, dim=1)
            mapped: AnyFloats = y.numpy().astype(rows.dtype, copy=False)
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
    if (directory / "alignment.json").is_file():
        alignment = alignments.load(directory)
        maps = Maps(module_of({"": alignment}), normalise=False)
    elif (directory / "modules.json").is_file():
        maps = _saved(directory)
    else:
        spec = find_spec(model)
        recipe = Recipe(spec, raw_encoder(spec.backbone, pick_device(device), open_store()))
        if not recipe.fits:
            raise ModelError(f"{model} has no alignment; give an aligned model, e.g. from `xalign fit`.")
        maps = Maps(module_of(recipe.fits), normalise=True, prompts=recipe.backbone.prompts)
    module = maps.aligned.to("cpu").eval()
    if unknown == "unaligned":
        module.require_kept_language()
    module.default_lang, module.unknown = default_lang or module.default_lang, unknown or module.unknown
    return maps


def _saved(directory: Path) -> Maps:
    files = read_card(directory).files  # raises if the maps are not those of the card
    policy.check(files)
    classes = policy.module_classes(files.contents)
    aligned: Aligned | None = None
    normalise = False
    for entry in files.json("modules.json", list):
        kind = classes[entry["type"]]
        if issubclass(kind, Aligned):
            aligned = kind.load(str(directory), subfolder=entry["path"])
        normalise |= aligned is not None and issubclass(kind, Normalize)
    if aligned is None:
        raise ModelError(f"{directory} has no separate maps; give a model from `xalign fit` without --standalone.")
    return Maps(aligned, normalise, files.settings("config_sentence_transformers.json").get("prompts") or {})
