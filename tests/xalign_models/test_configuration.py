"""Configurations: what is read, merged and set, and how what is wrong is named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from xalign_models.configuration import AtLeastOne, Names, configuration_class, from_mapping, read, shipped, to_mapping
from xalign_models.errors import ModelError

PACKAGE = "xalign_models.training.lira"


class Shape(StrEnum):
    ROUND = "round"
    SQUARE = "square"


@configuration_class
class Part:
    size: int
    rate: float = 0.5


@configuration_class
class Whole:
    name: str
    part: Part = field(default_factory=lambda: Part(1))
    parts: tuple[Part, ...] = ()
    by_number: Mapping[int, Part | None] = field(default_factory=dict)
    pairs: tuple[tuple[str, Any], ...] = ()
    shape: Shape | None = None
    solid: bool = False


@configuration_class
class Named:
    names: Names


@configuration_class
class Counted:
    count: AtLeastOne


FULL = Whole(
    "a", Part(2, 1e-3), (Part(3), Part(4)), {1: Part(5), 2: None}, (("x", [1]), ("y", None)), Shape.SQUARE, True
)


@pytest.fixture
def write(tmp_path: Path):
    def make(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return make


@pytest.mark.parametrize("config", [Whole("a"), FULL])
def test_a_trip_through_json_changes_nothing(config):
    assert from_mapping(Whole, json.loads(json.dumps(to_mapping(config)))) == config


def test_later_files_go_over_earlier_ones_and_changes_over_all(write):
    names = [
        write(
            "a.yaml",
            "name: a\npart: {size: 2, rate: 1e-3}\nby_number: {1: {size: 3}, 2: {size: 4}}\nparts: [{size: 1}]",
        ),
        write("b.yaml", "part: {size: 5}\nby_number: {2: null}\nparts: [{size: 6}, {size: 7}]"),
    ]
    found = read(Whole, PACKAGE, names, ["by_number.1.size=8", "shape=round", "pairs=[[x, 1]]", "part.rate=5e-4"])
    assert found == Whole("a", Part(5, 5e-4), (Part(6), Part(7)), {1: Part(8), 2: None}, (("x", 1),), Shape.ROUND)


def test_one_text_is_a_list_of_one_and_nothing_an_empty_one():
    assert from_mapping(Named, {"names": "a"}).names == ("a",)
    assert from_mapping(Named, {"names": None}).names == from_mapping(Named, {"names": []}).names == ()


@pytest.mark.parametrize("value", ["no", "0", "yes", "7", "{}", "{a: 1}", "[a, no]", "1.5"])
def test_names_that_are_neither_text_nor_list_are_refused(value):
    """YAML reads ``no``, Norwegian's code, as false."""
    with pytest.raises(ModelError, match=r"^names.* a valid (array|string)\.$"):
        read(Named, PACKAGE, [], [f"names={value}"])


def test_numbers_that_no_tensor_can_have_are_refused():
    with pytest.raises(ModelError, match=r"^count 9{20}: it must be below"):
        read(Counted, PACKAGE, [], ["count=" + 20 * "9"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("part.sizes=3", r"part\.sizes: no such field; there are rate, size"),
        ("part.size=many", r"part\.size 'many': it must be a valid integer"),
        ("part.size=true", r"part\.size True: it must be a valid integer"),
        ("part.rate=big", r"part\.rate 'big': it must be a valid number"),
        ("part.rate=true", r"part\.rate True: it must be a valid number"),
        ("part=5", "part 5: fields"),
        ("part={}", r"part\.size is missing"),
        ("parts=[{size: 1}, {rate: 1}]", r"parts\.1\.size is missing"),
        ("parts={a: 1}", "parts .*: it must be a valid array"),
        ("pairs=[[x]]", r"pairs\.0\.1 is missing"),
        ("by_number=[1]", "by_number .*: fields"),
        ("by_number={a: {size: 1}}", "by_number.a 'a': it must be a valid integer"),
        ("by_number={1: {sizes: 1}}", r"by_number\.1\.sizes: no such field"),
        ("shape=oval", "shape 'oval': one of 'round' or 'square'"),
        ("solid=1", "solid 1: it must be a valid boolean"),
        ("name.x=3", "--set name.x: name has no fields"),
        ("name", "--set 'name': write FIELD=VALUE"),
        ("name=[", "--set 'name=\\[' is not YAML"),
        ("name=2020-99-99", "--set 'name=2020-99-99' is not YAML: month must be in"),
        ("name=" + 5000 * "9", "is not YAML: Exceeds the limit"),
        ("name=" + 3000 * "[", "is not YAML: maximum recursion"),
        ("pairs=&a [*a]", "JSON cannot express .*Circular"),
        ("by_number={[1]: 2}", "by_number.*is not YAML|JSON cannot express"),
        ("part={? !!binary aa== : 2}", "JSON cannot express .*keys must be"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(write, change, message):
    with pytest.raises(ModelError, match=message) as error:
        read(Whole, PACKAGE, [write("a.yaml", "name: a\npart: {size: 1}")], [change])
    assert "\n" not in str(error.value)


def test_missing_and_broken_files_are_named(write, tmp_path):
    known = ", ".join(shipped(PACKAGE))
    assert known == "base, candidates, large, max, mini, residual, small"
    for name in ("huge", str(tmp_path)):
        with pytest.raises(ModelError, match=f"--config {name}: no such file; shipped ones are {known}"):
            read(Whole, PACKAGE, [name])
    with pytest.raises(ModelError, match="is not YAML") as error:
        read(Whole, PACKAGE, [write("x.yaml", "part: [unclosed")])
    assert "\n" not in str(error.value)
    with pytest.raises(ModelError, match="fields were expected, not 'just text'"):
        read(Whole, PACKAGE, [write("y.yaml", "just text")])
    with pytest.raises(ModelError, match=r"^--config .*z\.yaml: name is missing"):
        read(Whole, PACKAGE, [write("z.yaml", "solid: true")])
