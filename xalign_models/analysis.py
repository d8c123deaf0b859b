"""The interface of analyses, which answer a question about models with tables and figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_models.errors import DataError, ModelError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from xalign_models.models.encoder import XAlignEncoder
    from xalign_models.specs import ModelSpec
    from xalign_models.store import EmbeddingStore

OPTIONS = ("models", "results", "rows", "languages", "tasks")
"""Options of a request that an analysis may read, besides the device."""


@dataclass(frozen=True)
class Request:
    """The input of an analysis.

    Attributes:
        models: Registered names, directories or hub ids.
        results: Root that ``xalign run --output`` wrote to; results and published tables are in its ``results/``.
        device: cpu, cuda or mps; None for the best available.
        rows: Maximum number of rows of a text; None for the analysis' default.
        languages: Canonical codes; None for the analysis' default.
        tasks: Names of tasks; empty for the analysis' default.
    """

    models: tuple[str, ...] = ()
    results: Path = Path()
    device: str | None = None
    rows: int | None = None
    languages: tuple[str, ...] | None = None
    tasks: tuple[str, ...] = ()

    def check(self, read: Collection[str] = OPTIONS) -> None:
        """Refuse options that an analysis does not read.

        Args:
            read: The options among :data:`OPTIONS` that it reads.

        Raises:
            DataError: Another one is given.
        """
        for option in OPTIONS:
            if getattr(self, option) != getattr(Request, option) and option not in read:
                raise DataError(f"--{option}: this analysis does not read it; leave it out.")

    @property
    def store(self) -> EmbeddingStore:
        """The store of raw vectors."""
        from xalign_models.store import open_store

        return open_store()

    def load(self, name: str | ModelSpec) -> XAlignEncoder:
        """A model, by name or spec, as an mteb encoder, on the requested device and with the store.

        Raises:
            ModelError: The model is unknown.
            XAlignError: Weights or fit text are missing.
        """
        from xalign_models.models.building import load_encoder

        return load_encoder(name, device=self.device, store=self.store)

    def named(self) -> tuple[str, ...]:
        """The named models.

        Raises:
            ModelError: No model was named.
        """
        if not self.models:
            raise ModelError("--model: name at least one model; `xalign models` lists them.")
        return self.models

    def titled(self) -> dict[str, str]:
        """The named models by title, which is the last part of a directory.

        Raises:
            ModelError: No model was named, or two have the same title and could not be told apart in a table.
        """
        titles: dict[str, str] = {}
        for name in self.named():
            title = Path(name).resolve().name if Path(name).is_dir() else name
            if (other := titles.setdefault(title, name)) != name:
                raise ModelError(f"{other} and {name} have the same name in the tables, {title}; rename one of them.")
        return titles


@dataclass(frozen=True)
class Findings:
    """The output of an analysis.

    Attributes:
        tables: By name; plain columns, no index.
        figures: By name; made with :mod:`xalign_models.figures`.
        notes: Caveats for readers of the tables, a sentence each.
        data: Fingerprint or revision of each text, by name.
        models: Names of the models that were read, if the request does not name them.
    """

    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
