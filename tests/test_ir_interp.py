import numpy as np
import pytest

from ansor.errors import ArgumentError, RunError
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, Let, LoopKind, LoopNest, Store, seq
from ansor.te.expr import Load, Var, call, cast, const, select

RNG = np.random.default_rng(0)


def load(buffer, *indices):
    return Load(buffer, tuple(const(i) if isinstance(i, int) else i for i in indices), buffer.dtype)


def store(buffer, indices, value):
    return Store(buffer, tuple(const(i) if isinstance(i, int) else i for i in indices), value)


def loops(body, *levels):
    """`(var, extent[, kind])`, outermost first, around `body`."""
    for var, extent, *kind in reversed(levels):
        body = For(var, extent, kind[0] if kind else LoopKind.SERIAL, body)
    return body


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def matmul(n, m, k, inner_kind=LoopKind.SERIAL):
    a, b, c = (
        Buffer(name, "float32", shape) for name, shape in (("A", (n, k)), ("B", (k, m)), ("C", (n, m)))
    )
    i, j, r, i2, j2 = (Var(name) for name in ("i", "j", "k", "i2", "j2"))
    init = loops(store(c, (i2, j2), const(0.0, "float32")), (i2, n), (j2, m))
    update = store(c, (i, j), load(c, i, j) + load(a, i, r) * load(b, r, j))
    main = loops(update, (i, n, LoopKind.PARALLEL), (r, k), (j, m, inner_kind))
    return LoopNest("matmul", (a, b, c), (), seq(init, main), (2,))


def sequential_matmul(a, b):
    result = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for r in range(a.shape[1]):
        result += a[:, r : r + 1] * b[r : r + 1]
    return result


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.VECTORIZED, LoopKind.UNROLLED])
@pytest.mark.parametrize("rng", [None, np.random.default_rng(1)])
def test_matmul_is_rounded_after_each_operation(kind, rng):
    a, b = floats(7, 11), floats(11, 5)
    c = np.full((7, 5), np.nan, np.float32)
    run_nest(matmul(7, 5, 11, kind), [a, b, c], rng=rng, check_races=True)
    np.testing.assert_array_equal(c, sequential_matmul(a, b))


def test_many_iterations_are_chunked_over_lanes():
    n = 70_001
    x, y = Buffer("X", "int64", (n,)), Buffer("Y", "int64", (n,))
    i = Var("i")
    nest = LoopNest("f", (x, y), (), loops(store(y, (i,), load(x, i) * cast(i, "int64")), (i, n)), (1,))
    values = np.arange(n)[::-1].copy()
    out = np.empty(n, np.int64)
    run_nest(nest, [values, out])
    np.testing.assert_array_equal(out, values * np.arange(n))


def test_serial_recurrence_runs_in_order():
    n = 20
    x = Buffer("X", "int32", (n,))
    i = Var("i")
    body = seq(store(x, (0,), const(1)), loops(store(x, (i + 1,), load(x, i) * 3), (i, n - 1)))
    out = np.zeros(n, np.int32)
    run_nest(LoopNest("f", (x,), (), body, (0,)), [out])
    np.testing.assert_array_equal(out, np.array([3**e for e in range(n)]).astype(np.int32))  # wraps


def test_scratch_is_private_to_the_iteration_that_allocates_it():
    n = 300
    x, y, t = Buffer("X", "int32", (n, 4)), Buffer("Y", "int32", (n,)), Buffer("T", "int32", (4,), "local")
    i, j, k = Var("i"), Var("j"), Var("k")
    body = Alloc(
        t,
        seq(
            loops(store(t, (j,), load(x, i, j) + j), (j, 4)),
            store(y, (i,), const(0)),
            loops(store(y, (i,), load(y, i) * 3 + load(t, k)), (k, 4)),
        ),
    )
    nest = LoopNest("f", (x, y), (), loops(body, (i, n, LoopKind.PARALLEL)), (1,))
    values = RNG.integers(-9, 9, (n, 4)).astype(np.int32)
    out = np.empty(n, np.int32)
    run_nest(nest, [values, out], check_races=True)
    np.testing.assert_array_equal(out, (values + np.arange(4)) @ np.array([27, 9, 3, 1]))


