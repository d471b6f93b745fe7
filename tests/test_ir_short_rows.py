"""Rows that are too short for a vector and lie end to end are one loop."""

from __future__ import annotations

import pytest

from ansor import te
from ansor.ir.nest import For, LoopKind, walk_statements
from ansor.ir.registers import RegisterLimits
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.te import Tensor
from tests.program_laws import Case, check_all

LIMITS = RegisterLimits(vector_bits=512, num_registers=32)


def filtered(
    height: int, width: int, channels: int, dtype: str = "float32", border: bool = False
) -> list[Tensor]:
    """The sum of three neighbours in a row, without margins or with zeros around."""
    margin = 0 if border else 2
    x = te.placeholder((height, width + margin, channels), dtype, name="X")

    def at(y: te.Expr, z: te.Expr, c: te.Expr) -> te.Expr:
        if not border:
            return x[y, z, c]
        inside = te.all(z >= 1, z < width + 1)
        return te.if_then_else(inside, x[y, z - 1, c], te.const(0, dtype))

    return [
        x,
        te.compute(
            (height, width, channels),
            lambda y, z, c: at(y, z, c) + at(y, z + 1, c) + at(y, z + 2, c),
            name="Y",
        ),
    ]


def tiled(tensors: list[Tensor], rows: int, columns: int, vectorize: bool = True) -> Schedule:
    """Tiles of an image, the channels innermost."""
    stage = tensors[-1]
    s = te.create_schedule(stage.op)
    y, z, c = stage.op.axis
    outer_y, inner_y = s[stage].split(y, factor=rows)
    outer_z, inner_z = s[stage].split(z, factor=columns)
    s[stage].reorder(outer_y, outer_z, inner_y, inner_z, c)
    if vectorize:
        s[stage].vectorize(c)
    return s


def lanes(s: Schedule, tensors: list[Tensor]) -> set[int]:
    nest = lower(s, tensors, limits=LIMITS)
    loops = [stmt for stmt in walk_statements(nest.body) if isinstance(stmt, For)]
    return {loop.extent for loop in loops if loop.kind is LoopKind.VECTORIZED}


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize(
    ("channels", "columns", "expected"),
    [
        (3, 16, {16}),
        (3, 5, {15}),
        (3, 2, {6}),
        (5, 8, {40}),
        (2, 20, {40}),
        (3, 11, {11}),
        (3, 6, {9}),
        (12, 4, {16}),
    ],
)
def test_pixels_are_joined_to_vectors(
    channels: int, columns: int, vectorize: bool, expected: set[int]
) -> None:
    tensors = filtered(4, 4 * columns, channels)

    assert lanes(tiled(tensors, 2, columns, vectorize), tensors) == expected


def test_rows_of_pixels_are_joined_as_far_as_they_lie_end_to_end() -> None:
    """Whole rows of two pixels do, in a point-wise function."""
    x = te.placeholder((64, 2, 3), name="X")
    y = te.compute((64, 2, 3), lambda i, j, c: te.exp(x[i, j, c]), name="Y")

    assert lanes(te.create_schedule(y.op), [x, y]) == {16}


def test_what_every_iteration_reads_may_be_one_element() -> None:
    x, w = te.placeholder((8, 16, 3), name="X"), te.placeholder((8,), name="W")
    y = te.compute((8, 16, 3), lambda i, j, c: x[i, j, c] * w[i], name="Y")

    assert lanes(te.create_schedule(y.op), [x, w, y]) == {16}


def test_what_lies_apart_is_not_joined() -> None:
    x, w = te.placeholder((8, 32, 3), name="X"), te.placeholder((3,), name="W")
    every_second = te.compute((8, 16, 3), lambda i, j, c: x[i, 2 * j, c], name="Half")
    weighted = te.compute((8, 16, 3), lambda i, j, c: x[i, j, c] * w[c], name="Weighted")

    assert lanes(te.create_schedule(every_second.op), [x, every_second]) == {3}
    assert lanes(te.create_schedule(weighted.op), [x, w, weighted]) == {3}


def test_parts_of_pixels_are_not_joined_across_pixels() -> None:
    tensors = filtered(4, 16, 8)
    stage = tensors[-1]
    s = te.create_schedule(stage.op)
    y, z, c = stage.op.axis
    outer, inner = s[stage].split(c, factor=4)
    s[stage].reorder(outer, y, z, inner)

    assert lanes(s, tensors) == {4}


def test_loops_with_another_purpose_are_not_joined() -> None:
    tensors = filtered(4, 16, 3)
    stage = tensors[-1]
    for annotate in ("unroll", "parallel"):
        s = te.create_schedule(stage.op)
        getattr(s[stage], annotate)(stage.op.axis[1])
        assert lanes(s, tensors) == {3}


def test_reductions_are_not_joined() -> None:
    """The vectors of one would not be alike."""
    x, k = te.placeholder((16, 5, 3), name="X"), te.reduce_axis((0, 5), name="k")
    y = te.compute((16, 3), lambda i, c: te.sum(x[i, k, c], axis=k), name="Y")
    s = te.create_schedule(y.op)
    s[y].reorder(k, *y.op.axis)

    assert lanes(s, [x, y]) == {3}


def test_the_schedule_as_written_is_left_alone_in_simple_mode() -> None:
    tensors = filtered(4, 16, 3)
    nest = lower(tiled(tensors, 2, 8), tensors, simple_mode=True)

    assert "vectorize c in 0..3:" in str(nest)


@pytest.mark.parametrize("border", [False, True])
@pytest.mark.parametrize("channels", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64"])
def test_filters_compute_the_same(dtype: str, channels: int, border: bool) -> None:
    tensors = filtered(3, 13, channels, dtype, border)

    check_all(Case.of(tiled(tensors, 2, 5).state))
    check_all(Case.of(tiled(tensors, 3, 13, vectorize=False).state))


def test_rows_of_a_stored_tile_are_joined_where_it_is_filled_and_read() -> None:
    tensors = filtered(6, 24, 3)
    first = tensors[-1]
    second = te.compute((4, 24, 3), lambda y, z, c: first[y, z, c] + first[y + 2, z, c], name="Z")
    s = tiled([first, second], 2, 7)
    s[first].compute_at(s[second], s[second].leaf_iter_vars[1])

    assert lanes(s, [tensors[0], second]) == {21, 9}  # the last tile has three pixels
    check_all(Case.of(s.state))
