"""Barriers, where the threads of a block have to wait for each other.

Memory that threads share is written by one and read by another, and nothing but a barrier says which comes
first. One stands before a statement that touches a buffer which since the last barrier another thread may
have touched, if either writes it: also where the two are in different iterations of a loop.

    for k in 0..8:                       for k in 0..8:
      S[t] = A[k, t]                       barrier              (the products of k - 1 are done with S)
      for j in 0..4:               =>      S[t] = A[k, t]
        C[t] = C[t] + S[j]                 barrier
                                           for j in 0..4:
                                             C[t] = C[t] + S[j]

Two accesses in different iterations of a loop are of different elements if their indices tell the iterations
apart. Two are of one thread if their indices tell the threads apart (`C[t]`), or a condition leaves one
thread to both. What is not seen to be so counts as a hazard, whatever else the indices say. Iterations of one
store do not write each other's elements, or write the same: every element of a tensor is computed alike.

Source: hazards since the last synchronisation, as in ThreadSync of TVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ansor.errors import ScheduleError
from ansor.ir.accesses import accesses_of
from ansor.ir.bounds import Bounds
from ansor.ir.independence import IndependenceTest
from ansor.ir.kernel_form import OpenKernel, differs, open_kernel
from ansor.ir.nest import (
    Alloc,
    Barrier,
    Buffer,
    For,
    If,
    LoopKind,
    Seq,
    Stmt,
    Store,
    seq,
    statement_expressions,
    sub_statements,
    walk_statements,
)
from ansor.ir.printer import format_stmt
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import conjuncts, guarded, map_statements, reads_memory, with_statements
from ansor.ir.simplify import assume, interval
from ansor.te.expr import Expr, Load, Var, distinct_nodes

_TOGETHER = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})
"""Loops whose iterations the threads of a block can begin together."""


def place_barriers(kernel: Stmt, bounds: Bounds) -> Stmt:
    """
    Place the barriers of a kernel; the same object if it needs none.

    Parameters
    ----------
    kernel
        A kernel (`ansor.ir.kernel_form`).
    bounds
        Ranges of the symbolic sizes.

    Raises
    ------
    ScheduleError
        If threads would have to meet where not all of them come by.
    """
    opened = open_kernel(kernel)
    if not opened.threads:
        return kernel
    body, _ = _Placer(opened, bounds.extended(loop_ranges(kernel))).statement(opened.body, ())
    return opened.around(body)


@dataclass(frozen=True, slots=True, eq=False)
class _Access:
    """A load or store of memory that threads share, by the threads up to `last` in each index."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    write: bool
    last: tuple[int, ...]


