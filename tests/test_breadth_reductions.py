"""Every reduction in every dtype that has it, under two schedules with vector code and tails, exactly.

Operands are chosen such that the order of combination does not matter: floats that are small integers or
powers of two, integers that wrap, an argmax that prefers the first of equals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.machine import Machine
from ansor.dtypes import DTYPES, int_range, is_float, to_numpy
from ansor.schedule.manual import Schedule
from ansor.te import Tensor
from ansor.te.interp import evaluate
from tests.breadth_programs import vector_stores

ROWS, COLUMNS, LENGTH = 5, 21, 29
Array = np.ndarray[Any, Any]


def accumulate_in_vectors(s: Schedule, tensor: Tensor) -> None:
    """Vectors of 8 of 21 columns, inside the reduction."""
    i, j = tensor.op.axis
    (k,) = tensor.op.reduce_axis
    outer, inner = s[tensor].split(j, factor=8)
    s[tensor].reorder(i, outer, k, inner)
    s[tensor].vectorize(inner)
    s[tensor].parallel(i)


def reduce_lanes(s: Schedule, tensor: Tensor) -> None:
    """Partial results of every fourth of 29 elements in one vector, combined afterwards."""
    (k,) = tensor.op.reduce_axis
    _, inner = s[tensor].split(k, factor=4)
    partial = s.rfactor(tensor, inner, factor_axis=2)
    partial = partial[0] if isinstance(partial, (list, tuple)) else partial
    lanes = partial.op.axis[2]
    s[partial].reorder(*partial.op.axis[:2], *partial.op.reduce_axis, lanes)
    s[partial].vectorize(lanes)


def first_of_greatest() -> Any:
    def combine(a: Any, b: Any) -> tuple[te.Expr, te.Expr]:
        first = te.any(a[1] > b[1], te.all(a[1] == b[1], a[0] < b[0]))
        return te.select(first, a[0], b[0]), te.select(first, a[1], b[1])

    def identity(i: str, v: str) -> tuple[te.Expr, te.Expr]:
        least = te.const(-np.inf, v) if is_float(v) else te.min_value(v)
        return te.max_value(i), least

    return te.comm_reducer(combine, identity, "argmax")


def reductions(dtype: str) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs (two arrays and a mask) and the outputs."""
    shape = (ROWS, COLUMNS, LENGTH)
    x, p = te.placeholder(shape, dtype, "X"), te.placeholder(shape, dtype, "P")
    m = te.placeholder(shape, "bool", "M")

    def output(name: str, make: Callable[..., Any]) -> Any:
        k = te.reduce_axis((0, LENGTH), f"k_{name}")
        return te.compute((ROWS, COLUMNS), lambda i, j: make(i, j, k), name=name)

    if dtype == "bool":
        every = te.comm_reducer(te.logical_and, lambda _: te.const(True), "all")
        some = te.comm_reducer(te.logical_or, lambda _: te.const(False), "any")
        return [x, p], [
            output("All", lambda i, j, k: every(x[i, j, k], axis=k)),
            output("Any", lambda i, j, k: some(p[i, j, k], axis=k)),
        ]
    argmax = first_of_greatest()
    return [x, p, m], [
        output("Sum", lambda i, j, k: te.sum(x[i, j, k], axis=k)),
        output("Where", lambda i, j, k: te.sum(x[i, j, k], axis=k, where=m[i, j, k])),
        output("Prod", lambda i, j, k: te.prod(p[i, j, k], axis=k)),
        output("Min", lambda i, j, k: te.min(x[i, j, k], axis=k)),
        output("Max", lambda i, j, k: te.max(x[i, j, k], axis=k)),
        *output("Argmax", lambda i, j, k: argmax((te.cast(k, "int32"), x[i, j, k]), axis=k)),
    ]


def operands(dtype: str) -> list[Array]:
    shape = (ROWS, COLUMNS, LENGTH)
    rng = np.random.default_rng(3)
    if dtype == "bool":
        return [rng.random(shape) < 0.97, rng.random(shape) < 0.03]
    mask = rng.random(shape) < 0.5
    if is_float(dtype):
        kind = to_numpy(dtype)
        factors = rng.choice([1.0, -1.0, 2.0, 0.5], shape, p=[0.5, 0.3, 0.1, 0.1])
        return [rng.integers(-2, 3, shape).astype(kind), factors.astype(kind), mask]
    low, high = int_range(dtype)
    x = rng.integers(low, high, shape, dtype, endpoint=True)
    x[0] = low  # whole rows of the identity of max and of min
    x[1] = high
    return [x, rng.integers(low, high, shape, dtype, endpoint=True) | 1, mask]


def expected(dtype: str, x: Array, p: Array, m: Array | None = None) -> list[Array]:
    if m is None:
        return [x.all(axis=2), p.any(axis=2)]
    wide = np.float64 if is_float(dtype) else np.dtype(dtype)
    with np.errstate(over="ignore"):
        results = [
            x.astype(wide).sum(axis=2, dtype=wide),
            np.where(m, x, 0).astype(wide).sum(axis=2, dtype=wide),
            p.astype(wide).prod(axis=2, dtype=wide),
            x.min(axis=2),
            x.max(axis=2),
        ]
    values = [result.astype(to_numpy(dtype)) for result in results]
    return [*values, x.astype(wide).argmax(axis=2).astype(np.int32), values[-1]]


@pytest.mark.parametrize("cpu", ["", "x86-64"])
@pytest.mark.parametrize("schedule", [accumulate_in_vectors, reduce_lanes], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_reduction_in_vectors(
    dtype: str, schedule: Callable[[Schedule, Tensor], None], cpu: str
) -> None:
    if cpu and Machine.host().arch != "x86_64":
        pytest.skip("another architecture")
    inputs, outputs = reductions(dtype)
    s = te.create_schedule(list(dict.fromkeys(t.op for t in outputs)))
    for tensor in outputs:
        if tensor.value_index == 0:
            schedule(s, tensor)
    target = f"llvm -mcpu={cpu}" if cpu else "llvm"
    nest = ansor.lower(s, [*inputs, *outputs], target=target)
    assert len(vector_stores(nest)) >= len(outputs)
    module = ansor.build(nest, target=target)
    given = operands(dtype)
    for tensor, found, right in zip(outputs, module(*given), expected(dtype, *given), strict=True):
        np.testing.assert_array_equal(found, right, err_msg=f"{tensor} of {dtype}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_reduction_in_the_interpreter(dtype: str) -> None:
    inputs, outputs = reductions(dtype)
    given = operands(dtype)
    found = evaluate(outputs, dict(zip(inputs, given, strict=True)))
    for tensor, right in zip(outputs, expected(dtype, *given), strict=True):
        np.testing.assert_array_equal(found[tensor], right, err_msg=f"{tensor} of {dtype}")
