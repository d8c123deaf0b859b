"""One model against others for a paper: a table, a figure, a paragraph on the method, references and the commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from xalign_models import __version__, boards, published
from xalign_models.boards.leaderboard import choose, choose_models, leaderboard
from xalign_models.errors import FileError, ResultsError
from xalign_models.files import read_json, sha256_file
from xalign_models.paths import atomic_write_text
from xalign_models.plugins import sources
from xalign_models.results.intervals import FEWEST
from xalign_models.results.reading import Results, TaskScores
from xalign_models.specs import ModelSpec
from xalign_models.tables.board import Board, Evidence, Row, wrap
from xalign_models.tables.formats import ABREAST, latex, to_latex

_PROVENANCE = "provenance.json"
_HASH = re.compile(r"-[0-9a-f]{6}$")
_BLOCK = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%%\n%s}"
_ENTRY = re.compile(r"^@\w+\{\s*([^,\s]+)\s*,.*?^\}", re.M | re.S)


@dataclass(frozen=True)
class Paper:
    """One model against others, over the subsets that all of them have.

    Attributes:
        new: Name of the model.
        board: Means in percent, and the difference of each other row to the model, in points.
        tables: Scores by (model, task), on the common subsets alone.
    """

    new: str
    board: Board
    tables: Mapping[tuple[str, str], TaskScores]

    @property
    def label(self) -> str:
        """The model's label in the table."""
        return next(row.label for row in self.board.rows if row.name == self.new)


def compare(results: Results, new: str, against: Sequence[str], tasks: Collection[str] | None = None) -> Paper:
    """Compare a model with its plain backbone and with others, on all tasks that they share or on some.

    Args:
        results: From :func:`xalign_models.results.reading.read_results`.
        new: Name of the model.
        against: Names of models, or labels of models of the same backbone, such as ``lsar``.
        tasks: Names of tasks; None for those that every model has.

    Raises:
        ResultsError: A name has no results, a model lacks a task, or the models share no subset of the same text.
    """
    (new,) = choose_models(results.models, [new])
    base = next(table.baseline for (model, _), table in results.tables.items() if model == new)
    plain = [base] if base in results.models and base != new else []
    names = list(dict.fromkeys([*plain, *(_named(results, base, name) for name in against), new]))
    if len(names) < 2:
        raise ResultsError(f"{new} has no model to be compared with; name models with --against.")
    having = [task for task in results.tasks if all((name, task) in results.tables for name in names)]
    chosen = having if tasks is None else choose(results.tasks, tasks, "task")
    tables: dict[tuple[str, str], TaskScores] = {}
    for task in chosen:
        if lacking := [name for name in names if (name, task) not in results.tables]:
            raise ResultsError(f"{', '.join(lacking)} has no results on {task}; leave out the task or the model.")
        tables |= {(table.model, task): table for table in _common([results.tables[name, task] for name in names], new)}
    if not tables:
        raise ResultsError(f"No task has results of all of {', '.join(names)}.")
    board = leaderboard(replace(results, tables=tables))
    specs = {model: table.spec for (model, _), table in tables.items()}
    labels = _labels({name: specs[name] for name in names})
    by_name = {row.name: row for row in board.rows}
    prompted = len({row.prompt for row in board.rows}) > 1
    rows = [
        replace(row, group="", label=labels[row.name], prompt=row.prompt if prompted else "")
        for row in map(by_name.__getitem__, names)
    ]
    return Paper(new, replace(board, rows=_agreeing(rows, new)), tables)


def _agreeing(rows: Sequence[Row], new: str) -> list[Row]:
    """Without ties where the printed difference to the best holds: ties are corrected over more tests than it is."""
    mine = next(row for row in rows if row.name == new).cells
    apart = set()
    for row in rows:
        for column, cell in row.cells.items():
            if cell.test in {Evidence.HOLDS, Evidence.FIXED} and (mine[column].best or cell.best):
                apart.add((row.name if mine[column].best else new, column))
    freed = [{c: replace(cell, ranks=None) for c, cell in row.cells.items() if (row.name, c) in apart} for row in rows]
    return [replace(row, cells=row.cells | cells) for row, cells in zip(rows, freed, strict=True)]


