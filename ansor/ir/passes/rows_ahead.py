"""Rows of a panel that a reduction asks for while its accumulators are in registers.

A matrix product that reads B[k, j] where it lies takes a few vectors of each row, an iteration of its
reduction after the other. Rows are further apart than a processor foresees, so each is waited for when it
first comes from the last cache. With a number of bytes given for B, the loop asks so far ahead:

    for k in 0..512:                           for k in 0..512:
      unroll i in 0..6:                          unroll j in 0..4: prefetch B[k + 32, j*16]
        unroll j in 0..4:                  =>    unroll i in 0..6: unroll j in 0..4: vectorize v in 0..16:
          vectorize v in 0..16:                    C.acc[i, j, v] = ...
            C.acc[i, j, v] =
              C.acc[i, j, v] + A[i, k]*B[k, j*16 + v]

The line is asked for in the second cache, since the first is for what is used now. What an iteration reads
behind what the last one read, as of a packed panel, processors see coming, and it is not asked for.

Source: prefetching of B in the micro-kernels of BLIS, there for packed panels. Batches of four products of
512 (2 cores of a Zen 4, 12 MB in a last cache of 32 MB): 1.02 times as fast, 1.05 when that cache is slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from ansor.alignment import LINE
from ansor.dtypes import dtype_info
from ansor.ir.bounds import Bounds
from ansor.ir.nest import Buffer, For, If, LoopKind, Prefetch, Seq, Stmt, Store, seq, walk_statements
from ansor.ir.passes.guards import remove_known_guards
from ansor.ir.prefetches import loads_of
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import map_statements, replace_in
from ansor.ir.simplify import simplify
from ansor.ir.strides import even_step
from ansor.te.expr import INDEX_DTYPE, Binary, BinaryOp, Const, Expr, Load, Var, free_vars, int_value

_STRAIGHT: Final = frozenset({LoopKind.UNROLLED, LoopKind.VECTORIZED})


def ask_for_rows(stmt: Stmt, distances: Mapping[Buffer, int], bounds: Bounds) -> Stmt:
    """Let register tiles ask for rows of some buffers that they read `distances` bytes later.

    `bounds` are the ranges of variables around `stmt`.
    """
    if not distances:
        return stmt
    known = bounds.extended(loop_ranges(stmt))
    asking = _ask(stmt, distances, known)
    return stmt if asking is stmt else remove_known_guards(asking, bounds.extended(loop_ranges(asking)))


def _ask(stmt: Stmt, distances: Mapping[Buffer, int], bounds: Bounds) -> Stmt:
    if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL and (updates := _updates(stmt.body)):
        loads = loads_of([update.value for update in updates], distances)
        inside = [inner for inner in walk_statements(stmt.body) if isinstance(inner, For)]
        asked = [_lines(load, stmt, inside, distances[load.buffer], bounds) for load in loads]
        found = [one for one in asked if one is not None]
        return For(stmt.var, stmt.extent, stmt.kind, seq(*found, stmt.body)) if found else stmt
    return map_statements(stmt, lambda inner: _ask(inner, distances, bounds))


def _updates(body: Stmt) -> list[Store]:
    """The stores of a body that is straight code of a register tile; none if it is anything else."""
    updates: list[Store] = []
    for inner in walk_statements(body):
        match inner:
            case Store(buffer=buffer) if buffer.scope == "register":
                updates.append(inner)
            case For(kind=kind) if kind in _STRAIGHT:
                pass
            case If() | Seq():
                pass
            case _:
                return []
    return updates


def _lines(load: Load, loop: For, inside: list[For], distance: int, bounds: Bounds) -> Stmt | None:
    """What asks, in one iteration of `loop`, for a row that is read so many bytes later.

    None where it is no vector of neighbouring elements, or where rows follow each other in memory.
    """
    used = free_vars(*load.indices)
    own = [inner for inner in inside if inner.var in used]
    steps = {inner: even_step(load.buffer, load.indices, inner.var, bounds) for inner in (loop, *own)}
    size = dtype_info(load.buffer.dtype).bytes
    row = prod(int_value(inner.extent) or 1 for inner in own) * size
    apart = steps[loop]
    if apart is None or abs(apart) * size <= row:
        return None
    if not any(inner.kind is LoopKind.VECTORIZED and steps[inner] == 1 for inner in own):
        return None
    ahead: dict[Var, Expr] = {loop.var: _of(BinaryOp.ADD, loop.var, max(1, distance // row))}
    loops: list[tuple[Var, int]] = []
    for inner in own:
        elements = max(1, LINE // (size * (abs(steps[inner] or 0) or LINE)))  # iterations in a line
        count = -(-(int_value(inner.extent) or 1) // elements)
        var = Var(inner.var.name)
        ahead[inner.var] = _of(BinaryOp.MUL, var, elements) if count > 1 else Const(0, INDEX_DTYPE)
        loops += [(var, count)] if count > 1 else []
    known = bounds.extended({var: (0, count - 1) for var, count in loops})
    indices = tuple(simplify(replace_in(index, ahead, {}), known) for index in load.indices)
    result: Stmt = Prefetch(load.buffer, indices)
    for var, count in reversed(loops):
        result = For(var, count, LoopKind.UNROLLED, result)
    return result


def _of(op: BinaryOp, var: Var, number: int) -> Expr:
    return Binary(op, var, Const(number, INDEX_DTYPE), INDEX_DTYPE)
