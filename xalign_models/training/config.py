"""Field types that several training configurations share."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from xalign_models.errors import ModelError
from xalign_models.specs import Dtype

Scheduler = Literal[
    "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"
]
"""Learning-rate schedules that need no further options, by their names in transformers."""


def _without_overflow(dtype: Dtype) -> Dtype:
    if dtype is Dtype.FLOAT16:
        raise ModelError("dtype float16: gradients overflow in training; use float32 or bfloat16.")
    return dtype


TrainingDtype = Annotated[Dtype, AfterValidator(_without_overflow)]
"""A type that a model can be trained in: any but float16, whose gradients overflow."""
