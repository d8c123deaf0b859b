"""The interface of a critic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple


class Judged(NamedTuple):
    """A translation to judge."""

    language: str | None
    text: str
    translation: str


class Critic(ABC):
    """Scores translations from 1 to 10 for meaning, mood and style; it is never trained.

    Attributes:
        label: Name in file names.
    """

    label: str

    @property
    @abstractmethod
    def identity(self) -> str:
        """Hex digits of everything that determines its scores."""

    @abstractmethod
    def judge(self, items: Sequence[Judged]) -> list[tuple[float, float, float] | None]:
        """Semantic, emotional and pragmatic score of each translation; None where the answer is unreadable."""
