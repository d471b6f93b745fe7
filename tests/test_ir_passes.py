import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor import te
from ansor.ir.bounds import Bounds
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, Buffer, For, If, LoopKind, LoopNest, Store, seq, walk_statements
from ansor.ir.passes.guards import hoist_guards, remove_known_guards, simplify_guards
from ansor.ir.passes.register_tile import promote_accumulators
from ansor.ir.passes.unroll import auto_unroll
from ansor.ir.printer import format_nest, format_stmt
from ansor.ir.ranges import loop_ranges
from ansor.ir.registers import RegisterLimits
from ansor.ir.rewriting import reads_memory, simultaneous
from ansor.ir.verify import check_nest
from ansor.schedule.lowering import lower
from ansor.te.expr import Binary, BinaryOp, Load, Select, Var, binary, const, free_vars, select

SERIAL, VECTORIZED, UNROLLED, PARALLEL = (
    LoopKind.SERIAL,
    LoopKind.VECTORIZED,
    LoopKind.UNROLLED,
    LoopKind.PARALLEL,
)
ZERO = const(0.0, "float32")
ROOMY = RegisterLimits(vector_bits=256, num_registers=64)


def loops(body, *levels):
    for var, extent, *kind in reversed(levels):
        body = For(var, extent, kind[0] if kind else SERIAL, body)
    return body


def load(buffer, *indices):
    return Load(buffer, tuple(indices), buffer.dtype)


def both(*conditions):
    result = conditions[0]
    for condition in conditions[1:]:
        result = binary(BinaryOp.AND, result, condition)
    return result


def kinds(stmt):
    return [s.kind for s in walk_statements(stmt) if isinstance(s, For)]


def count(stmt, kind):
    return sum(isinstance(s, kind) for s in walk_statements(stmt))


def results_of(nest, arrays, sizes=()):
    """The outputs of a nest, in which no two threads may meet."""
    own = [array.copy() for array in arrays]
    run_nest(nest, own, sizes, check_races=True)
    return [own[position] for position in nest.outputs]


def same_results(nest, body, arrays, sizes=(), expected=None):
    """`body` in the place of the nest's is valid and computes the same, or what is expected, bit by bit."""
    new = LoopNest(nest.name, nest.params, nest.sizes, body, nest.outputs)
    check_nest(new)
    before = results_of(nest, arrays, sizes) if expected is None else expected
    for wanted, found in zip(before, results_of(new, arrays, sizes), strict=True):
        np.testing.assert_array_equal(wanted, found)
    return new


# -- a tiled reduction with guards on everything --------------------------------------------------------


class TiledProduct:
    """C[i, j] op= A[i, k] * B[k, j] in tiles of (ti2, ti1), (tj2, tj1), (tk1) that need not divide."""

    def __init__(self, sizes, tiles, order, vectorize, maximum=False):
        (n, m, k), (ti2, ti1, tj2, tj1, tk1) = sizes, tiles
        self.arrays = [Buffer("A", "float32", (n, k)), Buffer("B", "float32", (k, m))]
        a, b = self.arrays
        c = Buffer("C", "float32", (n, m))
        self.params = (a, b, c)
        outer = {"i0": -(-n // (ti1 * ti2)), "j0": -(-m // (tj1 * tj2)), "k0": -(-k // tk1)}
        inner = {"i2": ti2, "j2": tj2, "i1": ti1, "j1": tj1, "k1": tk1}
        main = {name: Var(name) if name in (*outer, *order) else const(0) for name in (*outer, *inner)}
        init = {**main, **{name: Var(f"{name}.init") for name in order}}

        def place(names):
            return (
                (names["i0"] * ti2 + names["i2"]) * ti1 + names["i1"],
                (names["j0"] * tj2 + names["j2"]) * tj1 + names["j1"],
                names["k0"] * tk1 + names["k1"],
            )

        (i, j, r), (p, q, _) = place(main), place(init)
        kind = {"j1": VECTORIZED} if vectorize else {}
        product = load(a, i, r) * load(b, r, j)
        op = BinaryOp.MAX if maximum else BinaryOp.ADD
        update = Store(c, (i, j), Binary(op, load(c, i, j), product, "float32"))
        guards = both(i < const(n), j < const(m), r < const(k))
        body = loops(If(guards, update), *((main[x], inner[x], kind.get(x, SERIAL)) for x in order))
        start = If(both(p < const(n), q < const(m)), Store(c, (p, q), ZERO))
        spatial = [x for x in order if x[0] != "k"]
        start = loops(start, *((init[x], inner[x], kind.get(x, SERIAL)) for x in spatial))
        whole = loops(
            seq(start, loops(body, (main["k0"], outer["k0"]))),
            (main["i0"], outer["i0"], PARALLEL),
            (main["j0"], outer["j0"]),
        )
        self.nest = LoopNest("product", self.params, (), whole, (2,))

    def data(self):
        """Small whole numbers: their sums are exact in any order."""
        rng = np.random.default_rng(0)
        return [rng.integers(-8, 9, p.shape).astype(np.float32) for p in self.params]


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 12)] * 3),
    tiles=st.tuples(*[st.sampled_from([1, 2, 3, 4, 8])] * 5),
    order=st.permutations(["i2", "j2", "k1", "i1", "j1"]),
    vectorize=st.booleans(),
    maximum=st.booleans(),
    copied=st.sampled_from([4, 64, 1000]),
)
def test_passes_preserve_tiled_reductions(sizes, tiles, order, vectorize, maximum, copied):
    case = TiledProduct(sizes, tiles, order, vectorize, maximum)
    check_nest(case.nest)
    data, body = case.data(), case.nest.body
    found = [simplify_guards(body, max_copied=copied)]
    for limits in (ROOMY, RegisterLimits(num_registers=6)):
        promoted = promote_accumulators(body, limits)
        polished = simplify_guards(promoted, max_copied=copied)
        found += [promoted, polished, auto_unroll(polished, 64, limits)]
    expected = results_of(case.nest, data)
    for one in {format_stmt(one): one for one in found}.values():
        same_results(case.nest, one, data, expected=expected)


