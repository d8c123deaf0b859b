"""The registered models as data: backbones, listed in ``catalogue.toml``, times alignments."""

import dataclasses
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any

from xalign_models import plugins
from xalign_models.backbones.inputs import ENGLISH, TEMPLATES
from xalign_models.errors import ModelError
from xalign_models.plugins import BACKBONES, register
from xalign_models.specs import AlignmentSpec, BackboneSpec, Dtype, ModelSpec, Pooling

_DATA: dict[str, Any] = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text(encoding="utf-8"))

MODES: dict[str, tuple[tuple[str, str], ...]] = {
    "self-prompts": tuple(TEMPLATES.items()),
    "en-prompts": (("default", ENGLISH),),
    "last-token": (),
}
"""PromptEOL's prompts for a language model: the template in the text's language, the English template, or none."""


def modes_of(name: str, model: str, revision: str | None = None) -> tuple[BackboneSpec, ...]:
    """A causal language model in bfloat16 as three backbones, one per mode of :data:`MODES`."""
    fields: dict[str, Any] = {"pooling": Pooling.LAST, "max_tokens": 512, "dtype": Dtype.BFLOAT16}
    return tuple(
        BackboneSpec(f"{name}-{mode}", model, revision, prompts=prompts, **fields) for mode, prompts in MODES.items()
    )


for _entry in _DATA["backbone"]:
    _prompts = tuple(_entry.pop("prompts", {}).items())
    _by_mode = _entry.pop("by_mode", False)
    for _spec in modes_of(**_entry) if _by_mode else (BackboneSpec(**_entry, prompts=_prompts),):
        register.backbone(_spec)

LUSIFER = tuple(BackboneSpec(**entry) for entry in _DATA["lusifer"])
"""Models for `xalign train lusifer`, named after their encoder until trained."""
CITATIONS: dict[str, str] = _DATA["citations"]
"""Method -> its paper."""
UNPAIRED = ("ntrex", "lingua", "tatoeba_pairs")
"""Text for each language's mean and directions; of several kinds, because a language's offset depends on the domain."""
_FITTED = tuple(_DATA["alignments"]["languages"])
PARALLEL = ("ntrex",)
"""Text for maps onto English, and for LSAR: with translations, the means differ by language only."""
_METHODS = {
    "centered": AlignmentSpec("centered", "centered", (), UNPAIRED, 1000, _FITTED),
    "lir-1": AlignmentSpec("lir-1", "lir", (("k", 1),), UNPAIRED, 1000, _FITTED),
    "lir-15": AlignmentSpec("lir-15", "lir", (("k", 15),), UNPAIRED, 1000, _FITTED),
    "lsar": AlignmentSpec("lsar", "lsar", (), PARALLEL, 1000, _FITTED),
    "leace": AlignmentSpec("leace", "leace", (), PARALLEL, 1000, _FITTED),
    "shift": AlignmentSpec("shift", "shift", (), UNPAIRED, 1000, _FITTED),
    "procrustes": AlignmentSpec("procrustes", "procrustes", (), PARALLEL, 1000, _FITTED),
    "procrustes-shrunk": AlignmentSpec("procrustes-shrunk", "procrustes", (("shrink", 1.0),), PARALLEL, 1000, _FITTED),
    "affine": AlignmentSpec("affine", "affine", (), PARALLEL, 1000, _FITTED),
}


def fits() -> dict[str, dict[str, AlignmentSpec]]:
    """Fit data (the last part of a model's name) -> label -> alignment; ``gettext`` is the fit half of this corpus."""
    methods, registered = dict(_METHODS), {spec.method for spec in _METHODS.values()}
    for method in plugins.ALIGNMENTS:
        if method not in registered:
            like = "procrustes" if plugins.ALIGNMENTS.facts(method)["parallel"] else "centered"
            methods[method] = dataclasses.replace(_METHODS[like], label=method, method=method)
    embedded = {
        label: dataclasses.replace(spec, corpora=("gettext:fit",), limit=None, languages=None)
        for label, spec in methods.items()
    }
    return {"": methods, "gettext": embedded}


def specs() -> dict[str, ModelSpec]:
    """Every registered model by name: each backbone plain and with each alignment on each fit data, and LUSIFER."""
    fitted = [(alignment, data) for data, methods in fits().items() for alignment in methods.values()]
    return dict(_specs(tuple(spec for _, spec in BACKBONES.items()), tuple(fitted)))


@lru_cache(maxsize=1)  # mteb asks for the revision of each model
def _specs(backbones: tuple[BackboneSpec, ...], fitted: tuple[tuple[AlignmentSpec, str], ...]) -> dict[str, ModelSpec]:
    models = [ModelSpec(backbone) for backbone in (*backbones, *LUSIFER)]
    models += [ModelSpec(backbone, *fit) for backbone in backbones for fit in fitted]
    return {spec.name: spec for spec in models}


def find_registered(name: str) -> ModelSpec | None:
    """The spec of a registered name, or of registered alignments joined by ``+``; None for others.

    ``xalign/centered+affine__use-multilingual-v3`` is fitted on the text of its first method that uses translations,
    if any.
    """
    registered = specs()
    if name in registered:
        return registered[name]
    labels, _, rest = name.removeprefix("xalign/").partition("__")
    stages = [registered.get(f"xalign/{label}__{rest}") for label in labels.split("+")]
    alignments = [spec.alignment for spec in stages if spec is not None and spec.alignment is not None]
    params = [parameter for alignment in alignments for parameter in alignment.params]
    if len(alignments) < len(stages) or len(dict(params)) < len(params):  # two values of one parameter
        return None
    text = next((spec for spec in alignments if plugins.ALIGNMENTS.facts(spec.method)["parallel"]), alignments[0])
    method = "+".join(alignment.method for alignment in alignments)
    joined = dataclasses.replace(text, label=labels, method=method, params=tuple(params))
    return dataclasses.replace(stages[0], alignment=joined) if stages[0] else None


def get_spec(name: str) -> ModelSpec:
    """The spec of a model, as in :func:`find_registered`, with or without the prefix ``xalign/``.

    Raises:
        ModelError: The model is unknown; the message suggests the most similar name.
    """
    if name.startswith("map:"):
        raise ModelError(f"{name}: only `xalign serve` takes a ready map; in Python, xalign_models.load and load_map.")
    full = name if name.startswith("xalign/") else f"xalign/{name}"
    if spec := find_registered(full):
        return spec
    aligned = "__" in name or name.partition("_")[0] in {"plain", *plugins.ALIGNMENTS}
    known = specs() if aligned else plugins.BACKBONES
    near = plugins.did_you_mean(full if aligned else name, known, cutoff=0.4)
    raise ModelError(f"Unknown model {name!r}.{near} `xalign models` lists them; a directory or hub id works too.")