def test_symbolic_sizes_guards_and_loops_of_varying_extent():
    n = Var("n")
    x, y = Buffer("X", "float32", (n, n)), Buffer("Y", "float32", (n,))
    i0, i1, j = Var("i0"), Var("i1"), Var("j")
    i = i0 * 4 + i1
    row = seq(
        store(y, (i,), const(0.0, "float32")),
        For(j, i + 1, LoopKind.SERIAL, store(y, (i,), load(y, i) + load(x, i, j))),
    )
    nest = LoopNest(
        "f", (x, y), (n,), For(i0, (n + 3) // 4, LoopKind.PARALLEL, loops(If(i < n, row), (i1, 4))), (1,)
    )
    values = RNG.integers(-5, 5, (10, 10)).astype(np.float32)
    out = np.empty(10, np.float32)
    run_nest(nest, [values, out], [10], check_races=True)
    np.testing.assert_array_equal(out, np.tril(values).sum(1))


def test_lazy_select_does_not_evaluate_the_other_side():
    x, y = Buffer("X", "float32", (6,)), Buffer("Y", "float32", (8,))
    i = Var("i")
    value = select((i >= 1) & (i < 7), load(x, i - 1), const(0.5, "float32"), lazy=True)
    nest = LoopNest("pad", (x, y), (), loops(store(y, (i,), value), (i, 8)), (1,))
    values = floats(6)
    out = np.empty(8, np.float32)
    run_nest(nest, [values, out])
    np.testing.assert_array_equal(out, np.pad(values, 1, constant_values=0.5))
    eager = select((i >= 1) & (i < 7), load(x, i - 1), const(0.5, "float32"))
    nest = LoopNest("pad", (x, y), (), loops(store(y, (i,), eager), (i, 8)), (1,))
    with pytest.raises(
        RunError, match=r"`X\[i - 1\]` is out of bounds in dimension 0: -1 is not in 0..5 at i=0"
    ):
        run_nest(nest, [values, out])


def test_argmax_with_let_and_two_outputs():
    n, m = 33, 17
    x, v, p = Buffer("X", "float32", (n, m)), Buffer("V", "float32", (n,)), Buffer("P", "int32", (n,))
    i, k = Var("i"), Var("k")
    best, where = Var("best", "float32"), Var("where")
    update = Let(
        where,
        select(load(x, i, k) > load(v, i), k, load(p, i)),
        Let(
            best,
            select(load(x, i, k) > load(v, i), load(x, i, k), load(v, i)),
            seq(store(v, (i,), best), store(p, (i,), where)),
        ),
    )
    init = seq(store(v, (i,), const(float("-inf"), "float32")), store(p, (i,), const(-1)))
    nest = LoopNest("argmax", (x, v, p), (), loops(seq(init, loops(update, (k, m))), (i, n)), (1, 2))
    values = floats(n, m)
    out, at = np.empty(n, np.float32), np.empty(n, np.int32)
    run_nest(nest, [values, out, at])
    np.testing.assert_array_equal(out, values.max(1))
    np.testing.assert_array_equal(at, values.argmax(1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "uint64"])
def test_arithmetic_of_other_dtypes(dtype):
    from ansor.dtypes import to_numpy

    n = 40
    x, y = Buffer("X", dtype, (n,)), Buffer("Y", dtype, (n,))
    i = Var("i")
    value = load(x, i) * load(x, i) + load(x, i)
    nest = LoopNest("f", (x, y), (), loops(store(y, (i,), value), (i, n)), (1,))
    values = RNG.integers(0, 100, n).astype(to_numpy(dtype))
    out = np.zeros(n, to_numpy(dtype))
    run_nest(nest, [values, out])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, values * values + values)


def test_intrinsics_and_casts():
    x, y = Buffer("X", "float32", (9,)), Buffer("Y", "int32", (9,))
    i = Var("i")
    value = cast(call("floor", call("exp", load(x, i))), "int32")
    nest = LoopNest("f", (x, y), (), loops(store(y, (i,), value), (i, 9)), (1,))
    values = floats(9)
    out = np.zeros(9, np.int32)
    run_nest(nest, [values, out])
    np.testing.assert_array_equal(out, np.floor(np.exp(values.astype(np.float64))).astype(np.int32))


# -- faults ---------------------------------------------------------------------------------------------


