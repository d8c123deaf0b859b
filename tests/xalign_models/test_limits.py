from dataclasses import dataclass, field

import pytest

from xalign_models.errors import ModelError
from xalign_models.limits import at_least, positive, within


@dataclass
class Config:
    rows: int | None = 3
    rate: float = 0.5
    rates: dict = field(default_factory=dict)


def test_a_value_at_its_limit_and_none_pass():
    at_least(Config(), rows=3, rate=0.5)
    at_least(Config(rows=None), rows=3)


@pytest.mark.parametrize(
    "config, message",
    [(Config(rows=2), "a.rows 2: at least 3."), (Config(rate=float("nan")), "a.rate nan: at least 0.")],
)
def test_a_value_below_and_not_a_number_are_named(config, message):
    with pytest.raises(ModelError, match=f"^{message}$"):
        at_least(config, called="a.{}".format, rows=3, rate=0)


@pytest.mark.parametrize(
    "config, message",
    [
        (Config(rate=0), "a.rate 0: it must be above 0."),
        (Config(rate=float("nan")), "a.rate nan: it must be above 0."),
        (Config(rates={"x": 1, "y": -1}), "a.rates.y -1: it must be above 0."),
    ],
)
def test_what_is_not_above_zero_is_named(config, message):
    positive(Config(rates={"x": 1}), "rate", "rates")
    with pytest.raises(ModelError, match=f"^{message}$"):
        positive(config, "rate", "rates", called="a.{}".format)


@pytest.mark.parametrize("rate", [-0.5, 1, float("nan")])
def test_what_is_out_of_its_range_is_named(rate):
    within(Config(rate=0), rate=(0, 1))
    with pytest.raises(ModelError, match=rf"^a\.rate {rate}: at least 0 and below 1\.$"):
        within(Config(rate=rate), called="a.{}".format, rate=(0, 1))
