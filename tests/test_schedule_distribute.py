"""Products of sums multiplied out: the numbers are the same whatever overflows, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import ScheduleError
from ansor.schedule.source import schedule_code
from ansor.te.expr import Expr
from ansor.te.tensor import Tensor
from tests.program_laws import Case, check_all

Point = Callable[[Expr], Expr | int]
"""A zero point by the row or column that it is of."""

ROWS, COLUMNS = 5, 6


def quantised(
    left: str,
    right: str,
    depth: int,
    a0: Point,
    b0: Point,
    inputs: tuple[Tensor, ...] = (),
    dtype: str = "int32",
) -> list[Tensor]:
    """A product of bytes less their zero points."""
    a, b = te.placeholder((ROWS, depth), left, "A"), te.placeholder((COLUMNS, depth), right, "B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute(
        (ROWS, COLUMNS),
        lambda i, j: te.sum((a[i, k].astype(dtype) - a0(i)) * (b[j, k].astype(dtype) - b0(j)), axis=k),
        name="C",
    )
    return [a, b, *inputs, c]


def constant(value: int) -> Point:
    return lambda _: value


def convolution(zero: int) -> list[Tensor]:
    """Bytes that are padded with their zero point."""
    x, w = te.placeholder((1, 5, 4, 8), "uint8", "X"), te.placeholder((3, 3, 8, 6), "int8", "W")
    pad = te.compute(
        (1, 7, 6, 8),
        lambda n, h, v, c: te.if_then_else(
            te.all(h >= 1, h < 6, v >= 1, v < 5), x[n, h - 1, v - 1, c], te.const(zero, "uint8")
        ),
        name="Pad",
    )
    r, s, q = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s"), te.reduce_axis((0, 8), "q")
    y = te.compute(
        (1, 5, 4, 6),
        lambda n, h, v, o: te.sum(
            (pad[n, h + r, v + s, q].astype("int32") - zero) * (w[r, s, q, o].astype("int32") + 7),
            axis=[r, s, q],
        ),
        name="Y",
    )
    return [x, w, y]


def random_bytes(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


# -- programs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("right", ["uint8", "int8"])
@pytest.mark.parametrize("depth", [1, 7, 8])
@pytest.mark.parametrize(("a0", "b0"), [(128, -3), (255, 0), (0, 127), (2**31 - 1, -(2**31))])
def test_constant_zero_points(left: str, right: str, depth: int, a0: int, b0: int) -> None:
    """Of either factor or both; sums wrap as those of numpy do."""
    made = quantised(left, right, depth, constant(a0), constant(b0))
    s = te.create_schedule(made[-1])
    parts = s.distribute(made[-1])
    assert [part.name for part in parts] == ["C.right"] * bool(a0) + ["C.left"] * bool(b0) + ["C.products"]
    a, b = random_bytes(left, (ROWS, depth), 0), random_bytes(right, (COLUMNS, depth), 1)
    wide = (a.astype(np.int64) - a0) @ (b.astype(np.int64) - b0).T
    found = ansor.build(s, made)(a, b)
    np.testing.assert_array_equal(found, wide.astype(np.int32))


@pytest.mark.parametrize("dtype", ["int16", "uint32", "int64"])
def test_sums_wrap_in_their_own_dtype(dtype: str) -> None:
    most = np.iinfo(dtype).max
    made = quantised("uint8", "uint8", 9, constant(int(most)), constant(3), dtype=dtype)
    s = te.create_schedule(made[-1])
    s.distribute(made[-1])
    a, b = random_bytes("uint8", (ROWS, 9), 0), random_bytes("uint8", (COLUMNS, 9), 1)
    point = np.array(most, dtype)
    expected = (a.astype(dtype) - point) @ (b.astype(dtype) - np.array(3, dtype)).T
    np.testing.assert_array_equal(ansor.build(s, made)(a, b), expected)


def test_zero_points_that_are_data_of_one_number_or_of_each_row_and_column() -> None:
    scalar, one = te.placeholder((), "uint8", "a0"), te.placeholder((1,), "int32", "a0")
    rows, columns = te.placeholder((ROWS,), "int32", "a0"), te.placeholder((COLUMNS,), "int8", "b0")
    points: tuple[tuple[Tensor, Point], ...] = (
        (scalar, lambda _: scalar().astype("int32")),
        (one, lambda _: one[0]),
        (rows, lambda i: rows[i]),
    )
    for tensor, point in points:
        made = quantised(
            "uint8", "int8", 7, point, lambda j: columns[j].astype("int32") + 2, (tensor, columns)
        )
        s = te.create_schedule(made[-1])
        right, left, products = s.distribute(made[-1])
        assert [part.shape for part in (right, left, products)] == [(COLUMNS,), (ROWS,), (ROWS, COLUMNS)]
        check_all(Case.of(s.state))


def test_padding_with_the_zero_point_adds_nothing() -> None:
    made = convolution(131)
    s = te.create_schedule(made[-1])
    right, left, _ = s.distribute(made[-1])
    assert (left.shape, right.shape) == ((1, 5, 4), (6,))
    check_all(Case.of(s.state))
    x, w = np.full((1, 5, 4, 8), 131, np.uint8), random_bytes("int8", (3, 3, 8, 6), 2)
    assert not ansor.build(s, made)(x, w).any()


def test_readers_read_what_is_added_up_and_parts_are_scheduled_like_any_stage() -> None:
    a, b, c = quantised("uint8", "int8", 8, constant(5), constant(6))
    d = te.compute((ROWS, COLUMNS), lambda i, j: te.maximum(c[i, j], te.const(0, "int32")), name="D")
    s = te.create_schedule(d)
    right, left, products = s.distribute(c)
    s[c].compute_inline()
    outer, inner = s[d].split(d.op.axis[1], factor=4)
    s[products].compute_at(s[d], outer)
    s[left].compute_at(s[d], d.op.axis[0])
    s[right].vectorize(right.op.axis[0])
    s[d].vectorize(inner)
    s[d].parallel(d.op.axis[0])
    check_all(Case.of(s.state))
    assert a.op in s.state.ops
    assert b.op in s.state.ops


def test_one_factor_alone() -> None:
    for factor, name in ((0, "C.right"), (1, "C.left")):
        made = quantised("uint8", "int8", 8, constant(5), constant(6))
        s = te.create_schedule(made[-1])
        assert [part.name for part in s.distribute(made[-1], [factor])] == [name, "C.products"]
        check_all(Case.of(s.state))
        (products,) = (op for op in s.state.ops if op.name == "C.products")
        s.distribute(products)  # What is left of it.
        check_all(Case.of(s.state))


def test_it_is_printed_recorded_and_replayed_on_a_line_that_tvm_skips() -> None:
    made = quantised("uint8", "int8", 8, constant(5), constant(6))
    s = te.create_schedule(made[-1])
    s.distribute(made[-1])
    assert s.state.steps[-1].to_json() == ["DIST", 2, [0, 1]]
    assert "C_right, C_left, C_products = s.distribute(C, [0, 1])" in schedule_code(s.state)
    task = ansor.SearchTask(compute_dag=made, target="llvm")
    line = ansor.dump_record_to_string(
        ansor.MeasureInput(task, s.state), ansor.MeasureResult([1e-3], 0, "", 1.0, 0.0)
    )
    assert line.startswith("# ansor ")


# -- what is refused -----------------------------------------------------------------------------------------


def product_of_floats() -> Tensor:
    a, k = te.placeholder((4, 8), name="A"), te.reduce_axis((0, 8), "k")
    return te.compute((4, 4), lambda i, j: te.sum((a[i, k] - 1.0) * (a[j, k] - 2.0), axis=k), name="C")


def product_of_varying_terms() -> Tensor:
    a, k = te.placeholder((4, 8), "int32", "A"), te.reduce_axis((0, 8), "k")
    return te.compute((4, 4), lambda i, j: te.sum((a[i, k] - k) * a[j, k], axis=k), name="C")


def product_where() -> Tensor:
    a, k = te.placeholder((4, 8), "int32", "A"), te.reduce_axis((0, 8), "k")
    return te.compute((4, 4), lambda i, j: te.sum((a[i, k] - 3) * a[j, k], axis=k, where=k < i), name="C")


def product_of_symbolic_length() -> Tensor:
    n = te.var("n")
    a, k = te.placeholder((4, n), "int32", "A"), te.reduce_axis((0, n), "k")
    return te.compute((4, 4), lambda i, j: te.sum((a[i, k] - 3) * a[j, k], axis=k), name="C")


@pytest.mark.parametrize(
    "made", [product_of_floats, product_of_varying_terms, product_where, product_of_symbolic_length]
)
def test_other_operations_are_refused(made: Callable[[], Tensor]) -> None:
    c = made()
    s = te.create_schedule(c)
    with pytest.raises(ScheduleError, match="distribute of stage 'C': it is no sum, over axes whose"):
        s.distribute(c)
    assert not s.state.steps


def test_factors_without_a_constant_and_transformed_stages_are_refused() -> None:
    c = quantised("uint8", "int8", 8, constant(5), constant(0))[-1]
    s = te.create_schedule(c)
    for factors in ([1], [0, 1], [0, 0], []):
        with pytest.raises(ScheduleError, match=r"factors \[.*\]: those with a constant term are \[0\]"):
            s.distribute(c, factors)
    s[c].split(c.op.axis[0], factor=2)
    with pytest.raises(ScheduleError, match="apply distribute first"):
        s.distribute(c)