def test_a_register_tile_of_a_matmul():
    case = TiledProduct((8, 32, 12), (1, 4, 1, 16, 3), ["k1", "i1", "j1"], True)
    nest = same_results(
        case.nest, simplify_guards(promote_accumulators(case.nest.body, RegisterLimits())), case.data()
    )
    update = "C.acc[i1_1, j1_1] + A[i0*4 + i1_1, k0*3 + k1]*B[k0*3 + k1, j0*16 + j1_1]"
    assert format_nest(nest).splitlines()[1:] == [
        "parallel i0 in 0..2:",
        "  for j0 in 0..2:",
        "    allocate C.acc[4, 16] float32 register",
        "    unroll i1 in 0..4:",
        "      vectorize j1 in 0..16:",
        "        C.acc[i1, j1] = 0.0",
        "    for k0 in 0..4:",
        "      for k1 in 0..3:",
        "        unroll i1_1 in 0..4:",
        "          vectorize j1_1 in 0..16:",
        f"            C.acc[i1_1, j1_1] = {update}",
        "    unroll i1_2 in 0..4:",
        "      vectorize j1_2 in 0..16:",
        "        C[i0*4 + i1_2, j0*16 + j1_2] = C.acc[i1_2, j1_2]",
    ]


def test_one_test_per_register_tile():
    case = TiledProduct((30, 50, 21), (1, 4, 1, 16, 3), ["k1", "i1", "j1"], True)
    body = simplify_guards(promote_accumulators(case.nest.body, RegisterLimits()))
    nest = same_results(case.nest, body, case.data())
    tests = [s for s in walk_statements(nest.body) if isinstance(s, If) and s.other is not None]
    assert [format_stmt(t).splitlines()[0] for t in tests] == ["if j0 < 3:", "if i0 < 7:", "if i0 < 7:"]
    assert count(body, If) == len(tests)  # The borders are known: their loops are shorter.


@pytest.mark.parametrize("lanes", [4, 16, 32])
def test_no_reduction_tests_where_its_tile_lies(lanes):
    """A register tile of 3 x 2 vectors, neither of which divides: tests inside are decided by unrolling."""
    case = TiledProduct((31, 5 * lanes + 3, 21), (1, 3, 2, lanes, 3), ["k1", "i1", "j2", "j1"], True)
    limits = RegisterLimits(vector_bits=32 * lanes)
    body = simplify_guards(promote_accumulators(case.nest.body, limits))
    nest = same_results(case.nest, body, case.data())
    reductions = [s for s in walk_statements(nest.body) if isinstance(s, For) and s.var.name.startswith("k0")]
    assert len(reductions) == 4  # Inside, two borders and a corner.
    for reduction in reductions:
        inner = {s.var for s in walk_statements(reduction.body) if isinstance(s, For)}
        tests = [s.cond for s in walk_statements(reduction.body) if isinstance(s, If)]
        assert all(free_vars(test) <= inner for test in tests)
    inside, *_ = reductions
    assert count(inside, If) == 0


