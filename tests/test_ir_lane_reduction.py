"""Reductions along memory: in lanes, with the same result, and only where that is possible."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor import te
from ansor.codegen.machine import Machine
from ansor.dtypes import to_numpy
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, For, LoopKind, walk_statements
from ansor.ir.registers import RegisterLimits
from ansor.ir.verify import check_nest
from ansor.runtime.build import build
from ansor.schedule.lowering import lower
from ansor.te.interp import evaluate
from tests.program_laws import Case

LIMITS = RegisterLimits(vector_bits=512, num_registers=32)
REDUCERS = {"sum": te.sum, "prod": te.prod, "min": te.min, "max": te.max}


def row_reduction(n, dtype="float32", reducer="sum"):
    x = te.placeholder((5, n), dtype, "X")
    k = te.reduce_axis((0, n), "k")
    return x, te.compute((5,), lambda i: REDUCERS[reducer](x[i, k], axis=k), name="R")


def scratch(nest):
    return [s.buffer for s in walk_statements(nest.body) if isinstance(s, Alloc)]


def in_lanes(nest):
    return [buffer.shape for buffer in scratch(nest) if buffer.name.endswith(".lanes")]


def check(schedule, tensors, limits=LIMITS):
    """The nest and the compiled program give what the expression says; returns the nest."""
    nest = lower(schedule, tensors, limits=limits)
    check_nest(nest)
    rng = np.random.default_rng(0)
    inputs = {t: rng.integers(-3, 4, t.shape).astype(t.dtype) for t in tensors[:-1]}
    expected = evaluate([tensors[-1]], inputs, {})[tensors[-1]]
    for run in (lambda *a: run_nest(nest, list(a), check_races=True), build(schedule, tensors)):
        out = np.full_like(expected, 77)
        run(*inputs.values(), out)
        np.testing.assert_array_equal(out, expected)
    return nest


@pytest.mark.parametrize("n", [16, 17, 31, 63, 64, 65, 100, 127, 128, 200, 1021])
@pytest.mark.parametrize("reducer", sorted(REDUCERS))
def test_rows_of_any_length(n, reducer):
    x, r = row_reduction(n, "int32", reducer)
    nest = check(te.create_schedule(r), [x, r])
    assert in_lanes(nest) == [(min(4, 1 << (n // 16).bit_length() - 1), 16)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int64"])
def test_dtypes(dtype):
    x, r = row_reduction(200, dtype)
    (shape,) = in_lanes(check(te.create_schedule(r), [x, r]))
    assert shape[-1] == 512 // (8 * np.dtype(dtype).itemsize)


@pytest.mark.parametrize(("dtype", "rounding"), [("float16", 2**-11), ("bfloat16", 2**-8)])
@pytest.mark.parametrize(("reducer", "roundings"), [("min", 0), ("max", 0), ("sum", 11), ("prod", 200)])
def test_narrow_floats_are_reduced_in_lanes_that_compute_with_float32(dtype, rounding, reducer, roundings):
    """Extremes are exact; of a sum of positive terms each is rounded once per vector and once per halving."""
    x, r = row_reduction(200, dtype, reducer)
    assert in_lanes(lower(te.create_schedule(r), [x, r], limits=LIMITS)) == [(4, 16)]
    data = (1 + np.random.default_rng(0).random((5, 200)) / 50).astype(to_numpy(dtype))
    out = np.empty(5, to_numpy(dtype))
    build(te.create_schedule(r), [x, r])(data, out)
    exact = getattr(np, reducer)(data.astype(np.float64), axis=1)
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=roundings * rounding)


@pytest.mark.parametrize("n", [15, 64, 200])
@pytest.mark.parametrize("reducer", sorted(REDUCERS))
def test_rows_under_a_condition_on_data(n, reducer):
    x, m = te.placeholder((5, n), "int32", "X"), te.placeholder((5, n), "int32", "M")
    k = te.reduce_axis((0, n), "k")
    r = te.compute((5,), lambda i: REDUCERS[reducer](x[i, k], axis=k, where=m[i, k] > 0), name="R")
    nest = check(te.create_schedule(r), [x, m, r])
    assert len(in_lanes(nest)) == (n >= 16)


CONDITIONS = {
    "causal": lambda i, k: k <= i,
    "rest": lambda i, k: k > i,
    "band": lambda i, k: te.all(k <= i, i - k < 20),
    "apart": lambda i, k: k != i,
    "every other": lambda i, k: (i + k) % 2 == 0,
    "most": lambda i, k: k >= i % 3,
}


def rows_where(condition, rows, terms, tile=1, reducer="sum"):
    x, k = te.placeholder((rows, terms), "int32", "X"), te.reduce_axis((0, terms), "k")
    r = te.compute((rows,), lambda i: REDUCERS[reducer](x[i, k], axis=k, where=condition(i, k)), name="R")
    s = te.create_schedule(r)
    i, inner = s[r].split(r.op.axis[0], factor=tile)
    s[r].reorder(i, k, inner)
    return s


@pytest.mark.parametrize("tile", [1, 3])
@pytest.mark.parametrize("reducer", ["sum", "max"])
@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_rows_under_a_condition_on_their_place(condition, reducer, tile):
    """Parts of which all terms count are in lanes, and so is a loop that cannot be parted."""
    s = rows_where(condition, 100, 120, tile, reducer)
    case = Case.of(s.state)
    nest = lower(s, limits=LIMITS)
    assert in_lanes(nest)
    case.check_interpreted(nest)
    case.check_compiled(nest)


def test_what_is_left_of_a_parted_loop_is_not_in_lanes():
    """In tiles of three rows it is two terms of each."""
    s = rows_where(lambda i, k: k <= i, 99, 120, tile=3)
    nest = lower(s, limits=LIMITS)
    assert in_lanes(nest) == [(3, 4, 16)]
    assert "R.acc" in [buffer.name for buffer in scratch(nest)]


def test_a_condition_that_cannot_be_parted_chooses_in_each_lane():
    s = rows_where(lambda i, k: k != i, 8, 128)
    nest = str(lower(s, limits=LIMITS))
    assert "select(k.s*64 + u_1*16 + v_1 != i.0, R.lanes[u_1, v_1] + X" in nest
    assert "if " not in nest


def test_lanes_beyond_the_end_of_a_row_may_read_what_no_one_has_computed():
    """Of a part of a row, as a reduction by parts has it: its length does not divide the row's."""
    x, k = te.placeholder((3, 27), name="X"), te.reduce_axis((0, 27), "k")
    y = te.compute((3, 27), lambda i, j: x[i, j] * x[i, j], name="Y")
    z = te.compute((3,), lambda i: te.sum(y[i, k], axis=k), name="Z")
    s = te.create_schedule(z)
    outer, _ = s[z].split(k, factor=10)
    part = s.rfactor(z, outer, 1)
    s[part].parallel(s[part].fuse(*part.op.axis))
    s[y].compute_at(s[part], s[part].leaf_iter_vars[0])
    case = Case.of(s.state)
    nest = lower(s)
    assert re.search(r"select\(\S+ \+ v_1 < 27, Z.rf.lanes\[\S+, v_1\] \+ Y\[0, v_1\]", str(nest)), str(nest)
    case.check_interpreted(nest, check_races=True)
    case.check_compiled(nest)


