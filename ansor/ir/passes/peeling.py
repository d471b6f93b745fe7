"""Tiles that are wholly inside their guards run without them (step 3 of `ansor.ir.passes.guards`).

For a guard `E < 0`, let the *tile* be the loops that bind variables of `E`, from the guard outwards. With
each term of the tile replaced by its largest value `E < 0` says whether the whole tile is inside. The tile
should be big enough for one such test to be cheap, and small enough for most tiles to be wholly inside: it
grows outwards until it has 16 iterations, of which a vector is one. Loops around it whose variables do not
occur in `E` (the reduction) are taken in, too, as long as they do little in each iteration: so a register
tile is one tile in each of its dimensions, and nothing is tested inside its reduction. It is tested before
its accumulators are filled, each version having its own; and what is around it, such as filling what they
are stored to, is written twice without it, unless one test is for both: its versions need the room.

Where several dimensions have guards, their tests are nested, and the borders have versions of their own: each
is as a rule the last tile of its dimension, and its loops are as long as that is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from ansor.ir.accesses import accesses_of
from ansor.ir.affine import Affine, add, constant
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import straight_stores
from ansor.ir.nest import Alloc, For, If, Let, LoopKind, Seq, Stmt, Store, sub_statements, walk_statements
from ansor.ir.rewriting import (
    conjuncts,
    fresh_copy,
    map_statements,
    reads_memory,
    with_statements,
    without_tests,
)
from ansor.ir.shuffles import is_meeting
from ansor.ir.simplifier import Simplifier
from ansor.ir.simplify import assume
from ansor.te.expr import Binary, Const, Expr, Var, free_vars, int_value
from ansor.te.structure import same_structure

ENOUGH = 16
"""Iterations of a tile that are worth a test."""
MANY = 64
"""Stores beside which a test costs nothing."""

STRAIGHT = frozenset({LoopKind.UNROLLED, LoopKind.VECTORIZED})
"""Loops that become straight code."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One condition of an `if` and the loops of the tile around it, outermost first."""

    statement: If
    test: Expr
    loops: tuple[For, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """The condition that a tile is wholly inside, and the guards that are not needed there."""

    inside: Expr
    guards: list[Guard]


def peel_tiles(stmt: Stmt, bounds: Bounds, max_copied: int, varying: Collection[Var]) -> Stmt:
    """Write tiles twice, without and with guards; `bounds` hold all loop variables of `stmt` and sizes.

    Not those in which threads meet, which not all would come by then. Where one thread finds its tile
    inside and the next does not, both versions take their time: only vectors are worth a test of `varying`
    variables.
    """
    return _Peeling(varying).peel(stmt, bounds, max_copied)


@dataclass(frozen=True, slots=True)
class _Peeling:
    """Peeling inside of versions for tiles that are not wholly inside the guards with the tests `failed`."""

    varying: Collection[Var]
    failed: tuple[Expr, ...] = ()

    def peel(self, stmt: Stmt, bounds: Bounds, room: int) -> Stmt:
        """Peel all tiles of `stmt`; each may add `room` stores."""
        guards = list(_guards(stmt, ()))
        if not guards:
            return stmt
        size = straight_stores(stmt)
        if size <= room and _may_be_place(stmt, guards) and not any(map(is_meeting, walk_statements(stmt))):
            bound = accesses_of(stmt).bound
            tiles = [
                tile
                for tile in self._tiles(guards, bounds.simplifier)
                if _is_place(stmt, tile.guards) and not _passes_over(stmt, tile.guards)
                if free_vars(tile.inside).isdisjoint(bound)
            ]
            if tiles:
                return self._peeled(stmt, max(tiles, key=_lanes), bounds, room - size)
        if isinstance(stmt, If):
            sides = [(stmt.then, True)] if stmt.other is None else [(stmt.then, True), (stmt.other, False)]
            peeled = [
                self.peel(side, assume(bounds, stmt.cond, holds=holds), room) if _has_tests(side) else side
                for side, holds in sides
            ]
            return with_statements(stmt, tuple(peeled))
        return map_statements(stmt, lambda inner: self.peel(inner, bounds, room))

    def _peeled(self, stmt: Stmt, tile: Tile, bounds: Bounds, room: int) -> Stmt:
        """Test for one tile, then in both versions for others, as far as there is room."""
        plain = without_tests(
            stmt, lambda one, part: any(g.statement is one and g.test is part for g in tile.guards)
        )
        inside = self.peel(plain, assume(bounds, tile.inside), room)
        rest = replace(self, failed=(*self.failed, *(guard.test for guard in tile.guards)))
        outside = rest.peel(stmt, assume(bounds, tile.inside, holds=False), room // 2)
        return If(tile.inside, fresh_copy(inside), outside)

    def _tiles(self, guards: Sequence[Guard], simplifier: Simplifier) -> list[Tile]:
        """The tiles around some guards that may be wholly inside them."""
        found: list[Tile] = []
        for guard in guards:
            if any(guard.test is test for test in self.failed):
                continue
            run = _tile_loops(guard)
            if not run or not _is_tile(guard, run) or reads_memory(guard.test):
                continue
            whole = holds_throughout(guard.test, {loop.var for loop in guard.loops}, simplifier)
            vectors = all(loop.kind is LoopKind.VECTORIZED for loop in run)
            if isinstance(whole, Const) or not (vectors or free_vars(whole).isdisjoint(self.varying)):
                continue
            same = next((tile for tile in found if same_structure(tile.inside, whole)), None)
            if same is None:
                found.append(Tile(whole, [guard]))
            else:
                same.guards.append(guard)
        return found


def _is_tile(guard: Guard, run: tuple[For, ...]) -> bool:
    """Whether the loops of the test are together, but for what is unrolled, and not more than it takes."""
    first, last = guard.loops.index(run[0]), guard.loops.index(run[-1])
    inner = [loop for loop in run[1:] if loop.kind is not LoopKind.VECTORIZED]
    volume = prod(int_value(loop.extent) or 1 for loop in inner)
    together = all(loop in run or loop.kind in STRAIGHT for loop in guard.loops[first:last])
    return together and (len(run) == 1 or volume < ENOUGH)


def _may_be_place(stmt: Stmt, guards: Sequence[Guard]) -> bool:
    """False for a loop before which no tile of some guards is to be tested, as is easily seen."""
    if not isinstance(stmt, For) or steps(stmt.body) < MANY:
        return True
    return any(stmt.var in free_vars(guard.test) for guard in guards)


def _is_place(stmt: Stmt, guards: Sequence[Guard]) -> bool:
    """
    Whether it is before `stmt` that the tile of some guards is to be tested.

    It is before the tile; before a loop around it, if that does so little in each iteration that a test
    there would cost something; before a sequence of several parts with a tile; and before accumulators.
    """
    if isinstance(stmt, If) and any(guard.statement is stmt for guard in guards):
        return True
    if isinstance(stmt, For):
        inside = [guard for guard in guards if stmt in guard.loops]
        if any(stmt in _tile_loops(guard) for guard in inside):
            return True
        return bool(inside) and steps(stmt.body) < MANY
    if is_register_tile(stmt):
        return _has_guard(stmt, guards)
    tested = [inner for inner in sub_statements(stmt) if _has_guard(inner, guards)]
    if isinstance(stmt, Seq) and len(tested) < 2:
        return False
    return bool(tested) and all(_is_place(inner, guards) for inner in tested)


def _passes_over(stmt: Stmt, guards: Sequence[Guard]) -> bool:
    """Whether a register tile in `stmt` has tests, but none of these: it would be copied for nothing."""
    return any(
        is_register_tile(inner) and _has_tests(inner) and not _has_guard(inner, guards)
        for inner in walk_statements(stmt)
    )


def _has_guard(stmt: Stmt, guards: Sequence[Guard]) -> bool:
    return any(guard.statement is inner for inner in walk_statements(stmt) for guard in guards)


def _lanes(tile: Tile) -> int:
    """Lanes of the widest vectors that the guards of a tile mask."""
    vectors = [[x for x in _tile_loops(g) if x.kind is LoopKind.VECTORIZED] for g in tile.guards]
    return max(prod(int_value(loop.extent) or 1 for loop in loops) for loops in vectors)


def steps(stmt: Stmt) -> int:
    """Executions of stores, a vectorized loop counting as one and an unknown extent as many."""
    inner = isinstance(stmt, Store) + sum(map(steps, sub_statements(stmt)))
    if not isinstance(stmt, For) or stmt.kind is LoopKind.VECTORIZED:
        return inner
    extent = int_value(stmt.extent)
    return inner * (MANY if extent is None else extent)


def _guards(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[Guard]:
    """The tests in a statement; a tile ends where accumulators are filled, unless for few steps.

    And where a variable of the test is bound that is none of a loop. A test between two versions of much that
    is to be done costs nothing beside it.
    """
    if isinstance(stmt, Let):
        for guard in _guards(stmt.body, loops):
            own = guard.loops[len(loops) :] if stmt.var in free_vars(guard.test) else guard.loops
            yield replace(guard, loops=own)
        return
    if isinstance(stmt, If) and (stmt.other is None or steps(stmt) < MANY):
        for test in conjuncts(stmt.cond):
            yield Guard(stmt, test, loops)
    inside = (*loops, stmt) if isinstance(stmt, For) else loops
    if is_register_tile(stmt) and steps(stmt) >= MANY:
        inside = ()
    for inner in sub_statements(stmt):
        yield from _guards(inner, inside)


def is_register_tile(stmt: Stmt) -> bool:
    return isinstance(stmt, Alloc) and stmt.buffer.scope == "register"


def _has_tests(stmt: Stmt) -> bool:
    return any(isinstance(inner, If) for inner in walk_statements(stmt))


def _tile_loops(guard: Guard) -> tuple[For, ...]:
    """The loops whose variables occur in the test."""
    used = free_vars(guard.test)
    return tuple(loop for loop in guard.loops if loop.var in used)


def holds_throughout(test: Expr, inner: Collection[Var], simplifier: Simplifier) -> Expr:
    """The condition that a test holds for all values of `inner` variables; False if unknown."""
    form = simplifier.below_zero(test)
    if form is None:
        return Const(False, "bool")
    outside, largest = constant(form.const), 0
    for number, coefficient in form.terms.items():
        term = Affine({number: coefficient}, 0)
        if not free_vars(simplifier.table.atoms[number].node).isdisjoint(inner):
            high = simplifier.table.interval(term)[1]
            if high == inf:
                return Const(False, "bool")
            largest += int(high)
        else:
            outside = add(outside, term)
    assert isinstance(test, Binary)
    whole, dtype = add(outside, constant(largest)), test.a.dtype
    return (
        simplifier.is_below_zero(whole, dtype)
        if simplifier.table.fits(whole, dtype)
        else Const(False, "bool")
    )
