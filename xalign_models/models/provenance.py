"""Writes the card and the README of a saved model: content, fit text and usage."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models import assets
from xalign_models.backbones import policy
from xalign_models.backbones.sources import find_source
from xalign_models.models.metadata import trained_on
from xalign_models.models.names import is_name
from xalign_models.paths import atomic_write_text, files_below
from xalign_models.recommend.card import COLUMNS
from xalign_models.specs import ModelSpec, Pooling
from xalign_models.tables.escaping import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentence_transformers import SentenceTransformer

    from xalign_models.alignments.module import Aligned


def write_card(
    model: Any, directory: Path, *, training: dict[str, Any] | None = None, called: str = "", readme: bool = True
) -> None:
    """Write ``xalign.json`` and, with ``readme``, README.md into a model's directory.

    ``training`` is the record of a newly trained model. ``called`` is the final name of a directory that contains only
    the model; the card then lists its files.
    """
    spec: ModelSpec | None = model.xalign_spec
    claims = dict(getattr(model, "xalign_claims", None) or {})
    claims.pop("files", None)
    if spec is not None:
        claims["name"] = claims.get("name") or spec.name
        if training is not None:  # the weights are in this directory
            name = called or directory.name
            backbone = dataclasses.replace(spec.backbone, model=name, layer=None, pooling=Pooling.PUBLISHED)
            spec = dataclasses.replace(spec, backbone=backbone)
            claims |= {"training": training, "training_datasets": sorted(training["datasets"])}
        elif model.tuned:
            name = f"{claims['name'].removesuffix('-tuned')}-tuned"
            claims |= {"name": name, "tuned": True, "training_datasets": None}
        elif "training_datasets" not in claims:
            claims["training_datasets"] = sorted(trained_on(spec) or ())
        claims["spec"] = spec.to_dict()
    files = assets.Inspected(directory)
    folder = policy.folder_of_maps(files)
    claims["maps"] = folder and files.fingerprint(folder=folder)
    claims["content"] = files.fingerprint()
    cards = [Path(assets.CARD), *([Path(folder, assets.CARD)] if folder else [])]
    if called:
        claims["files"] = sorted({*files_below(directory), *map(Path.as_posix, cards), "README.md"})
    text = json.dumps(claims, indent=2, ensure_ascii=False) + "\n"
    for card in cards:
        atomic_write_text(directory / card, text)
    if readme:
        (directory / "README.md").write_text(_readme(model, spec, claims, called or directory.name), encoding="utf-8")


def split(model: SentenceTransformer) -> tuple[list[Any], int, Aligned | None]:
    """The modules, the number of the backbone's modules, and the alignment, if any."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    from xalign_models.alignments.module import Aligned
    from xalign_models.backbones.reduced import Reduced

    modules: list[Any] = list(model)
    aligned = next((module for module in modules if isinstance(module, Aligned)), None)
    start = next((i for i, module in enumerate(modules) if isinstance(module, Aligned | Reduced)), len(modules))
    norms = [i for i, module in enumerate(modules[:start]) if isinstance(module, Normalize)]
    while norms and norms[-1] == start - 1:  # others are the backbone's own
        start = norms.pop()
    spec = getattr(model, "xalign_spec", None)
    if norms and aligned is None and spec is not None and spec.alignment:  # of a map into another model's space
        start = norms[-1]
    return modules, start, aligned


def _readme(model: Any, spec: ModelSpec | None, claims: Mapping[str, Any], called: str) -> str:
    """A model card in the hub's format: description, languages, fit text, and usage."""
    from xalign_models.languages import display_name

    _, _, aligned = split(model)
    languages = list(aligned.languages or ()) if aligned is not None else []
    front = ["---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity"]
    if languages:
        front += ["language:", *(f"- {code.split('-')[0]}" for code in languages)]
    if (
        spec is not None
        and "/" in spec.backbone.model
        and not (Path(spec.backbone.model).is_absolute() or find_source(spec.backbone.model))
    ):
        front += [f"base_model: {json.dumps(spec.backbone.model)}"]
    front += ["tags:", "- sentence-transformers", "- xalign", "- cross-lingual", "---"]
    claimed = str(claims.get("name"))
    lines = [f"# {claimed if is_name(claimed) else escape(called, 'markdown')}", "", _sentence(spec, claims), ""]
    if languages:
        lines += [f"Languages: {', '.join(f'{display_name(code)} (`{code}`)' for code in languages)}.", ""]
    lines += _card(claims.get("card"))
    example = '[{"text": "Good morning", "lang": "eng-Latn"}]' if languages else '["Good morning"]'
    loading = f"model = xalign_models.load({json.dumps(called)})"
    lines += ["```python", "import xalign_models  # pip install xalign", "", loading]
    lines += [f"vectors = model.encode({example})", "```", ""]
    return "\n".join([*front, "", *lines])


def _card(rows: Any) -> list[str]:
    """The do-no-harm card as a table; no lines if the claims, possibly another author's, have another form."""
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) and [*row] == [*COLUMNS] for row in rows)):
        return []
    cells = [[escape(" ".join(str(cell).split()), "markdown") for cell in row.values()] for row in rows]
    lines = [[*COLUMNS], ["---"] * len(COLUMNS), *cells]
    caption = "Changes against the plain backbone, in points of 100, with 95% intervals over sentences:"
    return [caption, "", *(f"| {' | '.join(line)} |" for line in lines), ""]


def _sentence(spec: ModelSpec | None, claims: Mapping[str, Any]) -> str:
    code = partial(escape, form="markdown")
    if spec is None:
        return "A cross-lingually aligned text encoder, saved by xalign."
    path = Path(spec.backbone.model)
    model = code(path.name if path.is_absolute() else spec.backbone.model)  # a local path does not help readers
    if "training" in claims:
        trained = f"{code(spec.backbone.tuned)} of {code(spec.backbone.name)}, trained by xalign"
        return f"{trained}; `xalign.json` describes the training."
    if spec.alignment is None:
        return f"The backbone {model}, {'trained further outside' if claims.get('tuned') else 'saved by'} xalign."
    rows = f", at most {spec.alignment.limit} rows per language and corpus" if spec.alignment.limit else ""
    texts = ", ".join(map(code, spec.alignment.corpora))
    tuned = " Then the weights were trained further, outside xalign." if claims.get("tuned") else ""
    return (
        f"The backbone {model} with the alignment {code(spec.alignment.label)}, fitted on "
        f"{texts}{rows}.{tuned} `xalign.json` has all parameters. The backbone's licence holds."
    )
