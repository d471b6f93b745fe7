"""Terms of reductions that change nothing are not computed: the padding of a convolution, mostly.

Where a choice inside a reduction gives the identity of its combiner, as the zeros around an image do in a
sum of products, the update becomes conditional:

    for rh in 0..3:                                       for rh in 0..3:
      for rc in 0..64:                                      if h + rh >= 1:
        vectorize c in 0..16:                         =>      for rc in 0..64:
          B[c] = B[c] + W[rh, rc, c]*select(                    vectorize c in 0..16:
            h + rh >= 1, X[h + rh - 1, rc], 0.0)                  B[c] = B[c] + W[rh, rc, c]*X[h + rh - 1, rc]

Such a condition is tested before the loops that it does not depend on. One that a short loop decides for each
row of a register tile is decided by writing that loop out, unless this makes too much code: each copy then
leaves out the rows that change nothing in it. An unrolled reduction is tested in each of its copies. All
other conditions stay choices, as far as `ansor.ir.passes.choices` does not spare a tile of them.

Source: libraries of convolutions leave out the rows and columns of kernels that lie on padding (Georganas et
al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures", SC 2018).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from ansor.ir.bounds import Bounds
from ansor.ir.code_size import straight_stores
from ansor.ir.nest import For, LoopKind, Stmt, Store, seq, sub_statements, walk_statements
from ansor.ir.passes.guards import NOTHING, settle_guards
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import fresh_copy, guarded, map_expressions, map_statements
from ansor.ir.simplify import prove, simplify
from ansor.ir.terms import assumed, combination_of, is_identity, needed
from ansor.te.expr import Const, Expr, Var, free_vars, int_value

MOST_COPIES: Final = 9
"""Iterations of loops that are written out, one within the other."""
MOST_STORES: Final = 256
"""Stores that they may become, other unrolled loops expanded, too."""

_STRAIGHT: Final = frozenset({LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.TENSORIZE})
_WRITABLE: Final = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})


@dataclass(frozen=True, slots=True)
class _Update:
    """
    A statement that changes nothing unless all `tests` hold.

    Parameters
    ----------
    store
        The statement.
    tests
        The conditions.
    around, tile
        The loops around it, outermost first: the innermost, as far as they become straight code or select
        the element, are its tile.
    selecting
        The variables that say which element is updated.
    """

    store: Store
    tests: tuple[Expr, ...]
    around: tuple[For, ...]
    tile: tuple[For, ...]
    selecting: frozenset[Var]

    @classmethod
    def of(cls, store: Store, loops: tuple[For, ...]) -> _Update:
        selecting, count = frozenset(free_vars(*store.indices)), len(loops)
        while count and (loops[count - 1].kind in _STRAIGHT or loops[count - 1].var in selecting):
            count -= 1
        found = combination_of(store)
        tests = needed(found.term, found.identity) if found else ()
        return cls(store, tests, loops[:count], loops[count:], selecting)

    def is_decided(self, test: Expr) -> bool:
        """Whether a test is made outside of the tile's rows, or by the numbers that these become."""
        inside, around = _among(self.tile, test), _among(self.around, test)
        rows = self._has_rows(inside)
        return _is_straight(inside) and not (rows and (around or not self._is_by_numbers(test)))

    def loops_to_write(self, test: Expr) -> tuple[For, ...]:
        """The loops that decide a test together with rows of the tile; none if they are parallel."""
        inside, around = _among(self.tile, test), _among(self.around, test)
        serial = all(loop.kind in _WRITABLE and int_value(loop.extent) for loop in around)
        rows = self._has_rows(inside) and _is_straight(inside)
        return around if serial and rows and self._is_by_numbers(test) else ()

    def _has_rows(self, inside: tuple[For, ...]) -> bool:
        """Whether some loops of the tile select elements."""
        return any(loop.var in self.selecting for loop in inside)

    def _is_by_numbers(self, test: Expr) -> bool:
        """Whether loops alone may decide a test for each row.

        Instructions that add several terms may share sums of all terms among rows.
        """
        loops = (*self.around, *self.tile)
        tensorized = any(loop.kind is LoopKind.TENSORIZE for loop in loops)
        return not tensorized and free_vars(test) <= {loop.var for loop in loops}


