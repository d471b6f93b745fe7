"""Tiles that read no padding: which are written without choices, and that all compute the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ansor import te, workloads
from ansor.ir.bounds import Bounds
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, Buffer, For, If, Let, LoopNest, Stmt, Store, seq, walk_statements
from ansor.ir.passes.choices import MOST_COPIED, peel_choices
from ansor.ir.printer import format_stmt
from ansor.ir.rewriting import fresh_copy
from ansor.ir.verify import check_nest
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.te.expr import Binary, BinaryOp, Call, Const, Expr, Select, Var, const
from tests.device_nests import SERIAL, UNROLLED, VECTORIZED, load
from tests.paths import walk
from tests.program_laws import check_results, lowered

LANES = 4


class Rows:
    """`Y[4*w + i, c] += X[4*w + i + r - 8] * W[r, c]`: tiles `w` of some pixels `i` in registers."""

    def __init__(self, tiles: int = 8, pixels: int = 4, taps: int = 16) -> None:
        self.tiles, self.pixels, self.taps = tiles, pixels, taps
        self.x = Buffer("X", "float32", (tiles * pixels,))
        self.weights = Buffer("W", "float32", (taps, LANES))
        self.y = Buffer("Y", "float32", (tiles * pixels, LANES))
        self.acc = Buffer("acc", "float32", (pixels, LANES), "register")
        self.tile, self.tap = Var("w"), Var("r")

    def each(self, value: Callable[[Var, Var], Expr], out: Buffer) -> Stmt:
        """A statement for each element of a tile."""
        i, c = Var("i"), Var("c")
        place = (i, c) if out is self.acc else (self.tile * self.pixels + i, c)
        return For(i, self.pixels, UNROLLED, For(c, LANES, VECTORIZED, Store(out, place, value(i, c))))

    def term(self, i: Var, c: Var) -> Expr:
        place = self.tile * self.pixels + i + self.tap - self.taps // 2
        inside = te.all(place >= 0, place < self.tiles * self.pixels)
        pixel = Select(inside, load(self.x, place), const(0.0, "float32"), True, "float32")
        return pixel * load(self.weights, self.tap, c)

    def body(self, named: Callable[[Stmt], Stmt] = lambda stmt: stmt) -> Stmt:
        fill = self.each(lambda i, c: Const(0.0, "float32"), self.acc)
        update = self.each(lambda i, c: load(self.acc, i, c) + self.term(i, c), self.acc)
        done = self.each(lambda i, c: load(self.acc, i, c), self.y)
        return Alloc(self.acc, seq(fill, For(self.tap, self.taps, SERIAL, named(update)), done))

    def nest(self, body: Stmt | None = None) -> LoopNest:
        tiles = For(self.tile, self.tiles, SERIAL, self.body() if body is None else body)
        return LoopNest("f", (self.x, self.weights, self.y), (), tiles, (2,))


def peeled(nest: LoopNest) -> LoopNest:
    """A nest with its tiles peeled, which computes the same."""
    after = replace(nest, body=peel_choices(nest.body, Bounds()))
    check_nest(after)
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-4, 5, buffer.constant_shape).astype(np.float32) for buffer in nest.params]
    expected = [array.copy() for array in arrays]
    run_nest(nest, expected)
    run_nest(after, arrays)
    np.testing.assert_array_equal(arrays[2], expected[2])
    return after


def choices(stmt: Stmt | None) -> int:
    values = [inner.value for inner in walk_statements(stmt) if isinstance(inner, Store)] if stmt else []
    return sum(isinstance(node, Select) for value in values for node in walk(value))


def ifs_in(stmt: Stmt) -> list[If]:
    return [inner for inner in walk_statements(stmt) if isinstance(inner, If)]


def test_most_tiles_are_computed_without_choices() -> None:
    (test,) = ifs_in(peeled(Rows().nest()).body)
    assert format_stmt(test).startswith("if w >= 2 and w < 6:")
    assert (choices(test.then), choices(test.other)) == (0, 1)


def test_what_data_decide_stays_a_choice() -> None:
    class Masked(Rows):
        def term(self, i: Var, c: Var) -> Expr:
            known = load(self.weights, self.tap, c) > const(0.0, "float32")
            return Select(known, super().term(i, c), const(0.0, "float32"), True, "float32")

    (test,) = ifs_in(peeled(Masked().nest()).body)
    assert (choices(test.then), choices(test.other)) == (1, 2)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(Rows(tiles=5), id="one tile in five is inside"),
        pytest.param(Rows(tiles=1, pixels=16, taps=5), id="the tile is the whole row"),
        pytest.param(Rows(taps=3), id="few steps"),
        pytest.param(Rows(pixels=MOST_COPIED, taps=3), id="much code"),
    ],
)
def test_tiles_that_are_not_worth_it_are_written_once(rows: Rows) -> None:
    nest = rows.nest()
    assert peeled(nest).body is nest.body


def test_the_border_at_the_end_of_a_row_is_written_once() -> None:
    inner, outer = Rows(), Rows()
    outer.x, outer.weights, outer.y, outer.tile = inner.x, inner.weights, inner.y, inner.tile
    test = If(inner.tile < const(7), inner.body(), outer.body())
    after = peeled(inner.nest(test)).body
    assert len(ifs_in(after)) == 2
    assert choices(after) == 2


class Below(Rows):
    """Rows whose terms are what lies at places from each of some `starts` on."""

    def __init__(self, tiles: int, *starts: int) -> None:
        super().__init__(tiles)
        self.starts = starts

    def term(self, i: Var, c: Var) -> Expr:
        inside = te.all(*(self.tile * self.pixels + i + self.tap >= start for start in self.starts))
        pixel = Select(inside, load(self.x, self.tile), const(0.0, "float32"), True, "float32")
        return pixel * load(self.weights, self.tap, c)


def test_what_tests_of_the_same_leave_counts_once() -> None:
    """From the fourth of ten tiles on all three hold, though 0.8 * 0.7 * 0.6 is less than a half."""
    (test,) = ifs_in(peeled(Below(10, 8, 12, 16).nest()).body)
    assert (choices(test.then), choices(test.other)) == (0, 1)


@pytest.mark.parametrize(("start", "peels"), [(4, True), (8, False)])
def test_what_holds_around_a_tile_counts(start: int, peels: bool) -> None:
    """One or two of three tiles are inside; of all eight it would be six or seven."""
    rows = Below(8, start)
    nest = rows.nest(
        If(rows.tile < const(3), rows.body(), rows.each(lambda i, c: const(0.0, "float32"), rows.y))
    )
    assert len(ifs_in(peeled(nest).body)) == 1 + peels


def test_both_sides_of_what_another_loop_decides() -> None:
    rows = Rows()
    channel = Var("o")
    nest = rows.nest(For(channel, 2, SERIAL, If(channel < const(1), rows.body(), fresh_copy(rows.body()))))
    after = peeled(nest).body
    assert (len(ifs_in(after)), choices(after)) == (3, 2)


def test_a_name_of_the_tile_is_not_used_outside_of_it() -> None:
    class Named(Rows):
        place = Var("p")

        def term(self, i: Var, c: Var) -> Expr:
            pixel = Select(self.place >= 0, load(self.x, i), const(0.0, "float32"), True, "float32")
            return pixel * load(self.weights, self.tap, c)

    rows = Named()
    start = rows.tile - 1
    nest = rows.nest(rows.body(lambda update: Let(rows.place, start, update)))
    assert peeled(nest).body is nest.body


@pytest.mark.parametrize(("stride", "rows", "columns"), [(1, 1, 4), (1, 2, 2), (2, 3, 2), (2, 1, 5)])
def test_convolutions_ask_at_borders_only(stride: int, rows: int, columns: int) -> None:
    state = State.initial(ComputeDAG(list(workloads.conv2d(1, 40, 40, 3, 8, 7, stride, 3))))
    state = state.compute_inline(next(i for i, stage in enumerate(state.stages) if stage.op.name == "Pad"))
    conv = len(state.stages) - 1
    for axis, tile in ((3, 8), (2, columns), (1, rows)):
        state = state.split(conv, axis, [tile])
    state = state.reorder(conv, [0, 1, 3, 5, 7, 8, 9, 2, 4, 6])
    for loop in (7, 8):
        state = state.annotate(conv, loop, Annotation.UNROLL)
    state = state.annotate(conv, 9, Annotation.VECTORIZE)
    tiles = [one for one in walk_statements(lowered(state, simple_mode=False).body) if isinstance(one, Alloc)]
    assert [choices(tile) for tile in tiles].count(0) == 1
    assert len(tiles) > 1
    check_results(state)


@pytest.mark.parametrize("seed", range(8))
def test_random_convolutions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels, strides, paddings and tiles of any size, that do not divide among them, worth it or not."""
    monkeypatch.setattr("ansor.ir.passes.choices.ENOUGH_INSIDE", 0.01)
    monkeypatch.setattr("ansor.ir.passes.choices.MANY", 1)
    rng = np.random.default_rng(seed)
    kernel, stride = int(rng.integers(4, 8)), int(rng.integers(1, 3))
    padding = int(rng.integers(1, kernel))
    height, width = (int(n) for n in rng.integers(12, 24, 2))
    tensors = list(workloads.conv2d(1, height, width, 3, 12, kernel, stride, padding))
    state = State.initial(ComputeDAG(tensors))
    state = state.compute_inline(next(i for i, stage in enumerate(state.stages) if stage.op.name == "Pad"))
    conv = len(state.stages) - 1
    for axis, tile in ((3, 8), (2, int(rng.integers(1, 7))), (1, int(rng.integers(1, 4)))):
        state = state.split(conv, axis, [tile])
    state = state.reorder(conv, [0, 1, 3, 5, *(int(i) for i in rng.permutation([7, 8, 9])), 2, 4, 6])
    for loop in (7, 8):
        state = state.annotate(conv, loop, Annotation.UNROLL)
    check_results(state.annotate(conv, 9, Annotation.VECTORIZE))


