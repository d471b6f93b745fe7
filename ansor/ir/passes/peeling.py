"""Tiles that are wholly inside their guards run without them (step 3 of `ansor.ir.passes.guards`).

For a guard `E < 0`, let the *tile* be the loops that bind variables of `E`, from the guard outwards; loops
of variables that do not occur in `E` (the reduction) may lie outside them. With each term of the tile
replaced by its largest value `E < 0` says whether the whole tile is inside. The tile should be big enough
for one such test to be cheap, and small enough for most tiles to be wholly inside: it grows outwards until
it has 16 iterations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import inf, prod

from ansor.ir.affine import Affine, add, constant
from ansor.ir.bounds import Bounds
from ansor.ir.nest import For, If, LoopKind, Stmt, Store, sub_statements, walk_statements
from ansor.ir.rewriting import (
    conjunction,
    conjuncts,
    fresh_copy,
    guarded,
    map_statements,
    reads_memory,
    with_statements,
)
from ansor.ir.shuffles import is_meeting
from ansor.ir.simplifier import Simplifier
from ansor.ir.simplify import assume
from ansor.te.expr import Binary, Const, Expr, Var, free_vars, int_value

ENOUGH = 16
"""Iterations of a tile that are worth a test."""
MANY = 64
"""Stores beside which a test costs nothing."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One condition of an `if` and the loops of the tile around it, outermost first."""

    statement: If
    test: Expr
    loops: tuple[For, ...]


def peel_tiles(stmt: Stmt, bounds: Bounds, max_copied: int, varying: Collection[Var] = ()) -> Stmt:
    """Write tiles twice, without and with guards; `bounds` hold all loop variables of `stmt` and sizes.

    Not those in which threads meet, which not all would come by then. Where one thread finds its tile
    inside and the next does not, both versions take their time: only vectors are worth a test of `varying`
    variables.
    """
    if _size(stmt) <= max_copied and not any(map(is_meeting, walk_statements(stmt))):
        tests, others = _removable(stmt, bounds.simplifier, varying)
        condition = conjunction(tuple({id(whole): whole for _, whole in tests}.values()))
        if condition is not None and not (others and _is_cheap_inside(stmt, tests)):
            inside = _without(stmt, [guard for guard, _ in tests])
            inside = peel_tiles(inside, assume(bounds, condition), max_copied, varying)
            return If(condition, fresh_copy(inside), stmt)
    if isinstance(stmt, If):
        then = peel_tiles(stmt.then, assume(bounds, stmt.cond), max_copied, varying)
        if stmt.other is None:
            return with_statements(stmt, (then,))
        other = peel_tiles(stmt.other, assume(bounds, stmt.cond, holds=False), max_copied, varying)
        return with_statements(stmt, (then, other))
    return map_statements(stmt, lambda inner: peel_tiles(inner, bounds, max_copied, varying))


def _removable(
    stmt: Stmt, simplifier: Simplifier, varying: Collection[Var]
) -> tuple[list[tuple[Guard, Expr]], bool]:
    """The guards for which `stmt` is the tile, each with its condition that the whole tile is inside.

    Also whether there are others, for which a part of `stmt` may be the tile.
    """
    found: list[tuple[Guard, Expr]] = []
    others = False
    for guard in _guards(stmt, ()):
        form = simplifier.below_zero(guard.test)
        run = _tile_loops(guard)
        if form is None or not run or reads_memory(guard.test):
            continue
        whole: Expr = Const(False, "bool")
        if _is_tile(guard, run):
            whole = _whole_tile(guard, form, simplifier)
        lanes = all(loop.kind is LoopKind.VECTORIZED for loop in run)
        if isinstance(whole, Const) or not (lanes or free_vars(whole).isdisjoint(varying)):
            others = True
        else:
            found.append((guard, whole))
    return found, others


def _is_cheap_inside(stmt: Stmt, tests: list[tuple[Guard, Expr]]) -> bool:
    """Whether the guards can as well be tested in the body of the loop `stmt`, together with others."""
    return (
        isinstance(stmt, For)
        and _steps(stmt.body) >= MANY
        and not any(stmt in _tile_loops(guard) for guard, _ in tests)
    )


def _steps(stmt: Stmt) -> int:
    """Executions of stores, a vectorized loop counting as one and an unknown extent as many."""
    inner = isinstance(stmt, Store) + sum(map(_steps, sub_statements(stmt)))
    if not isinstance(stmt, For) or stmt.kind is LoopKind.VECTORIZED:
        return inner
    extent = int_value(stmt.extent)
    return inner * (MANY if extent is None else extent)


def _guards(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[Guard]:
    if isinstance(stmt, If):
        for test in conjuncts(stmt.cond):
            yield Guard(stmt, test, loops)
    inside = (*loops, stmt) if isinstance(stmt, For) else loops
    for inner in sub_statements(stmt):
        yield from _guards(inner, inside)


def _tile_loops(guard: Guard) -> tuple[For, ...]:
    """The loops whose variables occur in the test."""
    used = free_vars(guard.test)
    return tuple(loop for loop in guard.loops if loop.var in used)


def _is_tile(guard: Guard, run: tuple[For, ...]) -> bool:
    """Whether the loops of the test follow each other, and are not more than it takes."""
    first = guard.loops.index(run[0])
    volume = prod(int_value(loop.extent) or 1 for loop in run[1:])
    return guard.loops[first : first + len(run)] == run and (len(run) == 1 or volume < ENOUGH)


def _whole_tile(guard: Guard, form: Affine, simplifier: Simplifier) -> Expr:
    """The condition that `form`, negative where the test holds, is so in the whole tile; False if unknown."""
    inner = {loop.var for loop in guard.loops}
    outside, largest = constant(form.const), 0
    for number, coefficient in form.terms.items():
        term = Affine({number: coefficient}, 0)
        if free_vars(simplifier.table.atoms[number].node) & inner:
            high = simplifier.table.interval(term)[1]
            if high == inf:
                return Const(False, "bool")
            largest += int(high)
        else:
            outside = add(outside, term)
    assert isinstance(guard.test, Binary)
    return simplifier.is_below_zero(add(outside, constant(largest)), guard.test.a.dtype)


def _without(stmt: Stmt, removed: list[Guard]) -> Stmt:
    if isinstance(stmt, If):
        gone = [guard.test for guard in removed if guard.statement is stmt]
        kept = tuple(test for test in conjuncts(stmt.cond) if not any(test is other for other in gone))
        then = _without(stmt.then, removed)
        if stmt.other is None:
            return guarded(kept, then)
        cond = conjunction(kept)
        return then if cond is None else If(cond, then, _without(stmt.other, removed))
    return map_statements(stmt, lambda inner: _without(inner, removed))


def _size(stmt: Stmt) -> int:
    """Stores, with unrolled loops expanded."""
    total = isinstance(stmt, Store) + sum(map(_size, sub_statements(stmt)))
    if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED:
        total *= int_value(stmt.extent) or 1
    return total