@pytest.mark.parametrize("terms", [0, 1, 63, 64, 65, 200])
def test_a_split_of_a_symbolic_row_is_in_lanes(terms):
    n, m = te.var("n"), te.var("m")
    x, k = te.placeholder((n, m), name="X"), te.reduce_axis((0, m), "k")
    r = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="R")
    s = te.create_schedule(r)
    s[r].split(k, factor=64)
    case = Case.of(s.state, {n: 5, m: terms})
    nest = lower(s, limits=LIMITS)
    assert in_lanes(nest) == [(4, 16)]
    case.check_interpreted(nest)
    case.check_compiled(nest)


@pytest.mark.parametrize("terms", [0, 1, 40, 130])
@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_symbolic_rows_under_a_condition_on_their_place(condition, terms):
    n, m = te.var("n"), te.var("m")
    s = rows_where(condition, n, m)
    case = Case.of(s.state, {n: 50, m: terms})
    nest = lower(s, limits=LIMITS)
    case.check_interpreted(nest)
    case.check_compiled(nest)


def test_a_condition_whose_data_lie_apart_keeps_rows_scalar():
    x, m = te.placeholder((5, 64), name="X"), te.placeholder((64, 5), "int32", "M")
    k = te.reduce_axis((0, 64), "k")
    r = te.compute((5,), lambda i: te.sum(x[i, k], axis=k, where=m[k, i] > 0), name="R")
    assert in_lanes(check(te.create_schedule(r), [x, m, r])) == []


