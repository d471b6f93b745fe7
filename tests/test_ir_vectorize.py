"""Loops that the schedule left alone become vector code where that is legal."""

import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ansor
from ansor import te
from ansor.ir.interp import run_nest
from ansor.ir.nest import For, If, LoopKind, walk_statements
from ansor.ir.registers import RegisterLimits
from ansor.runtime.build import build
from ansor.schedule.lowering import lower
from ansor.te.interp import evaluate
from tests.program_laws import Case

LIMITS = RegisterLimits(vector_bits=512, num_registers=32)


def lanes(nest):
    return [
        s.extent for s in walk_statements(nest.body) if isinstance(s, For) and s.kind is LoopKind.VECTORIZED
    ]


def elementwise(shape, fused=False, parallel=False):
    X = te.placeholder(shape, name="X")
    Y = te.compute(shape, lambda *i: X(*i) * 2.0 + 1.0, name="Y")
    s = te.create_schedule(Y.op)
    loop = s[Y].fuse(*Y.op.axis) if fused else Y.op.axis[0]
    if parallel:
        s[Y].parallel(loop)
    return s, [X, Y]


@pytest.mark.parametrize(
    ("extent", "expected"),
    [(16, [16]), (48, [16]), (56, [14]), (7, [7]), (17, [17]), (1, []), (100, [16, 4]), (127, [16, 15])],
)
def test_contiguous_loops_take_the_largest_good_lane_count(extent, expected):
    """A divisor if that takes no more vectors, else one odd vector, else a bulk and a rest."""
    s, args = elementwise((extent,))

    assert lanes(lower(s, args, limits=LIMITS)) == expected


def test_vectors_of_a_reduction_are_alike():
    """Ten of ten elements are more than seven of sixteen, but all of them accumulate in registers."""
    X = te.placeholder((8, 100), name="X")
    k = te.reduce_axis((0, 8), name="k")
    Y = te.compute((100,), lambda j: te.sum(X[k, j], axis=k), name="Y")
    s = te.create_schedule(Y.op)
    s[Y].reorder(k, Y.op.axis[0])

    assert set(lanes(lower(s, [X, Y], limits=LIMITS))) == {10}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((64, 80), [16]), ((3, 7), [16, 5]), ((5, 12), [15]), ((6, 4, 5), [15]), ((1000, 36), [16])],
)
def test_fused_parallel_loops_are_vectorised_across_rows(shape, expected):
    """Rows that lie end to end are one row, whatever their length."""
    s, args = elementwise(shape, fused=True, parallel=True)

    assert lanes(lower(s, args, limits=LIMITS)) == expected


def test_a_part_of_a_fused_loop_that_need_not_divide_rows_is_vectorised_without_a_guard_inside():
    s, args = elementwise((1000, 36), fused=True)
    fused = s[args[1]].leaf_iter_vars[0]
    s[args[1]].split(fused, factor=256)
    nest = lower(s, args, limits=LIMITS)

    assert set(lanes(nest)) == {16}
    assert not [
        inner
        for loop in walk_statements(nest.body)
        if isinstance(loop, For) and loop.kind is LoopKind.VECTORIZED
        for inner in walk_statements(loop.body)
        if isinstance(inner, If)
    ]


def test_fused_loops_are_vectorised_within_rows_that_do_not_lie_end_to_end():
    X = te.placeholder((6, 24), name="X")
    Y = te.compute((6, 24), lambda i, j: X[i, j] + 1.0, name="Y")
    s = te.create_schedule(Y.op)
    i, j = Y.op.axis
    outer, inner = s[Y].split(j, factor=12)
    s[Y].reorder(outer, i, inner)
    s[Y].parallel(s[Y].fuse(outer, i, inner))

    assert lanes(lower(s, [X, Y], limits=LIMITS)) == [12]


