"""Conditions on data beside the guards of loops: where a guard fails, nothing is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.ir.interp import run_nest
from ansor.ir.nest import Buffer, For, If, LoopKind, LoopNest, Store, seq, walk_statements
from ansor.te.expr import BinaryOp, Load, Var, binary, const
from ansor.te.interp import evaluate
from measure.workers.arena import GuardedArray
from tests.codegen_helper import run
from tests.program_laws import Case, check_all, lowered

KINDS = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.PARALLEL)


def masked_sum(extent: Any) -> Any:
    """The sum of the elements of X at which M is positive, the reduction split by 4."""
    x, m = te.placeholder((extent,), name="X"), te.placeholder((extent,), "int32", "M")
    k = te.reduce_axis((0, extent), "k")
    c = te.compute((1,), lambda i: te.sum(x[k], axis=k, where=m[k] > 0), name="C")
    s = te.create_schedule(c)
    return s, c, s[c].split(k, factor=4)


@pytest.mark.parametrize("simple", [True, False])
def test_a_condition_of_a_reduction_is_read_inside_the_guards(simple: bool) -> None:
    n = te.var("n")
    s, _, _ = masked_sum(n)
    for size in (10, 12, 1):
        case = Case.of(s.state, {n: size})
        nest = lowered(case.state, simple_mode=simple)
        case.check_interpreted(nest)
        case.check_compiled(nest)


def test_so_it_is_in_a_factored_reduction() -> None:
    for part in (0, 1):
        s, c, loops = masked_sum(10)
        s.rfactor(c, loops[part])
        check_all(Case.of(s.state))


def tile(c: te.Tensor, columns: int) -> te.Schedule:
    """C(i, j) in tiles of 3 unrolled rows and some columns in vectors, all of the reduction inside."""
    s = te.create_schedule(c)
    i, j, k = *c.op.axis, *c.op.reduce_axis
    io, jo, ii, ji = s[c].tile(i, j, x_factor=3, y_factor=columns)
    s[c].reorder(io, jo, k, ii, ji)
    s[c].unroll(ii)
    s[c].vectorize(ji)
    return s


CONDITIONS = {
    "rows": lambda m, i, j, k: m[i, k] > 0,
    "columns": lambda m, i, j, k: m[k, j] > 0,
    "elements": lambda m, i, j, k: m[i, j] > 0,
    "all": lambda m, i, j, k: te.all(m[i, k] > 0, m[k, j] < 2, k < 17),
    "triangle": lambda m, i, j, k: k <= i,
    "lanes": lambda m, i, j, k: k <= j,
}


def stored_in_reductions(nest: LoopNest) -> set[str]:
    """Where the loops of a nest over `k` store."""
    loops = [s for s in walk_statements(nest.body) if isinstance(s, For) and s.var.name == "k"]
    return {s.buffer.scope for loop in loops for s in walk_statements(loop) if isinstance(s, Store)}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_the_accumulators_of_a_conditional_reduction_are_registers(condition: str, dtype: str) -> None:
    """Terms that do not count are no numbers in floats, and may be divisions by 0 in integers."""
    n = 20
    m, x, y = te.placeholder((n, n), "int32", "M"), *(te.placeholder((n, n), dtype, name) for name in "XY")
    k = te.reduce_axis((0, n), "k")

    def element(i: te.Expr, j: te.Expr) -> te.Expr:
        holds = CONDITIONS[condition](m, i, j, k)
        term = x[i, k] * y[k, j] if dtype != "int32" else x[i, k] // y[k, j]
        return te.sum(te.select(holds, term, te.const(np.nan, dtype)) if dtype != "int32" else term, k, holds)

    c = te.compute((n, n), element, name="C")
    case = Case.of(tile(c, 16).state)
    nest = lowered(case.state, simple_mode=False)
    assert stored_in_reductions(nest) == {"register"}
    case.check_interpreted(nest)
    case.check_compiled(nest)


@pytest.mark.parametrize("condition", [None, *CONDITIONS])
@pytest.mark.parametrize("dtypes", [("int32", "float32"), ("int64", "float32"), ("int32", "float16")])
def test_so_are_those_of_several_values(condition: str | None, dtypes: tuple[str, str]) -> None:
    n = 20
    m, x = te.placeholder((n, n), "int32", "M"), te.placeholder((n, n, n), dtypes[1], "X")
    k = te.reduce_axis((0, n), "k")

    def later(a: Any, b: Any) -> te.Expr:
        return te.any(b[1] > a[1], te.all(b[1] == a[1], b[0] < a[0]))

    argmax = te.comm_reducer(
        lambda a, b: (te.select(later(a, b), b[0], a[0]), te.maximum(a[1], b[1])),
        lambda at, best: (te.max_value(at), te.min_value(best)),
        name="argmax",
    )
    at, _ = te.compute(
        (n, n),
        lambda i, j: argmax(
            (te.cast(k, dtypes[0]), x[k, i, j]), k, condition and CONDITIONS[condition](m, i, j, k)
        ),
        name="C",
    )
    case = Case.of(tile(at, 8).state)
    nest = lowered(case.state, simple_mode=False)
    assert stored_in_reductions(nest) == {"register"}
    case.check_interpreted(nest)
    case.check_compiled(nest)


@pytest.mark.parametrize("kind", ["serial", "unroll", "vectorize"])
def test_a_term_that_its_condition_keeps_in_bounds_is_not_read_elsewhere(kind: str) -> None:
    memory = GuardedArray((16,), "float32")
    memory.array[:] = np.arange(16)
    x, at = te.placeholder((16,), name="X"), te.placeholder((9, 8), "int32", "at")
    k = te.reduce_axis((0, 9), "k")
    y = te.compute((8,), lambda j: te.sum(x[at[k, j]], k, te.all(at[k, j] >= 0, at[k, j] < 16)), name="Y")
    s = te.create_schedule(y)
    s[y].reorder(k, y.op.axis[0])
    if kind != "serial":
        getattr(s[y], kind)(y.op.axis[0])
    places = np.random.default_rng(0).integers(-(2**30), 2**30, (9, 8)).astype(np.int32)
    places[::2] = np.arange(40).reshape(5, 8) - 12
    expected = evaluate([y], {x: memory.array.copy(), at: places})[y]
    np.testing.assert_array_equal(ansor.build(s, [x, at, y])(memory.array, places), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [0, 1])
def test_memory_beyond_a_guard_is_not_touched(kind: LoopKind, first: int) -> None:
    """The data end where a page begins that cannot be read; either of guard and condition stands first."""
    memory = GuardedArray((16,), "int32")
    memory.array[:] = np.arange(16) % 3 - 1
    data, out = Buffer("data", "int32", (16,)), Buffer("out", "int32", (40,))
    n, i, j = Var("n"), Var("i"), Var("j")
    tests = [binary(BinaryOp.LT, i, n), binary(BinaryOp.GT, Load(data, (i,), "int32"), const(0))]
    cond = binary(BinaryOp.AND, tests[first], tests[1 - first])
    body = seq(
        For(j, 40, LoopKind.SERIAL, Store(out, (j,), const(7))),
        For(i, 40, kind, If(cond, Store(out, (i,), i * 2))),
    )
    nest = LoopNest("kernel", (data, out), (n,), body, (1,))
    for size in (16, 5):
        at = np.arange(40)
        expected = np.where((at < size) & (at % 3 == 2), at * 2, 7)
        compiled, interpreted = np.zeros(40, np.int32), np.zeros(40, np.int32)
        run(nest, memory.array, compiled, sizes=[size])
        run_nest(nest, [memory.array, interpreted], [size])
        np.testing.assert_array_equal(compiled, expected)
        np.testing.assert_array_equal(interpreted, expected)


def chosen_integers(x: te.Tensor, i: te.Expr, dtype: str, outer: bool) -> te.Expr:
    """An integer that the next element chooses, if there is one."""
    first, second = (te.cast(i, dtype), te.cast(i * 2, dtype)) if outer else (te.const(1, dtype), 2)
    inner = te.select(x[i + 1] > 0, first, second)
    return te.if_then_else(i + 1 < x.shape[0], inner + inner if outer else inner, te.const(3, dtype))


@pytest.mark.parametrize("kind", ["serial", "unroll", "vectorize", "parallel"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("compared", [False, True])
def test_an_integer_that_memory_chooses_is_chosen_inside_the_guard(
    kind: str, dtype: str, outer: bool, compared: bool
) -> None:
    """Though it is one of numbers that are known without memory; what lies behind it cannot be read."""
    memory = GuardedArray((16,), "float32")
    memory.array[:] = np.arange(16) % 3 - 1.0
    x = te.placeholder((16,), name="X")

    def element(i: te.Expr) -> te.Expr:
        value = chosen_integers(x, i, dtype, outer)
        return te.cast(value > 2, "int32") if compared else value

    y = te.compute((16,), element, name="Y")
    s = te.create_schedule(y)
    if kind != "serial":
        getattr(s[y], kind)(y.op.axis[0])
    expected = evaluate([y], {x: memory.array.copy()})[y]
    np.testing.assert_array_equal(ansor.build(s, [x, y])(memory.array), expected)


def test_an_index_out_of_bounds_is_not_read_where_integers_are_chosen() -> None:
    table, at = te.placeholder((11,), name="T"), te.placeholder((16,), "int32", "X")
    y = te.compute(
        (16,),
        lambda i: te.if_then_else(
            te.all(at[i] >= 0, at[i] < 11), te.if_then_else(table[at[i]] > 0.0, 1, 2), 3
        ),
        name="Y",
    )
    places = np.full(16, -(2**31), np.int32)
    places[3] = 5
    found = ansor.build(te.create_schedule(y), [table, at, y])(np.ones(11, np.float32), places)
    np.testing.assert_array_equal(found, [3, 3, 3, 1, *[3] * 12])
