"""The private names of other packages that training needs still exist and are still used there."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from xalign_models.training.borrowed import NAMES


@pytest.mark.parametrize(("owner", "name"), NAMES, ids=lambda value: getattr(value, "__name__", value))
def test_a_private_name_is_still_there(owner: Any, name: str) -> None:
    theirs = [kind for kind in owner.__mro__[:-1] if not kind.__module__.startswith("xalign_models")]
    source = "".join(inspect.getsource(kind) for kind in theirs)
    assert f"self.{name}" in source, (
        f"{owner.__qualname__} no longer uses {name}; see xalign_models/training/borrowed.py"
    )
