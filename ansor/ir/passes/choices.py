"""Tiles that read no padding, and nothing at an edge, are computed without asking.

What `ansor.ir.passes.identities` cannot decide outside of a tile's rows stays a choice in each of them: with
four columns of an image in a tile, each asks for each tap of a kernel whether it reads padding. Most tiles
read none. So one test, of the whole tile and its whole reduction, chooses between two versions of it:

    allocate acc                             if w >= 1:
    for rw in 0..16:                           allocate acc
      unroll i in 0..4:                        for rw in 0..16: unroll i in 0..4: ... X[4*w + i + rw - 1]
        ... select(4*w + i + rw >= 1,  =>    else:
              X[4*w + i + rw - 1], 0)          the same as before

Choices between other values are as good. One goes if all of its tests are known of the whole tile, those of
data left out. So do extremes of integers, which keep indices within an image as reflections do, and
remainders, which go around its edges: a tile away from the edge has plain ones. Other straight code is a
tile, too, as far as these differ from lane to lane of its vectors: such are gathered element by element. It
is the counterpart for values of what `ansor.ir.passes.peeling` does for statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import isfinite, prod
from typing import Final

from ansor.ir.affine import Affine
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import straight_stores
from ansor.ir.nest import For, If, Let, LoopKind, Stmt, Store, walk_statements
from ansor.ir.passes.peeling import MANY, STRAIGHT, holds_throughout, is_register_tile, steps
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import (
    conjunction,
    conjuncts,
    fresh_copy,
    map_expressions,
    map_statements,
    reads_memory,
    with_statements,
)
from ansor.ir.simplifier import TRUE, Simplifier
from ansor.ir.simplify import assume, simplify
from ansor.ir.terms import assumed, sides
from ansor.te.expr import Binary, BinaryOp, Expr, Load, Select, distinct_nodes, free_vars, int_value
from ansor.te.structure import is_among

MOST_COPIED: Final = 128
"""The largest tile, in stores with unrolled loops expanded, that is written down twice."""
ENOUGH_INSIDE: Final = 0.5
"""The part of the tiles that should be wholly inside."""


def peel_choices(stmt: Stmt, bounds: Bounds) -> Stmt:
    """Write tiles twice, without and with the choices that are one in most of them.

    Parameters
    ----------
    bounds
        Ranges of the variables around `stmt`. Those of loops in it are its own, whatever is said of them.
    """
    return _peel(stmt, bounds.extended(loop_ranges(stmt))) if _has_choices(stmt) else stmt


def _peel(stmt: Stmt, bounds: Bounds) -> Stmt:
    if _is_tile(stmt):
        return _peeled(stmt, bounds)
    if isinstance(stmt, If):
        inner = [(stmt.then, True)] if stmt.other is None else [(stmt.then, True), (stmt.other, False)]
        peeled = [
            _peel(side, assume(bounds, stmt.cond, holds=holds)) if _has_choices(side) else side
            for side, holds in inner
        ]
        return with_statements(stmt, tuple(peeled))
    return map_statements(stmt, lambda one: _peel(one, bounds))


def _is_tile(stmt: Stmt) -> bool:
    """Whether a statement is a register tile, or straight code without one."""
    if isinstance(stmt, For) and stmt.kind in STRAIGHT:
        return not any(map(is_register_tile, walk_statements(stmt)))
    return is_register_tile(stmt)


def _peeled(tile: Stmt, bounds: Bounds) -> Stmt:
    choices = _choices(tile)
    if not choices or straight_stores(tile) > MOST_COPIED:
        return tile
    if is_register_tile(tile) and steps(tile) < MANY:
        return tile
    inner = {loop.var for loop in walk_statements(tile) if isinstance(loop, For)}
    named = {let.var for let in walk_statements(tile) if isinstance(let, Let)}
    tests: list[Expr] = []
    whole: list[Expr] = []
    for own in (own for node in choices for own in _ways(assumed(node, tests))):
        if named.isdisjoint(free_vars(*own)):
            more = [holds_throughout(test, inner, bounds.simplifier) for test in own]
            together = _each_once(one for one in (*whole, *more) if one is not TRUE)
            if _share(together, bounds.simplifier) >= ENOUGH_INSIDE:
                tests, whole = [*tests, *own], together
    if not tests:
        return tile
    without = map_expressions(tile, lambda expr: simplify(assumed(expr, tests), bounds))
    cond = conjunction(tuple(whole))
    return without if cond is None else If(cond, fresh_copy(without), tile)


def _has_choices(stmt: Stmt) -> bool:
    """Whether some tile has a choice that something else than data decides."""
    return any(_choices(tile) for tile in walk_statements(stmt) if _is_tile(tile))


def _choices(tile: Stmt) -> list[Expr]:
    """What chooses in a tile by something else than data, what is in it before it.

    In register tiles these are choices, and extremes in indices that loops inside move; in other straight
    code such of which each lane has its own. The pieces of fused loops go around no end.
    """
    loops = [loop for loop in walk_statements(tile) if isinstance(loop, For)]
    in_registers = is_register_tile(tile)
    moving = {loop.var for loop in loops if in_registers or loop.kind is LoopKind.VECTORIZED}
    stores = [inner for inner in walk_statements(tile) if isinstance(inner, Store)]
    nodes = [node for store in stores for node in distinct_nodes(store.value)]
    indices = (index for node in nodes if isinstance(node, Load) for index in node.indices)
    places = {id(node) for index in indices for node in distinct_nodes(index)}

    def counts(node: Expr) -> bool:
        if in_registers and isinstance(node, Select):
            return any(_ways(node))
        if id(node) not in places or moving.isdisjoint(free_vars(node)):
            return False
        if _is_piece(node, stores):
            return False
        return not moving.isdisjoint(free_vars(*(test for test, _ in sides(node))))

    return [node for node in nodes if counts(node)]


def _is_piece(node: Expr, stores: Iterable[Store]) -> bool:
    """Whether a node is a remainder by a size, beside its quotient: so loops are fused."""
    if not isinstance(node, Binary) or node.op is not BinaryOp.FLOORMOD or int_value(node.b) is not None:
        return False
    used = (
        inner for store in stores for expr in (*store.indices, store.value) for inner in distinct_nodes(expr)
    )
    return is_among(replace(node, op=BinaryOp.FLOORDIV), used)


def _ways(node: Expr) -> Iterator[tuple[Expr, ...]]:
    """The tests with which a choice or an extreme is one value, for each it may be; not those of data."""
    if isinstance(node, Select):
        tests = tuple(test for test in conjuncts(node.cond) if not reads_memory(test))
        if tests:
            yield tests
    yield from (conjuncts(test) for test, _ in sides(node))


def _share(conditions: Iterable[Expr], simplifier: Simplifier) -> float:
    """The part of the tiles of which all conditions hold, if what these compare is evenly spread.

    Those that compare the same are taken together, others as independent. Of a range that nothing is known
    of, all of it counts.
    """
    kept: dict[tuple[tuple[int, int], ...], tuple[float, float]] = {}
    for condition in conditions:
        form = simplifier.below_zero(condition)
        if form is None or not form.terms:
            return 0.0
        terms = sorted(form.terms.items())
        sign = 1 if terms[0][1] > 0 else -1
        key = tuple((number, sign * coefficient) for number, coefficient in terms)
        low, high = kept.get(key) or simplifier.table.interval(Affine(dict(key), 0))
        kept[key] = (low, min(high, -form.const - 1)) if sign > 0 else (max(low, form.const + 1), high)
    shares = [_part(inside, simplifier.table.interval(Affine(dict(key), 0))) for key, inside in kept.items()]
    return prod(shares)


def _part(inside: tuple[float, float], whole: tuple[float, float]) -> float:
    """How much of a range of integers lies inside another; all of it where that is infinite, too."""
    some, all_of_it = (max(high - low + 1, 0) for low, high in (inside, whole))
    if isfinite(all_of_it):
        return some / all_of_it
    return float(not isfinite(some))


def _each_once(found: Iterable[Expr]) -> list[Expr]:
    kept: list[Expr] = []
    for one in found:
        if not is_among(one, kept):
            kept.append(one)
    return kept