def test_a_tile_that_does_not_fit_stays_in_memory():
    case = TiledProduct((8, 32, 12), (1, 4, 1, 16, 3), ["k1", "i1", "j1"], True)
    body = case.nest.body
    assert promote_accumulators(body, RegisterLimits(num_registers=9)) is body
    assert count(promote_accumulators(body, RegisterLimits(num_registers=10)), Alloc) == 1
    assert promote_accumulators(body, RegisterLimits(max_instructions=39)) is body
    wide = RegisterLimits(vector_bits=512, num_registers=6)
    assert count(promote_accumulators(body, wide), Alloc) == 1


def test_elements_that_a_tile_shares_stay_in_memory():
    x, y = Buffer("X", "int32", (6, 8)), Buffer("Y", "int32", (4,))
    k, j = Var("k"), Var("j")
    update = Store(y, (j // 2,), load(y, j // 2) + load(x, k, j))
    body = loops(update, (k, 6), (j, 8))
    assert promote_accumulators(body, ROOMY) is body


def test_an_update_that_reads_other_elements_stays_in_memory():
    y = Buffer("Y", "int32", (9,))
    k, j = Var("k"), Var("j")
    update = Store(y, (j,), load(y, j) + load(y, j + 1))
    body = loops(update, (k, 6), (j, 8))
    assert promote_accumulators(body, ROOMY) is body


def conditional_product(condition, rows=8):
    """C[i, j] += A[i, k] * B[k, j] where a condition of i, k and j holds; C has as many rows as that."""
    a, b = Buffer("A", "float32", (8, 12)), Buffer("B", "float32", (12, 16))
    m, c = Buffer("M", "int32", (8, 16)), Buffer("C", "float32", (rows, 16))
    i, j, k = Var("i"), Var("j"), Var("k")
    update = If(condition(m, i, k, j), Store(c, (i, j), load(c, i, j) + load(a, i, k) * load(b, k, j)))
    p, q = Var("p"), Var("q")
    start = loops(Store(c, (p, q), ZERO), (p, rows, UNROLLED), (q, 16, VECTORIZED))
    body = seq(start, loops(update, (k, 12), (i, 8, UNROLLED), (j, 16, VECTORIZED)))
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, x.shape).astype(x.dtype) for x in (a, b, m, c)]
    return LoopNest("product", (a, b, m, c), (), body, (3,)), arrays


