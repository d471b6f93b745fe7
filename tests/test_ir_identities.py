"""Terms that change nothing: which are left out of nests, and what each loop then does."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest

from ansor import te, workloads
from ansor.dtypes import to_numpy
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import straight_stores
from ansor.ir.interp import run_nest
from ansor.ir.nest import Buffer, For, If, LoopKind, LoopNest, Stmt, Store, seq, walk_statements
from ansor.ir.passes.identities import MOST_COPIES, MOST_STORES, skip_identities
from ansor.ir.printer import format_stmt
from ansor.ir.registers import RegisterLimits
from ansor.ir.rewriting import fresh_copy
from ansor.ir.terms import assumed, needed
from ansor.ir.verify import check_nest
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.inlining import effective_body
from ansor.schedule.lowering import lower
from ansor.schedule.skipping import needed_parts
from ansor.schedule.state import State
from ansor.te.expr import Cast, Const, Expr, Select, Var, const, int_value
from ansor.te.tensor import Tensor
from tests.costmodel_executed import products_made
from tests.device_nests import SERIAL, UNROLLED, VECTORIZED, load
from tests.paths import walk

Level = tuple[Var, int, LoopKind]


def zeroed(buffer: Buffer, value: float = 0) -> Stmt:
    """A statement that starts a reduction."""
    levels = [(Var(f"i{d}"), extent, SERIAL) for d, extent in enumerate(buffer.constant_shape)]
    return loops(Store(buffer, tuple(var for var, *_ in levels), Const(value, buffer.dtype)), *levels)


def loops(body: Stmt, *levels: Level) -> Stmt:
    for var, extent, kind in reversed(levels):
        body = For(var, extent, kind, body)
    return body


class Row:
    """`Y[h, w, c] += X[h, w + r - 1, k] * W[r, k, c]`: rows of pixels with one of padding at both ends."""

    def __init__(self, width: int = 4, taps: int = 3, dtype: str = "float32") -> None:
        self.x = Buffer("X", dtype, (2, width, 5))
        self.weights = Buffer("W", dtype, (taps, 5, 2))
        self.y = Buffer("Y", dtype, (2, width, 2))
        self.h, self.w, self.c, self.r, self.k = (Var(name) for name in "hwcrk")
        self.extents = {self.h: 2, self.w: width, self.c: 2, self.r: taps, self.k: 5}
        inside = te.all(self.w + self.r >= 1, self.w + self.r < width + 1)
        pixel = load(self.x, self.h, self.w + self.r - 1, self.k)
        self.padded = Select(inside, pixel, const(0, dtype), True, dtype)

    def update(self, term: Expr | None = None) -> Store:
        place = self.h, self.w, self.c
        product = self.padded * load(self.weights, self.r, self.k, self.c) if term is None else term
        return Store(self.y, place, load(self.y, *place) + product)

    def nest(self, order: Sequence[Var], kinds: dict[Var, LoopKind] | None = None) -> Stmt:
        levels = [(var, self.extents[var], (kinds or {}).get(var, SERIAL)) for var in order]
        return loops(self.update(), *levels)

    def same(self, before: Stmt, after: Stmt) -> None:
        """Both compute the same."""
        rng = np.random.default_rng(3)
        shapes = [buffer.constant_shape for buffer in (self.x, self.weights, self.y)]
        arrays = [rng.integers(-4, 5, shape).astype(to_numpy(self.x.dtype)) for shape in shapes]
        results = []
        for body in (before, after):
            nest = LoopNest("f", (self.x, self.weights, self.y), (), seq(zeroed(self.y), body), (2,))
            check_nest(nest)
            own = [array.copy() for array in arrays]
            run_nest(nest, own)
            results.append(own[2])
        np.testing.assert_array_equal(*results)


def test_a_test_is_made_before_the_loops_that_it_does_not_depend_on() -> None:
    row = Row()
    before = row.nest([row.h, row.w, row.r, row.k, row.c], {row.c: VECTORIZED})
    after = skip_identities(before, Bounds())
    assert format_stmt(after).splitlines() == [
        "for h in 0..2:",
        "  for w in 0..4:",
        "    for r in 0..3:",
        "      if w + r >= 1 and w + r < 5:",
        "        for k in 0..5:",
        "          vectorize c in 0..2:",
        "            Y[h, w, c] = Y[h, w, c] + X[h, w + r - 1, k]*W[r, k, c]",
    ]
    row.same(before, after)


def test_a_short_reduction_is_written_out_for_the_rows_of_a_tile() -> None:
    row = Row()
    before = row.nest([row.h, row.r, row.k, row.w, row.c], {row.w: UNROLLED, row.c: VECTORIZED})
    after = skip_identities(before, Bounds())
    assert format_stmt(after).splitlines() == [
        "for h in 0..2:",
        "  for k in 0..5:",
        "    unroll w in 0..4:",
        "      if w >= 1:",
        "        vectorize c in 0..2:",
        "          Y[h, w, c] = Y[h, w, c] + X[h, w - 1, k]*W[0, k, c]",
        "  for k_1 in 0..5:",
        "    unroll w_1 in 0..4:",
        "      vectorize c_1 in 0..2:",
        "        Y[h, w_1, c_1] = Y[h, w_1, c_1] + X[h, w_1, k_1]*W[1, k_1, c_1]",
        "  for k_2 in 0..5:",
        "    unroll w_2 in 0..3:",
        "      vectorize c_2 in 0..2:",
        "        Y[h, w_2, c_2] = Y[h, w_2, c_2] + X[h, w_2 + 1, k_2]*W[2, k_2, c_2]",
    ]
    row.same(before, after)


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16"])
def test_other_dtypes(dtype: str) -> None:
    row = Row(dtype=dtype)
    before = row.nest([row.h, row.r, row.k, row.w, row.c], {row.w: UNROLLED})
    after = skip_identities(before, Bounds())
    assert after is not before
    row.same(before, after)


def test_what_the_lanes_of_a_vector_need_stays_a_choice() -> None:
    row = Row()
    before = row.nest([row.h, row.r, row.k, row.c, row.w], {row.w: VECTORIZED})
    assert skip_identities(before, Bounds()) is before or not has_tests(skip_identities(before, Bounds()))


@pytest.mark.parametrize("kind", [SERIAL, LoopKind.PARALLEL])
def test_tiles_along_the_padded_axis_are_written_out_unless_they_are_parallel(kind: LoopKind) -> None:
    row, outer, inner = Row(), Var("wo"), Var("wi")
    body = fresh_copy(row.update(), {row.w: outer * 2 + inner})
    before = loops(
        body,
        (row.h, 2, SERIAL),
        (outer, 2, kind),
        (row.r, 3, SERIAL),
        (row.k, 5, SERIAL),
        (inner, 2, UNROLLED),
        (row.c, 2, SERIAL),
    )
    after = skip_identities(before, Bounds())
    assert has_tests(after) == (kind is SERIAL)
    assert len(stores(after)) == (6 if kind is SERIAL else 1)
    row.same(before, after)


def test_an_unrolled_reduction_is_tested_in_each_copy() -> None:
    row = Row()
    before = row.nest([row.h, row.w, row.k, row.r, row.c], {row.r: UNROLLED, row.c: VECTORIZED})
    after = skip_identities(before, Bounds())
    assert format_stmt(after).splitlines()[3:5] == [
        "      unroll r in 0..3:",
        "        if w + r >= 1 and w + r < 5:",
    ]
    row.same(before, after)


def test_a_long_reduction_is_not_written_out() -> None:
    row = Row(width=4, taps=MOST_COPIES + 1)
    before = row.nest([row.h, row.r, row.k, row.w, row.c], {row.w: UNROLLED})
    assert not has_tests(skip_identities(before, Bounds()))


def test_a_product_with_a_padded_weight_and_conversions() -> None:
    row = Row()
    weight = load(row.weights, row.r, row.k, row.c)
    tap = Select(row.k < const(4), weight, const(0.0, "float32"), True, "float32")
    term = Cast(Cast(row.padded, "float64") * Cast(tap, "float64"), "float32")
    levels = [(var, row.extents[var], SERIAL) for var in (row.h, row.w, row.c, row.r, row.k)]
    before = loops(row.update(term), *levels)
    after = skip_identities(before, Bounds())
    assert not any(isinstance(node, Select) for store in stores(after) for node in walk(store.value))
    assert "for k in 0..4" in format_stmt(after)
    row.same(before, after)


@pytest.mark.parametrize(("identity", "skips"), [(-np.inf, True), (-1e30, False), (0.0, False)])
def test_a_maximum_needs_what_is_above_everything(identity: float, skips: bool) -> None:
    x, y = Buffer("X", "float32", (4,)), Buffer("Y", "float32", (1,))
    i, zero = Var("i"), const(0)
    other = Const(identity, "float32")
    term = Select(i < const(3), load(x, i), other, True, "float32")
    before = loops(Store(y, (zero,), te.maximum(load(y, zero), term)), (i, 4, SERIAL))
    after = skip_identities(before, Bounds())
    assert ("0..3" in format_stmt(after)) == skips
    arrays = [np.array([-3, -2, -7, 9], np.float32), np.zeros(1, np.float32)]
    run_nest(LoopNest("f", (x, y), (), seq(zeroed(y, -np.inf), after), (1,)), arrays)
    assert arrays[1][0] == max(-2.0, identity)


def test_conditions_on_data_stay_choices() -> None:
    x, y, i, zero = Buffer("X", "float32", (4,)), Buffer("Y", "float32", (1,)), Var("i"), const(0)
    term = Select(load(x, i) > const(0.0, "float32"), load(x, i), const(0.0, "float32"), True, "float32")
    before = loops(Store(y, (zero,), load(y, zero) + term), (i, 4, SERIAL))
    assert skip_identities(before, Bounds()) is before


def test_what_is_no_reduction_keeps_its_choices() -> None:
    x, y, i = Buffer("X", "float32", (4,)), Buffer("Y", "float32", (4,)), Var("i")
    term = Select(i < const(2), load(x, i), const(0.0, "float32"), True, "float32")
    copy = loops(Store(y, (i,), term), (i, 4, SERIAL))
    shifted = loops(Store(y, (i,), load(y, (i + 1) % 4) + term), (i, 4, SERIAL))
    before = seq(copy, shifted)
    assert skip_identities(before, Bounds()) is before


def has_tests(stmt: Stmt) -> bool:
    return any(isinstance(inner, If) for inner in walk_statements(stmt))


def stores(stmt: Stmt) -> list[Store]:
    return [inner for inner in walk_statements(stmt) if isinstance(inner, Store)]


# -- convolutions, by schedules ------------------------------------------------------------------------


def convolution(size: int, kernel: int, padding: int) -> tuple[list[Tensor], State]:
    """A convolution of four channels with its padding inlined."""
    tensors = list(workloads.conv2d(2, size, size, 4, 4, kernel, 1, padding))
    state = State.initial(ComputeDAG(tensors))
    padded = next(i for i, stage in enumerate(state.stages) if stage.op.name == "Pad")
    return tensors, state.compute_inline(padded)


def updates(state: State) -> tuple[int, int]:
    """How many multiplications a program makes, and how many its definition has."""
    made = products_made(lower(state, limits=RegisterLimits(256, 64)))
    op = state.stages[-1].compute
    return made, prod(int_value(axis.extent) or 1 for axis in (*op.axis, *op.reduce_axis))


@pytest.mark.parametrize(("size", "kernel", "padding"), [(5, 3, 1), (7, 3, 1), (4, 5, 2), (3, 3, 2)])
def test_a_convolution_in_order_multiplies_pixels_only(size: int, kernel: int, padding: int) -> None:
    _, state = convolution(size, kernel, padding)
    op = state.stages[-1].compute
    parts = needed_parts(effective_body(state, len(state.stages) - 1)[0], (*op.axis, *op.reduce_axis))
    made, defined = updates(state)
    outputs = size + 2 * padding - kernel + 1
    along = sum(0 <= o + tap - padding < size for o in range(outputs) for tap in range(kernel))
    share = (along / (outputs * kernel)) ** 2
    assert sorted(part.share for part in parts) == pytest.approx([along / (outputs * kernel)] * 2)
    assert made == pytest.approx(defined * share)


def test_parts_that_data_decide_are_not_known() -> None:
    x, known = te.placeholder((4,), name="X"), te.placeholder((6,), "int32", name="Known")
    k = te.reduce_axis((0, 6), name="k")
    chosen = te.if_then_else(te.all(known[k] > 0, k < 4), x[k], 0.0)
    total = te.compute((1,), lambda i: te.sum(chosen, axis=k), name="Total")
    op = total.op
    assert [part.share for part in needed_parts(op.body[0], (*op.axis, *op.reduce_axis))] == [4 / 6]


def test_terms_that_are_nothing_in_each_copy_are_gone() -> None:
    """Taps that lie on padding for all pixels."""
    tensors = workloads.conv1d(1, 2, 3, 4, 5, 1, 2)
    padded, conv = tensors[-1].op.input_tensors[0].op, tensors[-1]
    schedule = te.create_schedule(conv)
    schedule[padded.output(0)].compute_inline()
    n, w, c = schedule[conv].op.axis
    r, k = schedule[conv].op.reduce_axis
    schedule[conv].reorder(n, r, k, w, c)
    schedule[conv].unroll(w)
    assert products_made(lower(schedule.state, limits=RegisterLimits(256, 64))) == (2 * 2) * 3 * 4


def test_a_row_is_not_tested_against_a_size() -> None:
    x, y = Buffer("X", "float32", (8, 5)), Buffer("Y", "float32", (8,))
    i, k, size = Var("i"), Var("k"), Var("n")
    term = Select(i < size, load(x, i, k), const(0.0, "float32"), True, "float32")
    update = Store(y, (i,), load(y, i) + term)
    before = loops(update, (k, 5, SERIAL), (i, 8, UNROLLED))
    assert not has_tests(skip_identities(before, Bounds({size: (0, None)})))


def test_what_several_updates_ask_for_is_bounded_together() -> None:
    """Nested loops, each of which one update wants written out."""
    row = Row(taps=9)
    inner = [Row(taps=9), Row(taps=9)]
    body: Stmt = row.nest([row.k, row.w, row.c], {row.w: UNROLLED})
    for one in inner:
        nested = seq(one.nest([one.k, one.w, one.c], {one.w: UNROLLED}), body)
        body = loops(nested, (one.r, 9, SERIAL))
    after = skip_identities(loops(body, (row.r, 9, SERIAL)), Bounds())
    assert straight_stores(after) <= MOST_STORES


def test_conditions_that_occur_again_are_tested_once() -> None:
    x, i = te.placeholder((8,), name="X"), te.reduce_axis((0, 8), name="i")
    value = te.if_then_else(i >= 1, x[i], 0.0)
    for _ in range(40):
        value = value * value
    assert len(needed(value, const(0.0, "float32"))) == 1
    twice = te.if_then_else(i >= 1, x[i], 0.0) * te.if_then_else(i >= 1, x[i] + 1.0, 0.0)
    (test,) = needed(twice, const(0.0, "float32"))
    assert not any(isinstance(node, Select) for node in walk(assumed(twice, [test])))


@pytest.mark.filterwarnings("error")
def test_conditions_that_divide_by_nothing_are_counted_in_silence() -> None:
    x, k = te.placeholder((4,), name="X"), te.reduce_axis((0, 4), name="k")
    term = te.if_then_else(te.floordiv(16, k) >= 8, x[k], 0.0)
    op = te.compute((1,), lambda i: te.sum(term, axis=k), name="Total").op
    assert [part.share for part in needed_parts(op.body[0], (*op.axis, *op.reduce_axis))] == [2 / 4]
