"""Critics: language models that judge translations, with a journal of their scores."""

from __future__ import annotations

from xalign_models.generation.critics.base import Critic, Judged
from xalign_models.generation.critics.models import CriticSpec, make_critic
from xalign_models.generation.critics.parsing import KEYS, parse_scores
from xalign_models.generation.critics.running import Scores

__all__ = ["KEYS", "Critic", "CriticSpec", "Judged", "Scores", "make_critic", "parse_scores"]
