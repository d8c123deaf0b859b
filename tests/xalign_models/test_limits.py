from dataclasses import dataclass

import pytest

from xalign_models.errors import ModelError
from xalign_models.limits import at_least


@dataclass
class Config:
    rows: int | None = 3
    rate: float = 0.5


def test_a_value_at_its_limit_and_none_pass():
    at_least(Config(), rows=3, rate=0.5)
    at_least(Config(rows=None), rows=3)


@pytest.mark.parametrize(
    "config, message",
    [(Config(rows=2), "a.rows 2: at least 3."), (Config(rate=float("nan")), "a.rate nan: at least 0.")],
)
def test_a_value_below_and_not_a_number_are_named(config, message):
    with pytest.raises(ModelError, match=f"^{message}$"):
        at_least(config, "a.{}".format, rows=3, rate=0)