def test_strided_stores_and_reductions_stay_scalar():
    X = te.placeholder((8, 16), name="X")
    k = te.reduce_axis((0, 8), name="k")
    T = te.compute((16, 8), lambda i, j: X[j, i] + 1.0, name="T")
    R = te.compute((1,), lambda i: te.sum(X[k, i], axis=k), name="R")
    s = te.create_schedule([T, R])
    i, j = T.op.axis
    s[T].reorder(j, i)

    assert lanes(lower(s, [X, T, R], limits=LIMITS)) == []


@pytest.mark.parametrize("extent", [64, te.var("n")])
def test_the_schedule_as_written_is_left_alone_in_simple_mode(extent):
    s, args = elementwise((extent,))

    assert lanes(lower(s, args, simple_mode=True)) == []


@pytest.mark.parametrize(
    "shape", [(5,), (17,), (100,), (127,), (1000,), (64, 80), (3, 7), (5, 12), (6, 4, 5)]
)
@pytest.mark.parametrize("parallel", [False, True])
def test_vectorised_programs_compute_the_same(shape, parallel):
    s, args = elementwise(shape, fused=len(shape) > 1, parallel=parallel)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    out = np.full(shape, np.nan, "float32")
    run_nest(lower(s, args, limits=LIMITS), [x, out], check_races=True)

    np.testing.assert_array_equal(evaluate([args[1]], {args[0]: x})[args[1]], out)


def test_a_loop_of_any_length_is_whole_vectors_and_one_of_which_some_lanes_count():
    n, m = te.var("n"), te.var("m")
    s, args = elementwise((n, m))
    s[args[1]].parallel(args[1].op.axis[0])

    assert str(lower(s, args, limits=LIMITS)).splitlines()[1:] == [
        "parallel i0 in 0..n:",
        "  for i1 in 0..m//16:",
        "    vectorize i1.v in 0..16:",
        "      Y[i0, i1*16 + i1.v] = X[i0, i1*16 + i1.v]*2.0 + 1.0",
        "  if m%16 >= 1:",
        "    vectorize i1_1 in 0..16:",
        "      if i1_1 < m%16:",
        "        Y[i0, m//16*16 + i1_1] = X[i0, m//16*16 + i1_1]*2.0 + 1.0",
    ]


def test_a_fused_loop_of_any_length_runs_along_memory_across_its_rows():
    n, m = te.var("n"), te.var("m")
    s, args = elementwise((n, m), fused=True, parallel=True)
    text = str(lower(s, args, limits=LIMITS))

    assert text.splitlines()[1:3] == [
        "parallel i0@i1@ in 0..n*m//16:",
        "  vectorize i0@i1@.v in 0..16:",
    ]
    assert text.count("if ") == 2  # whether lanes are left over, and which of them count
    source = build(lower(s, args, limits=LIMITS)).get_source("ll")
    assert "load <" in source
    assert "masked.gather" not in source
    assert "masked.scatter" not in source


def test_the_pieces_of_a_fused_loop_of_any_length_go_around_no_end():
    n, m = te.var("n"), te.var("m")
    X = te.placeholder((n, m), name="X")
    Y = te.compute((n, m), lambda i, j: X[i, j] * 2.0, name="Y")
    s = te.create_schedule(Y)
    s[Y].split(s[Y].fuse(*Y.op.axis), factor=1000)
    lines = [line.strip() for line in str(lower(s, [X, Y], limits=LIMITS)).splitlines()]
    assert [line for line in lines if line.startswith("if ") and "n*m" not in line] == []


