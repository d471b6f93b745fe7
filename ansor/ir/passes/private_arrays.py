"""Private arrays in registers.

A thread's array is in registers if the compiler knows all of its indices as numbers, and otherwise in memory
far away, whatever its size. So the loops over the elements of small ones are unrolled, whatever a schedule
says of them:

    allocate L[4] local                  allocate L[4] local
    for k in 0..64:                      for k in 0..64:
      for i in 0..4:               =>      unroll i in 0..4:
        L[i] = L[i] + S[k, i]                L[i] = L[i] + S[k, i]

This is done for all accesses to an array or for none. Where it would be too much code, what is unrolled
inside of these loops and decides nothing, such as a reduction between them, is a loop again: compilers unroll
that as far as they like. An array of more elements than a thread has registers for stays in memory, and so
does one with an index that something else than the loops around it decides, or that takes too much code even
so.

Scratch of a CPU between a register tile and an element-wise stage is such an array, too: `unroll_scratch`,
when LLVM code is written.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from ansor.ir.accesses import Accesses, accesses_of
from ansor.ir.code_size import registers_of, value_bits
from ansor.ir.nest import Alloc, Buffer, For, If, LoopKind, Stmt, Store, walk_statements
from ansor.ir.passes.unroll import Unrolled, unroll
from ansor.ir.registers import RegisterLimits
from ansor.ir.rewriting import map_statements, reads_memory
from ansor.te.expr import Var, free_vars, int_value

MOST_STEPS: Final = 1024
"""Stores that a loop is unrolled to at most, as many as pragmas ask for."""

_EXPANDED: Final = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED, LoopKind.TENSORIZE)


def unroll_private_arrays(stmt: Stmt, limits: RegisterLimits) -> Stmt:
    """Unroll the serial loops that decide the indices of small private arrays."""
    stmt = map_statements(stmt, lambda inner: unroll_private_arrays(inner, limits))
    return _unrolled(stmt, limits) if isinstance(stmt, Alloc) and _fits(stmt.buffer, limits) else stmt


def unroll_scratch(stmt: Stmt, limits: RegisterLimits) -> Stmt:
    """Unroll the short serial loops of vectors that decide the indices of scratch which registers hold.

    Where a register tile is stored to scratch of its size, and an element-wise stage reads that, no memory
    is between them then, and a product that is added to something may be one multiply-add. Of loops around
    anything else than vectors, such as a reduction, none is unrolled; and none for scratch that stays in
    memory anyway: what parts of vectors are read or stored of, or what other threads read.
    """
    found, deciding = accesses_of(stmt), dict[Buffer, set[Var]]()
    serial = {loop.var for loop in _loops(stmt) if loop.kind is LoopKind.SERIAL}
    for buffer in found.allocated:
        if _holds(buffer, limits):
            variables = _deciding(buffer, found)
            if variables is not None and not serial.isdisjoint(variables):
                deciding[buffer] = variables
    return _unroll_scratch(stmt, deciding, limits) if deciding else stmt


def _unroll_scratch(stmt: Stmt, deciding: dict[Buffer, set[Var]], limits: RegisterLimits) -> Stmt:
    """Unroll loops over the scratch of which `deciding` has the variables in its indices."""
    stmt = map_statements(stmt, lambda inner: _unroll_scratch(inner, deciding, limits))
    if not isinstance(stmt, Alloc) or stmt.buffer not in deciding:
        return stmt
    wanted, loops = deciding[stmt.buffer], _loops(stmt)
    if any(loop.kind is LoopKind.PARALLEL for loop in loops):
        return stmt
    own = [loop for loop in loops if loop.var in wanted]
    serial = [loop for loop in own if loop.kind is LoopKind.SERIAL]
    lanes = {loop.var for loop in own if loop.kind is LoopKind.VECTORIZED}
    conditions = [one.cond for one in walk_statements(stmt) if isinstance(one, If)]
    masked = any(not lanes.isdisjoint(free_vars(condition)) for condition in conditions)
    if not serial or masked or not all(_is_whole(loop, stmt.buffer, limits) for loop in own):
        return stmt
    if wanted != {loop.var for loop in own} or not all(_is_short(loop, wanted, limits) for loop in serial):
        return stmt
    return unroll(stmt, lambda loop, extent, each: loop.var in wanted, limits).stmt


def _loops(stmt: Stmt) -> list[For]:
    return [one for one in walk_statements(stmt) if isinstance(one, For)]


def _holds(buffer: Buffer, limits: RegisterLimits) -> bool:
    """Whether half of the registers hold a scratch array of a CPU.

    With more, what follows a reduction takes registers from its loop: of 12 accumulators LLVM keeps one in
    memory.
    """
    if not _is_array(buffer, "global"):
        return False
    bits = prod(buffer.constant_shape) * value_bits(buffer.dtype)
    return bits <= limits.num_registers // 2 * limits.vector_bits


def _is_whole(loop: For, buffer: Buffer, limits: RegisterLimits) -> bool:
    """Whether a loop over scratch is as long as it says, and of whole vectors if it is one of vectors."""
    extent = int_value(loop.extent)
    if extent is None or loop.kind not in _EXPANDED:
        return False
    if loop.kind is not LoopKind.VECTORIZED:
        return True
    power_of_two = extent & (extent - 1) == 0
    return power_of_two or extent * value_bits(buffer.dtype) % limits.vector_bits == 0


def _is_short(loop: For, wanted: set[Var], limits: RegisterLimits) -> bool:
    """Whether a loop is over few vectors that are stored, and nothing else."""
    stores = sum(isinstance(one, Store) for one in walk_statements(loop))
    loops = _loops(loop)
    straight = all(one.kind is not LoopKind.SERIAL or one.var in wanted for one in loops)
    if not straight or not any(one.kind is LoopKind.VECTORIZED for one in loops):
        return False
    made = unroll(loop, lambda loop, extent, each: True, limits)
    return made.steps <= limits.room * stores and made.instructions <= limits.max_instructions


def _is_array(buffer: Buffer, scope: str) -> bool:
    return buffer.scope == scope and all(int_value(extent) is not None for extent in buffer.shape)


def _fits(buffer: Buffer, limits: RegisterLimits) -> bool:
    """Whether registers hold a private array."""
    if not _is_array(buffer, "local"):
        return False
    return registers_of(prod(buffer.constant_shape), 1, buffer.dtype, limits.vector_bits) <= limits.room


def _unrolled(stmt: Alloc, limits: RegisterLimits) -> Stmt:
    """An allocation with constant indices of its buffer; the same object where they cannot be."""
    wanted = _deciding(stmt.buffer, accesses_of(stmt.body))
    inside = {loop.var for loop in _loops(stmt) if loop.kind in _EXPANDED}
    if wanted is None or not wanted <= inside:
        return stmt

    def choose(loop: For, extent: int, each: Unrolled) -> bool:
        return loop.var in wanted and extent * each.steps <= MOST_STEPS

    for tried in (stmt, _rolled(stmt, wanted)):
        made = unroll(tried, choose, limits)
        loops = [loop for loop in _loops(made.stmt) if loop.var in wanted]
        whole = all(loop.kind is not LoopKind.SERIAL for loop in loops)
        if whole and made.instructions <= limits.max_instructions:
            return made.stmt
    return stmt


def _rolled(stmt: Stmt, wanted: set[Var], inside: bool = False) -> Stmt:
    """The statement with loops for what is unrolled `inside` of the wanted loops and none of them."""
    if isinstance(stmt, For) and inside and stmt.kind is LoopKind.UNROLLED and stmt.var not in wanted:
        stmt = replace(stmt, kind=LoopKind.SERIAL)
    inside = inside or (isinstance(stmt, For) and stmt.var in wanted)
    return map_statements(stmt, lambda inner: _rolled(inner, wanted, inside))


def _deciding(buffer: Buffer, found: Accesses) -> set[Var] | None:
    """The variables in the indices of a buffer; None if they depend on data."""
    places = (*found.reads.get(buffer, ()), *found.writes.get(buffer, ()))
    indices = [index for place in places for index in place]
    return None if any(map(reads_memory, indices)) else free_vars(*indices)
