"""Lazy choices in each other, each of whose sides uses the one before: code that grows by what is written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.dtypes import to_numpy
from ansor.te.interp import evaluate
from tests.gpu_schedules import bind_all, kernels
from tests.opencl_helper import run_opencl

COUNT = 64
Other = Callable[[te.Expr], te.Expr]
OTHERS: list[Other] = [lambda v: v * 0.5, lambda v: te.exp(v * 0.1)]
"""Sides that are a few instructions, and that are so many that code branches around them."""


def choices(depth: int, other: Other, by_itself: bool, count: int = COUNT) -> tuple[te.Tensor, te.Tensor]:
    """`depth` of them; conditions are about the value so far (`by_itself`), else about the input."""
    source = te.placeholder((count,), name="A")

    def body(i: te.Expr) -> te.Expr:
        value = source[i]
        for step in range(depth):
            asked = value if by_itself else source[i]
            value = te.if_then_else(asked > float(step), value + 1.0, other(value))
        return value

    return source, te.compute((count,), body, name="B")


def case(source: te.Tensor, result: te.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Values on all sides of the conditions, and the right answer."""
    values = np.linspace(-3, 20, source.shape[0], dtype=np.float32)
    return values, evaluate([result], {source: values})[result]


def test_what_one_side_of_a_branch_has_computed_is_computed_again_on_the_other() -> None:
    x, c = te.placeholder((8,), name="X"), te.placeholder((2,), name="C")

    def element(i: te.Expr) -> te.Expr:
        shared = te.exp(x[i])
        other = te.if_then_else(c[1] > 0, shared, x[i])
        return te.if_then_else(c[0] > 0, shared + 1.0, other)

    y = te.compute((8,), element, name="Y")
    module = ansor.build(te.create_schedule(y), [x, c, y])
    values = np.linspace(-1, 1, 8, dtype=np.float32)
    for first, second in ((1, 0), (0, 1), (0, 0)):
        chosen = np.array([first, second], np.float32)
        expected = evaluate([y], {x: values, c: chosen})[y]
        np.testing.assert_allclose(module(values, chosen), expected, rtol=1e-5)


@pytest.mark.parametrize("by_itself", [True, False])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("count", [COUNT, 5])
def test_code_for_cpus_grows_with_the_choices(count: int, other: Other, by_itself: bool) -> None:
    """In lanes, and element by element."""
    length: dict[int, int] = {}
    for depth in (8, 16):
        source, result = choices(depth, other, by_itself, count)
        schedule = te.create_schedule(result)
        if count == 5:
            schedule[result].split(result.op.axis[0], factor=1)  # nothing to make vectors of
        module = ansor.build(schedule, [source, result])
        values, expected = case(source, result)
        np.testing.assert_allclose(module(values), expected, rtol=1e-4)
        length[depth] = len(module.get_source("ll"))
    assert length[16] < 2.5 * length[8]


def gate(value: te.Expr) -> te.Expr:
    """The element is read for the condition, which does not guard that read."""
    return te.if_then_else(value > te.const(0, value.dtype), value, te.const(0, value.dtype))


def added(value: te.Expr) -> te.Expr:
    """The element is read before it is chosen or not."""
    return value + te.if_then_else(te.abs(value) > te.const(2, value.dtype), value, te.const(0, value.dtype))


@pytest.mark.parametrize("count", [COUNT, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int8"])
@pytest.mark.parametrize("chosen", [gate, added])
def test_an_element_that_is_read_elsewhere_too_is_chosen_from(
    chosen: Callable[[te.Expr], te.Expr], dtype: str, count: int
) -> None:
    source = te.placeholder((count,), dtype, name="A")
    result = te.compute((count,), lambda i: chosen(source[i]), name="B")
    schedule = te.create_schedule(result)
    if count == 5:
        schedule[result].split(result.op.axis[0], factor=1)
    values = np.linspace(-4, 4, count).astype(to_numpy(dtype))
    expected = evaluate([result], {source: values})[result]
    np.testing.assert_array_equal(ansor.build(schedule, [source, result])(values), expected)


@pytest.mark.parametrize("by_itself", [True, False])
@pytest.mark.parametrize("other", OTHERS)
def test_code_for_gpus_grows_with_the_choices(other: Other, by_itself: bool) -> None:
    length: dict[int, int] = {}
    for depth in (8, 16):
        source, result = choices(depth, other, by_itself)
        schedule = te.create_schedule(result)
        bind_all(schedule, result, 32)
        values, expected = case(source, result)
        found = np.zeros_like(values)
        length[depth] = len(run_opencl(kernels(schedule, [source, result]), values, found))
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert length[16] < 2.5 * length[8]
