"""Random expressions: the vectorised interpreter against one point at a time in plain Python.

An expression is drawn as a `Term`, which can be turned into te and also evaluated at one point: integers as
Python ints wrapped to their dtype, floats as numpy scalars. Only the chosen side of a lazy choice is
evaluated there, so a term may read out of bounds or divide by zero on the other.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor import te
from ansor.dtypes import DTYPES, dtype_info, int_range, is_float, is_integer, to_numpy
from ansor.te import interp
from ansor.te.expr import Const, wrap_int
from ansor.te.interp import evaluate, evaluate_points

ROWS, COLUMNS = 3, 4
FLOATS = [dtype for dtype in DTYPES if is_float(dtype)]
INTEGERS = [dtype for dtype in DTYPES if is_integer(dtype)]
Point = dict[str, int]


@dataclass(frozen=True)
class Term:
    """`build(vars, tensors)` is the te expression; `value(point, arrays)` its value at a point."""

    dtype: str
    build: Callable[[dict[str, Any], dict[str, te.Tensor]], Any]
    value: Callable[[Point, dict[str, np.ndarray]], Any]


def wrapped(value: Any, dtype: str) -> Any:
    """A result in `dtype`: a Python int or bool, or a numpy scalar of a float dtype."""
    if dtype == "bool":
        return bool(value)
    return wrap_int(int(value), dtype) if is_integer(dtype) else to_numpy(dtype).type(value)


def binary(dtype: str, build: Any, value: Any, a: Term, b: Term) -> Term:
    return Term(
        dtype,
        lambda v, t: build(a.build(v, t), b.build(v, t)),
        lambda p, x: wrapped(value(a.value(p, x), b.value(p, x)), dtype),
    )


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def constant(dtype: str, value: Any) -> Term:
    return Term(dtype, lambda v, t: te.const(value, dtype), lambda p, x: wrapped(value, dtype))


def choice(lazy: bool, cond: Term, then: Term, other: Term) -> Term:
    function = te.if_then_else if lazy else te.select
    return Term(
        then.dtype,
        lambda v, t: function(cond.build(v, t), then.build(v, t), other.build(v, t)),
        lambda p, x: (then if cond.value(p, x) else other).value(p, x),
    )


def read(dtype: str, row: Term, column: Term) -> Term:
    def value(p: Point, x: dict[str, np.ndarray]) -> Any:
        return wrapped(x[dtype][row.value(p, x), column.value(p, x)], dtype)

    return Term(dtype, lambda v, t: t[dtype][row.build(v, t)][column.build(v, t)], value)


def within(index: Term, extent: int) -> Term:
    return binary("int32", te.floormod, operator.mod, index, constant("int32", extent))


def guarded_read(dtype: str, index: Term) -> Term:
    """`T[index, 0] where 0 <= index < ROWS else T[0, 1]`, laziness doing the work."""
    inside = binary(
        "bool",
        te.all,
        lambda a, b: a and b,
        binary("bool", operator.ge, operator.ge, index, constant("int32", 0)),
        binary("bool", operator.lt, operator.lt, index, constant("int32", ROWS)),
    )
    zero, one = constant("int32", 0), constant("int32", 1)
    return choice(True, inside, read(dtype, index, zero), read(dtype, zero, one))


def guarded_division(build: Any, value: Any, a: Term, b: Term) -> Term:
    zero = constant(b.dtype, 0)
    usable = binary("bool", operator.ne, operator.ne, b, zero)
    return choice(True, usable, binary(a.dtype, build, value, a, b), a)


DIVISIONS = [
    (te.floordiv, operator.floordiv),
    (te.floormod, operator.mod),
    (te.truncdiv, truncated),
    (te.truncmod, lambda a, b: a - b * truncated(a, b)),
]
BITS = [(operator.and_, operator.and_), (operator.or_, operator.or_), (operator.xor, operator.xor)]
ARITHMETIC = [(operator.add, operator.add), (operator.sub, operator.sub), (operator.mul, operator.mul)]
EXTREMES = {
    True: [(te.minimum, np.minimum), (te.maximum, np.maximum)],
    False: [(te.minimum, min), (te.maximum, max)],
}


def shift(function: Any, a: Term, b: Term) -> Term:
    """By a count of any value, taken modulo the bits; a constant is refused unless it is one."""
    bits = dtype_info(a.dtype).bits
    return binary(
        a.dtype,
        lambda x, y: function(x, y % bits if isinstance(y, Const) else y),
        lambda x, y: function(x, y % bits),
        a,
        b,
    )


ORDER = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


Sub = Callable[..., Term]
"""Draws a smaller term of a dtype; a second argument says how much smaller."""


@st.composite
def terms(draw: Any, dtype: str, depth: int, axes: tuple[str, ...]) -> Term:
    if depth == 0:
        return draw(leaves(dtype, axes))

    def sub(kind: str, less: int = 1) -> Term:
        return draw(terms(kind, max(0, depth - less), axes))

    match draw(st.sampled_from(["leaf", "choice", "cast", "guarded", "own", "own", "own"])):
        case "choice":
            return choice(draw(st.booleans()), sub("bool"), sub(dtype), sub(dtype))
        case "guarded":
            return guarded_read(dtype, sub("int32", 2))
        case "cast":
            return cast(dtype, draw(st.sampled_from(DTYPES)), sub)
        case "own":
            return condition(draw, sub) if dtype == "bool" else calculation(draw, sub, dtype)
        case _:
            return draw(leaves(dtype, axes))


def condition(draw: Any, sub: Sub) -> Term:
    match draw(st.sampled_from(["compare", "logic", "not"])):
        case "compare":
            kind, function = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(ORDER))
            return binary("bool", function, function, sub(kind), sub(kind))
        case "logic":
            pair = draw(st.sampled_from([(te.all, lambda a, b: a and b), (te.any, lambda a, b: a or b)]))
            return binary("bool", *pair, sub("bool"), sub("bool"))
        case _:
            inner = sub("bool")
            return Term("bool", lambda v, t: ~inner.build(v, t), lambda p, x: not inner.value(p, x))


def calculation(draw: Any, sub: Sub, dtype: str) -> Term:
    bits = [] if is_float(dtype) else ["bits", "shift", "inverse"]
    match draw(st.sampled_from(["arithmetic", "arithmetic", "extreme", "division", *bits])):
        case "bits":
            return binary(dtype, *draw(st.sampled_from(BITS)), sub(dtype), sub(dtype))
        case "shift":
            return shift(draw(st.sampled_from([operator.lshift, operator.rshift])), sub(dtype), sub(dtype))
        case "inverse":
            inner = sub(dtype)
            return Term(
                dtype, lambda v, t: ~inner.build(v, t), lambda p, x: wrapped(~inner.value(p, x), dtype)
            )
        case "arithmetic":
            return binary(dtype, *draw(st.sampled_from(ARITHMETIC)), sub(dtype), sub(dtype))
        case "extreme":
            extreme = binary(dtype, *draw(st.sampled_from(EXTREMES[is_float(dtype)])), sub(dtype), sub(dtype))
            return binary(dtype, *ARITHMETIC[0], extreme, constant(dtype, 0))  # one sign of zero
        case _ if is_float(dtype):
            return binary(dtype, operator.truediv, np.divide, sub(dtype), sub(dtype))
        case _:
            return guarded_division(*draw(st.sampled_from(DIVISIONS)), sub(dtype), sub(dtype))


def cast(dtype: str, source: str, sub: Sub) -> Term:
    inner = sub(source)
    if is_float(source) and not is_float(dtype) and dtype != "bool":
        inner = binary(
            source, te.maximum, np.maximum, sub(source, 9), constant(source, 0)
        )  # in range: a leaf

    def value(p: Point, x: dict[str, np.ndarray]) -> Any:
        got = inner.value(p, x)
        if dtype == "bool" or not is_float(dtype):
            return wrapped(got, dtype)
        return np.asarray(got).astype(to_numpy(source)).astype(to_numpy(dtype))[()]

    return Term(dtype, lambda v, t: te.cast(inner.build(v, t), dtype), value)


@st.composite
def leaves(draw: Any, dtype: str, axes: tuple[str, ...]) -> Term:
    kinds = ["constant", "read", "read"] + (["axis"] * 2 if dtype == "int32" else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "constant":
        return constant(dtype, draw(values_of(dtype)))
    index = [axis(name) for name in axes]
    if kind == "axis":
        return draw(st.sampled_from(index))
    row, column = draw(st.sampled_from(index)), draw(st.sampled_from(index))
    return read(dtype, within(row, ROWS), within(column, COLUMNS))


def axis(name: str) -> Term:
    return Term("int32", lambda v, t: v[name], lambda p, x: p[name])


def values_of(dtype: str) -> st.SearchStrategy[Any]:
    if dtype == "bool":
        return st.booleans()
    if is_float(dtype):
        return st.integers(-64, 64).map(lambda n: n / 4)
    low, high = int_range(dtype)
    return st.one_of(st.integers(max(low, -8), 8), st.integers(low, high))


@st.composite
def arrays(draw: Any) -> dict[str, np.ndarray]:
    """An array of every dtype, by its name; small floats, integers of the whole range."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    made = {}
    for dtype in DTYPES:
        if is_float(dtype):
            values = rng.integers(-64, 65, (ROWS, COLUMNS)) / 4
            made[dtype] = values.astype(to_numpy(dtype))
        else:
            low, high = int_range(dtype)
            wide = rng.integers(low, high, (ROWS, COLUMNS), dtype=to_numpy(dtype), endpoint=True)
            small = rng.integers(0, 2, (ROWS, COLUMNS)).astype(to_numpy(dtype))
            made[dtype] = np.where(rng.random((ROWS, COLUMNS)) < 0.5, small, wide)
    return made