def test_short_rows_stay_scalar():
    x, r = row_reduction(15)
    assert in_lanes(lower(te.create_schedule(r), [x, r], limits=LIMITS)) == []


def dense(n, m, k):
    x, w = te.placeholder((n, k), name="X"), te.placeholder((m, k), name="W")
    r = te.reduce_axis((0, k), "r")
    return [x, w, te.compute((n, m), lambda i, j: te.sum(x[i, r] * w[j, r], axis=r), name="Y")]


def test_a_tile_of_dot_products():
    tensors = dense(8, 12, 50)
    s = te.create_schedule(tensors[-1])
    i, j = tensors[-1].op.axis
    (r,) = tensors[-1].op.reduce_axis
    io, jo, ii, ji = s[tensors[-1]].tile(i, j, x_factor=4, y_factor=4)
    s[tensors[-1]].reorder(io, jo, r, ii, ji)
    s[tensors[-1]].unroll(ji)
    nest = check(s, tensors)
    assert in_lanes(nest) == [(4, 4, 1, 16)]


def test_a_tile_with_guards():
    tensors = dense(7, 10, 70)
    s = te.create_schedule(tensors[-1])
    i, j = tensors[-1].op.axis
    (r,) = tensors[-1].op.reduce_axis
    io, jo, ii, ji = s[tensors[-1]].tile(i, j, x_factor=2, y_factor=3)
    s[tensors[-1]].reorder(io, jo, r, ii, ji)
    s[tensors[-1]].unroll(ji)
    s[tensors[-1]].parallel(io)
    assert set(in_lanes(check(s, tensors))) == {(2, 3, 4, 16)}  # with guards and without


def test_a_split_that_does_not_divide_stays_scalar():
    x, r = row_reduction(100)
    s = te.create_schedule(r)
    s[r].split(r.op.reduce_axis[0], factor=48)
    assert in_lanes(check(s, [x, r])) == []


def test_reductions_around_reductions_share_the_lanes():
    x = te.placeholder((4, 6, 50), name="X")  # what is read of a row ends before the next one begins
    a, b = te.reduce_axis((0, 6), "a"), te.reduce_axis((0, 40), "b")
    r = te.compute((4,), lambda i: te.max(x[i, a, b], axis=[a, b]), name="R")
    assert in_lanes(check(te.create_schedule(r), [x, r])) == [(2, 16)]


