"""Vectorising what the schedule left alone: innermost loops that store element after element.

A loop that nothing is computed in, that runs along the memory of its stores, and whose iterations are
independent, becomes vector code of the machine's width. A fused loop runs along memory across the rows that
it is made of, as far as these lie end to end; nested ones over short rows have been joined before
(`ansor.ir.passes.short_rows`). The extent is divided by the largest lane count
that divides it if that is at least half a vector; else short loops become one vector of odd length, and
long ones a vectorised bulk and a vectorised rest. So do serial loops that would otherwise take more vectors,
but for those of reductions, whose elements stay in registers only if all their vectors are alike. A parallel
loop is treated likewise, its strips remaining parallel; other annotated loops stay as they are.

Of a loop whose extent n is symbolic, `n // lanes` vectors are whole, and one, if any, has `n % lanes` lanes
that count. It has to run along memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from ansor.dtypes import dtype_info
from ansor.ir.bounds import Bounds
from ansor.ir.independence import IndependenceTest
from ansor.ir.nest import Alloc, For, LoopKind, Stmt, Store, seq, walk_statements
from ansor.ir.rewriting import fresh_copy, guarded, map_expressions, map_statements, replace_in
from ansor.ir.simplify import interval
from ansor.ir.strides import runs_along
from ansor.te.expr import Binary, BinaryOp, Const, Expr, Var, binary, int_value

_KINDS = frozenset({LoopKind.SERIAL, LoopKind.PARALLEL})

LONGEST_ODD_VECTOR = 4
"""The longest loop, in vectors, that becomes one vector although no good lane count divides it."""


def vectorize_innermost(stmt: Stmt, vector_bits: int, bounds: Bounds, alike: bool) -> Stmt:
    """`stmt` with its innermost loops vectorised where that is legal and stores are contiguous.

    `bounds` hold every loop variable of `stmt` and around it; `alike` asks for vectors of one length, if need
    be for more of them.
    """
    return _visit(stmt, vector_bits, bounds, alike, IndependenceTest(bounds))


def _visit(stmt: Stmt, bits: int, bounds: Bounds, alike: bool, test: IndependenceTest) -> Stmt:
    if isinstance(stmt, For):
        if stmt.kind is LoopKind.VECTORIZED:
            return stmt
        if stmt.kind in _KINDS and not any(
            isinstance(inner, (For, Alloc)) for inner in walk_statements(stmt.body)
        ):
            legal = stmt.kind is LoopKind.PARALLEL or test.independent(stmt)
            return _vectorized(stmt, bits, bounds, alike) if legal else stmt
    return map_statements(stmt, lambda inner: _visit(inner, bits, bounds, alike, test))


def _vectorized(loop: For, bits: int, bounds: Bounds, alike: bool) -> Stmt:
    extent = int_value(loop.extent)
    stores = [s for s in walk_statements(loop.body) if isinstance(s, Store)]
    if (extent is not None and extent < 2) or not stores:
        return loop
    lanes = lanes_for(stores, bits)
    direct = all(runs_along(s.buffer, s.indices, loop.var, bounds) for s in stores)
    if extent is None:
        return _of_any_length(loop, lanes, bounds) if direct else loop
    if extent <= lanes:
        return For(loop.var, extent, LoopKind.VECTORIZED, loop.body) if direct else loop
    fewest = -(-extent // lanes)
    most = 2 * extent // lanes if alike or loop.kind is LoopKind.PARALLEL or not direct else fewest
    for count in range(fewest, most + 1):
        if extent % count == 0 and (direct or _strips_are_contiguous(stores, loop, extent // count, bounds)):
            return _strips(loop, loop.body, count, extent // count)
    if not direct:
        return loop
    if extent <= LONGEST_ODD_VECTOR * lanes and loop.kind is not LoopKind.PARALLEL:
        return For(loop.var, extent, LoopKind.VECTORIZED, loop.body)
    bulk = extent // lanes
    rest = Var(loop.var.name, loop.var.dtype)
    tail = _replace(fresh_copy(loop.body), loop.var, rest + bulk * lanes)
    return seq(
        _strips(loop, loop.body, bulk, lanes),
        For(rest, extent - bulk * lanes, LoopKind.VECTORIZED, tail),
    )


def _of_any_length(loop: For, lanes: int, bounds: Bounds) -> Stmt:
    """Whole vectors, and one of which as many lanes count as are left."""
    extent = loop.extent
    assert isinstance(extent, Expr)
    count, left = divided(extent, lanes)
    lane = Var(loop.var.name, loop.var.dtype)
    tail = _replace(fresh_copy(loop.body), loop.var, count * lanes + lane)
    rest = For(lane, lanes, LoopKind.VECTORIZED, guarded((binary(BinaryOp.LT, lane, left),), tail))
    return seq(_strips(loop, loop.body, count, lanes), guarded(are_left(extent, lanes, bounds), rest))


def divided(extent: Expr, length: int) -> tuple[Expr, Expr]:
    """How many pieces of a length iterations make, and how many iterations are left."""
    by = Const(length, extent.dtype)
    count, left = (Binary(op, extent, by, extent.dtype) for op in (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD))
    return count, left


def are_left(extent: Expr, length: int, bounds: Bounds) -> tuple[Expr, ...]:
    """The conditions that iterations are left; a loop of less than no iterations has none."""
    _, left = divided(extent, length)
    low, _ = interval(extent, bounds)
    counted = (left,) if low is not None and low >= 0 else (left, extent)
    return tuple(binary(BinaryOp.GT, number, Const(0, number.dtype)) for number in counted)


def lanes_for(stores: Iterable[Store], vector_bits: int) -> int:
    """How many elements a vector has that is stored by some stores, the widest of which fills a register."""
    return max(2, vector_bits // max(dtype_info(store.buffer.dtype).bits for store in stores))


def _strips_are_contiguous(stores: list[Store], loop: For, lanes: int, bounds: Bounds) -> bool:
    """Whether stores are contiguous within strips: `f % 80` is, in strips of 16, though not in `f`."""
    extent = int_value(loop.extent)
    assert extent is not None
    strip, lane = Var("strip", loop.var.dtype), Var("lane", loop.var.dtype)
    known = bounds.extended({strip: (0, extent // lanes - 1), lane: (0, lanes - 1)})
    place: dict[Var, Expr] = {loop.var: strip * lanes + lane}
    return all(
        runs_along(s.buffer, [replace_in(index, place, {}) for index in s.indices], lane, known)
        for s in stores
    )


def _strips(loop: For, body: Stmt, count: int | Expr, lanes: int) -> Stmt:
    """`count` vectors of `lanes` elements."""
    strip, lane = Var(loop.var.name, loop.var.dtype), Var(f"{loop.var.name}.v", loop.var.dtype)
    vector = _replace(body, loop.var, strip * lanes + lane)
    return For(strip, count, loop.kind, For(lane, lanes, LoopKind.VECTORIZED, vector))


def _replace(stmt: Stmt, var: Var, value: Expr) -> Stmt:
    return map_expressions(stmt, lambda expr: replace_in(expr, {var: value}, {}))