def placeholders() -> dict[str, te.Tensor]:
    return {dtype: te.placeholder((ROWS, COLUMNS), dtype, f"T_{dtype}") for dtype in DTYPES}


def inputs_of(tensors: dict[str, te.Tensor], values: dict[str, np.ndarray]) -> dict[te.Tensor, np.ndarray]:
    return {tensors[dtype]: values[dtype] for dtype in DTYPES}


def assert_same(computed: np.ndarray, expected: list[Any], dtype: str) -> None:
    assert computed.dtype == to_numpy(dtype)
    if is_float(dtype):
        np.testing.assert_array_equal(
            computed.astype(np.float64).reshape(-1), np.array([float(value) for value in expected])
        )
    else:
        assert computed.reshape(-1).tolist() == expected


SHAPE = (5, 6)
AXES = ("i", "j")


@settings(max_examples=150, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), values=arrays(), block=st.sampled_from([1, 8, 1 << 18]))
def test_expressions_against_plain_python(
    data: st.DataObject, dtype: str, values: dict[str, np.ndarray], block: int
) -> None:
    term = data.draw(terms(dtype, 4, AXES))
    tensors = placeholders()
    out = te.compute(SHAPE, lambda i, j: term.build({"i": i, "j": j}, tensors), name="out")
    with np.errstate(all="ignore"):
        expected = [term.value({"i": i, "j": j}, values) for i, j in np.ndindex(*SHAPE)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interp, "BLOCK_ELEMENTS", block)
        computed = evaluate(out, inputs_of(tensors, values))[out]
    assert_same(computed, expected, dtype)
    str(out.op.body[0])


REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "sum": (te.sum, operator.add),
    "prod": (te.prod, operator.mul),
    "min": (te.min, min),
    "max": (te.max, max),
}


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    name=st.sampled_from(sorted(REDUCTIONS)),
    dtype=st.sampled_from(INTEGERS),
    values=arrays(),
    begin=st.integers(-3, 3),
    block=st.sampled_from([1, 8, 1 << 18]),
)
def test_integer_reductions_against_plain_python(
    data: st.DataObject, name: str, dtype: str, values: dict[str, np.ndarray], begin: int, block: int
) -> None:
    names = ("i", "r", "k")
    source, where = data.draw(terms(dtype, 2, names)), data.draw(st.none() | terms("bool", 2, names))
    function, combine = REDUCTIONS[name]
    r, k = te.reduce_axis((begin, begin + 3), name="r"), te.reduce_axis((0, 4), name="k")
    tensors = placeholders()

    def body(i: te.Var) -> te.Expr:
        at = {"i": i, "r": r, "k": k}
        condition = None if where is None else where.build(at, tensors)
        total: te.Expr = function(source.build(at, tensors), axis=[r, k], where=condition)
        return total

    out = te.compute((5,), body, name="out")
    low, high = int_range(dtype)
    start = {"sum": 0, "prod": 1, "min": high, "max": low}[name]
    expected = []
    with np.errstate(all="ignore"):
        for i in range(5):
            points = [{"i": i, "r": a, "k": b} for a in range(begin, begin + 3) for b in range(4)]
            chosen = [p for p in points if where is None or where.value(p, values)]
            expected.append(
                reduce(
                    lambda x, y: wrap_int(combine(x, y), dtype),
                    (source.value(p, values) for p in chosen),
                    start,
                )
            )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interp, "BLOCK_ELEMENTS", block)
        computed = evaluate(out, inputs_of(tensors, values))[out]
    assert_same(computed, expected, dtype)


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(sorted(REDUCTIONS)),
    dtype=st.sampled_from(FLOATS),
    rows=st.integers(1, 4),
    length=st.integers(1, 40),
    block=st.sampled_from([1, 7, 1 << 18]),
    seed=st.integers(0, 2**32),
)
def test_float_reductions_against_plain_python(
    name: str, dtype: str, rows: int, length: int, block: int, seed: int
) -> None:
    kind = to_numpy(dtype)
    values = np.random.default_rng(seed).uniform(0.5, 1.5, (rows, length)).astype(kind)
    x = te.placeholder((rows, length), dtype, name="x")
    k = te.reduce_axis((0, length), name="k")
    function, combine = REDUCTIONS[name]
    out = te.compute((rows,), lambda i: function(x[i, k], axis=k), name="out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interp, "BLOCK_ELEMENTS", block)
        computed = evaluate(out, {x: values})[out]
    if kind.itemsize == 2:
        start = kind.type({"sum": 0, "prod": 1, "min": np.inf, "max": -np.inf}[name])
        assert_same(
            computed, [reduce(lambda a, b: kind.type(combine(a, b)), row, start) for row in values], dtype
        )
    else:
        reference = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}[name]
        expected = reference(values.astype(np.longdouble), axis=1).astype(np.float64)
        tolerance = 1e-14 if dtype == "float64" else 6e-8
        np.testing.assert_allclose(computed.astype(np.float64), expected, rtol=tolerance)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), values=arrays())
def test_points_of_a_graph_equal_the_whole(data: st.DataObject, values: dict[str, np.ndarray]) -> None:
    """Two stages and a reduction over the second, some elements of each."""
    tensors = placeholders()
    inner, outer = data.draw(terms("int32", 3, AXES)), data.draw(terms("int64", 2, AXES))
    first = te.compute((ROWS, COLUMNS), lambda i, j: inner.build({"i": i, "j": j}, tensors), name="first")
    tensors_next = tensors | {"int32": first}
    second = te.compute(SHAPE, lambda i, j: outer.build({"i": i, "j": j}, tensors_next), name="second")
    k = te.reduce_axis((1, 4), name="k")
    third = te.compute((6,), lambda j: te.sum(second[(j + k) % 5, j], axis=k), name="third")
    inputs = inputs_of(tensors, values)
    whole = evaluate([third, first, second], inputs)
    for tensor, array in whole.items():
        count = data.draw(st.integers(0, 5))
        points = [[data.draw(st.integers(0, n - 1)) for n in array.shape] for _ in range(count)]
        index = np.array(points, np.int64).reshape(count, array.ndim)
        np.testing.assert_array_equal(evaluate_points(tensor, index, inputs), array[tuple(index.T)])
