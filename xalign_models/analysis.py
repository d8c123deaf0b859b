"""What an analysis is: a question about models, answered with tables and figures rather than with a score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_models.errors import ModelError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from xalign_models.models.encoder import XAlignEncoder
    from xalign_models.specs import ModelSpec
    from xalign_models.store import EmbeddingStore


@dataclass(frozen=True)
class Request:
    """What an analysis is asked to do.

    Attributes:
        models: Registered names, directories or hub ids.
        results: Root that ``xalign run --output`` wrote to; results and published tables lie in its ``results/``.
        device: cpu, cuda or mps; None is the best there is.
        rows: Most rows of a text that are used, from its top; None is the analysis' own number.
        languages: Canonical codes; None is the analysis' own choice.
    """

    models: tuple[str, ...] = ()
    results: Path = Path()
    device: str | None = None
    rows: int | None = None
    languages: tuple[str, ...] | None = None

    @property
    def store(self) -> EmbeddingStore:
        """Where raw vectors are kept."""
        from xalign_models.store import open_store

        return open_store()

    def load(self, name: str | ModelSpec) -> XAlignEncoder:
        """A model, by name or spec, as an mteb encoder, on the asked device and with the store.

        Raises:
            ModelError: No such model.
            XAlignError: Weights or fit text are missing.
        """
        from xalign_models.models.building import load_encoder

        return load_encoder(name, device=self.device, store=self.store)

    def named(self) -> tuple[str, ...]:
        """The models.

        Raises:
            ModelError: None was named.
        """
        if not self.models:
            raise ModelError("--model: name at least one model; `xalign models` lists them.")
        return self.models


@dataclass(frozen=True)
class Findings:
    """What an analysis found.

    Attributes:
        tables: By name; plain columns, no index.
        figures: By name; made with :mod:`xalign_models.figures`.
        notes: What a reader of the tables must know, a sentence each.
        data: Fingerprint or revision of each text that was used, by its name.
    """

    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