def _named(results: Results, base: str | None, name: str) -> str:
    """The model of a name, or of a label among the models of the same backbone; the shortest if several have it."""
    same = {model for (model, _), table in results.tables.items() if base and table.baseline == base}
    labelled = [model for model in same if model.removeprefix("xalign/").partition("__")[0] == name]
    return min(labelled or choose_models(results.models, [name]), key=lambda model: (len(model), model))


def _common(tables: Sequence[TaskScores], new: str) -> list[TaskScores]:
    """The tables on their common subsets, compared with the new model."""
    common = set.intersection(*(set(table.values()) for table in tables))
    if not common or len({table.text for table in tables}) > 1:
        raise ResultsError(
            f"The models share no language of the same text of {tables[0].task}; score them again on it."
        )
    shown = []
    for table in tables:
        kept = np.isin(table.frame.keys, sorted(common))
        columns = {name: np.where(kept, values, np.nan) for name, values in table.columns.items()}
        shown.append(replace(table, columns=columns, baseline=None if table.model == new else new))
    return shown


def _labels(specs: Mapping[str, ModelSpec | None]) -> dict[str, str]:
    """Names for readers: without hashes, and with the backbone or the text where rows would be called the same."""
    parts = {}
    for name, spec in specs.items():
        label, *rest = name.removeprefix("xalign/").split("__")
        parts[name] = [label, *(_HASH.sub("", part) for part in rest)] if spec else [name]
    several = len({tuple(part[1:2]) for part in parts.values()}) > 1
    labels = {name: ", ".join(part[: 1 + several]) for name, part in parts.items()}
    double = {label for label in labels.values() if [*labels.values()].count(label) > 1}
    return {name: ", ".join(parts[name]) if label in double else label for name, label in labels.items()}


