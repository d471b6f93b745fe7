"""Tiles in shared memory that are filled some iterations ahead, while those of this one are used.

The threads of a block fill a tile together, wait for each other, and use it; while the tile is on its way
they compute nothing. If there is room for two, that of the next iteration can be on its way meanwhile:

    for k in 0..8:                           S[0, t] = A[0, t]
      barrier                                for k in 0..8:
      S[t] = A[k, t]                           barrier
      barrier                        =>        if k + 1 < 8:
      C[t] = f(C[t], S)                          S[(k + 1)%2, t] = A[k + 1, t]
                                               C[t] = f(C[t], S[k%2])

Iterations fill the buffers in turn, so one barrier will do: behind it all threads have filled that of this
iteration, and are done with that of the one before, which is the next to be filled.

A longer way takes more buffers. With a *lead* of n iterations there are n + 1, of which n are filled before
the loop. The copies for an iteration are a group, and barriers wait for all groups but the last n - 1
(`ansor.ir.copies`); with a lead of one that is for all copies, and there are no groups. A lead is shorter
than the loop; tiles that one loop fills have the same, the least that is asked for.

Loops that have nothing but a loop inside of them are one loop here, whose iterations are all of theirs.

This is done to memory that a schedule wants to be there several times, of a loop whose iterations begin by
filling it with what the kernel does not write, if nothing outside of the loop touches it. Other memory is
there once.

What fills the buffers may take its time until a barrier waits for it, which languages have instructions for;
so they stay marked.

Source: double buffering, and pipelines of several stages, of shared memory, as in the matrix products of
NVIDIA's CUTLASS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from ansor.ir.bounds import Bounds
from ansor.ir.kernel_form import OpenKernel, differs, open_kernel
from ansor.ir.nest import (
    Alloc,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
    seq,
    statement_expressions,
    sub_statements,
    walk_statements,
)
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import Row, fresh_copy, in_rows, map_expressions, map_statements, with_rows
from ansor.ir.shared_memory import shared_buffers
from ansor.ir.shuffles import is_meeting
from ansor.ir.simplify import simplify
from ansor.te.expr import Binary, BinaryOp, Const, Expr, Load, Var, distinct_nodes, int_value

_IN_TURN: Final = (LoopKind.SERIAL, LoopKind.UNROLLED)


def multi_buffers(kernel: Stmt, bounds: Bounds) -> Stmt:
    """
    Fill the marked memory of a kernel ahead, where that is possible; it is there once elsewhere.

    Parameters
    ----------
    kernel
        A kernel with its barriers.
    bounds
        Ranges of the symbolic sizes.
    """
    opened = open_kernel(kernel)
    marked = [buffer for buffer in shared_buffers(opened.body) if buffer.lead]
    if not marked:
        return kernel
    found = _Alternation(opened, marked)
    made = opened.around(found.kernel())
    known = bounds.extended(loop_ranges(made))
    return map_expressions(made, lambda expr: simplify(expr, known))


@dataclass(frozen=True, slots=True, eq=False)
class _Ahead:
    """Loops taken apart, outermost first: what fills their tiles, what uses them, and memory as it will be.

    `repeated` tells whether they are begun several times.
    """

    loops: tuple[For, ...]
    repeated: bool
    lead: int
    fills: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]
    buffers: Mapping[Buffer, Buffer]


class _Alternation:
    """Rewrites a kernel's statements."""

    def __init__(self, kernel: OpenKernel, marked: Sequence[Buffer]) -> None:
        self._body = kernel.body
        self._written = {s.buffer for s in walk_statements(kernel.body) if isinstance(s, Store)}
        self._loops: dict[For, _Ahead] = {}
        self._once = {buffer: replace(buffer, lead=0) for buffer in marked}
        """What stands for buffers that are there once; those that are found a loop for are taken out."""
        self._search(kernel.body, frozenset(loop.var for loop in kernel.threads), repeated=False)
        self._instead = {**self._once}
        for found in self._loops.values():
            self._instead.update(found.buffers)

    # -- loops -------------------------------------------------------------------------------------------

    def _search(self, stmt: Stmt, varying: frozenset[Var], *, repeated: bool) -> None:
        """Look for loops at which all threads of a block come by; they may differ in `varying` variables."""
        match stmt:
            case For(extent=extent):
                if stmt.kind not in _IN_TURN or differs(extent, varying):
                    return
                found = self._taken_apart(stmt, repeated)
                repeated = True
                if found is not None:
                    self._loops[stmt] = found
                    for buffer in found.buffers:
                        del self._once[buffer]
            case If(cond=cond) if differs(cond, varying):
                return
            case Let(var=var):
                varying |= {var}
            case _:
                pass
        for inner in sub_statements(stmt):
            self._search(inner, varying, repeated=repeated)

    def _taken_apart(self, loop: For, repeated: bool) -> _Ahead | None:
        """How a loop, with those inside, can fill marked memory ahead; None if it cannot."""
        loops = _nested(loop)
        extent, body = _iterations(loops), loops[-1].body
        if extent <= 1 or not isinstance(body, Seq):
            return None
        stmts = body.stmts
        first = next((at for at, stmt in enumerate(stmts) if not self._may_be_early(stmt)), len(stmts))
        fills, rest = tuple(stmt for stmt in stmts[:first] if not isinstance(stmt, Barrier)), stmts[first:]
        filled = {s.buffer for stmt in fills for s in walk_statements(stmt) if isinstance(s, Store)}
        inside = sum(_touches(stmt, filled) for stmt in (*fills, *rest))
        if inside != _touches(self._body, filled) or any(_stores(stmt, filled) for stmt in rest):
            return None
        if not filled:
            return None
        lead = min(extent - 1, *(buffer.lead for buffer in filled))
        buffers = {buffer: replace(with_rows(buffer, (lead + 1,), "shared"), lead=lead) for buffer in filled}
        return _Ahead(loops, repeated, lead, fills, rest, buffers)

    def _may_be_early(self, stmt: Stmt) -> bool:
        """Whether a statement at the beginning of an iteration only fills marked memory, or waits."""
        if isinstance(stmt, Barrier):
            return True
        for inner in walk_statements(stmt):
            if isinstance(inner, Alloc) or is_meeting(inner):
                return False
            if isinstance(inner, Store) and inner.buffer not in self._once:
                return False
            if any(load.buffer in self._written for load in _loads(inner)):
                return False
        return True

    # -- rewriting ---------------------------------------------------------------------------------------

    def kernel(self) -> Stmt:
        """The kernel's statements."""
        return in_rows(self.statement(self._body), {}, {old: (new, ()) for old, new in self._once.items()})

    def statement(self, stmt: Stmt) -> Stmt:
        """A statement of the kernel."""
        match stmt:
            case For() if stmt in self._loops:
                return self._ahead(self._loops[stmt])
            case Alloc(buffer=buffer, body=body) if buffer in self._instead:
                return Alloc(self._instead[buffer], self.statement(body))
            case Store() | Let() | If() | For() | Seq() | Alloc() | Barrier() | Commit() | Prefetch():
                return map_statements(stmt, self.statement)

    def _ahead(self, parts: _Ahead) -> Stmt:
        """Loops that fill the tiles of a later iteration before they use those of this one."""
        loops, lead = parts.loops, parts.lead
        here: Expr = loops[0].var
        for loop in loops[1:]:
            here = here * _iterations([loop]) + loop.var
        later = here + lead
        is_another = Binary(BinaryOp.LT, later, _number(_iterations(loops), later), "bool")
        ended: tuple[Stmt, ...] = (Commit(),) if lead > 1 else ()

        def of_turn(at: Expr) -> dict[Buffer, Row]:
            return {old: (new, (_turn(at, lead),)) for old, new in parts.buffers.items()}

        def filled(at: Expr) -> Stmt:
            places, tiles = _places(loops, at), of_turn(at)
            return fresh_copy(seq(*(in_rows(stmt, places, tiles) for stmt in parts.fills)))

        before = [stmt for at in range(lead) for stmt in (filled(_number(at, later)), *ended)]
        used = [in_rows(self.statement(stmt), {}, of_turn(here)) for stmt in parts.rest]
        body = seq(Barrier(lead - 1), If(is_another, filled(later)), *ended, *used)
        for loop in reversed(loops):
            body = replace(loop, body=body)
        # When they begin again, the last iteration's buffer may be in use, and the others are free.
        in_use = parts.repeated and _iterations(loops) % (lead + 1)
        return seq(*((Barrier(),) if in_use else ()), *before, body)


