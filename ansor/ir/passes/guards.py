"""Conditions of `if` statements: removed where they are known, moved out of loops, and tested once per tile.

Three steps, each of which leaves fewer tests inside loops:

1. *Removal*: what the ranges of the variables, and the conditions around, decide is not tested, and what is
   never there is not asked for ahead. A loop that does nothing past some iteration ends there.
2. *Hoisting*: a test that does not depend on a loop is made before the loop.
3. *Peeling*: a test of `8*i0 + i1 < n` in a tile over `i1` becomes one test of whether the whole tile is
   inside, `8*i0 + 7 < n`, around two versions of the tile: one without the test for all tiles but the last,
   one with it. Where the second version is known to be the last tile, removal then fits its loops to it.

Conditions that read memory stay where they are.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import is_

from ansor.ir.bounds import Bounds
from ansor.ir.nest import Alloc, For, If, LoopKind, Prefetch, Seq, Stmt, seq, walk_statements
from ansor.ir.passes.peeling import peel_tiles
from ansor.ir.prefetches import may_bring
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import conjunction, conjuncts, guarded, map_statements, reads_memory, with_statements
from ansor.ir.simplify import assume, prove, simplify
from ansor.te.expr import Binary, BinaryOp, Const, Expr, Var, free_vars, int_value
from ansor.te.structure import is_among

_SHORTENED_KINDS = frozenset(
    {LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.PARALLEL, LoopKind.PIPELINED}
)

NOTHING = Seq(())
"""A statement that does nothing."""


def simplify_guards(
    stmt: Stmt, bounds: Bounds | None = None, *, max_copied: int = 256, varying: Collection[Var] = ()
) -> Stmt:
    """Remove, hoist and peel the conditions of `stmt`.

    Parameters
    ----------
    bounds
        Ranges of the variables around `stmt`: symbolic sizes and outer loops. Those of loops in it are its
        own, whatever is said of them.
    max_copied
        The largest tile, in stores with unrolled loops expanded, that is written down twice.
    varying
        Variables around `stmt` that differ between threads which execute it together.
    """
    outer = bounds or Bounds()
    stmt = settle_guards(stmt, outer)
    peeled = peel_tiles(stmt, outer.extended(loop_ranges(stmt)), max_copied, varying)
    return stmt if peeled is stmt else settle_guards(peeled, outer)


def settle_guards(stmt: Stmt, bounds: Bounds) -> Stmt:
    """Remove and hoist the conditions of `stmt`; `bounds` are those of the variables around it."""
    return hoist_guards(remove_known_guards(stmt, bounds.extended(loop_ranges(stmt))))


# -- removal -------------------------------------------------------------------------------------------


def remove_known_guards(stmt: Stmt, bounds: Bounds) -> Stmt:
    """Drop what `bounds`, which hold all loop variables, and outer conditions decide."""
    return _remove(stmt, bounds, ())


def _remove(stmt: Stmt, bounds: Bounds, held: tuple[Expr, ...]) -> Stmt:
    match stmt:
        case If():
            return _remove_if(stmt, bounds, held)
        case For(var=var, extent=extent, kind=kind, body=body):
            new = _remove(body, bounds, held)
            if is_nothing(new):
                return NOTHING
            limit, new = _shortened(var, extent, kind, new)
            same = new is body and limit is extent
            return stmt if same else For(var, limit, kind, new)
        case Seq(stmts=stmts):
            parts = tuple(_remove(one, bounds, held) for one in stmts)
            if any(map(is_nothing, parts)):
                return seq(*(part for part in parts if not is_nothing(part)))
            return with_statements(stmt, parts)
        case Prefetch(buffer=buffer, indices=indices):
            return stmt if may_bring(buffer, indices, bounds) else NOTHING
        case _:
            new_stmt = map_statements(stmt, lambda inner: _remove(inner, bounds, held))
            if isinstance(new_stmt, Alloc) and is_nothing(new_stmt.body):
                return NOTHING
            return new_stmt


def _remove_if(stmt: If, bounds: Bounds, held: tuple[Expr, ...]) -> Stmt:
    parts = conjuncts(stmt.cond)
    kept = _undecided(parts, bounds, held)
    if kept is None:
        return NOTHING if stmt.other is None else _remove(stmt.other, bounds, held)
    then, other = stmt.then, stmt.other
    if not _is_plain(then):
        inside = reduce(assume, kept, bounds)
        then = _remove(then, inside, (*held, *(part for part in kept if not reads_memory(part))))
    cond = conjunction(kept)
    if cond is None:
        return then
    if other is not None:
        other = _remove(other, assume(bounds, cond, holds=False), held)
        other = None if is_nothing(other) else other
    if other is None and is_nothing(then):
        return NOTHING
    if len(kept) == len(parts) and all(map(is_, kept, parts)):
        cond = stmt.cond
    same = cond is stmt.cond and then is stmt.then and other is stmt.other
    return stmt if same else If(cond, then, other)


def _undecided(parts: tuple[Expr, ...], bounds: Bounds, held: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """Those conditions that may hold or not, simplified; None if one of them does not hold."""
    kept: list[Expr] = []
    for part in parts:
        known = True if is_among(part, held) else prove(part, bounds)
        if known is False:
            return None
        if known is None:
            kept.append(simplify(part, bounds))
    return tuple(kept)


def _shortened(var: Var, extent: int | Expr, kind: LoopKind, body: Stmt) -> tuple[int | Expr, Stmt]:
    """A loop's extent and body, without iterations for which the body does nothing."""
    size = int_value(extent)
    if kind not in _SHORTENED_KINDS or size is None or not isinstance(body, If) or body.other is not None:
        return extent, body
    parts = conjuncts(body.cond)
    for part in parts:
        match part:
            case Binary(op=BinaryOp.LT, a=a, b=Const(value=limit)) if a is var and 0 < limit < size:
                return int(limit), guarded(tuple(p for p in parts if p is not part), body.then)
            case _:
                continue
    return extent, body