def clamp_of(node: Expr) -> bool:
    bounds = isinstance(node, Binary) and node.op in (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.FLOORMOD)
    return bounds or isinstance(node, (Call, Select))


def clamps(stmt: Stmt | None) -> int:
    values = [inner.value for inner in walk_statements(stmt) if isinstance(inner, Store)] if stmt else []
    return sum(clamp_of(node) for value in values for node in walk(value))


class Clamped(Rows):
    """Rows whose pixels beyond the edges are those at the edges."""

    def term(self, i: Var, c: Var) -> Expr:
        place = self.tile * self.pixels + i + self.tap - self.taps // 2
        pixel = load(self.x, te.clip(place, 0, self.tiles * self.pixels - 1))
        return pixel * load(self.weights, self.tap, c)


def test_most_tiles_read_nothing_at_an_edge() -> None:
    (test,) = ifs_in(peeled(Clamped().nest()).body)
    assert format_stmt(test).startswith("if w >= 2 and w < 6:")
    assert (clamps(test.then), clamps(test.other)) == (0, 2)


def image(index: Callable[[Expr, Expr], Expr], rows: int = 3, columns: int = 40) -> State:
    """Each pixel of an image with another of its row."""
    x = te.placeholder((rows, columns), name="X")
    y = te.compute((rows, columns), lambda i, j: x[i, j] * 2.0 + x[i, index(i, j)], name="Y")
    return State.initial(ComputeDAG([x, y]))