@pytest.mark.parametrize(
    "condition",
    [
        lambda m, i, k, j: load(m, i, k) > const(0),
        lambda m, i, k, j: load(m, i, j) > const(0),
        lambda m, i, k, j: both(load(m, i, k) > const(0), load(m, k // 2, j) < const(2), k < const(11)),
        lambda m, i, k, j: both(load(m, i, k) > const(0), i < const(7)),
    ],
)
def test_an_update_under_a_condition_on_data_chooses_in_registers(condition):
    nest, arrays = conditional_product(condition)
    new = same_results(nest, promote_accumulators(nest.body, ROOMY), arrays)
    assert count(new.body, Alloc) == 1
    assert not any(map(reads_memory, (s.cond for s in walk_statements(new.body) if isinstance(s, If))))
    (update,) = (s for s in walk_statements(new.body) if isinstance(s, Store) and "A[" in format_stmt(s))
    assert isinstance(update.value, Select)
    assert not update.value.lazy


def test_what_only_the_condition_keeps_in_bounds_is_read_where_it_holds():
    x, at, y = Buffer("X", "int32", (4,)), Buffer("at", "int32", (6,)), Buffer("Y", "int32", (8,))
    k, j = Var("k"), Var("j")
    place = load(at, k)
    update = If(both(place >= const(0), place < const(4)), Store(y, (j,), load(y, j) + load(x, place) * j))
    p = Var("p")
    body = seq(loops(Store(y, (p,), const(1)), (p, 8)), loops(update, (k, 6), (j, 8)))
    nest = LoopNest("f", (x, at, y), (), body, (2,))
    data = [np.arange(4, dtype=np.int32), np.array([3, -9, 0, 4, 1, 99], np.int32), np.ones(8, np.int32)]
    new = same_results(nest, promote_accumulators(nest.body, ROOMY), data)
    values = [s.value for s in walk_statements(new.body) if isinstance(s, Store)]
    assert [value.lazy for value in values if isinstance(value, Select)] == [True]


def test_a_condition_that_ties_elements_to_the_reduction_stays_around_the_update():
    nest, arrays = conditional_product(lambda m, i, k, j: both(k <= i, j + k < const(20)))
    new = same_results(nest, promote_accumulators(nest.body, ROOMY), arrays)
    assert [one.buffer.name for one in walk_statements(new.body) if isinstance(one, Alloc)] == ["C.acc"]
    assert [format_stmt(one).splitlines()[0] for one in walk_statements(new.body) if isinstance(one, If)] == [
        "if k <= i and j + k < 20:"
    ]


def test_a_guard_of_the_reduction_alone_says_nothing_of_elements():
    n = te.var("n")
    x, k = te.placeholder((n, 10), name="X"), te.reduce_axis((0, 10), "k")
    y = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    s = te.create_schedule(y)
    s[y].split(k, factor=4)
    body = lower(s, [x, y], simple_mode=True).body
    assert count(promote_accumulators(body, ROOMY), Alloc) == 1


def test_elements_that_only_such_a_condition_keeps_in_bounds_stay_in_memory():
    def inside(m, i, k, j):
        return i + k < const(5)

    nest, arrays = conditional_product(inside, rows=5)
    check_nest(nest)
    assert promote_accumulators(nest.body, ROOMY) is nest.body
    guarded, _ = conditional_product(lambda *at: both(inside(*at), at[1] < const(5)), rows=5)
    assert count(same_results(guarded, promote_accumulators(guarded.body, ROOMY), arrays).body, Alloc) == 1


def argmax_of_columns(rows=12, columns=32):
    """The greatest element of each column and where it is, as vectors of columns."""
    x = te.placeholder((rows, columns), name="X")
    k = te.reduce_axis((0, rows), "k")

    def later(a, b):
        return te.any(b[1] > a[1], te.all(b[1] == a[1], b[0] < a[0]))

    argmax = te.comm_reducer(
        lambda a, b: (te.select(later(a, b), b[0], a[0]), te.maximum(a[1], b[1])),
        lambda at, best: (te.max_value(at), te.min_value(best)),
        name="argmax",
    )
    at, best = te.compute((columns,), lambda j: argmax((k, x[k, j]), axis=k), name="C")
    s = te.create_schedule([at, best])
    jo, ji = s[at].split(at.op.axis[0], factor=16)
    s[at].reorder(jo, at.op.reduce_axis[0], ji)
    s[at].vectorize(ji)
    return s, [x, at, best]


def test_all_values_of_a_reduction_are_in_registers():
    s, tensors = argmax_of_columns()
    simple = lower(s, tensors, simple_mode=True)
    data = [np.random.default_rng(0).integers(-3, 4, (12, 32)).astype(np.float32)]
    data += [np.zeros(32, np.int32), np.zeros(32, np.float32)]
    nest = same_results(simple, promote_accumulators(simple.body, RegisterLimits(512, 32)), data)
    assert format_nest(nest).splitlines()[1:8] == [
        "for j.0 in 0..2:",
        "  allocate C.v0.acc[16] int32 register",
        "  allocate C.v1.acc[16] float32 register",
        "  vectorize j.1 in 0..16:",
        "    C.v0.acc[j.1] = 2147483647",
        "    C.v1.acc[j.1] = -3.4028234663852886e+38",
        "  for k in 0..12:",
    ]
    assert [format_stmt(s) for s in walk_statements(nest.body) if isinstance(s, Store)][2:] == [
        "C.v0.acc[j.1] = C.v0.acc.next",
        "C.v1.acc[j.1] = C.v1.acc.next",
        "C.v0[j.0*16 + j.1] = C.v0.acc[j.1]",
        "C.v1[j.0*16 + j.1] = C.v1.acc[j.1]",
    ]


def test_values_of_a_reduction_without_a_tile_start_in_registers():
    x = Buffer("X", "int32", (6,))
    low, high = Buffer("low", "int32", (1,)), Buffer("high", "int32", (1,))
    k, zero = Var("k"), const(0)
    stores = [
        Store(one, (zero,), Binary(op, load(one, zero), load(x, k), "int32"))
        for one, op in ((low, BinaryOp.MIN), (high, BinaryOp.MAX))
    ]
    starts = [Store(low, (zero,), const(99)), Store(high, (zero,), const(-99))]
    nest = LoopNest("f", (x, low, high), (), seq(*starts, loops(simultaneous(stores), (k, 6))), (1, 2))
    data = [np.array([3, -1, 4, 1, -5, 9], np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    new = same_results(nest, promote_accumulators(nest.body, ROOMY), data)
    kept = [s for s in walk_statements(new.body) if isinstance(s, Store) and s.buffer in (low, high)]
    assert count(new.body, Alloc) == 2
    assert len(kept) == 2  # Each is stored once, at the end.


def test_all_values_of_a_reduction_fit_or_none_does():
    body = lower(*argmax_of_columns(), simple_mode=True).body
    assert promote_accumulators(body, RegisterLimits(256, num_registers=5)) is body
    assert count(promote_accumulators(body, RegisterLimits(256, num_registers=6)), Alloc) == 2


def test_a_scalar_accumulator_and_a_load_of_the_earlier_value():
    x, y = Buffer("X", "float32", (5, 7)), Buffer("Y", "float32", (5,))
    i, k, p = Var("i"), Var("k"), Var("p")
    value = select(k < const(5), load(x, i, k), ZERO, lazy=True)
    sums = loops(Store(y, (i,), load(y, i) + value), (i, 5), (k, 7))
    nest = LoopNest("f", (x, y), (), seq(loops(Store(y, (p,), ZERO), (p, 5)), sums), (1,))
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((5, 7)).astype(np.float32), np.zeros(5, np.float32)]
    promoted = promote_accumulators(nest.body, RegisterLimits())
    assert "Y.acc[] = Y[i]" in format_stmt(promoted)
    same_results(nest, promoted, data)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("columns", [(3, 1), (1, 3)])
def test_every_register_tile_has_a_version_without_tests(cached, columns):
    """However much is initialised and copied around it, and whichever loops lie between tile and vectors."""
    a, b = te.placeholder((100, 100), name="A"), te.placeholder((100, 100), name="B")
    k = te.reduce_axis((0, 100), "k")
    c = te.compute((100, 100), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c)
    sums = s.cache_write(c, "local") if cached else c
    i0, i1, i2, i3 = s[sums].split(s[sums].op.axis[0], factors=[1, 4, 9])
    j0, j1, j2, j3 = s[sums].split(s[sums].op.axis[1], factors=[*columns, 32])
    k0, k1 = s[sums].split(s[sums].op.reduce_axis[0], factor=16)
    s[sums].reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    s[sums].vectorize(j3)
    if cached:
        i_out, i_in = s[c].split(s[c].op.axis[0], factor=36)
        j_out, j_in = s[c].split(s[c].op.axis[1], factor=96)
        s[c].reorder(i_out, j_out, i_in, j_in)
        s[sums].compute_at(s[c], j_out)
        s[c].parallel(s[c].fuse(i_out, j_out))
    nest = lower(s, [a, b, c], limits=RegisterLimits(vector_bits=512, num_registers=32))
    tiles = [x for x in walk_statements(nest.body) if isinstance(x, Alloc) and x.buffer.scope == "register"]
    assert len(tiles) >= 4
    assert [count(tile, If) for tile in tiles[:2]] == [0, 0]  # Inside, and where the reduction ends.


# -- guards ----------------------------------------------------------------------------------------------


def guarded_copy(n, factor, kind=SERIAL):
    size = n if isinstance(n, Var) else const(n)
    x, y = Buffer("X", "float32", (n,)), Buffer("Y", "float32", (n,))
    o, i = Var("o"), Var("i")
    at = o * factor + i
    body = If(at < size, Store(y, (at,), load(x, at)))
    extent = (n + (factor - 1)) // factor
    sizes = (n,) if isinstance(n, Var) else ()
    return LoopNest("copy", (x, y), sizes, For(o, extent, SERIAL, loops(body, (i, factor, kind))), (1,))


@pytest.mark.parametrize("size", [1, 63, 64, 65, 200])
def test_a_symbolic_copy_is_split_into_whole_tiles_and_the_last(size):
    n = Var("n")
    nest = guarded_copy(n, 64, VECTORIZED)
    body = simplify_guards(nest.body, Bounds({n: (1, None)}))
    assert [line.strip() for line in format_stmt(body).splitlines() if "if" in line] == [
        "if o*64 + 63 < n:",
        "if o*64 + i_1 < n:",
    ]
    data = [np.arange(size, dtype=np.float32), np.zeros(size, np.float32)]
    same_results(nest, body, data, [size])


def test_guards_that_always_hold_vanish():
    nest = guarded_copy(128, 64)
    body = simplify_guards(nest.body)
    assert count(body, If) == 0
    same_results(nest, body, [np.arange(128, dtype=np.float32), np.zeros(128, np.float32)])


def test_a_loop_ends_where_its_body_does_nothing_more():
    nest = guarded_copy(5, 8)
    body = remove_known_guards(nest.body, Bounds(loop_ranges(nest.body)))
    assert format_stmt(body).splitlines()[-2:] == [
        "  for i in 0..5:",
        "    Y[i] = X[i]",
    ] or "0..5" in format_stmt(body)
    same_results(nest, body, [np.arange(5, dtype=np.float32), np.zeros(5, np.float32)])


def test_conditions_that_never_hold_take_their_loops_along():
    y = Buffer("Y", "int32", (4,))
    i, j = Var("i"), Var("j")
    dead = loops(If(j > const(9), Store(y, (j,), const(1))), (j, 4))
    body = seq(loops(Store(y, (i,), i), (i, 4)), dead)
    known = Bounds({i: (0, 3), j: (0, 3)})
    assert format_stmt(remove_known_guards(body, known)) == "for i in 0..4:\n  Y[i] = i"


def test_an_inner_test_that_an_outer_one_implies_vanishes():
    y = Buffer("Y", "int32", (9,))
    i, j = Var("i"), Var("j")
    body = If(i < const(5), loops(If(both(i < const(7), j < i), Store(y, (i,), j)), (j, 4)))
    known = Bounds({i: (0, 8), j: (0, 3)})
    text = format_stmt(remove_known_guards(body, known))
    assert "i < 7" not in text
    assert "j < i" in text


def test_invariant_conditions_leave_their_loops():
    y = Buffer("Y", "int32", (9, 9))
    i, j = Var("i"), Var("j")
    store = Store(y, (i, j), j)
    body = loops(If(both(i < const(5), j < i), store), (i, 9), (j, 9))
    assert format_stmt(hoist_guards(body)).splitlines() == [
        "for i in 0..5:",
        "  for j in 0..9:",
        "    if j < i:",
        "      Y[i, j] = j",
    ]


def test_conditions_on_memory_stay():
    x, y = Buffer("X", "int32", (4,)), Buffer("Y", "int32", (4,))
    i, j = Var("i"), Var("j")
    update = Store(y, (i,), load(y, i) + 1)
    body = loops(If(load(y, i) < load(x, i), update), (i, 4), (j, 5))
    p = Var("p")
    start = loops(Store(y, (p,), const(0)), (p, 4))
    nest = LoopNest("f", (x, y), (), seq(start, body), (1,))
    data = [np.array([3, 0, 9, 1], np.int32), np.zeros(4, np.int32)]
    new = same_results(nest, simplify_guards(nest.body), data)
    assert new.body is nest.body


# -- unrolling ---------------------------------------------------------------------------------------------


def three_loops(inner_kind=SERIAL):
    y = Buffer("Y", "int32", (4, 5, 6))
    i, j, k = Var("i"), Var("j"), Var("k")
    return loops(Store(y, (i, j, k), k), (i, 4), (j, 5), (k, 6, inner_kind))


@pytest.mark.parametrize(
    ("max_step", "expected"),
    [
        (0, [SERIAL, SERIAL, SERIAL]),
        (5, [SERIAL, SERIAL, SERIAL]),
        (6, [SERIAL, SERIAL, UNROLLED]),
        (29, [SERIAL, SERIAL, UNROLLED]),
        (30, [SERIAL, UNROLLED, UNROLLED]),
        (120, [UNROLLED, UNROLLED, UNROLLED]),
    ],
)
def test_loops_are_unrolled_from_the_inside_out(max_step, expected):
    assert kinds(auto_unroll(three_loops(), max_step, ROOMY)) == expected


def test_a_vectorized_body_is_one_step():
    assert kinds(auto_unroll(three_loops(VECTORIZED), 5, ROOMY)) == [SERIAL, UNROLLED, VECTORIZED]


def test_a_loop_around_a_loop_that_stays_is_not_unrolled():
    y = Buffer("Y", "int32", (2, 100))
    i, j, n = Var("i"), Var("j"), Var("n")
    assert kinds(auto_unroll(loops(Store(y, (i, j), j), (i, 2), (j, 100)), 64, ROOMY)) == [SERIAL, SERIAL]
    assert kinds(auto_unroll(loops(Store(y, (i, j), j), (i, 2), (j, n)), 64, ROOMY)) == [SERIAL, SERIAL]
    parallel = loops(Store(y, (i, j), j), (i, 2), (j, 10, PARALLEL))
    assert kinds(auto_unroll(parallel, 64, ROOMY)) == [SERIAL, PARALLEL]


def test_statements_of_a_sequence_add_up():
    y = Buffer("Y", "int32", (4,))
    i, j = Var("i"), Var("j")
    body = loops(seq(Store(y, (i,), i), loops(Store(y, (j,), j), (j, 4))), (i, 4))
    assert kinds(auto_unroll(body, 19, ROOMY)) == [SERIAL, UNROLLED]
    assert kinds(auto_unroll(body, 20, ROOMY)) == [UNROLLED, UNROLLED]


def products(extent, kind=SERIAL):
    """A reduction of `extent` steps: 8 rows of 32 lanes, each vector a multiply-add, three loads, a store."""
    shapes = {"A": (64, 8), "B": (64, 32), "C": (8, 32)}
    a, b, c = (Buffer(name, "float32", shape) for name, shape in shapes.items())
    i, j, k = Var("i"), Var("j"), Var("k")
    update = Store(c, (i, j), load(c, i, j) + load(a, k, i) * load(b, k, j))
    return loops(update, (k, extent, kind), (i, 8), (j, 32, VECTORIZED))


@pytest.mark.parametrize(
    ("vector_bits", "most", "expected"),
    [
        (256, 5 * 4 * 8 - 1, [SERIAL, SERIAL]),
        (256, 5 * 4 * 8, [SERIAL, UNROLLED]),
        (256, 5 * 4 * 8 * 16 - 1, [SERIAL, UNROLLED]),
        (256, 5 * 4 * 8 * 16, [UNROLLED, UNROLLED]),
        (512, 5 * 2 * 8 * 16, [UNROLLED, UNROLLED]),
    ],
)
def test_unrolling_is_bounded_by_the_code_that_it_makes(vector_bits, most, expected):
    """Sixteen steps of eight vector loops are 128 steps in any case."""
    limits = RegisterLimits(vector_bits, max_instructions=most)
    assert kinds(auto_unroll(products(16), 512, limits)) == [*expected, VECTORIZED]


def test_a_loop_unrolled_by_name_stays_so_whatever_code_it_makes():
    unrolled = auto_unroll(products(64, UNROLLED), 512, RegisterLimits(max_instructions=160))
    assert kinds(unrolled) == [UNROLLED, UNROLLED, VECTORIZED]
    assert kinds(auto_unroll(unrolled, 512, RegisterLimits(max_instructions=1))) == kinds(unrolled)


def test_a_vector_loop_that_stays_a_loop_is_the_code_of_one_vector():
    """So the channels around many pixels are unrolled, and can be stored together."""
    x, y = Buffer("X", "float32", (3, 4000)), Buffer("Y", "float32", (4000, 3))
    i, j = Var("i"), Var("j")
    pixels = loops(Store(y, (j, i), load(x, i, j)), (i, 3), (j, 4000, VECTORIZED))
    assert kinds(auto_unroll(pixels, 16, RegisterLimits(max_instructions=6))) == [UNROLLED, VECTORIZED]


def test_the_code_of_statements_adds_up():
    x, y = Buffer("X", "float32", (4,)), Buffer("Y", "float32", (4,))
    i = Var("i")
    copy, square = Store(y, (i,), load(x, i)), Store(y, (i,), load(x, i) * load(x, i))  # 2 and 4 instructions
    guarded = If(binary(BinaryOp.LT, load(x, i), ZERO), seq(copy, square))
    for body in (seq(copy, square), guarded):
        assert kinds(auto_unroll(loops(body, (i, 4)), 64, RegisterLimits(max_instructions=23))) == [SERIAL]
        assert kinds(auto_unroll(loops(body, (i, 4)), 64, RegisterLimits(max_instructions=24))) == [UNROLLED]
