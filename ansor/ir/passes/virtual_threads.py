"""Virtual threads: a thread does the work of several, each statement for all of them before the next.

A loop over virtual threads stands outside of much, and what does not depend on it is done once. The loop
moves to the innermost statements that do depend on it, where it is unrolled; private memory that differs
between the virtual threads gets room for all of them:

    vthread v in 0..2:                           allocate L[2, 4] local
      allocate L[4] local                        unroll v in 0..2:
      L[0] = 0.0                                   L[v, 0] = 0.0
      for k in 0..8:                      =>     for k in 0..8:
        S[t] = A[k, t]                             S[t] = A[k, t]
        L[0] = L[0] + S[2*t + v]                   unroll v_1 in 0..2:
                                                     L[v_1, 0] = L[v_1, 0] + S[2*t + v_1]

So the virtual threads share what they read, and a thread has several independent operations under way. Vector
loops stay whole. Of more than `MOST_UNROLLED` virtual threads, all loops taken together, some stay in a loop.

Source: virtual threads as in TVM.
"""

from __future__ import annotations

from typing import Final, assert_never

from ansor.errors import ScheduleError
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
from ansor.ir.rewriting import in_rows, map_statements, with_rows, with_statements
from ansor.te.expr import Expr, Load, Var, distinct_nodes, int_value

MOST_UNROLLED: Final = 16


def inject_virtual_threads(stmt: Stmt, outside: int = 1) -> Stmt:
    """
    Replace the loops over virtual threads of a statement; `outside` of it there are so many.

    Raises
    ------
    ScheduleError
        If one has a symbolic extent.
    """
    if not isinstance(stmt, For) or stmt.kind is not LoopKind.VTHREAD:
        return map_statements(stmt, lambda inner: inject_virtual_threads(inner, outside))
    count = outside * _extent(stmt)
    body = inject_virtual_threads(stmt.body, count)
    kind = LoopKind.UNROLLED if count <= MOST_UNROLLED else LoopKind.SERIAL
    return _Distribution(For(stmt.var, stmt.extent, kind, body)).statement(body)


def _extent(loop: For) -> int:
    extent = int_value(loop.extent)
    if extent is None:
        raise ScheduleError(
            f"vthread {loop.var.name!r}: its extent {loop.extent} is symbolic; split it by a constant "
            "and make the inner part a virtual thread"
        )
    return extent


class _Distribution:
    """Moves one loop, serial or unrolled, inwards."""

    def __init__(self, loop: For) -> None:
        self._loop = loop
        self._own = {s.buffer for s in walk_statements(loop.body) if isinstance(s, Alloc)}
        self._dependent: set[Var | Buffer] = {loop.var}
        """What differs between iterations: variables, and buffers that are allocated in each."""
        count = 0
        while len(self._dependent) != count:
            count = len(self._dependent)
            self._find_dependent(loop.body, chosen=False)
        self._grown = {
            buffer: with_rows(buffer, (_extent(loop),), buffer.scope)
            for buffer in self._own & self._dependent
        }

    def _find_dependent(self, stmt: Stmt, *, chosen: bool) -> None:
        """Collect what depends on what is known to; whether `stmt` runs at all does if `chosen`."""
        depends = chosen or any(map(self._depends, statement_expressions(stmt)))
        match stmt:
            case Store(buffer=buffer) if depends and buffer in self._own:
                self._dependent.add(buffer)
            case Let(var=var) if depends:
                self._dependent.add(var)
            case For() | If():
                chosen = depends
            case Store() | Let() | Seq() | Alloc() | Barrier() | Commit() | Prefetch():
                pass
            case _:
                assert_never(stmt)
        for inner in sub_statements(stmt):
            self._find_dependent(inner, chosen=chosen)

    def _depends(self, expr: Expr) -> bool:
        return any(
            node in self._dependent if isinstance(node, Var) else node.buffer in self._dependent
            for node in distinct_nodes(expr)
            if isinstance(node, (Var, Load))
        )

    def _touches(self, stmt: Stmt) -> bool:
        """Whether anything in a statement depends on the iteration."""
        return any(
            any(map(self._depends, statement_expressions(inner)))
            or (isinstance(inner, Store) and inner.buffer in self._dependent)
            for inner in walk_statements(stmt)
        )

    def statement(self, stmt: Stmt) -> Stmt:
        """A statement of the loop's body, for all iterations."""
        if not self._touches(stmt):
            return stmt
        match stmt:
            case Seq(stmts=stmts):
                return seq(*map(self.statement, stmts))
            case Alloc(buffer=buffer, body=body):
                return Alloc(self._grown.get(buffer, buffer), self.statement(body))
            case For(kind=LoopKind.SERIAL | LoopKind.UNROLLED) | If() | Let():
                if not any(map(self._depends, statement_expressions(stmt))):
                    return with_statements(stmt, tuple(map(self.statement, sub_statements(stmt))))
            case _:
                pass
        return self._repeated(stmt)

    def _repeated(self, stmt: Stmt) -> Stmt:
        """The loop around a statement alone."""
        var = Var(self._loop.var.name, self._loop.var.dtype)
        inside = {s.buffer for s in walk_statements(stmt) if isinstance(s, Alloc)}
        grown = {buffer: (new, (var,)) for buffer, new in self._grown.items() if buffer not in inside}
        loop = self._loop
        return For(var, _extent(loop), loop.kind, in_rows(stmt, {loop.var: var}, grown))