@cache
def fused(parallel, factor, inner):
    """A loop over all axes: its state, what it calls its sizes, its nest and that compiled."""
    n, m, p = te.var("n"), te.var("m"), te.var("p")
    shape = (n, m, *(p if extent == "p" else extent for extent in inner))
    X, W = te.placeholder(shape, name="X"), te.placeholder((shape[-1],), name="W")
    Y = te.compute(shape, lambda *i: X(*i) * W[i[-1]] + te.cast(i[1], "float32"), name="Y")
    s = te.create_schedule(Y)
    loop = s[Y].fuse(*Y.op.axis)
    if factor:
        loop, _ = s[Y].split(loop, factor=factor)
    if parallel:
        s[Y].parallel(loop)
    nest = lower(s, limits=LIMITS)
    sizes = [size for size in (n, m, p) if size in shape]
    return s.state, sizes, nest, build(nest, target="llvm", name="kernel")


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("factor", [None, 5, 32])
@pytest.mark.parametrize("inner", [(), (3,), (2, "p")])
@settings(max_examples=6, deadline=None)
@given(rows=st.integers(0, 9), columns=st.integers(0, 60))
def test_fused_loops_of_any_length_compute_the_same(parallel, factor, inner, rows, columns):
    state, sizes, nest, kernel = fused(parallel, factor, inner)
    case = Case.of(state, dict(zip(sizes, (rows, columns, 7), strict=False)))
    case.check_interpreted(nest, check_races=True)
    case.check_kernel(kernel)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 65])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "int64"])
def test_loops_of_any_length_compute_the_same(dtype, size):
    n = te.var("n")
    X = te.placeholder((n,), dtype, name="X")
    Y = te.compute((n,), lambda i: X[i] + X[n - 1 - i], name="Y")
    case = Case.of(te.create_schedule(Y).state, {n: size})
    nest = lower(case.state, limits=LIMITS)

    assert lanes(nest) == 2 * [512 // (8 * np.dtype(dtype).itemsize)]
    case.check_interpreted(nest, check_races=True)
    case.check_compiled(nest)


@pytest.mark.parametrize("size", [0, 2, 3, 4, 18, 19, 20])
def test_a_loop_of_less_than_no_iterations_does_nothing(size):
    n = te.var("n")
    X = te.placeholder((n,), "int32", name="X")
    T = te.compute((n - 3,), lambda i: X[i] + X[i + 3], name="T")
    Y = te.compute((n,), lambda i: te.if_then_else(i < n - 3, T[i], X[i]), name="Y")
    nest = lower(te.create_schedule(Y), [X, Y], limits=LIMITS)
    x = np.arange(size, dtype=np.int32) + 5
    expected = x.copy()
    expected[: max(size - 3, 0)] += x[3:]

    assert set(lanes(nest)) == {16}
    np.testing.assert_array_equal(build(nest)(x), expected)


@pytest.mark.parametrize("parallel", [False, True])
@settings(max_examples=12, deadline=None)
@given(rows=st.integers(0, 9), columns=st.integers(0, 200), split=st.booleans())
def test_rows_of_any_length_compute_the_same(parallel, rows, columns, split):
    n, m = te.var("n"), te.var("m")
    X, W = te.placeholder((n, m), name="X"), te.placeholder((m,), name="W")
    Y = te.compute((n, m), lambda i, j: X[i, j] * W[j] + te.cast(j, "float32"), name="Y")
    Z = te.compute((m, n), lambda j, i: te.maximum(Y[i, j], Y[i, 0]), name="Z")
    s = te.create_schedule(Z)
    if split:
        s[Y].split(Y.op.axis[1], nparts=3)
    if parallel:
        s[Y].parallel(Y.op.axis[0])
        s[Z].parallel(Z.op.axis[0])
    case = Case.of(s.state, {n: rows, m: columns})
    nest = lower(s, limits=LIMITS)
    assert 16 in lanes(nest)
    case.check_interpreted(nest)
    case.check_compiled(nest)


@pytest.mark.parametrize(
    ("cpu", "length"), [("x86-64", 4), ("haswell", 8), ("znver4", 16), ("skylake-avx512", 16)]
)
def test_nothing_but_vectors_is_computed_in_a_loop_of_any_length(cpu, length):
    """On CPUs with masks and without."""
    n = te.var("n")
    X = te.placeholder((n,), name="X")
    Y = te.compute((n,), lambda i: te.tanh(X[i]), name="Y")
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"
    text = ansor.build(te.create_schedule(Y), [X, Y], target=target).get_source("ll")
    body = text[text.index("define") :]

    assert f"<{length} x float>" in body
    assert not re.findall(r"= (?:call|load|f\w+)(?: \w+)* (?:float|double)\b", body)
