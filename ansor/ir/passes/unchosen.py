"""Tiles of which no element is chosen are not computed.

Where a stage is computed for a tile of its consumer, and that takes from it only what a condition on indices
lets through, as a causal mask of scores does, a tile for which the condition fails throughout is computed for
nothing. So one test, of the whole tile, goes first:

    for j0 in 0..32:                                for j0 in 0..32:
      for k in 0..64: S[j1] = S[j1] + ...             if 16*j0 <= i:
      for j1 in 0..16:                         =>       for k in 0..64: S[j1] = S[j1] + ...
        C[i, 16*j0 + j1] =                              for j1 in 0..16: C[i, 16*j0 + j1] = select(...)
          select(16*j0 + j1 <= i, S[j1], 0.0)         else:
                                                        for j1 in 0..16: C[i, 16*j0 + j1] = 0.0

All else that reads the tile has to do so under conditions, too. It is the counterpart for values that a
choice passes over of what `ansor.ir.passes.index_set_splitting` does for terms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Final

from ansor.ir.accesses import Accesses, accesses_of
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import straight_stores
from ansor.ir.nest import Buffer, For, If, LoopKind, Seq, Stmt, Store, walk_statements
from ansor.ir.passes.peeling import MANY, holds_throughout, steps
from ansor.ir.passes.unread import drop_unread
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import (
    conjunction,
    conjuncts,
    fresh_copy,
    map_expressions,
    map_statements,
    negated,
    reads_memory,
)
from ansor.ir.simplify import simplify
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Select,
    Var,
    children,
    distinct_nodes,
    free_vars,
    memoised,
    rewrite,
)
from ansor.te.structure import is_among

MOST_COPIED: Final = 256
"""What is left of a tile to be written in a version of its own, in stores with unrolled loops expanded."""

_AROUND: Final = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.PARALLEL})
"""Loops in which tiles are looked for: iterations of others are not to differ."""


def skip_unchosen(stmt: Stmt, bounds: Bounds) -> Stmt:
    """Compute tiles in `stmt` only where something is chosen of them.

    Parameters
    ----------
    bounds
        Ranges of the variables around `stmt`. Those of loops in it are its own, whatever is said of them.
    """
    stores = [inner for inner in walk_statements(stmt) if isinstance(inner, Store)]
    written = {store.buffer for store in stores}
    if not any(_tests(store.value, written) for store in stores):
        return stmt
    return _Skipping(stmt, bounds.extended(loop_ranges(stmt))).visit(stmt)


@dataclass(frozen=True)
class _Skipping:
    """Skips tiles in `stmt` with `bounds` of all variables."""

    stmt: Stmt
    bounds: Bounds

    def visit(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind not in _AROUND:
            return stmt
        made = map_statements(stmt, self.visit)
        return self._tested(stmt, made) if isinstance(stmt, Seq) else made

    def _tested(self, tile: Seq, made: Stmt) -> Stmt:
        """What has been `made` of a tile; with a test before it if that may spare much."""
        inside = accesses_of(tile)
        own = self._accesses.own_of(inside)
        cond = self._chosen(tile, own, inside.bound) if own else None
        if cond is None or free_vars(cond).isdisjoint(self._accesses.bound):
            return made  # Sizes for which nothing at all is chosen are no reason to write all twice.
        rest = drop_unread(_others(tile, own), own)
        if steps(tile) - steps(rest) < MANY or straight_stores(rest) > MOST_COPIED:
            return made
        return If(cond, made, map_expressions(fresh_copy(rest), lambda expr: simplify(expr, self.bounds)))

    @cached_property
    def _accesses(self) -> Accesses:
        return accesses_of(self.stmt)

    def _chosen(self, tile: Seq, own: Set[Buffer], inner: Collection[Var]) -> Expr | None:
        """When something of its `own` memory may be chosen in a tile; None if always, as far as is seen."""
        ways: list[Expr] = []
        for store in (one for one in walk_statements(tile) if isinstance(one, Store)):
            tests = None if store.buffer in own else _tests(store.value, own)
            if tests is None:
                continue
            cond = conjunction(
                tuple(one for test in tests if (one := self._anywhere(test, inner)) is not None)
            )
            if cond is None:
                return None
            ways += [] if is_among(cond, ways) else [cond]
        return reduce(lambda a, b: Binary(BinaryOp.OR, a, b, "bool"), ways) if ways else None

    def _anywhere(self, test: Expr, inner: Collection[Var]) -> Expr | None:
        """The condition that a test may hold for some values of `inner` variables; None if it always may."""
        fails = holds_throughout(negated(test), inner, self.bounds.simplifier)
        return None if isinstance(fails, Const) else negated(fails)


def _tests(value: Expr, buffers: Collection[Buffer]) -> tuple[Expr, ...] | None:
    """The tests that all have to hold for `value` to depend on `buffers`; None if it never does."""

    def of_node(node: Expr, tests: Callable[[Expr], tuple[Expr, ...] | None]) -> tuple[Expr, ...] | None:
        match node:
            case Load(buffer=buffer) if buffer in buffers:
                return ()
            case Select(cond=cond, then=then, other=other):
                sides = (tests(then), conjuncts(cond)), (tests(other), conjuncts(negated(cond)))
                found = [tests(cond), *(None if one is None else (*one, *more) for one, more in sides)]
            case _:
                found = [tests(child) for child in children(node)]
        return _common(one for one in found if one is not None)

    found = memoised(value, of_node)
    return None if found is None else tuple(test for test in found if not reads_memory(test))


def _common(groups: Iterable[tuple[Expr, ...]]) -> tuple[Expr, ...] | None:
    """What is in all of some groups; None if there are no groups."""
    found: tuple[Expr, ...] | None = None
    for group in groups:
        found = group if found is None else tuple(one for one in found if is_among(one, group))
    return found


def _others(stmt: Stmt, own: Set[Buffer]) -> Stmt:
    """A statement where of each innermost choice of what `own` memory holds the other side is chosen."""

    def depends(value: Expr) -> bool:
        return any(isinstance(node, Load) and node.buffer in own for node in distinct_nodes(value))

    def visit(node: Expr) -> Expr | None:
        match node:
            case Select(then=then, other=other) if depends(then):
                return other
            case Select(then=then, other=other) if depends(other):
                return then
            case _:
                return None

    def elsewhere(inner: Stmt) -> Stmt:
        if isinstance(inner, Store) and inner.buffer not in own and depends(inner.value):
            return replace(inner, value=rewrite(inner.value, visit))
        return map_statements(inner, elsewhere)

    return elsewhere(stmt)