def write_paper(paper: Paper, folder: Path, metadata: Mapping[str, Any], command: Sequence[str]) -> None:
    """Write ``paper.tex`` and all that it needs: table, figure, methods, references; and ``reproduce.sh``.

    Args:
        paper: From :func:`compare`.
        folder: Directory to write.
        metadata: mteb's metadata by task, as far as there are any.
        command: The command that writes the folder, for ``reproduce.sh``.

    Raises:
        ResultsError: The folder has a file of such a name with other content than xalign wrote.
    """
    from xalign_models.figures import save

    references = files(published).joinpath("methods.bib").read_text(encoding="utf-8")
    citations = (getattr(task, "bibtex_citation", None) or "" for task in metadata.values())
    references += "\n".join(citation.replace(r"\\", "\\") for citation in citations)  # some of mteb's escape twice
    entries = {match[1]: match[0] for match in _ENTRY.finditer(references)}
    methods = _methods(paper, metadata, entries)
    cited = {key for keys in re.findall(r"\\cite\{([^}]*)\}", methods) for key in keys.split(",")}
    plugins = [part for source in sources() for part in ("--plugin", source)]
    lines = ["#!/bin/sh", "set -e", *(shlex.join([*line, *plugins]) for line in [*_commands(paper), command])]
    content = {
        "paper.tex": _template("paper"),
        "table.tex": _table(paper),
        "figure.tex": _template("figure") % latex(paper.label),
        "methods.tex": methods,
        "references.bib": "\n\n".join(entry for key, entry in entries.items() if key in cited) + "\n",
        "reproduce.sh": "\n".join(lines) + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    _refuse_others(folder, [*content, "differences.pdf"])
    save(_figure(paper), folder, "differences", "pdf")
    for name, text in content.items():
        atomic_write_text(folder / name, text)
    hashes = {name: sha256_file(folder / name) for name in [*content, "differences.pdf"]}
    provenance = {"scores": _provenance(paper), "files": hashes}
    atomic_write_text(folder / _PROVENANCE, json.dumps(provenance, indent=2, ensure_ascii=False) + "\n")


def _refuse_others(folder: Path, names: Collection[str]) -> None:
    """Refuse to replace a file that is not as the last run left it."""
    try:
        hashes = read_json(folder / _PROVENANCE)["files"]
        hashes[_PROVENANCE] = sha256_file(folder / _PROVENANCE)
    except (FileError, TypeError, KeyError):
        hashes = {}
    for path in (folder / name for name in [*names, _PROVENANCE]):
        if path.exists() and sha256_file(path) != hashes.get(path.name):
            raise ResultsError(f"{path} is not as xalign wrote it; move it away, or name another folder with --to.")


def _template(name: str) -> str:
    return files(boards).joinpath("templates", f"{name}.tex").read_text(encoding="utf-8")


def _table(paper: Paper) -> str:
    cells = [cell for row in paper.board.rows for cell in row.cells.values()]
    marks = {cell.test for cell in cells}
    notes = [
        "Scores in percent, means over the languages or language pairs that all rows have.",
        f"Small: difference to {latex(paper.label)} in points and its 95\\% interval.",
        "same: the difference within a language." if any(cell.same is not None for cell in cells) else "",
        "Bold: best; underlined: statistically tied with it, in the table and among all pairs (Holm's correction).",
        r"\textasciitilde{}: may be chance (Holm's correction)." if Evidence.CHANCE in marks else "",
        r"\textdegree{}: tested over sentences only, the languages are too few." if Evidence.FIXED in marks else "",
        r"\textdagger{}: fitted or trained on text of the task." if any(cell.fitted for cell in cells) else "",
        "?: not tested, no scores by item were kept." if Evidence.NONE in marks else "",
    ]
    caption = " ".join(filter(None, notes))
    columns = paper.board.columns
    parts = [replace(paper.board, columns=columns[i : i + ABREAST], legend=()) for i in range(0, len(columns), ABREAST)]
    return _template("table") % ("\\par\\medskip\n".join(_BLOCK % to_latex(part) for part in parts), caption)


def _figure(paper: Paper) -> Any:
    """Differences of the other rows to the new model with their intervals, an axis per column of the table."""
    from xalign_models.figures import COLOURS, canvas, styled

    others = [row for row in paper.board.rows if row.name != paper.new]
    columns = list(paper.board.columns)
    lines, across = -(-len(columns) // ABREAST), min(ABREAST, len(columns))
    size = {"width": 1.5 + 1.6 * across, "height": lines * (1.1 + 0.25 * len(others))}
    with styled():
        figure, axes = canvas(lines, across, **size, sharey=True)
        panels: list[Any] = axes.ravel().tolist()
        for axis in panels[len(columns) :]:
            axis.set_axis_off()
        for axis, column in zip(panels, columns, strict=False):
            for place, row in enumerate(others):
                cell = row.cells[column]
                if cell.low is not None and cell.high is not None:
                    axis.plot([cell.low, cell.high], [place, place], color=COLOURS[0])
                axis.plot([cell.difference], [place], "o", color=COLOURS[0])
            axis.axvline(0, color="#444444", linewidth=0.8)
            axis.set_title("\n".join(wrap(column, 16)))
            axis.set_xlabel("points")
        axes[0][0].set_yticks(range(len(others)), [row.label for row in others])
        axes[0][0].set_ylim(len(others) - 0.5, -0.5)
    return figure


def _methods(paper: Paper, metadata: Mapping[str, Any], entries: Mapping[str, str]) -> str:
    """The paragraph on models, tasks and tests, with citations of what the references have."""

    def cited(text: str, keys: Collection[str]) -> str:
        having = [key for key in keys if key in entries]
        return latex(text) + (rf"~\cite{{{','.join(having)}}}" if having else "")

    tasks = []
    for task in dict.fromkeys(task for _, task in paper.tables):
        table = paper.tables[paper.new, task]
        subsets = len(table.values())
        citation = getattr(metadata.get(task), "bibtex_citation", None) or ""
        tasks.append(
            f"{cited(task, _ENTRY.findall(citation))} ({subsets} subset{'s' * (subsets > 1)}, revision "
            rf"\texttt{{{latex(str(table.dataset_revision)[:12])}}})"
        )
    models = [
        f"{cited(row.label, sorted(_methods_of(spec)))} ({latex(_made(spec))})"
        for row, spec in _specs(paper)
        if spec is not None and spec.alignment is not None
    ]
    others = "another model" if len(paper.board.rows) == 2 else f"{len(paper.board.rows) - 1} other models"
    fitted = f" The alignments are {_listed(models)}." if models else ""
    return (
        f"{{\\sloppy\nWe score {latex(paper.new)} and {others} on {_listed(tasks)} with xalign "
        f"{__version__}, on the subsets that all models have.{fitted} Scores are means over subsets. We test their "
        "differences in pairs, item by item. The variance is clustered by language and by sentence, or by sentence "
        f"alone below {FEWEST} languages. The p-values have Holm's correction over the table "
        r"(Table~\ref{tab:xalign}, Figure~\ref{fig:xalign})." + "\\par}\n"
    )


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _specs(paper: Paper) -> Iterator[tuple[Any, ModelSpec | None]]:
    specs = {model: table.spec for (model, _), table in paper.tables.items()}
    return ((row, specs[row.name]) for row in paper.board.rows)


def _methods_of(spec: ModelSpec) -> set[str]:
    return set(spec.alignment.method.split("+")) if spec.alignment else set()


def _made(spec: ModelSpec) -> str:
    """Parameters and text of an alignment in words."""
    fit = spec.alignment
    assert fit is not None
    rows = f", {fit.limit} rows per language" if fit.limit else ""
    return ", ".join([*(f"{name}={value}" for name, value in fit.params), "fitted on " + "+".join(fit.corpora) + rows])


def _commands(paper: Paper) -> Iterator[list[str]]:
    """A fit for each model that is not registered, and the scoring of all, once for tasks of the same languages."""
    from xalign_models.models.catalogue import specs
    from xalign_models.models.names import label_of

    scored = []
    for row, spec in _specs(paper):
        scored.append(row.name)
        if row.name not in specs() and spec is not None and spec.alignment is None:
            scored[-1] = spec.backbone.model
        elif row.name not in specs() and spec is not None and (fit := spec.alignment) is not None:
            scored[-1] = "models/" + row.name.removeprefix("xalign/")
            named = fit.label != label_of(fit.method, dict(fit.params)) or not _HASH.search(
                spec.data
            )  # without a label, `fit` adds a hash
            yield [
                *("xalign", "fit", fit.method, "--backbone", spec.backbone.model),
                *(("--label", fit.label) if named else ()),
                *(part for corpus in fit.corpora for part in ("--corpus", corpus)),
                *(part for name, value in fit.params for part in ("--param", f"{name}={json.dumps(value)}")),
                *(("--limit", str(fit.limit)) if fit.limit else ()),
                *(("--languages", ",".join(fit.languages)) if fit.languages else ()),
                *("--output", scored[-1]),
            ]
    tasks: dict[tuple[str, ...], list[str]] = {}
    for (model, task), table in paper.tables.items():
        if model == paper.new:
            spoken = tuple(sorted({code for _, _, codes, _ in table.rows() for code in codes}))
            tasks.setdefault(spoken, []).append(task)
    for spoken, names in tasks.items():
        languages = ("--languages", ",".join(spoken)) if spoken else ()
        yield ["xalign", "run", "--models", ",".join(scored), "--tasks", ",".join(names), *languages]


def _provenance(paper: Paper) -> list[dict[str, Any]]:
    return [
        {
            "model": table.model,
            "revision": table.revision,
            "task": table.task,
            "text": table.dataset_revision,
            "subsets": sorted(table.values()),
            "date": table.date.isoformat(timespec="seconds"),
            "mteb": table.mteb_version,
            "spec": table.spec and table.spec.to_dict(),
        }
        for table in paper.tables.values()
    ]
