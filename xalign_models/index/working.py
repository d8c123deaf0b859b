"""The four commands on an open index: audit, fix, migrate and undo."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models.alignments import make
from xalign_models.corpora import ENGLISH
from xalign_models.device import pick_device
from xalign_models.errors import ModelError
from xalign_models.files import read_json, read_npz
from xalign_models.index import expecting, migrating
from xalign_models.index.auditing import Sample, Tables, contents, gather
from xalign_models.index.base import Index, Rows
from xalign_models.index.forensics import encoded_again, summary
from xalign_models.index.writing import aligner, fill
from xalign_models.models import api, migration
from xalign_models.models.building import raw_encoder
from xalign_models.models.maps import load_maps
from xalign_models.models.names import find_spec
from xalign_models.models.recipe import Recipe
from xalign_models.models.saving import save
from xalign_models.paths import atomic_directory
from xalign_models.ranking.ranks import normalise
from xalign_models.recommend.candidates import PLAIN, Candidate, candidates
from xalign_models.specs import ModelSpec
from xalign_models.store import open_store

RECORD, MAP = "index.json", "map.npz"
"""Files in the output folder: the source and settings, and a map between models."""
AGAIN = 64
"""Number of the index's texts that an audit encodes again."""


@dataclass(frozen=True)
class Setting:
    """The model of an index, and the text that methods are fitted and compared on.

    Attributes:
        model: A registered backbone, a directory or a hub id.
        corpus: Parallel text with the index's languages.
        limit: Rows of it to fit on.
        queries: JSON lines with ``text``, ``lang`` and the ``id`` of a relevant row; None for passages of held-out text.
        methods: Methods to compare; by default those that ``xalign recommend`` compares.
        device: cpu, cuda or mps.
    """

    model: str
    corpus: str = "gettext"
    limit: int = 300
    queries: Path | None = None
    methods: Sequence[str] = ()
    device: str | None = None

    def recipe(self) -> Recipe:
        """The model, open.

        Raises:
            ModelError: It is aligned or unknown.
        """
        return _recipe(self.model, self.device)


def _recipe(model: str, device: str | None) -> Recipe:
    spec = find_spec(model)
    if spec.alignment:
        raise ModelError(f"{model} is aligned; name its backbone, {spec.backbone.name}.")
    return Recipe(ModelSpec(spec.backbone), raw_encoder(spec.backbone, pick_device(device), open_store()))


def expect(sample: Sample, setting: Setting) -> list[expecting.Expectation]:
    """The recall of each method to expect on an index.

    Raises:
        XAlignError: Text or weights are missing, or the vectors have another dimension than the model's.
    """
    recipe, languages = setting.recipe(), {*sample.codes.tolist()}
    texts = sample.rows.texts
    length = float(np.median([len(text or "") for text in texts])) if texts else 0.0
    text = expecting.parallel_text(setting.corpus, languages, setting.limit, length, ENGLISH)
    dim = recipe.encode(["a"], ENGLISH).shape[1]
    if dim != sample.vectors.shape[1]:
        raise ModelError(f"The index has dimension {sample.vectors.shape[1]}, and {setting.model} {dim}.")
    if setting.queries:
        wanted = expecting.read_queries(setting.queries)
        judged = expecting.judged_queries(recipe, wanted, sample.rows.ids, sample.vectors, sample.codes)
        others = sample.vectors[:0], sample.codes[:0]
    else:
        judged = expecting.passages(recipe, text.held, text.size)
        others = sample.vectors, sample.codes
    tried = [Candidate(method) for method in setting.methods] or candidates(len(text.fit))
    return expecting.expected(recipe, text.fit, judged, others, ENGLISH, tried)


def audit(index: Index, lang: str | None = None, setting: Setting | None = None) -> Tables:
    """All tables of an audit; with a setting, also its model's.

    Raises:
        XAlignError: The index has no usable vectors, or no languages are known; or as for :func:`expect`.
    """
    sample = gather(index, lang)
    tables = contents(sample)
    if setting is None:
        return tables
    if texts := sample.rows.texts:
        some = np.random.default_rng(0).permutation(len(texts))[:AGAIN]
        names, cosines = encoded_again(
            setting.recipe(), [str(texts[row]) for row in some], sample.codes[some].tolist(), sample.vectors[some]
        )
        tables[f"{len(some)} texts encoded again by {setting.model}"] = summary(names, cosines)
    rows = expect(sample, setting)
    tables["Recall@10 to expect of each method"] = [row.cells() for row in rows]
    tables["Recommended"] = [expecting.best(rows).cells()]
    return tables


