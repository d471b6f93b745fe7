"""Register tiles that lie wholly inside what their terms need are computed without asking.

What `ansor.ir.passes.identities` cannot decide outside of a tile's rows stays a choice in each of them: with
four columns of an image in a tile, each asks for each tap of the kernel whether it reads padding. Most tiles
read none. So one test, of the whole tile and its whole reduction, chooses between two versions of it:

    allocate acc                             if 4*w >= 1:
    for rw in 0..3:                            allocate acc
      unroll w1 in 0..4:                       for rw in 0..3: unroll w1 in 0..4: ... X[4*w + w1 + rw - 1]
        ... select(4*w + w1 + rw >= 1,  =>   else:
              X[4*w + w1 + rw - 1], 0)         the same as before

It is the counterpart for values of what `ansor.ir.passes.peeling` does for statements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from math import isfinite, prod
from typing import Final

from ansor.ir.bounds import Bounds
from ansor.ir.code_size import straight_stores
from ansor.ir.nest import Alloc, For, If, Let, Stmt, Store, walk_statements
from ansor.ir.passes.peeling import MANY, holds_throughout, is_register_tile, steps
from ansor.ir.rewriting import conjunction, conjuncts, fresh_copy, map_statements, reads_memory
from ansor.ir.simplifier import TRUE, Simplifier
from ansor.ir.terms import assumed
from ansor.te.expr import Const, Expr, Select, Var, distinct_nodes, free_vars
from ansor.te.structure import is_among

MOST_COPIED: Final = 128
"""The largest tile, in stores with unrolled loops expanded, that is written down twice."""
ENOUGH_INSIDE: Final = 0.5
"""The part of the tiles that should be wholly inside."""


def peel_choices(stmt: Stmt, bounds: Bounds) -> Stmt:
    """Write register tiles twice, without and with the choices that hold in the whole of most tiles.

    Not those of an `else`, which are at borders already.

    Parameters
    ----------
    bounds
        Ranges of all variables, loops of `stmt` among them.
    """
    if isinstance(stmt, Alloc) and is_register_tile(stmt):
        return _peeled(stmt, bounds)
    if isinstance(stmt, If):
        then = peel_choices(stmt.then, bounds)
        return stmt if then is stmt.then else replace(stmt, then=then)
    return map_statements(stmt, lambda inner: peel_choices(inner, bounds))


def _peeled(tile: Alloc, bounds: Bounds) -> Stmt:
    if straight_stores(tile) > MOST_COPIED or steps(tile) < MANY:
        return tile
    inner = {loop.var for loop in walk_statements(tile) if isinstance(loop, For)}
    named = {let.var for let in walk_statements(tile) if isinstance(let, Let)}
    tests: list[Expr] = []
    whole: list[Expr] = []
    for choice in _choices(tile):
        own = _own_tests(choice)
        if named.isdisjoint(free_vars(*own)):
            more = [_throughout(test, inner, bounds.simplifier) for test in own]
            together = _each_once(one for one in (*whole, *more) if one is not TRUE)
            if prod(_share(one, bounds.simplifier) for one in together) >= ENOUGH_INSIDE:
                tests, whole = [*tests, *own], together
    cond = conjunction(tuple(whole))
    return tile if cond is None else If(cond, fresh_copy(_assuming(tile, tests)), tile)


def _choices(tile: Alloc) -> Iterator[Select]:
    """The choices in a tile that something else than data decides."""
    values = (inner.value for inner in walk_statements(tile) if isinstance(inner, Store))
    nodes = (node for value in values for node in distinct_nodes(value))
    return (node for node in nodes if isinstance(node, Select) and _own_tests(node))


def _own_tests(choice: Select) -> tuple[Expr, ...]:
    return tuple(test for test in conjuncts(choice.cond) if not reads_memory(test))


def _throughout(test: Expr, inner: Collection[Var], simplifier: Simplifier) -> Expr:
    """The condition that a test holds for all values of `inner` variables; False if unknown."""
    form = simplifier.below_zero(test)
    return Const(False, "bool") if form is None else holds_throughout(test, form, inner, simplifier)


def _share(whole: Expr, simplifier: Simplifier) -> float:
    """The part of the tiles of which a condition holds, if what it compares is evenly spread."""
    if isinstance(whole, Const):
        return float(whole.value)
    form = simplifier.below_zero(whole)
    if form is None:
        return 0.0
    low, high = simplifier.table.interval(form)
    return -low / (high - low + 1) if isfinite(low) and isfinite(high) else 1.0


def _each_once(found: Iterable[Expr]) -> list[Expr]:
    kept: list[Expr] = []
    for one in found:
        if not is_among(one, kept):
            kept.append(one)
    return kept


def _assuming(stmt: Stmt, tests: Sequence[Expr]) -> Stmt:
    if isinstance(stmt, Store):
        return replace(stmt, value=assumed(stmt.value, tests))
    return map_statements(stmt, lambda inner: _assuming(inner, tests))
