"""Figures are written alike each time and leave no state behind; series can be told apart."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from xalign_models import figures


@figures.styled()
def drawn():
    figure, ((left, right),) = figures.canvas(1, 2)
    left.plot([1, 2], [3, 4], **figures.look(0))
    figures.describe(right, "title", "x in s", "y in m")
    return figure


def test_a_file_is_the_same_every_time_and_nothing_of_the_style_stays(tmp_path):
    before = dict(matplotlib.rcParams)
    path = figures.save(drawn(), tmp_path / "a", "one")
    again = figures.save(drawn(), tmp_path / "b", "one")
    assert path.name == "one.svg"
    assert path.read_bytes() == again.read_bytes()
    assert b">title</text>" in path.read_bytes()  # text, not outlines
    assert dict(matplotlib.rcParams) == before


def test_two_series_differ_in_more_than_colour():
    looks = [tuple(figures.look(i).values()) for i in range(28)]
    for i, one in enumerate(looks):
        for other in looks[:i]:
            assert sum(a != b for a, b in zip(one, other, strict=True)) >= 2


def test_titles_and_labels_are_set():
    axis = drawn().axes[1]
    assert (axis.get_title(), axis.get_xlabel(), axis.get_ylabel()) == ("title", "x in s", "y in m")


@pytest.mark.parametrize("values", [[3.0, 4.0], [0.0, 1.0], [-2.0, 1.0]])
def test_an_axis_from_zero_has_zero_and_all_values_with_room_above(values):
    _, ((axis,),) = figures.canvas()
    axis.plot(values)
    figures.from_zero(axis)
    bottom, top = axis.get_ylim()
    assert bottom <= min(0, *values)
    assert top >= max(values) + 0.04 * (top - bottom)


def test_lines_have_the_looks_of_their_places_unless_told_otherwise():
    _, ((axis,),) = figures.canvas()
    figures.draw_lines(axis, {"a": ([1, 2], [3, 4]), "b": ([1, 2], [5, 6])}, linestyle=":")
    assert [line.get_label() for line in axis.lines] == ["a", "b"]
    assert [line.get_color() for line in axis.lines] == [figures.look(0)["color"], figures.look(1)["color"]]
    assert {line.get_linestyle() for line in axis.lines} == {":"}
    np.testing.assert_array_equal(axis.lines[1].get_xydata(), [[1, 5], [2, 6]])


def test_a_heat_map_has_a_number_in_each_cell_with_a_value():
    _, ((axis,),) = figures.canvas()
    image = figures.draw_heat_map(axis, np.array([[0, 54], [56, np.nan]]), ["r", "s"], ["c", "d"], (0, 100))
    numbers = {text.get_position(): (text.get_text(), text.get_color()) for text in axis.texts}
    assert numbers == {(0, 0): ("0", "white"), (1, 0): ("54", "white"), (0, 1): ("56", "black")}
    assert [label.get_text() for label in axis.get_xticklabels()] == ["c", "d"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["r", "s"]
    assert image.get_clim() == (0, 100)
