"""Automatic unrolling, as TVM's `auto_unroll_max_step` pragma asks for it, but for loops of much code.

Loops are unrolled from the inside out. A loop takes as many steps as its extent times the steps of its
body; a store takes one, and so do the body of a vectorized or tensorized loop, being one operation, and one
that stores nothing. A serial loop of constant extent is unrolled if it contains no loop that stays a loop,
takes at most `max_step` steps and at most 8 loops end up unrolled within each other.

Steps say little about the code: the one of a long vector loop, of a stencil or of a polynomial is dozens of
instructions, and the time of compiling grows with them. So the code that unrolling makes is bounded, too
(`ansor.ir.code_size`). Loops that a schedule unrolls by name are unrolled here whatever they take; those that
are far too long stay loops where code is written (`ansor.codegen.llvm.statements`). On a GPU loops over
blocks and threads are no loops of a thread's code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ansor.ir.code_size import own_instructions, vectors_of
from ansor.ir.kernel_form import LAUNCH_KINDS
from ansor.ir.nest import For, LoopKind, Stmt, Store, sub_statements
from ansor.ir.registers import RegisterLimits
from ansor.ir.rewriting import with_statements
from ansor.te.expr import int_value

MAX_DEPTH = 8
_ONE_OPERATION = frozenset({LoopKind.VECTORIZED, LoopKind.TENSORIZE})
_NO_LOOPS = frozenset({*LAUNCH_KINDS, LoopKind.VTHREAD})


@dataclass(frozen=True, slots=True)
class Unrolled:
    """A statement, its steps and instructions, how deep unrolled loops nest in it, whether any loop stays."""

    stmt: Stmt
    steps: int
    instructions: int
    depth: int
    has_loop: bool


Choice = Callable[[For, int, Unrolled], bool]
"""Whether to unroll a serial loop, given with its extent and what one iteration takes."""


def auto_unroll(stmt: Stmt, max_step: int, limits: RegisterLimits) -> Stmt:
    """Mark serial loops as unrolled, of at most `max_step` steps and as many instructions as limits allow."""

    def is_short(loop: For, extent: int, each: Unrolled) -> bool:
        small = extent * each.steps <= max_step and extent * each.instructions <= limits.max_instructions
        return small and not each.has_loop and each.depth <= MAX_DEPTH

    return stmt if max_step <= 0 else unroll(stmt, is_short, limits).stmt


def unroll(stmt: Stmt, choose: Choice, limits: RegisterLimits, vectors: int = 1) -> Unrolled:
    """Mark serial loops as unrolled, from the inside out, and count; a value is as many `vectors`."""
    if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED:
        vectors = vectors_of(stmt, limits.vector_bits)
    inner = [unroll(one, choose, limits, vectors) for one in sub_statements(stmt)]
    steps = sum(one.steps for one in inner) + isinstance(stmt, Store)
    if isinstance(stmt, For):
        steps = max(steps, 1)  # what asks memory ahead stores nothing
    instructions = sum(one.instructions for one in inner) + own_instructions(stmt) * vectors
    depth = max((one.depth for one in inner), default=0)
    has_loop = any(one.has_loop for one in inner)
    new = with_statements(stmt, tuple(one.stmt for one in inner))
    each = Unrolled(new, steps, instructions, depth, has_loop)
    if (
        not isinstance(new, For)
        or new.kind in _ONE_OPERATION
        or (limits.per_thread and new.kind in _NO_LOOPS)
    ):
        return each
    extent = int_value(new.extent)
    wanted = new.kind is LoopKind.UNROLLED
    if new.kind is LoopKind.SERIAL and extent is not None:
        wanted = choose(new, extent, each)
    if wanted and extent is not None:
        unrolled = new if new.kind is LoopKind.UNROLLED else replace(new, kind=LoopKind.UNROLLED)
        return Unrolled(unrolled, steps * extent, instructions * extent, depth + 1, has_loop)
    return Unrolled(new, steps, instructions, depth, True)
