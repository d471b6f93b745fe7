"""Software pipelining: a loop whose steps wait for each other works at several iterations at once.

The row of a softmax is a chain: its maximum, the exponentials, their sum, the quotients. Each is a loop that
needs all of the one before, and each keeps other units of a processor busy: maxima wait for loads,
exponentials for multipliers, quotients for stores. These could work at the same time, but a processor looks
ahead for some hundred instructions only, and hardly gets from one loop into the next.

The loops of an iteration are its *phases*. Iteration `t` of the new loop does the first phase of row `t`, the
second one of row `t - 1` and so on. These have nothing to do with each other, so their loops become one:

    pipeline i in 0..32:                     allocate m[2]
      allocate m                             for t in 0..33:
      m = -inf                                 if t >= 1 and t < 32:
      for j in 0..64:                            m[t%2] = -inf
        m = max(m, X[i, j])            =>        for j in 0..64:
      for j in 0..64:                              m[t%2] = max(m[t%2], X[t, j])
        Y[i, j] = X[i, j] - m                      Y[t - 1, j] = X[t - 1, j] - m[(t + 1)%2]
                                               else:
                                                 if t < 32: the first phase alone, of row t
                                                 if t >= 1: the second one alone, of row t - 1

What one phase computes for later ones is there as often as there are phases from the first one that uses it
to the last one. A loop of more iterations than the shortest one does several of its own for each of that one.

What asks memory for elements of a later row does so for that of the first phase: rows of others are there.

A loop stays as it is, and is serial, where it has no two phases, among them loops inside of conditions, or
fewer iterations than phases, where one phase has many times the iterations of another one, and where they
could not be apart: phases use what another one writes outside of the loop, registers of another one, or
memory of symbolic size.

Softmax of 1024 rows, 2 cores of a Zen 4, against the fastest tile of rows (`sketches.rules.row_tiling`): 1.13
times as fast for rows of 256 floats, 1.2 for 384 and 1024, 1.25 for 768, 1.17 for 1536, 0.97 for 2048.

Source: M. Lam, "Software pipelining: an effective scheduling technique for VLIW machines", PLDI 1988, with
loops in place of instructions. TVM has annotations `software_pipeline_stage` to the same end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ansor.ir.accesses import accesses_of
from ansor.ir.bounds import Bounds
from ansor.ir.nest import (
    Alloc,
    Buffer,
    For,
    If,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
    seq,
    walk_statements,
)
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import Row, fresh_copy, in_rows, map_expressions, map_statements, with_rows
from ansor.ir.simplify import simplify
from ansor.te.expr import Expr, Var, const, int_value, substitute

_LONG: Final = 4
"""Iterations of a serial loop that is a phase: what is shorter, a processor looks beyond."""
_MOST_AT_ONCE: Final = 16
"""Iterations that a loop does at most for each of another one."""


def pipeline_loops(stmt: Stmt, bounds: Bounds) -> Stmt:
    """`stmt` with its loops of kind "pipeline" pipelined, or serial; `bounds` hold what it does not bind."""
    made = _visit(stmt)
    if made is stmt:
        return stmt
    known = bounds.extended(loop_ranges(made))
    return map_expressions(made, lambda expr: simplify(expr, known))


def _visit(stmt: Stmt) -> Stmt:
    stmt = map_statements(stmt, _visit)
    if not isinstance(stmt, For) or stmt.kind is not LoopKind.PIPELINED:
        return stmt
    allocated: list[Buffer] = []
    phases = _phases(list(_flattened(stmt.body, allocated)))
    copies = _copies(phases, allocated)
    rows = int_value(stmt.extent)
    few = len(phases) < 2 or (rows is not None and rows < len(phases))
    if few or copies is None or not _are_alike([phase.loop for phase in phases]):
        return replace(stmt, kind=LoopKind.SERIAL)
    return _Pipeline(stmt, phases, copies).made()


# -- taking an iteration apart ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Phase:
    """One long loop of an iteration with the statements before and behind it that belong to it."""

    before: tuple[Stmt, ...]
    loop: For
    behind: tuple[Stmt, ...]

    @property
    def whole(self) -> Stmt:
        return seq(*self.before, self.loop, *self.behind)


def _flattened(stmt: Stmt, allocated: list[Buffer]) -> Iterator[Stmt]:
    """The statements of an iteration in order; what it allocates around them is added to `allocated`."""
    match stmt:
        case Alloc(buffer=buffer, body=body):
            allocated.append(buffer)
            yield from _flattened(body, allocated)
        case Seq(stmts=stmts):
            for one in stmts:
                yield from _flattened(one, allocated)
        case _:
            yield stmt


def _phases(stmts: Sequence[Stmt]) -> list[_Phase]:
    """The phases of an iteration, in order."""
    long = [(place, stmt) for place, stmt in enumerate(stmts) if isinstance(stmt, For) and _is_long(stmt)]
    found: list[_Phase] = []
    start = 0
    for number, (place, loop) in enumerate(long):
        last = number == len(long) - 1
        end = len(stmts) if last else _first_of_next(stmts, place, long[number + 1][0])
        found.append(_Phase(tuple(stmts[start:place]), loop, tuple(stmts[place + 1 : end])))
        start = end
    return found


def _is_long(loop: For) -> bool:
    stores = any(isinstance(stmt, Store) for stmt in walk_statements(loop.body))
    return stores and loop.kind is LoopKind.SERIAL and _trips(loop) >= _LONG


def _trips(loop: For) -> int:
    """How many iterations a loop has, 0 if that is not known."""
    return int_value(loop.extent) or 0


def _are_alike(loops: Sequence[For]) -> bool:
    """Whether no loop is so much longer than another that one iteration of that is a long loop again."""
    trips = list(map(_trips, loops))
    return max(trips) <= _MOST_AT_ONCE * min(trips)


def _first_of_next(stmts: Sequence[Stmt], left: int, right: int) -> int:
    """Where the statements between two long loops begin to belong to the second one.

    Those do that use nothing of what has been computed so far: what a reduction starts from.
    """
    computed = {buffer for stmt in stmts[: left + 1] for buffer in accesses_of(stmt).writes}
    start = left + 1
    for place in range(left + 1, right):
        accesses = accesses_of(stmts[place])
        if not computed.isdisjoint(accesses.reads):
            computed |= accesses.writes.keys()
            start = place + 1
    return start


def _copies(phases: Sequence[_Phase], allocated: Sequence[Buffer]) -> dict[Buffer, int] | None:
    """How often each buffer of an iteration has to be there; None if phases could not be apart."""
    used: dict[Buffer, list[int]] = {buffer: [] for buffer in allocated}
    outside: set[Buffer] = set()
    for place, phase in enumerate(phases):
        accesses = accesses_of(phase.whole)
        outside |= accesses.writes.keys() - accesses.allocated - set(allocated)
        for buffer in accesses.reads.keys() | accesses.writes.keys():
            used.setdefault(buffer, []).append(place)
    copies = {buffer: used[buffer][-1] - used[buffer][0] + 1 if used[buffer] else 1 for buffer in allocated}
    several = [buffer for buffer, count in copies.items() if count > 1]
    if any(buffer.scope == "register" or None in map(int_value, buffer.shape) for buffer in several):
        return None
    return None if any(len(used[buffer]) > 1 for buffer in outside) else copies


# -- putting iterations together -------------------------------------------------------------------------


class _Pipeline:
    """A loop that does phase `k` of row `t - k` in its iteration `t`."""

    def __init__(self, loop: For, phases: Sequence[_Phase], copies: Mapping[Buffer, int]) -> None:
        self.row, self.phases, self.copies = loop.var, phases, copies
        self.rows = const(loop.extent) if isinstance(loop.extent, int) else loop.extent
        self.step = Var(loop.var.name, loop.var.dtype)
        self.buffers = {
            buffer: with_rows(buffer, (count,), buffer.scope) for buffer, count in copies.items() if count > 1
        }

    def made(self) -> Stmt:
        last = len(self.phases) - 1
        alone = [
            If(self._inside(place, place), self._placed(phase.whole, place))
            for place, phase in enumerate(self.phases)
        ]
        body: Stmt = If(self._inside(last, 0), fresh_copy(self._together()), seq(*alone))
        for buffer, count in self.copies.items():
            if count == 1:
                body = Alloc(buffer, body)
        extent = self.rows + const(last)
        loop: Stmt = For(self.step, int_value(extent) or extent, LoopKind.SERIAL, body)
        for buffer in self.buffers.values():
            loop = Alloc(buffer, loop)
        return loop

    def _inside(self, first: int, last: int) -> Expr:
        """Whether phase `first` has begun with the rows, and phase `last` not ended."""
        return (self.step >= const(first)) & (self.step < self.rows + const(last))

    def _together(self) -> Stmt:
        """One iteration in which all phases have a row."""
        placed = [
            _Phase(
                tuple(self._placed(stmt, place) for stmt in phase.before),
                replace(phase.loop, body=self._placed(phase.loop.body, place)),
                tuple(self._placed(stmt, place) for stmt in phase.behind),
            )
            for place, phase in enumerate(self.phases)
        ]
        before = [stmt for phase in placed for stmt in phase.before]
        behind = [stmt for phase in placed for stmt in phase.behind]
        return seq(*before, *_joined([phase.loop for phase in placed]), *behind)

    def _placed(self, stmt: Stmt, place: int) -> Stmt:
        """A statement of a phase for the row that the phase has come to."""
        ahead = _asking_for(stmt, self.row, self.row + const(place))  # for the row of the first phase
        return in_rows(ahead, {self.row: self.step - const(place)}, self._rows(place))

    def _rows(self, place: int) -> dict[Buffer, Row]:
        """What is there several times, and which one is that of the row that a phase has come to."""
        rows: dict[Buffer, Row] = {}
        for buffer, new in self.buffers.items():
            count = self.copies[buffer]
            rows[buffer] = new, ((self.step + const(-place % count)) % const(count),)
        return rows


def _asking_for(stmt: Stmt, row: Var, other: Expr) -> Stmt:
    """A statement whose prefetches are those of another row."""
    if isinstance(stmt, Prefetch):
        return map_expressions(stmt, lambda expr: substitute(expr, {row: other}))
    return map_statements(stmt, lambda inner: _asking_for(inner, row, other))


def _joined(loops: Sequence[For]) -> list[Stmt]:
    """Loops as one, of as many iterations as the shortest has, and what that leaves of the others."""
    first = min(loops, key=_trips)
    shortest, var = _trips(first), Var(first.var.name, first.var.dtype)
    parts: list[Stmt] = []
    rest: list[Stmt] = []
    for loop in loops:
        each, left = divmod(_trips(loop), shortest)
        one = each == 1
        parts.append(fresh_copy(loop.body, {loop.var: var}) if one else _part(loop, each, var * const(each)))
        if left:
            rest.append(_part(loop, left, const(each * shortest)))
    return [For(var, shortest, LoopKind.SERIAL, seq(*parts)), *rest]


def _part(loop: For, count: int, first: Expr) -> For:
    """Some iterations of a loop."""
    var = Var(loop.var.name, loop.var.dtype)
    return For(var, count, LoopKind.SERIAL, fresh_copy(loop.body, {loop.var: first + var}))