def _among(loops: tuple[For, ...], test: Expr) -> tuple[For, ...]:
    """The loops that a test depends on."""
    used = free_vars(test)
    return tuple(loop for loop in loops if loop.var in used)


def _is_straight(loops: tuple[For, ...]) -> bool:
    """Whether loops become copies of their body, each with a number of its own."""
    return all(loop.kind is LoopKind.UNROLLED for loop in loops)


def skip_identities(stmt: Stmt, bounds: Bounds) -> Stmt:
    """Let updates of `stmt` depend on what they need to change anything.

    Parameters
    ----------
    bounds
        Ranges of the variables around `stmt`. Those of loops in it are its own, whatever is said of them.

    Returns
    -------
    Stmt
        The same reductions, with their tests as far outside as they may be.
    """
    known = bounds.extended(loop_ranges(stmt))
    updates = [one for one in _updates(stmt, ()) if any(prove(test, known) is None for test in one.tests)]
    if not updates:
        return stmt
    written = _written_out(stmt, _loops_to_write(stmt, updates, known))
    if written is not stmt:
        known = bounds.extended(loop_ranges(written))
        written = map_expressions(written, lambda expr: simplify(expr, known))
    return settle_guards(_guarded(written, ()), bounds)


def _updates(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[_Update]:
    if isinstance(stmt, Store):
        update = _Update.of(stmt, loops)
        if update.tests:
            yield update
        return
    inside = (*loops, stmt) if isinstance(stmt, For) else loops
    for inner in sub_statements(stmt):
        yield from _updates(inner, inside)


# -- loops that are written out ------------------------------------------------------------------------


def _loops_to_write(stmt: Stmt, updates: list[_Update], known: Bounds) -> Mapping[Var, int]:
    """The iterations of those loops around tiles that decide tests with rows of the tile."""
    chosen: dict[Var, int] = {}
    for update in updates:
        own: dict[Var, int] = {}
        for test in update.tests:
            if update.is_decided(test) or prove(test, known) is not None:
                continue
            loops = update.loops_to_write(test)
            more = {**own, **{loop.var: int_value(loop.extent) or 1 for loop in loops}}
            if prod(more.values()) <= MOST_COPIES and _is_short(stmt, {*chosen, *more}):
                own = more
        chosen.update(own)
    return chosen


def _is_short(stmt: Stmt, written: Collection[Var]) -> bool:
    """Whether each of some loops, with all that is written out inside of it, makes little code."""
    loops = (inner for inner in walk_statements(stmt) if isinstance(inner, For) and inner.var in written)
    return all(straight_stores(loop, written) <= MOST_STORES for loop in loops)


def _written_out(stmt: Stmt, chosen: Mapping[Var, int]) -> Stmt:
    stmt = map_statements(stmt, lambda inner: _written_out(inner, chosen))
    if not isinstance(stmt, For) or stmt.var not in chosen:
        return stmt
    numbers = range(chosen[stmt.var])
    return seq(*(fresh_copy(stmt.body, {stmt.var: Const(number, stmt.var.dtype)}) for number in numbers))


# -- guards --------------------------------------------------------------------------------------------


def _guarded(stmt: Stmt, loops: tuple[For, ...]) -> Stmt:
    if isinstance(stmt, Store):
        found = combination_of(stmt)
        if found is not None and is_identity(found.term, found.identity):
            return NOTHING
        update = _Update.of(stmt, loops)
        decided = tuple(test for test in update.tests if update.is_decided(test))
        return guarded(decided, replace(stmt, value=assumed(stmt.value, decided))) if decided else stmt
    inside = (*loops, stmt) if isinstance(stmt, For) else loops
    return map_statements(stmt, lambda inner: _guarded(inner, inside))