def _nested(loop: For) -> tuple[For, ...]:
    """A loop and those inside that follow each other with nothing between."""
    loops = [loop]
    while isinstance(loop.body, For) and loop.body.kind in _IN_TURN and loop.body.var.dtype == loop.var.dtype:
        loop = loop.body
        loops.append(loop)
    return tuple(loops)


def _iterations(loops: Sequence[For]) -> int:
    """How many iterations loops have together; 0 if that is not known."""
    return prod(int_value(loop.extent) or 0 for loop in loops)


def _places(loops: Sequence[For], iteration: Expr) -> dict[Var, Expr]:
    """What the variables of loops are in one of all their iterations."""
    places: dict[Var, Expr] = {}
    for loop in reversed(loops[1:]):
        extent = _iterations([loop])
        places[loop.var] = iteration % extent
        iteration = iteration // extent
    return {**places, loops[0].var: iteration}


def _number(value: int, like: Expr) -> Const:
    return Const(value, like.dtype)


def _turn(iteration: Expr, lead: int) -> Expr:
    """Which of the buffers is an iteration's."""
    return iteration % (lead + 1)


def _loads(stmt: Stmt) -> Iterator[Load]:
    """What a statement itself loads."""
    for expr in statement_expressions(stmt):
        yield from (node for node in distinct_nodes(expr) if isinstance(node, Load))


def _stores(stmt: Stmt, buffers: set[Buffer]) -> bool:
    return any(isinstance(s, Store) and s.buffer in buffers for s in walk_statements(stmt))


def _touches(stmt: Stmt, buffers: set[Buffer]) -> int:
    """How many accesses to some buffers stand in a statement."""
    return sum(
        (isinstance(inner, Store) and inner.buffer in buffers)
        + sum(load.buffer in buffers for load in _loads(inner))
        for inner in walk_statements(stmt)
    )
