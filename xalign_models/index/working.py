"""The commands on an open index: audit, fix and migrate."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models.errors import ModelError
from xalign_models.files import read_json, read_npz
from xalign_models.index import expecting, migrating
from xalign_models.index.auditing import Sample, Tables, gather
from xalign_models.index.base import Index, Rows
from xalign_models.index.filling import fill, languages_of
from xalign_models.index.forensics import cosines_again, encoded_again, require_made_by
from xalign_models.languages import canonical
from xalign_models.linalg.arrays import AnyFloats
from xalign_models.models import api, migration
from xalign_models.models.building import open_recipe
from xalign_models.models.maps import load_maps
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.models.saving import save
from xalign_models.paths import atomic_directory
from xalign_models.ranking.ranks import normalise
from xalign_models.recommend.candidates import PLAIN, Candidate
from xalign_models.specs import Vectors
from xalign_models.vectors.applying import in_turn

RECORD, MAP, FIRST = "index.json", "map.npz", "encode-first.txt"
"""Files in the output folder: source and settings, a map between models, ids of rows to encode first."""
LATER = ("lang", "limit", "queries")
"""Fields that records of older versions lack."""
ALIKE = 0.9
"""Minimum median cosine of the index's vectors with the model's for a fix: texts may lack parts that were encoded,
such as a title."""


def open_model(model: str, device: str | None = None) -> Recipe:
    """The model of an index.

    Raises:
        ModelError: The model is aligned or unknown.
    """
    spec = find_spec(model)
    if spec.alignment:
        raise ModelError(f"{model} is aligned; name its backbone, {spec.backbone.name}.")
    return open_recipe(spec, device)


def audit(sample: Sample, recipe: Recipe, **text: Any) -> Tables:
    """The tables of an audit that need the index's model; ``text`` as for :func:`expecting.expect`.

    Raises:
        XAlignError: Text is missing.
    """
    tables: Tables = {}
    if (cosines := cosines_again(recipe, sample.rows, sample.codes)).size:
        tables[f"{cosines.shape[1]} texts encoded again by {recipe.spec.name}"] = encoded_again(recipe, cosines)
    try:
        rows = expecting.expect(sample, recipe, **text)
    except expecting.NothingToFitError as error:
        return tables | {"Recommended": [expecting.Expectation(PLAIN, error=str(error)).cells()]}
    tables["Recall@10 to expect of each method, in percent"] = [row.cells() for row in rows]
    tables["Recommended"] = [expecting.best(rows).cells()]
    return tables


def fix(
    index: Index, output: Path, model: str, method: str = "auto", *, lang: str | None = None, device: str | None = None,
    corpus: str = "gettext", limit: int = 300, queries: Path | None = None, each: Any = in_turn,
) -> tuple[str, int, int]:  # fmt: skip
    """Write aligned vectors to the second column, and the model for queries to a folder; the same call resumes.

    The method ``auto`` is :func:`expecting.best`; ``corpus``, ``limit`` and ``queries`` are those of
    :func:`expecting.expect`, ``lang`` is the language of rows without one, and ``each`` is that of :func:`fill`.

    Returns:
        The method, the number of rows, and the number of rows without a vector that can be mapped.

    Raises:
        ModelError: The second column or the folder belongs to another run, the vectors are not the model's, or no
            method is better than the plain vectors.
        XAlignError: As for :func:`expecting.expect`, or a write failed.
    """
    asked: dict[str, Any] = {"source": index.home, "column": index.column, "model": model, "method": method}
    asked |= {"corpus": corpus, "lang": lang and canonical(lang), "limit": limit}
    asked |= {"queries": queries and str(queries.resolve())}
    recipe = open_model(model, device)
    if _is_new(index, output, asked):
        sample, chosen = gather(index, lang), Candidate(method)
        require_made_by(recipe, sample.rows, sample.codes, ALIKE)
        if method == "auto":
            chosen = expecting.best(expecting.expect(sample, recipe, corpus, limit, queries)).candidate
        if chosen == PLAIN:
            raise ModelError("No method is expected to be better than the plain vectors; nothing was written.")
        languages = [*expecting.fit_text(corpus, expecting.languages_to_fit(sample, queries), limit)[0]]
        text: dict[str, Any] = {"corpus": corpus, "languages": languages, "limit": limit}
        unit = {"vectors": Vectors.UNIT}
        aligned = api.fit(chosen.method, backbone=model, device=device, overrides=unit, **text, **dict(chosen.params))
        record = json.dumps({**asked, "chosen": chosen.label}, indent=2)
        save(aligned, output, files={RECORD: record}, adapter=not Path(aligned.xalign_spec.backbone.model).is_dir())
    maps, prompt = load_maps(str(output)), recipe.role_prompts()[-1]

    def convert(rows: Rows) -> AnyFloats:
        return maps.transform(normalise(rows.vectors), languages_of(rows, lang), prompt)

    return str(read_json(output / RECORD)["chosen"]), *fill(index, convert, each)


def _is_new(index: Index, output: Path, asked: dict[str, Any]) -> bool:
    """Whether nothing was written yet; False if the same call was interrupted."""
    if (output / RECORD).is_file():
        known = {name: asked.get(name) for name in LATER} | read_json(output / RECORD)
        if known.get("source") == index.source:  # an old record has the source as given
            known["source"] = index.home
        if other := ", ".join(f"{name} {known.get(name)}" for name in asked if known.get(name) != asked[name]):
            raise ModelError(f"{output} belongs to another run, with {other}; choose another --output.")
        return False
    if index.written() is not None:
        raise ModelError(f"{index.source} has {index.second} already; `xalign index undo` removes it.")
    if output.exists():
        raise ModelError(f"--output {output} exists; choose a new folder.")
    return True


def migrate(
    index: Index, output: Path, *, old: str, new: str, method: str = "affine", lang: str | None = None,
    device: str | None = None, each: Any = in_turn,
) -> tuple[dict[str, Any], int, int]:  # fmt: skip
    """Write vectors of a new model, predicted from the old ones, to the second column; the same call resumes.

    The folder gets the map and, one per line, the ids of the rows to encode first.

    Returns:
        The record of the map, with the losses of :func:`migrating.fit`, the number of rows, and those without a vector.

    Raises:
        XAlignError: As for :func:`fix` and :func:`migrating.fit`, or the method cannot map between models.
    """
    asked: dict[str, Any] = {"source": index.home, "column": index.column, "from": old, "to": new}
    asked |= {"method": method, "lang": lang and canonical(lang)}
    migration.check(method)
    if _is_new(index, output, asked):
        sample = gather(index, lang, migrating.TEXTS, written=True)
        layers, losses = migrating.fit(sample, open_model(old, device), open_model(new, device), method)
        arrays: dict[str, Any] = {f"{i}{'Wb'[j]}": layers[i][j] for i in range(len(layers)) for j in (0, 1)}
        with atomic_directory(output) as folder:
            np.savez(folder / MAP, **arrays)
            (folder / RECORD).write_text(json.dumps({**asked, **losses}, indent=2), encoding="utf-8")
    record, arrays = read_json(output / RECORD), read_npz(output / MAP)
    layers = tuple((arrays[f"{i}W"], arrays[f"{i}b"]) for i in range(len(arrays) // 2))

    def predicted(rows: Rows) -> AnyFloats:
        return migration.apply(layers, normalise(rows.vectors))

    total, skipped = fill(index, lambda rows: normalise(predicted(rows)), each)
    with (output / FIRST).open("w", encoding="utf-8") as file:
        for rows in index.rows():
            short = ~(rows.usable & (np.linalg.norm(predicted(rows), axis=1) >= record["cut"]))
            file.writelines(f"{key}\n" for key in rows.take(np.flatnonzero(short)).names)
    return record, total, skipped
