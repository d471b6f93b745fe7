"""Loops that the schedule left alone become vector code where that is legal."""

import numpy as np
import pytest

from ansor import te
from ansor.ir.interp import run_nest
from ansor.ir.nest import For, If, LoopKind, walk_statements
from ansor.ir.passes.register_tile import RegisterLimits
from ansor.schedule.lowering import lower
from ansor.te.interp import evaluate

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


def test_the_schedule_as_written_is_left_alone_in_simple_mode():
    s, args = elementwise((64,))

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
