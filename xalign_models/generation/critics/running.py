"""Scores of many translations, each judged once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from xalign_models.generation.critics.base import Critic, Judged
from xalign_models.generation.critics.parsing import KEYS
from xalign_models.generation.journal import Journal, batched
from xalign_models.paths import cache_dir

FIELDS = ("lang", "text", "translation")


class Scores:
    """A critic with the journal of what it has judged.

    Args:
        critic: Judges translations that are not in the journal.
        folder: Folder of journals; by default in the cache.
        batch_size: Translations judged together: the most that a crash loses.
    """

    def __init__(self, critic: Critic, folder: Path | None = None, batch_size: int = 16) -> None:
        self.critic, self.batch_size = critic, batch_size
        self._folder = folder or cache_dir() / "translations"
        self._opened: Journal | None = None

    @property
    def _journal(self) -> Journal:
        if self._opened is None:
            path = self._folder / f"{self.critic.label}-{self.critic.identity}.jsonl"
            self._opened = Journal(path, FIELDS)
        return self._opened

    def get(self, items: Sequence[Judged]) -> tuple[Tensor, Tensor]:
        """Scores (n, 3), float32, zeros where the critic's answer is unreadable; and (n,), where it is readable."""
        journal = self._journal
        journal.refresh()
        missing = [item for item in dict.fromkeys(items) if tuple(item) not in journal]
        missing.sort(key=lambda item: -len(item.text) - len(item.translation))
        for batch in batched(missing, self.batch_size):
            journal.append(
                [
                    {**dict(zip(FIELDS, item, strict=True)), "scores": scores and dict(zip(KEYS, scores, strict=True))}
                    for item, scores in zip(batch, self.critic.judge(batch), strict=True)
                ]
            )
        records = [(journal.get(*item) or {}).get("scores") for item in items]
        rows = [[float(scores[key]) for key in KEYS] if scores else [0.0] * len(KEYS) for scores in records]
        readable = torch.tensor([scores is not None for scores in records]).bool()
        return torch.tensor(rows).reshape(-1, len(KEYS)), readable