def test_store_out_of_bounds_is_located():
    y = Buffer("Y", "int32", (4, 3))
    i, j = Var("i"), Var("j")
    nest = LoopNest("f", (y,), (), loops(store(y, (i, j), i), (i, 4), (j, 4)), (0,))
    with pytest.raises(RunError, match=r"`Y\[i, j\] = i` is out of bounds in dimension 1: 3 .* at i=0, j=3"):
        run_nest(nest, [np.zeros((4, 3), np.int32)])


def test_reading_undefined_elements_is_an_error():
    y, t = Buffer("Y", "int32", (8,)), Buffer("T", "int32", (8,), "local")
    i, j = Var("i"), Var("j")
    fill = loops(store(t, (i,), i), (i, 7))
    nest = LoopNest("f", (y,), (), Alloc(t, seq(fill, loops(store(y, (j,), load(t, j)), (j, 8)))), (0,))
    with pytest.raises(RunError, match=r"`T\[j\]` is read before it is written at j=7"):
        run_nest(nest, [np.zeros(8, np.int32)])
    accumulate = loops(store(y, (i,), load(y, i) + 1), (i, 8))
    with pytest.raises(RunError, match=r"`Y\[i\]` is read before it is written"):
        run_nest(LoopNest("f", (y,), (), accumulate, (0,)), [np.zeros(8, np.int32)])


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.VECTORIZED])
def test_what_a_choice_does_not_take_may_be_undefined(kind):
    """It is read, but in lanes that take the other value; elsewhere in the expression it must be defined."""
    y, t = Buffer("Y", "int32", (8,)), Buffer("T", "int32", (8,), "local")
    i, j = Var("i"), Var("j")
    element = load(t, j)

    def run(value):
        fill = loops(store(t, (i,), i + 1), (i, 7))
        used = For(j, 8, kind, store(y, (j,), value))
        out = np.zeros(8, np.int32)
        run_nest(LoopNest("f", (y,), (), Alloc(t, seq(fill, used)), (0,)), [out])
        return out.tolist()

    chosen = select(j < 7, element, 0)
    assert run(chosen) == [1, 2, 3, 4, 5, 6, 7, 0]
    assert run(select(j < 2, 5, select(j < 7, element * element, j))) == [5, 5, 9, 16, 25, 36, 49, 7]
    undefined = r"`T\[j\]` is read before it is written at j=7"
    for value in (select(j < 7, 0, element), chosen + element, select(element < 3, 1, 2)):
        with pytest.raises(RunError, match=undefined):
            run(value)


def test_an_output_that_is_not_covered_is_an_error():
    y = Buffer("Y", "int32", (4, 5))
    i, j = Var("i"), Var("j")
    nest = LoopNest("f", (y,), (), loops(If(i * 5 + j < 19, store(y, (i, j), i)), (i, 4), (j, 5)), (0,))
    with pytest.raises(RunError, match=r"f never writes Y\[3, 4\]"):
        run_nest(nest, [np.zeros((4, 5), np.int32)])


