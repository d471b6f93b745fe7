"""Private arrays in registers.

A thread's array is in registers if the compiler knows all of its indices as numbers, and otherwise in memory
far away, whatever its size. So the loops over the elements of small ones are unrolled:

    allocate L[4] local                  allocate L[4] local
    for k in 0..64:                      for k in 0..64:
      for i in 0..4:               =>      unroll i in 0..4:
        L[i] = L[i] + S[k, i]                L[i] = L[i] + S[k, i]

An array of more elements than a thread has registers for stays in memory, and so does one with an index that
no loop of a constant extent decides.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from ansor.ir.code_size import value_bits
from ansor.ir.independence import Accesses, accesses_of
from ansor.ir.nest import Buffer, For, LoopKind, Stmt, Store, sub_statements, walk_statements
from ansor.ir.passes.register_tile import RegisterLimits
from ansor.ir.rewriting import reads_memory, with_statements
from ansor.te.expr import Var, free_vars, int_value

MOST_STEPS: Final = 1024
"""Stores that a loop is unrolled to at most, as many as pragmas ask for."""

_EXPANDED: Final = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED)


def unroll_private_arrays(stmt: Stmt, limits: RegisterLimits) -> Stmt:
    """Unroll the serial loops of a kernel that decide the indices of small private arrays."""
    found = accesses_of(stmt)
    loops = [loop for loop in walk_statements(stmt) if isinstance(loop, For) and loop.kind in _EXPANDED]
    constant = {loop.var for loop in loops if int_value(loop.extent) is not None}
    wanted: set[Var] = set()
    for buffer in found.allocated:
        used = _deciding(buffer, found)
        if _fits(buffer, limits) and used is not None and used <= constant:
            wanted |= used
    return _unrolled(stmt, wanted)[0]


def _fits(buffer: Buffer, limits: RegisterLimits) -> bool:
    """Whether registers hold a private array."""
    if buffer.scope != "local" or any(int_value(extent) is None for extent in buffer.shape):
        return False
    needed = prod(buffer.constant_shape) * -(-value_bits(buffer.dtype) // limits.vector_bits)
    return needed <= limits.room


def _deciding(buffer: Buffer, found: Accesses) -> set[Var] | None:
    """The variables in the indices of a buffer; None if they depend on data."""
    used: set[Var] = set()
    for indices in (*found.reads.get(buffer, ()), *found.writes.get(buffer, ())):
        for index in indices:
            if reads_memory(index):
                return None
            used |= free_vars(index)
    return used


def _unrolled(stmt: Stmt, wanted: set[Var]) -> tuple[Stmt, int]:
    """A statement, and its stores with unrolled loops expanded."""
    inner = [_unrolled(one, wanted) for one in sub_statements(stmt)]
    steps = sum(count for _, count in inner) + isinstance(stmt, Store)
    new = with_statements(stmt, tuple(one for one, _ in inner))
    if not isinstance(new, For):
        return new, steps
    extent = int_value(new.extent) or 1
    if new.kind is LoopKind.SERIAL and new.var in wanted and extent * steps <= MOST_STEPS:
        new = replace(new, kind=LoopKind.UNROLLED)
    return new, steps * (extent if new.kind is LoopKind.UNROLLED else 1)