def sum_of_images(shape, tile=1, reach=0, scale=False):
    """The sums of images of a shape, read `reach` elements on, in tiles of so many."""
    *outer, last = shape
    x = te.placeholder((4, *outer, last + reach), name="X")
    axes = [te.reduce_axis((0, n), f"r{number}") for number, n in enumerate(shape)]
    w = te.placeholder(shape, name="W")

    def term(i):
        read = x[(i, *axes[:-1], axes[-1] + reach)]
        return read * w[tuple(axes)] if scale else read

    r = te.compute((4,), lambda i: te.sum(term(i), axis=axes), name="R")
    s = te.create_schedule(r)
    i, inner = s[r].split(r.op.axis[0], factor=tile)
    s[r].reorder(i, *r.op.reduce_axis, inner)
    return s, [x, w, r] if scale else [x, r]


def loops(nest):
    return {s.var.name for s in walk_statements(nest.body) if isinstance(s, For)}


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("tile", [1, 2])
@pytest.mark.parametrize(
    ("shape", "vectors"), [((7, 7), 2), ((3, 2, 9), 2), ((6, 40), 4), ((2, 3, 5, 100), 4), ((5, 1, 7), 2)]
)
def test_loops_that_lie_end_to_end_become_one(shape, vectors, tile, scale):
    nest = check(*sum_of_images(shape, tile, scale=scale))
    assert [found[-2:] for found in in_lanes(nest)] == [(vectors, 16)]
    assert not loops(nest) & {f"r{number}" for number in range(len(shape))}


@pytest.mark.parametrize("shape", [(7, 64), (3, 5, 128)])
def test_a_loop_that_fills_its_vectors_stays_alone(shape):
    nest = check(*sum_of_images(shape))
    assert in_lanes(nest) == [(4, 16)]
    assert {f"r{number}" for number in range(len(shape) - 1)} <= loops(nest)


def test_the_first_loops_that_fill_vectors_together_become_one():
    nest = check(*sum_of_images((3, 8, 8)))
    assert in_lanes(nest) == [(4, 16)]
    assert "r0" in loops(nest)


@pytest.mark.parametrize(("shape", "joined"), [((46340, 46341), True), ((46341, 46341), False)])
def test_loops_are_joined_as_far_as_an_index_counts(shape, joined):
    """46340 * 46341 is less than 2**31, and 46341**2 is not."""
    s, tensors = sum_of_images(shape)
    assert ("r0" not in loops(lower(s, tensors, limits=LIMITS))) == joined


def test_rows_with_something_between_them_stay_rows():
    assert in_lanes(check(*sum_of_images((7, 7), reach=1))) == []
    assert in_lanes(check(*sum_of_images((6, 40), reach=2, scale=True))) == [(2, 16)]


def test_loops_whose_numbers_count_become_one_as_well():
    x = te.placeholder((4, 6, 7), "int32", name="X")
    a, b = te.reduce_axis((0, 6), "a"), te.reduce_axis((0, 7), "b")
    r = te.compute((4,), lambda i: te.sum(x[i, a, b] * a, axis=[a, b]), name="R")
    assert in_lanes(check(te.create_schedule(r), [x, r])) == [(2, 16)]


def test_a_guarded_loop_is_not_joined():
    x = te.placeholder((4, 10, 7), name="X")
    a, b = te.reduce_axis((0, 10), "a"), te.reduce_axis((0, 7), "b")
    r = te.compute((4,), lambda i: te.sum(x[i, a, b], axis=[a, b]), name="R")
    s = te.create_schedule(r)
    s[r].split(r.op.reduce_axis[0], factor=4)
    assert in_lanes(check(s, [x, r])) == []


def test_strides_other_than_one_stay_scalar():
    x = te.placeholder((40, 3), name="X")
    k = te.reduce_axis((0, 40), "k")
    r = te.compute((3,), lambda i: te.sum(x[k, i], axis=k), name="R")
    assert in_lanes(check(te.create_schedule(r), [x, r])) == []


def test_vector_loops_are_left_alone():
    tensors = dense(4, 32, 32)
    s = te.create_schedule(tensors[-1])
    i, j = tensors[-1].op.axis
    (r,) = tensors[-1].op.reduce_axis
    jo, ji = s[tensors[-1]].split(j, factor=16)
    s[tensors[-1]].reorder(i, jo, r, ji)
    s[tensors[-1]].vectorize(ji)
    assert in_lanes(check(s, tensors)) == []