_Accesses = tuple[_Access, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Loop:
    """A loop with its barriers, whatever is around it.

    `first` are the accesses before the first barrier of an iteration, `after` those since the last one of the
    iterations; `stopped` tells whether threads meet in it for sure.
    """

    made: Stmt
    first: _Accesses
    after: _Accesses
    stopped: bool


class _Placer:
    """Walks a kernel in the order of execution, with the accesses since the last barrier."""

    def __init__(self, kernel: OpenKernel, bounds: Bounds) -> None:
        self._bounds = bounds
        self._inside = {loop.var: accesses_of(loop.body).bound for loop in kernel.threads}
        self._tests: dict[tuple[int, ...], IndependenceTest] = {}
        stored = {s.buffer for s in walk_statements(kernel.body) if isinstance(s, Store)}
        self._written = {buffer for buffer in stored if buffer.scope in ("shared", "global")}
        self._found: dict[Stmt, _Accesses] = {}
        self._placed: dict[Stmt, tuple[Stmt, _Accesses]] = {}
        self._loops: dict[For, _Loop] = {}
        self._known: dict[tuple[_Access, _Access], bool] = {}
        self._apart: dict[tuple[_Access, _Access, Var], bool] = {}
        self._carried: For | None = None
        """The loop in whose iterations before this one the accesses since the last barrier were."""

    def statement(self, stmt: Stmt, before: _Accesses) -> tuple[Stmt, _Accesses]:
        """The statement with its barriers, and the accesses since the last barrier when it ends."""
        match stmt:
            case Seq(stmts=stmts):
                parts: list[Stmt] = []
                for one in stmts:
                    made, before = self.statement(one, before)
                    parts.append(made)
                return with_statements(stmt, tuple(parts)), before
            case Alloc(body=body):
                made, after = self.statement(body, before)
                return with_statements(stmt, (made,)), after
            case Barrier():
                return stmt, ()
            case For() if self._is_together(stmt):
                return self._loop(stmt, before)
            case If() if not differs(stmt.cond, self._inside):
                return self._branches(stmt, before)
            case _:
                return self._whole(stmt, before)

    def _is_together(self, loop: For) -> bool:
        return loop.kind in _TOGETHER and not differs(loop.extent, self._inside)

    def _loop(self, loop: For, before: _Accesses) -> tuple[Stmt, _Accesses]:
        """A loop; a barrier for what comes before it stands before it."""
        known = self._loop_alone(loop)
        if self._conflict(before, known.first):
            return seq(Barrier(), known.made), known.after
        return known.made, known.after if known.stopped else _joined(before, known.after)

    def _loop_alone(self, loop: For) -> _Loop:
        """A loop with nothing before it: what an iteration leaves behind is before the next one."""
        known = self._loops.get(loop)
        if known is None:
            body, after = self._alone(loop.body)
            around, self._carried = self._carried, loop
            while True:
                again, left = self.statement(body, after)
                if again is body:
                    break
                body, after = again, left
            self._carried = around
            made = loop if body is loop.body else replace(loop, body=body)
            first, stopped = self._head(body)
            known = _Loop(made, first, after, stopped and self._has_iteration(loop))
            self._loops[loop] = self._loops[made] = known
        return known

    def _has_iteration(self, loop: For) -> bool:
        """Whether a loop has an iteration for sure."""
        least = loop.extent if isinstance(loop.extent, int) else interval(loop.extent, self._bounds)[0]
        return least is not None and least >= 1

    def _branches(self, stmt: If, before: _Accesses) -> tuple[Stmt, _Accesses]:
        """A condition on which all threads agree."""
        then, after = self.statement(stmt.then, before)
        if stmt.other is None:
            return with_statements(stmt, (then,)), _joined(before, after)
        other, left = self.statement(stmt.other, before)
        return with_statements(stmt, (then, other)), _joined(after, left)

    def _whole(self, stmt: Stmt, before: _Accesses) -> tuple[Stmt, _Accesses]:
        """A statement inside of which no barrier can stand."""
        if isinstance(stmt, (For, If)) and any(self._meets(inner) for inner in sub_statements(stmt)):
            inwards = _inwards(stmt)
            if inwards is None:
                raise ScheduleError(
                    "threads would have to meet where some do not come by, for memory that they share; "
                    "do not vectorize the loop, or compute what fills that memory outside of it:\n"
                    f"{format_stmt(stmt)}"
                )
            return self.statement(inwards, before)
        own = self._accesses(stmt)
        return (seq(Barrier(), stmt), own) if self._conflict(before, own) else (stmt, _joined(before, own))

    def _meets(self, stmt: Stmt) -> bool:
        """Whether threads have to meet inside of a statement."""
        return self._alone(stmt)[0] is not stmt

    def _alone(self, stmt: Stmt) -> tuple[Stmt, _Accesses]:
        """A statement with nothing before it."""
        placed = self._placed.get(stmt)
        if placed is None:
            around, self._carried = self._carried, None
            placed = self._placed[stmt] = self.statement(stmt, ())
            self._carried = around
        return placed

    def _head(self, stmt: Stmt) -> tuple[_Accesses, bool]:
        """The accesses of a statement before its first barrier, and whether it has one for sure."""
        match stmt:
            case Barrier():
                return (), True
            case Seq(stmts=stmts):
                found: _Accesses = ()
                for one in stmts:
                    own, stopped = self._head(one)
                    found = _joined(found, own)
                    if stopped:
                        return found, True
                return found, False
            case Alloc(body=body):
                return self._head(body)
            case For() if self._is_together(stmt):
                known = self._loop_alone(stmt)
                return known.first, known.stopped
            case If() if not differs(stmt.cond, self._inside):
                heads = [self._head(inner) for inner in sub_statements(stmt)]
                stopped = stmt.other is not None and all(one for _, one in heads)
                return _joined(*(own for own, _ in heads)), stopped
            case _:
                return self._accesses(stmt), False

    # -- accesses ------------------------------------------------------------------------------------------

    def _accesses(self, stmt: Stmt) -> _Accesses:
        found = self._found.get(stmt)
        if found is None:
            found = self._found[stmt] = tuple(self._collect(stmt, self._bounds))
        return found

    def _collect(self, stmt: Stmt, bounds: Bounds) -> Iterator[_Access]:
        last = tuple(int(bounds[var][1] or 0) for var in self._inside)
        for expr in statement_expressions(stmt):
            for node in distinct_nodes(expr):
                if isinstance(node, Load) and node.buffer in self._written:
                    yield _Access(node.buffer, node.indices, False, last)
        match stmt:
            case Store(buffer=buffer, indices=indices) if buffer in self._written:
                yield _Access(buffer, indices, True, last)
            case If(cond=cond, then=then, other=other):
                yield from self._collect(then, assume(bounds, cond))
                if other is not None:
                    yield from self._collect(other, bounds)
            case _:
                for inner in sub_statements(stmt):
                    yield from self._collect(inner, bounds)

    def _conflict(self, before: _Accesses, after: _Accesses) -> bool:
        return any(
            one.buffer is other.buffer
            and one is not other
            and (one.write or other.write)
            and not self._same_thread(one, other)
            and not self._other_element(one, other)
            for one in before
            for other in after
        )

    def _same_thread(self, one: _Access, other: _Access) -> bool:
        """Whether it is always the same thread that touches an element in both ways."""
        known = self._known.get((one, other))
        if known is None:
            touched = [one.indices, other.indices]
            last = tuple(map(max, one.last, other.last))
            known = self._known[one, other] = all(
                most == 0 or self._test(last).separates(one.buffer, touched, var, inside)
                for most, (var, inside) in zip(last, self._inside.items(), strict=True)
            )
        return known

    def _test(self, last: tuple[int, ...]) -> IndependenceTest:
        """The test for the threads up to `last`."""
        test = self._tests.get(last)
        if test is None:
            ranges = {var: (0, most) for var, most in zip(self._inside, last, strict=True)}
            test = self._tests[last] = IndependenceTest(self._bounds.extended(ranges))
        return test

    def _other_element(self, one: _Access, other: _Access) -> bool:
        """Whether accesses in different iterations of the loop that carries the first differ in place."""
        loop = self._carried
        if loop is None:
            return False
        known = self._apart.get((one, other, loop.var))
        if known is None:
            inside = {*self._inside, *accesses_of(loop.body).bound}
            touched = [one.indices, other.indices]
            last = tuple(map(max, one.last, other.last))
            known = self._test(last).separates(one.buffer, touched, loop.var, inside)
            self._apart[one, other, loop.var] = known
        return known


def _inwards(stmt: Stmt) -> Stmt | None:
    """A conditional loop or sequence with the condition inside; None for another statement."""
    if not isinstance(stmt, If) or stmt.other is not None or reads_memory(stmt.cond):
        return None
    match stmt.then:
        case If(cond=cond, then=then, other=None):
            return guarded((*conjuncts(stmt.cond), *conjuncts(cond)), then)
        case For() | Seq() | Alloc():
            return map_statements(stmt.then, lambda inner: If(stmt.cond, inner))
        case _:
            return None


def _joined(*several: _Accesses) -> _Accesses:
    return tuple(dict.fromkeys(access for accesses in several for access in accesses))
