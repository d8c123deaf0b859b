"""Learning-rate schedules."""

from __future__ import annotations

from enum import StrEnum


class Scheduler(StrEnum):
    """transformers' schedulers, by its names, that need no options of their own."""

    LINEAR = "linear"
    COSINE = "cosine"
    COSINE_WITH_RESTARTS = "cosine_with_restarts"
    POLYNOMIAL = "polynomial"
    CONSTANT = "constant"
    CONSTANT_WITH_WARMUP = "constant_with_warmup"
    INVERSE_SQRT = "inverse_sqrt"