def test_several_outputs_stay_scalar():
    x = te.placeholder((3, 64), name="X")
    k = te.reduce_axis((0, 64), "k")
    total = te.comm_reducer(
        lambda a, b: (a[0] + b[0], te.maximum(a[1], b[1])),
        lambda t, u: (te.const(0, t), te.min_value(u)),
        name="both",
    )
    one, two = te.compute((3,), lambda i: total((x[i, k], x[i, k]), axis=k), name="P")
    nest = lower(te.create_schedule([one, two]), [x, one, two], limits=LIMITS)
    assert in_lanes(nest) == []


def later(a, b):
    return te.any(b[1] > a[1], te.all(b[1] == a[1], b[0] < a[0]))


ARGMAX = te.comm_reducer(
    lambda a, b: (te.select(later(a, b), b[0], a[0]), te.maximum(a[1], b[1])),
    lambda index, value: (te.max_value(index), te.min_value(value)),
    name="argmax",
)
COMPLEX = te.comm_reducer(
    lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
    lambda re, im: (te.const(1, re), te.const(0, im)),
    name="product",
)


def of_pairs(reducer, terms, dtype="float32", index=lambda i, k: (i, k), condition=None):
    """Reductions of the pairs in five rows."""
    number = "int32" if reducer is ARGMAX else dtype
    x, y = te.placeholder((5, 64), number, "X"), te.placeholder((5, 64), dtype, "Y")
    k = te.reduce_axis((0, terms), "k")
    where = None if condition is None else (lambda i: condition(y, i, k))
    outputs = te.compute(
        (5,),
        lambda i: reducer(
            (x[index(i, k)], y[index(i, k)]), axis=k, where=None if where is None else where(i)
        ),
        name="R",
    )
    return [x, y, *outputs]


@pytest.mark.parametrize("terms", [2, 4, 5, 8, 12, 15, 16, 17])
@pytest.mark.parametrize(("reducer", "dtype"), [(ARGMAX, "float32"), (ARGMAX, "int8"), (COMPLEX, "int32")])
def test_several_values_of_what_fits_a_vector_are_combined_in_halves(reducer, dtype, terms):
    case = Case.of(te.create_schedule(of_pairs(reducer, terms, dtype)[2:]).state)
    nest = lower(case.state, limits=LIMITS)
    check_nest(nest)
    assert in_lanes(nest) == ([(terms,)] * 2 if 4 <= terms <= 16 else [])
    case.check_interpreted(nest, check_races=True)
    case.check_compiled(nest)


def test_the_lanes_of_several_values_are_combined_in_halves():
    """Those that a reduction by parts leaves, as the search has it."""
    tensors = of_pairs(ARGMAX, 64)
    s = te.create_schedule(tensors[2:])
    _, lane = s[tensors[2]].split(tensors[2].op.reduce_axis[0], factor=16)
    part = s.rfactor(tensors[2], lane, 1)[0]
    s[part].vectorize(part.op.axis[-1])
    case = Case.of(s.state)
    nest = lower(case.state, limits=LIMITS)
    assert in_lanes(nest) == [(16,)] * 2
    vectors = [
        loop.extent
        for loop in walk_statements(nest.body)
        if isinstance(loop, For) and loop.kind is LoopKind.VECTORIZED
    ]
    assert vectors[-4:] == [16, 8, 4, 2]
    case.check_interpreted(nest, check_races=True)
    case.check_compiled(nest)