@pytest.mark.parametrize(
    ("index", "start"),
    [
        (lambda i, j: te.clip(j - 1, 0, 39), "if j.0 >= 1:"),
        (lambda i, j: te.clip(j - i + 1, 0, 39), "if i < j.0*8 + 2 and j.0*8 < i + 32:"),
        (lambda i, j: te.minimum(39, j + 2) - te.maximum(0, 2 - j), "if j.0 < 4 and j.0 >= 1:"),
        (lambda i, j: te.abs(j - 1), "if j.0 >= 1:"),
        (lambda i, j: (j + 1) % 40, "if j.0 < 4:"),
        (lambda i, j: (j + 39) % 40, "if j.0 >= 1:"),
        (lambda i, j: ((j + 2) % 40 + 39) % 40, "if j.0 < 4:"),
        (lambda i, j: te.if_then_else(j > 38, 77 - j, j + 1), "if j.0 < 4:"),
    ],
)
@pytest.mark.parametrize("unrolled", [False, True])
def test_vectors_away_from_an_edge_are_loaded_as_they_lie(
    index: Callable[[Expr, Expr], Expr], start: str, unrolled: bool
) -> None:
    state = image(index).split(1, 1, [8]).annotate(1, 2, Annotation.VECTORIZE)
    if unrolled:
        state = state.reorder(1, [1, 0, 2]).annotate(1, 1, Annotation.UNROLL)
    (test,) = ifs_in(lowered(state, simple_mode=False).body)
    assert unrolled or format_stmt(test).startswith(start)
    assert clamps(test.then) == 0 < clamps(test.other)
    check_results(state)


@pytest.mark.parametrize(
    "index",
    [
        lambda i, j: te.clip(i - 1, 0, 2) + j // 2,
        lambda i, j: te.maximum(j, 20),
        lambda i, j: (j + 20) % 40,
        lambda i, j: j % 16,
    ],
)
def test_what_is_the_same_in_all_lanes_or_seldom_away_from_an_edge_is_written_once(
    index: Callable[[Expr, Expr], Expr],
) -> None:
    state = image(index).split(1, 1, [8]).annotate(1, 2, Annotation.VECTORIZE)
    assert not ifs_in(lowered(state, simple_mode=False).body)
    check_results(state)