def fix(
    index: Index, output: Path, setting: Setting, method: str = "auto", lang: str | None = None
) -> tuple[str, int, int]:
    """Write aligned vectors to the second column, and the model for queries to a folder; the same call resumes.

    Args:
        index: The index.
        output: Folder of the model, for :func:`xalign_models.load`.
        setting: The model of the index, and the text to fit on.
        method: An alignment, or ``auto`` for the best by :func:`expect`.
        lang: Language of rows without one.

    Returns:
        The method, the number of rows, and how many of them have no vector that could be mapped.

    Raises:
        ModelError: The second column or the folder belongs to another run.
        XAlignError: As for :func:`expect`, or a write failed.
    """
    asked = {"source": index.source, "column": index.column, "model": setting.model, "method": method,
             "corpus": setting.corpus, "limit": setting.limit}  # fmt: skip
    if _is_new(index, output, asked):
        sample = gather(index, lang)
        chosen = expecting.best(expect(sample, setting)).candidate if method == "auto" else Candidate(method)
        if chosen == PLAIN:
            raise ModelError("No method is expected to be better than the plain vectors; nothing was written.")
        make(chosen.method, **dict(chosen.params))
        text = expecting.parallel_text(setting.corpus, {*sample.codes.tolist()}, setting.limit, 0, ENGLISH)
        model = api.fit(
            chosen.method, backbone=setting.model, corpus=setting.corpus, languages=[*text.fit], limit=setting.limit,
            device=setting.device, **dict(chosen.params),
        )  # fmt: skip
        record = json.dumps({**asked, "chosen": chosen.label}, indent=2)
        is_folder = Path(model.xalign_spec.backbone.model).is_dir()
        save(model, output, files={RECORD: record}, adapter=not is_folder)
    maps = load_maps(str(output))
    prompt = setting.recipe().role_prompts()[-1]
    return read_json(output / RECORD)["chosen"], *fill(index, aligner(maps, lang, prompt))


def _is_new(index: Index, output: Path, asked: dict[str, Any]) -> bool:
    """Whether nothing was written yet; False if the same call was interrupted."""
    if (output / RECORD).is_file():
        known = read_json(output / RECORD)
        if any(known.get(name) != value for name, value in asked.items()):
            raise ModelError(f"{output} is of another run on {known.get('source')}; choose another --output.")
        return False
    if index.written() is not None:
        raise ModelError(f"{index.source} has a column {index.second} already; `xalign index undo` removes it.")
    if output.exists():
        raise ModelError(f"--output {output} exists; choose a new folder.")
    return True


def migrate(
    index: Index,
    output: Path,
    *,
    old: str,
    new: str,
    method: str = "affine",
    lang: str | None = None,
    level: float = 0.1,
    wanted: float = 0.3,
    device: str | None = None,
) -> tuple[dict[str, Any], int, int]:
    """Write vectors of a new model, predicted from the old ones, to the second column; the same call resumes.

    The folder gets the map and, one per line, the ids of the rows to encode first.

    Args:
        index: The index, with texts.
        output: The folder.
        old: The model of the index.
        new: The model of queries from now on.
        method: One of :data:`xalign_models.models.migration.MAPS`.
        lang: Language of rows without one.
        level: Share of queries whose loss may exceed the bound.
        wanted: The bound that encoding the first rows should reach.
        device: cpu, cuda or mps.

    Returns:
        The record of the map, with its losses, the number of rows, and how many of them could not be mapped.

    Raises:
        XAlignError: As for :func:`fix` and :func:`xalign_models.index.migrating.fit`.
    """
    asked = {"source": index.source, "column": index.column, "from": old, "to": new, "method": method}
    migration.check(method)
    if _is_new(index, output, asked):
        sample = gather(index, lang, migrating.TEXTS)
        found = migrating.fit(sample, _recipe(old, device), _recipe(new, device), method, level, wanted)
        with atomic_directory(output) as folder:
            np.savez(folder / MAP, **{f"{i}{name}": part for i, layer in enumerate(found.layers)
                                      for name, part in zip("Wb", layer, strict=True)})  # type: ignore[arg-type]  # fmt: skip
            record = {
                **asked,
                "level": level,
                "wanted": wanted,
                "table": found.table,
                "share": found.share,
                "cut": found.cut,
            }
            (folder / RECORD).write_text(json.dumps(record, indent=2), encoding="utf-8")
    record, arrays = read_json(output / RECORD), read_npz(output / MAP)
    layers = tuple((arrays[f"{i}W"], arrays[f"{i}b"]) for i in range(len(arrays) // 2))

    def convert(rows: Rows) -> Any:
        return normalise(migration.apply(layers, normalise(rows.vectors)))

    total, skipped = fill(index, convert)
    with (output / "encode-first.txt").open("w", encoding="utf-8") as file:
        for rows in index.read():
            lengths = np.linalg.norm(migration.apply(layers, normalise(rows.vectors)), axis=1)
            file.writelines(f"{rows.ids[row]}\n" for row in np.flatnonzero(~(lengths >= record["cut"])))
    return record, total, skipped