def _is_plain(stmt: Stmt) -> bool:
    """Whether nothing can be removed from a statement."""
    return not any(isinstance(inner, (If, Prefetch)) or is_nothing(inner) for inner in walk_statements(stmt))


def is_nothing(stmt: Stmt) -> bool:
    return isinstance(stmt, Seq) and not stmt.stmts


# -- hoisting ------------------------------------------------------------------------------------------


def hoist_guards(stmt: Stmt) -> Stmt:
    """Move conditions out of the loops, allocations and sequences they do not depend on.

    A loop of which one that arrives there says how far it goes ends there.
    """
    stmt = map_statements(stmt, hoist_guards)
    match stmt:
        case For(var=var, extent=extent, kind=kind, body=If(other=None) as inner):
            out, kept = _split(inner.cond, {var})
            body = guarded(kept, inner.then) if out else inner
            limit, body = _shortened(var, extent, kind, body)
            return stmt if body is inner else guarded(out, For(var, limit, kind, body))
        case Alloc(buffer=buffer, body=If(other=None) as inner):
            out, kept = _split(inner.cond, set())
            return guarded(out, Alloc(buffer, guarded(kept, inner.then))) if out else stmt
        case If(cond=cond, then=If(other=None) as inner, other=None):
            return guarded((*conjuncts(cond), *conjuncts(inner.cond)), inner.then)
        case Seq(stmts=stmts):
            return _hoist_common(stmt, stmts)
        case _:
            return stmt


def _hoist_common(stmt: Seq, stmts: tuple[Stmt, ...]) -> Stmt:
    """Test once what all statements of a sequence test."""
    if not stmts or not isinstance(stmts[0], If):
        return stmt
    tests: list[tuple[Expr, ...]] = []
    bodies: list[Stmt] = []
    for one in stmts:
        if not isinstance(one, If) or one.other is not None:
            return stmt
        tests.append(conjuncts(one.cond))
        bodies.append(one.then)
    common = tuple(
        test
        for test in tests[0]
        if not reads_memory(test) and all(is_among(test, others) for others in tests[1:])
    )
    if not common:
        return stmt
    rest = [
        guarded(tuple(test for test in own if not is_among(test, common)), body)
        for own, body in zip(tests, bodies, strict=True)
    ]
    return guarded(common, with_statements(stmt, tuple(rest)))


def _split(cond: Expr, bound: set[Var]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The parts of a condition that can and cannot be tested outside the binding of `bound`."""
    parts = conjuncts(cond)
    out = tuple(p for p in parts if not free_vars(p) & bound and not reads_memory(p))
    return out, tuple(p for p in parts if not any(p is o for o in out))
