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
leaves out the rows that change nothing in it. All others stay choices.

Source: libraries of convolutions leave out the rows and columns of kernels that lie on padding (Georganas et
al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures", SC 2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from ansor.ir.bounds import Bounds
from ansor.ir.code_size import straight_stores
from ansor.ir.independence import loop_ranges
from ansor.ir.nest import For, LoopKind, Stmt, Store, seq, sub_statements
from ansor.ir.passes.guards import settle_guards
from ansor.ir.passes.lane_reduction import REDUCERS
from ansor.ir.rewriting import fresh_copy, guarded, map_expressions, map_statements
from ansor.ir.simplify import prove, simplify
from ansor.ir.structure import same_structure
from ansor.ir.terms import assumed, needed
from ansor.te.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Var,
    free_vars,
    int_value,
)
from ansor.te.reduction import builtin_combiner

MOST_COPIES: Final = 9
"""Iterations of loops that are written out, one within the other."""
MOST_STORES: Final = 256
"""Stores that they may become, other unrolled loops expanded, too."""

_STRAIGHT: Final = frozenset({LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.TENSORIZE})
_WRITABLE: Final = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})


@dataclass(frozen=True, slots=True)
class _Update:
    """A statement that changes nothing unless all `tests` hold, and the loops around it, outermost first."""

    store: Store
    tests: tuple[Expr, ...]
    loops: tuple[For, ...]

    @property
    def selecting(self) -> frozenset[Var]:
        """The variables that say which element is updated."""
        return frozenset[Var]().union(*map(free_vars, self.store.indices))

    @property
    def tile(self) -> tuple[For, ...]:
        """The innermost loops, as far as they become straight code or select the element."""
        selecting, count = self.selecting, len(self.loops)
        while count and (self.loops[count - 1].kind in _STRAIGHT or self.loops[count - 1].var in selecting):
            count -= 1
        return self.loops[count:]

    @property
    def is_tensorized(self) -> bool:
        """Whether instructions add several terms: they may share sums among rows, over all terms."""
        return any(loop.kind is LoopKind.TENSORIZE for loop in self.loops)

    def is_decided(self, test: Expr) -> bool:
        """Whether a test is made outside of the rows of the tile, or by the numbers that these become."""
        inside, around = self._loops_of(test)
        if self._has_rows(inside) and (around or self.is_tensorized):
            return False
        return _is_straight(inside)

    def loops_to_write(self, test: Expr) -> tuple[For, ...]:
        """The loops that decide a test together with rows of the tile; none if they are parallel."""
        inside, around = self._loops_of(test)
        known = len(inside) + len(around) == len(free_vars(test))
        serial = all(loop.kind in _WRITABLE and int_value(loop.extent) for loop in around)
        rows = self._has_rows(inside) and _is_straight(inside) and not self.is_tensorized
        return around if known and serial and rows else ()

    def _loops_of(self, test: Expr) -> tuple[tuple[For, ...], tuple[For, ...]]:
        """The loops that a test depends on: of the tile, and around it."""
        loops, tile = [loop for loop in self.loops if loop.var in free_vars(test)], self.tile
        inside = tuple(loop for loop in loops if loop in tile)
        return inside, tuple(loop for loop in loops if loop not in tile)

    def _has_rows(self, inside: tuple[For, ...]) -> bool:
        """Whether some loops of the tile select elements."""
        return any(loop.var in self.selecting for loop in inside)


def _is_straight(loops: tuple[For, ...]) -> bool:
    """Whether loops become copies of their body, each with a number of its own."""
    return all(loop.kind is LoopKind.UNROLLED for loop in loops)


def skip_identities(stmt: Stmt, bounds: Bounds) -> Stmt:
    """Let updates of `stmt` depend on what they need to change anything.

    Parameters
    ----------
    bounds
        Ranges of the variables around `stmt`.

    Returns
    -------
    Stmt
        The same reductions, with their tests as far outside as they may be.
    """
    known = bounds.extended(loop_ranges(stmt))
    updates = [update for update in _updates(stmt, ()) if any(prove(t, known) is None for t in update.tests)]
    if not updates:
        return stmt
    written = _written_out(stmt, _loops_to_write(updates, known))
    if written is not stmt:
        known = bounds.extended(loop_ranges(written))
        written = map_expressions(written, lambda expr: simplify(expr, known))
    return settle_guards(_guarded(written, ()), bounds)


def _updates(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[_Update]:
    if isinstance(stmt, Store):
        tests = _tests(stmt)
        if tests:
            yield _Update(stmt, tests, loops)
        return
    inside = (*loops, stmt) if isinstance(stmt, For) else loops
    for inner in sub_statements(stmt):
        yield from _updates(inner, inside)


def _tests(store: Store) -> tuple[Expr, ...]:
    """The conditions on loop variables without which a reduction's update changes nothing."""
    match store.value:
        case (
            Binary(op=op, a=Load(buffer=buffer, indices=indices), b=term)
            | Binary(op=op, a=term, b=Load(buffer=buffer, indices=indices))
        ) if op in REDUCERS and buffer is store.buffer:
            same = all(same_structure(a, b) for a, b in zip(indices, store.indices, strict=True))
            (identity,) = builtin_combiner(REDUCERS[op], store.value.dtype).identity
            return needed(term, identity) if same else ()
        case _:
            return ()


# -- loops that are written out ------------------------------------------------------------------------


def _loops_to_write(updates: list[_Update], known: Bounds) -> Mapping[Var, int]:
    """The iterations of those loops around tiles that decide tests with rows of the tile."""
    chosen: dict[Var, int] = {}
    for update in updates:
        own: dict[Var, int] = {}
        for test in update.tests:
            if update.is_decided(test) or prove(test, known) is not None:
                continue
            loops = update.loops_to_write(test)
            more = {**own, **{loop.var: int_value(loop.extent) or 1 for loop in loops}}
            size = max((straight_stores(loop.body) for loop in update.loops if loop.var in more), default=0)
            copies = prod(more.values())
            if copies <= MOST_COPIES and copies * size <= MOST_STORES:
                own = more
        chosen.update(own)
    return chosen


def _written_out(stmt: Stmt, chosen: Mapping[Var, int]) -> Stmt:
    stmt = map_statements(stmt, lambda inner: _written_out(inner, chosen))
    if not isinstance(stmt, For) or stmt.var not in chosen:
        return stmt
    numbers = range(chosen[stmt.var])
    return seq(*(fresh_copy(stmt.body, {stmt.var: Const(number, stmt.var.dtype)}) for number in numbers))


# -- guards --------------------------------------------------------------------------------------------


def _guarded(stmt: Stmt, loops: tuple[For, ...]) -> Stmt:
    if isinstance(stmt, Store):
        update = _Update(stmt, _tests(stmt), loops)
        decided = tuple(test for test in update.tests if update.is_decided(test))
        return guarded(decided, replace(stmt, value=assumed(stmt.value, decided))) if decided else stmt
    inside = (*loops, stmt) if isinstance(stmt, For) else loops
    return map_statements(stmt, lambda inner: _guarded(inner, inside))
