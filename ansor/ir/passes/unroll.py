"""Automatic unrolling, as TVM's `auto_unroll_max_step` pragma asks for it.

Loops are unrolled from the inside out. A loop takes as many steps as its extent times the steps of its
body; a store takes one, and so does the body of a vectorized or tensorized loop, being one operation. A
serial loop of constant extent is unrolled if it contains no loop that stays a loop, takes at most `max_step`
steps and at most 8 loops end up unrolled within each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ansor.ir.nest import For, LoopKind, Stmt, Store, sub_statements
from ansor.ir.rewriting import with_statements
from ansor.te.expr import int_value

MAX_DEPTH = 8
_ONE_OPERATION = frozenset({LoopKind.VECTORIZED, LoopKind.TENSORIZE})


def auto_unroll(stmt: Stmt, max_step: int) -> Stmt:
    """Mark as unrolled the serial loops of `stmt` for which that takes at most `max_step` steps."""
    return stmt if max_step <= 0 else _unroll(stmt, max_step).stmt


@dataclass(frozen=True, slots=True)
class _Counted:
    """A statement, its steps, how deep unrolled loops are nested in it, and whether it has any other loop."""

    stmt: Stmt
    steps: int
    depth: int
    has_loop: bool


def _unroll(stmt: Stmt, max_step: int) -> _Counted:
    inner = [_unroll(one, max_step) for one in sub_statements(stmt)]
    steps = sum(one.steps for one in inner) + isinstance(stmt, Store)
    depth = max((one.depth for one in inner), default=0)
    has_loop = any(one.has_loop for one in inner)
    new = with_statements(stmt, tuple(one.stmt for one in inner))
    if not isinstance(new, For) or new.kind in _ONE_OPERATION:
        return _Counted(new, steps, depth, has_loop)
    extent = int_value(new.extent)
    wanted = new.kind is LoopKind.UNROLLED
    if new.kind is LoopKind.SERIAL and extent is not None and not has_loop and depth <= MAX_DEPTH:
        wanted = extent * steps <= max_step
    if wanted and extent is not None:
        return _Counted(replace(new, kind=LoopKind.UNROLLED), steps * extent, depth + 1, has_loop)
    return _Counted(new, steps, depth, True)