def test_a_division_by_zero_gives_zero():
    y = Buffer("Y", "int32", (4,))
    i = Var("i")
    nest = LoopNest("f", (y,), (), loops(store(y, (i,), const(7) // (i - 2)), (i, 4)), (0,))
    found = np.ones(4, np.int32)
    run_nest(nest, [found])
    assert found.tolist() == [-4, -7, 0, 7]


@pytest.mark.parametrize("kind", [LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.THREAD_X])
def test_a_parallel_reduction_is_wrong_and_a_race(kind):
    x, y = Buffer("X", "int32", (8,)), Buffer("Y", "int32", (1,))
    i = Var("i")
    body = seq(store(y, (0,), const(0)), loops(store(y, (0,), load(y, 0) + load(x, i)), (i, 8, kind)))
    nest = LoopNest("f", (x, y), (), body, (1,))
    out = np.zeros(1, np.int32)
    run_nest(nest, [np.ones(8, np.int32), out])
    assert out[0] != 8
    with pytest.raises(
        RunError, match=f"two iterations of the {kind} loop over 'i' touch one element of 'Y'"
    ):
        run_nest(nest, [np.ones(8, np.int32), out], check_races=True)


@pytest.mark.parametrize("offset", [1, -1, 8])
def test_a_race_across_statements_is_found(offset):
    y, t = Buffer("Y", "int32", (16,)), Buffer("T", "int32", (32,))
    i = Var("i")
    first = store(t, (i + 8,), i)
    second = store(
        y, (i,), select((i + offset >= 0) & (i + offset < 16), load(t, i + 8 + offset), i, lazy=True)
    )
    nest = LoopNest("f", (y,), (), Alloc(t, loops(seq(first, second), (i, 16, LoopKind.PARALLEL))), (0,))
    with pytest.raises(RunError, match="over 'i' touch one element of 'T'"):
        run_nest(nest, [np.zeros(16, np.int32)], check_races=True)


def test_iterations_of_an_outer_serial_loop_do_not_race():
    y, t = Buffer("Y", "int32", (5, 16)), Buffer("T", "int32", (16,))
    o, i, j = Var("o"), Var("i"), Var("j")
    first = loops(store(t, (i,), i + o), (i, 16, LoopKind.PARALLEL))
    second = loops(store(y, (o, j), load(t, const(15) - j)), (j, 16, LoopKind.PARALLEL))
    nest = LoopNest("f", (y,), (), Alloc(t, loops(seq(first, second), (o, 5))), (0,))
    for rng in (None, np.random.default_rng(3)):
        out = np.zeros((5, 16), np.int32)
        run_nest(nest, [out], check_races=True, rng=rng)
        np.testing.assert_array_equal(out, 15 - np.arange(16) + np.arange(5)[:, None])


def test_wrong_arguments_are_refused():
    nest = matmul(4, 4, 4)
    good = [floats(4, 4) for _ in range(3)]
    with pytest.raises(ArgumentError, match="takes 3 arrays, found 2"):
        run_nest(nest, good[:2])
    with pytest.raises(
        ArgumentError, match=r"parameter 'B' of matmul is float32\[4, 4\], found float64\[4, 4\]"
    ):
        run_nest(nest, [good[0], good[1].astype(np.float64), good[2]])
    with pytest.raises(ArgumentError, match="takes 0 sizes, found 1"):
        run_nest(nest, good, [3])


def test_outputs_need_not_be_contiguous():
    a, b = floats(4, 6), floats(6, 3)
    c = np.zeros((3, 4), np.float32).T
    run_nest(matmul(4, 3, 6), [a, b, c])
    np.testing.assert_array_equal(c, sequential_matmul(a, b))


def test_threads_of_a_block_share_memory_and_meet_at_barriers():
    blocks, threads = 40, 64
    x, y = Buffer("X", "int32", (blocks, threads)), Buffer("Y", "int32", (blocks, threads))
    shared = Buffer("S", "int32", (threads,), "shared")
    b, t, u = Var("b"), Var("t"), Var("u")
    fill = loops(store(shared, (t,), load(x, b, t)), (t, threads, LoopKind.THREAD_X))
    back = loops(store(y, (b, u), load(shared, const(threads - 1) - u)), (u, threads, LoopKind.THREAD_X))
    body = loops(Alloc(shared, seq(fill, Barrier(), back)), (b, blocks, LoopKind.BLOCK_X))
    values = RNG.integers(0, 99, (blocks, threads)).astype(np.int32)
    out = np.zeros_like(values)
    run_nest(LoopNest("f", (x, y), (), body, (1,)), [values, out], check_races=True)
    np.testing.assert_array_equal(out, values[:, ::-1])


def test_what_an_expression_uses_twice_is_computed_once():
    x, y = Buffer("X", "float64", (4,)), Buffer("Y", "float64", (4,))
    i = Var("i")
    value = load(x, i)
    for _ in range(60):
        value = value * value
    nest = LoopNest("f", (x, y), (), loops(store(y, (i,), value), (i, 4)), (1,))
    out = np.zeros(4)
    run_nest(nest, [np.array([1.0, 0.5, 0.0, -1.0]), out])
    np.testing.assert_array_equal(out, [1.0, 0.0, 0.0, 1.0])
    deep = load(x, i)
    for _ in range(3000):
        deep = deep + 1.0
    nest = LoopNest("f", (x, y), (), loops(store(y, (i,), deep), (i, 4)), (1,))
    run_nest(nest, [np.zeros(4), out])
    np.testing.assert_array_equal(out, np.full(4, 3000.0))
