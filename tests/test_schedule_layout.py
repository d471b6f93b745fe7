"""Layouts as values: what people write, where elements go, arrays, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ansor
from ansor import te
from ansor.errors import ArgumentError, DefinitionError
from ansor.ir.simplify import Bounds, simplify
from ansor.schedule.layout import Layout
from ansor.te.expr import Const, int_value


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any layout of a small tensor: pieces in any order, even inner ones outside of outer ones."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=0, max_size=3)))
    digits: list[tuple[int, int, int]] = []
    for dim, extent in enumerate(shape):
        inner = draw(st.lists(st.integers(1, 4), max_size=2))
        stride = 1
        for length in inner:
            digits.append((dim, length, stride))
            stride *= length
        if extent > 1 or draw(st.booleans()):
            digits.append((dim, -(-extent // stride), stride))
        elif inner:
            digits.append((dim, 1, stride))
    return Layout.of(shape, draw(st.permutations(digits)))


def values(layout: Layout, index: tuple[int, ...]) -> tuple[int, ...]:
    """The new indices of one element, by the expressions that programs use."""
    made = layout.new_indices([Const(i, "int32") for i in index])
    found = [int_value(simplify(expr, Bounds())) for expr in made]
    return tuple(value for value in found if value is not None)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(layouts())
def test_every_element_is_where_the_indices_say_and_the_rest_is_zero(layout: Layout) -> None:
    array = np.arange(1, 1 + int(np.prod(layout.shape))).reshape(layout.shape)
    moved = layout.transform(array)
    assert moved.shape == layout.new_shape
    assert moved.flags.c_contiguous
    seen = np.zeros(moved.shape, dtype=bool)
    for index in np.ndindex(*layout.shape):
        place = values(layout, index)
        assert moved[place] == array[index]
        assert not seen[place]
        seen[place] = True
    assert not moved[~seen].any()


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(layouts())
def test_old_indices_undo_new_ones(layout: Layout) -> None:
    for index in np.ndindex(*layout.shape):
        digits = [Const(i, "int32") for i in values(layout, index)]
        back = layout.old_indices(digits)
        assert tuple(int_value(simplify(expr, Bounds())) for expr in back) == index
        assert all(simplify(cond, Bounds()).value for cond in layout.inside(back))  # type: ignore[attr-defined]


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(layouts())
def test_what_is_printed_and_recorded_reads_back(layout: Layout) -> None:
    assert Layout.of(layout.shape, layout.spec) == layout  # type: ignore[arg-type]
    assert Layout.of(layout.shape, layout.to_json()) == layout
    assert eval(str(layout)) == layout.spec


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(layouts())
def test_row_major_means_that_nothing_moves(layout: Layout) -> None:
    array = np.arange(int(np.prod(layout.shape))).reshape(layout.shape)
    moved = layout.transform(array)
    stays = moved.size == array.size and bool((moved.reshape(-1) == array.reshape(-1)).all())
    assert not layout.is_row_major or stays


def test_the_panel_of_a_matrix() -> None:
    layout = Layout.of((3, 7), [(1, None), 0, (1, 4)])
    assert layout.new_shape == (2, 3, 4)
    array = np.arange(21, dtype="float32").reshape(3, 7)
    moved = ansor.transform_layout(array, layout)
    np.testing.assert_array_equal(moved[0], array[:, :4])
    np.testing.assert_array_equal(moved[1, :, :3], array[:, 4:])
    assert not moved[1, :, 3].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool"])
def test_any_dtype(dtype: str) -> None:
    from ansor.dtypes import to_numpy

    array = np.arange(6).reshape(2, 3).astype(to_numpy(dtype))
    moved = ansor.transform_layout(array, Layout.of((2, 3), [(1, None), (0, 2), (1, 2)]))
    assert moved.dtype == array.dtype
    assert moved.shape == (2, 2, 2)


def test_inputs_as_defined_are_passed_through() -> None:
    a = te.placeholder((2, 3), name="A")
    array = np.ones((2, 3), "float32")
    assert ansor.transform_layout(array, a) is array


@pytest.mark.parametrize(
    ("digits", "message"),
    [
        ([(1, None), (1, 4)], "dimension 0 of extent 3 has no digit"),
        ([0, (1, 2), (1, 3)], "cover 6 of its 7"),
        ([0, (1, 2), (1, None)], "only the outermost digit of dimension 1"),
        ([0, (1, 4, 2), (1, 2)], "all digits of dimension 1 a stride, or none"),
        ([0, (1, 4, 3), (1, 2, 1)], "leave gaps"),
        ([0, (2, 7)], "no dimension 2"),
        ([0, (1, 0)], "not a positive integer"),
        ([0, "j"], "expected dim"),
        ("4j3k", "list of digits"),
        (Layout.of((7, 3), [0, 1]), "of shape [7, 3], the tensor of [3, 7]"),
    ],
)
def test_errors_say_what_is_wrong(digits: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as error:
        Layout.of((3, 7), digits, "W")
    assert message in str(error.value)
    assert "'W'" in str(error.value)


def test_symbolic_shapes_have_no_layout() -> None:
    n = te.var("n")
    with pytest.raises(DefinitionError, match="symbolic"):
        Layout.of((n, 4), [0, 1])


def test_the_array_has_to_fit() -> None:
    with pytest.raises(ArgumentError, match=r"\[3, 7\], found an array of shape \[7, 3\]"):
        Layout.of((3, 7), [1, 0]).transform(np.zeros((7, 3)))
