"""Expressions of which every step reads the one before twice: each part of ansor looks at each node once.

Whatever walks them as trees does not end here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.dtypes import to_numpy
from ansor.te.interp import evaluate
from costmodel import AnalyticModel
from measure.emit import emit_program
from tests.gpu_schedules import bind_all
from tests.opencl_helper import run_opencl

DEPTH = 40
COUNT = 64
TABLE = 10007
Arrays = list[np.ndarray]
Case = tuple[list[te.Tensor], Arrays]


def inputs() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    return (
        te.placeholder((COUNT,), "int32", "X"),
        te.placeholder((DEPTH,), "int32", "E"),
        te.placeholder((TABLE,), name="T"),
    )


def values() -> Arrays:
    rng = np.random.default_rng(0)
    numbers = (rng.integers(0, 99, size).astype(np.int32) for size in (COUNT, DEPTH))
    return [*numbers, rng.random(TABLE, dtype=np.float32)]


def counted(choose: Callable[..., te.Expr]) -> Callable[..., te.Expr]:
    """How many edges each number is beyond."""

    def element(i: te.Expr, x: te.Tensor, e: te.Tensor, t: te.Tensor) -> te.Expr:
        value = te.const(0, "int32")
        for step in range(DEPTH):
            value = choose(x[i] > e[step], value + 1, value)
        return te.cast(value, "float32")

    return element


def scrambled(value: te.Expr) -> te.Expr:
    """A place of the table; the arithmetic never leaves int32."""
    for step in range(DEPTH):
        value = (value * 5 + value // 7 + step) % TABLE
    return value


def doubled(value: te.Expr) -> te.Expr:
    for step in range(DEPTH):
        value = value + value
        if step % 5 == 4:
            value = value % 101
    return value


def polynomial(value: te.Expr) -> te.Expr:
    for _ in range(DEPTH):
        value = value * value + value * 0.25
    return value


def is_odd(bits: list[te.Expr]) -> te.Expr:
    odd = bits[0]
    for bit in bits[1:]:
        odd = te.any(te.all(odd, ~bit), te.all(~odd, bit))
    return odd


def searched(x: te.Expr, t: te.Tensor) -> te.Expr:
    """Where a number stands in the table, as if that were in order."""
    low, high = te.cast(0, "int32"), te.cast(TABLE, "int32")
    for _ in range(TABLE.bit_length()):
        middle = (low + high) // 2
        right = te.all(low < high, t[te.minimum(middle, TABLE - 1)] * 99.0 < te.cast(x, "float32"))
        low, high = te.select(right, middle + 1, low), te.select(right, high, middle)
    return te.cast(low, "float32")


ELEMENTS: dict[str, Callable[..., te.Expr]] = {
    "counted": counted(te.select),
    "counted lazily": counted(te.if_then_else),
    "a place": lambda i, x, e, t: te.cast(scrambled(i), "float32"),
    "read at a place": lambda i, x, e, t: t[scrambled(i)],
    "read where data say": lambda i, x, e, t: t[scrambled(x[i])],
    "read at a sum": lambda i, x, e, t: t[doubled(i)],
    "polynomial": lambda i, x, e, t: polynomial(t[i]),
    "parity": lambda i, x, e, t: te.cast(is_odd([e[k] > x[i] for k in range(DEPTH)]), "float32"),
    "searched": lambda i, x, e, t: searched(x[i], t),
}


def tensors_of(name: str) -> list[te.Tensor]:
    given = inputs()
    element = ELEMENTS[name]
    return [*given, te.compute((COUNT,), lambda i: element(i, *given), name="Y")]


def expected_of(tensors: list[te.Tensor]) -> np.ndarray:
    *given, output = tensors
    return evaluate([output], dict(zip(given, values(), strict=True)))[output]


@pytest.mark.parametrize("name", ELEMENTS)
def test_programs_of_shared_expressions(name: str) -> None:
    tensors = tensors_of(name)
    task = ansor.SearchTask(compute_dag=[tensor for tensor in tensors if is_read(tensor, tensors[-1])])
    given = [array for tensor, array in zip(tensors, values(), strict=False) if is_read(tensor, tensors[-1])]
    expected = expected_of(tensors)
    for state in ansor.sample_programs(task, 2, np.random.default_rng(0)):
        assert np.isfinite(AnalyticModel().predict(task, [state])).all()
        found = ansor.build(state, task.compute_dag.tensors, task.target)(*given)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def is_read(tensor: te.Tensor, output: te.Tensor) -> bool:
    return tensor is output or tensor in output.op.input_tensors


@pytest.mark.parametrize("name", ELEMENTS)
def test_kernels_of_shared_expressions(name: str) -> None:
    tensors = tensors_of(name)
    expected = expected_of(tensors)
    s = te.create_schedule(tensors[-1])
    bind_all(s, tensors[-1], 16)
    found = np.zeros(COUNT, np.float32)
    run_opencl(ansor.lower(s, tensors, target="opencl"), *values(), found)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_stage_that_is_read_at_such_a_place() -> None:
    t = te.placeholder((TABLE,), name="T")
    stage = te.compute((TABLE,), lambda i: t[i] * 2.0, name="P")
    y = te.compute((COUNT,), lambda i: stage[scrambled(i)], name="Y")
    table = values()[2]
    expected = evaluate([y], {t: table})[y]
    np.testing.assert_array_equal(ansor.build(te.create_schedule(y), [t, y])(table), expected)


def test_blocks_of_a_large_grid_are_put_in_order() -> None:
    t = te.placeholder((20000,), name="T")
    y = te.compute((20000,), lambda i: polynomial(t[i]), name="Y")
    s = te.create_schedule(y)
    block, thread = s[y].split(y.op.axis[0], nparts=200)
    s[y].bind(block, te.thread_axis("blockIdx.x"))
    s[y].bind(thread, te.thread_axis("threadIdx.x"))
    assert "blockIdx.x" in str(ansor.lower(s, [t, y], target="opencl"))


def test_kernels_of_symbolic_sizes_count_in_such_numbers() -> None:
    n = te.var("n")
    t = te.placeholder((n,), name="T")
    y = te.compute((n,), lambda i: t[doubled(i) % n], name="Y")
    s = te.create_schedule(y)
    bind_all(s, y, 16)
    assert emit_program(s.state, [t, y], ansor.Target("opencl")).text


def test_a_product_of_shared_factors_may_be_zero() -> None:
    """Asked of a sum over padding: whether a term adds anything."""
    x, k = te.placeholder((8, 6), name="X"), te.reduce_axis((0, 8), "k")

    def term(i: te.Expr) -> te.Expr:
        value = te.if_then_else(te.all(k >= 1, k < 7), x[i, k - 1], 0.0)
        for _ in range(DEPTH):
            value = value * value
        return value

    y = te.compute((8,), lambda i: te.sum(term(i), axis=k), name="Y")
    array = np.ones((8, 6), np.float32)
    found = ansor.build(te.create_schedule(y), [x, y])(array)
    np.testing.assert_array_equal(found, np.full(8, 6.0, np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_kernels_of_choices_that_are_only_moved(dtype: str) -> None:
    """16-bit floats are not converted then; each of two is used twice, and 300 stand in each other."""
    a = te.placeholder((512,), dtype, "A")

    def swapped(i: te.Expr) -> te.Expr:
        one, other = a[i], a[(i + 1) % 512]
        for step in range(DEPTH):
            one, other = te.select((i * (step + 3)) % 7 > 2, one, other), one
        return one

    def nested(i: te.Expr) -> te.Expr:
        value = a[i]
        for step in range(300):
            value = te.select(i == step, te.const(step % 7, dtype), value)
        return value

    for element in (swapped, nested):
        y = te.compute((512,), element, name="Y")
        given = np.arange(512).astype(to_numpy(dtype))
        s = te.create_schedule(y)
        bind_all(s, y, 32)
        found = np.zeros_like(given)
        text = run_opencl(ansor.lower(s, [a, y], target="opencl"), given, found)
        assert len(text) < 20_000
        np.testing.assert_array_equal(found, evaluate([y], {a: given})[y])


def test_kernels_that_address_by_shared_products() -> None:
    t = te.placeholder((COUNT,), name="T")

    def element(i: te.Expr) -> te.Expr:
        place = i
        for _ in range(DEPTH):
            place = place * place
        return t[place % COUNT]

    y = te.compute((2,), element, name="Y")
    s = te.create_schedule(y)
    bind_all(s, y, 2)
    table, found = values()[2][:COUNT], np.zeros(2, np.float32)
    text = run_opencl(ansor.lower(s, [t, y], target="opencl"), table, found)
    assert len(text) < 5000
    np.testing.assert_array_equal(found, table[:2])


def test_choices_by_axes_are_lowered() -> None:
    """Each side of a choice knows more of the axes, and simplifies what both use by that."""
    a = te.placeholder((2,) * 20, name="A")

    def element(*axes: te.Expr) -> te.Expr:
        value: te.Expr = a(*axes)
        for axis in axes:
            value = te.if_then_else(axis < 1, value + 1.0, value * 2.0)
        return value

    b = te.compute((2,) * 20, element, name="B")
    assert "if_then_else" in str(ansor.lower(te.create_schedule(b.op), [a, b]))