@pytest.mark.parametrize(
    "how",
    [
        {"index": lambda i, k: (i, k * 2)},
        {"index": lambda i, k: (i - i, i + k // 2)},
        {"condition": lambda y, i, k: y[i, k] > 0.0},
        {"condition": lambda y, i, k: k <= i},
    ],
)
def test_several_values_that_lie_apart_or_under_a_condition_are_combined_one_by_one(how):
    case = Case.of(te.create_schedule(of_pairs(ARGMAX, 16, **how)[2:]).state)
    nest = lower(case.state, limits=LIMITS)
    assert in_lanes(nest) == []
    case.check_interpreted(nest)
    case.check_compiled(nest)


def test_fewer_vectors_where_registers_are_few():
    x, r = row_reduction(256)
    few = RegisterLimits(vector_bits=256, num_registers=4)
    assert in_lanes(lower(te.create_schedule(r), [x, r], limits=few)) == [(2, 8)]


def test_the_lanes_are_combined_pairwise():
    x, r = row_reduction(64)
    nest = lower(te.create_schedule(r), [x, r], limits=LIMITS)
    lengths = [
        int(s.extent)
        for s in walk_statements(nest.body)
        if isinstance(s, For) and s.kind is LoopKind.VECTORIZED
    ]
    assert lengths == [16, 16, 16, 16, 8, 4, 2]


def narrow_product(rows, channels, terms):
    """A product with few columns, as of the three colours of pixels; the reduction innermost but the tile."""
    x, w = te.placeholder((rows, terms), name="X"), te.placeholder((terms, channels), name="W")
    k = te.reduce_axis((0, terms), "k")
    y = te.compute((rows, channels), lambda i, c: te.sum(x[i, k] * w[k, c], axis=k), name="Y")
    s = te.create_schedule(y)
    i, c = y.op.axis
    outer, inner = s[y].split(i, factor=4)
    s[y].reorder(outer, k, inner, c)
    return s, [x, w, y], c


@pytest.mark.parametrize("annotated", [False, True])
@pytest.mark.parametrize(("rows", "terms"), [(8, 256), (8, 100), (7, 77)])
def test_vectors_much_shorter_than_the_machines_give_way(rows, terms, annotated):
    """Sixteen terms of one colour take fewer instructions than three colours of one term."""
    s, tensors, c = narrow_product(rows, 3, terms)
    if annotated:
        s[tensors[-1]].vectorize(c)
    assert set(in_lanes(check(s, tensors))) == {(4, 3, 2, 16)}


@pytest.mark.parametrize(("channels", "terms"), [(3, 16), (5, 256), (16, 256)])
def test_vectors_stay_where_terms_are_few_or_far_apart(channels, terms):
    s, tensors, _ = narrow_product(8, channels, terms)
    assert in_lanes(check(s, tensors)) == []


def tiled_rows(rows, terms, tile=1, dtype="float32", reducer="sum"):
    """The reductions of rows, in tiles of so many, scaled by something that lies three elements apart."""
    x, w = te.placeholder((rows, terms), dtype, "X"), te.placeholder((terms, 3), dtype, "W")
    k = te.reduce_axis((0, terms), "k")
    r = te.compute((rows,), lambda i: REDUCERS[reducer](x[i, k] * w[k, 1], axis=k), name="R")
    s = te.create_schedule(r)
    i, inner = s[r].split(r.op.axis[0], factor=tile)
    s[r].reorder(i, k, inner)
    return s


@pytest.mark.parametrize(("rows", "tile", "dtype"), [(5, 1, "int32"), (7, 2, "float32"), (5, 1, "int8")])
@pytest.mark.parametrize("reducer", sorted(REDUCERS))
def test_rows_of_symbolic_length(reducer, rows, tile, dtype):
    m = te.var("m")
    s = tiled_rows(rows, m, tile, dtype, reducer)
    nest = lower(s, limits=LIMITS)
    assert in_lanes(nest)
    kernel = build(nest, target="llvm", name="kernel")
    for terms in (0, 1, 15, 16, 17, 47, 63, 64, 65, 100, 128, 200):
        case = Case.of(s.state, {m: terms})
        case.check_interpreted(nest)
        case.check_kernel(kernel)


def test_the_rest_of_a_symbolic_row_goes_into_the_first_vector():
    """Vector by vector, then the lanes that are left."""
    x, r = row_reduction(te.var("n"))
    lines = str(lower(te.create_schedule(r), [x, r], limits=LIMITS)).splitlines()
    first = next(number for number, line in enumerate(lines) if "for k" in line)
    assert [line.removeprefix("  ") for line in lines[first : first + 11]] == [
        "for k.s in 0..n//64:",
        "  unroll u_1 in 0..4:",
        "    vectorize v_1 in 0..16:",
        "      R.lanes[u_1, v_1] = R.lanes[u_1, v_1] + X[i, k.s*64 + u_1*16 + v_1]",
        "if n%64 >= 1:",
        "  for k.w in 0..n%64//16:",
        "    vectorize v_2 in 0..16:",
        "      R.lanes[0, v_2] = R.lanes[0, v_2] + X[i, n//64*64 + k.w*16 + v_2]",
        "  if n%16 >= 1:",
        "    vectorize v_3 in 0..16:",
        "      if v_3 < n%16:",
    ]


@pytest.mark.parametrize("size", [0, 2, 3, 4, 22, 90])
def test_a_reduction_over_less_than_nothing_is_its_identity(size):
    n = te.var("n")
    x, k = te.placeholder((n,), "int32", name="X"), te.reduce_axis((0, n - 3), name="k")
    r = te.compute((1,), lambda i: te.sum(x[k + 3] * 2, axis=k), name="R")
    nest = lower(te.create_schedule(r), [x, r], limits=LIMITS)
    x = np.arange(size, dtype=np.int32)

    assert in_lanes(nest) == [(4, 16)]
    assert build(nest)(x) == 2 * x[3:].sum()


@pytest.mark.parametrize("rows", ["constant", "symbolic"])
@settings(max_examples=12, deadline=None)
@given(count=st.integers(1, 6), terms=st.integers(0, 300), tile=st.integers(1, 3))
def test_rows_of_random_length(rows, count, terms, tile):
    n, m = te.var("n"), te.var("m")
    s = tiled_rows(count if rows == "constant" else n, m, tile)
    case = Case.of(s.state, {m: terms} if rows == "constant" else {n: count, m: terms})
    nest = lower(s, limits=LIMITS)
    assert tile > 1 or in_lanes(nest)
    case.check_interpreted(nest)
    case.check_compiled(nest)


@pytest.mark.parametrize("cpu", ["x86-64", "haswell", "znver4"])
def test_sums_of_symbolic_rows_are_those_of_vectors(cpu):
    """But for what is left of the last vector, where the CPU has no masks."""
    x, r = row_reduction(te.var("n"))
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"
    text = build(te.create_schedule(r), [x, r], target=target).get_source("ll")
    lanes = Machine.for_target(target).vector_bits // 32
    assert len(re.findall(rf"= fadd(?: \w+)* <{lanes} x float>", text)) >= 8
    assert len(re.findall(r"= fadd(?: \w+)* float\b", text)) <= 2


@pytest.mark.parametrize("factors", [(2,), (3,), (6, 2)])
def test_split_loops_that_are_joined_again_read_as_the_loop_does(factors):
    x = te.placeholder((5, 48), name="X")
    w = te.placeholder((48,), name="W")
    k = te.reduce_axis((0, 48), "k")
    r = te.compute((5,), lambda i: te.sum(x[i, k] * w[k], axis=k), name="R")
    s = te.create_schedule(r)
    plain, inner, names = lower(s, [x, w, r], limits=LIMITS), k, []
    for factor in factors:
        outer, inner = s[r].split(inner, factor=factor)
        names.append(outer.name)
    nest = check(s, [x, w, r])
    assert str(nest).replace(".".join([*names, inner.name]), "k") == str(plain)
