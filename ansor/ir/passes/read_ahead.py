"""What a reduction reads next of large inputs, asked for while its accumulators are in registers.

Inputs that lie in the last cache or beyond are waited for, however much arithmetic there is: processors
foresee a long row, not the beginning of the next one, nor the many short ones that a tile is made of. To ask
for a whole tile at once blocks what the loop itself reads. So the reduction asks for a few lines at a time,
in one of two ways, by how the input is read:

*Rows of a panel.* A product that reads B[k, j] where it lies takes a few vectors of each row. It asks for
the piece of a row some steps further on, with the line of its last element, wherever in a line it begins:

    for k in 0..512:                           for k in 0..512:
      unroll i in 0..6:                          unroll j in 0..5: prefetch B[k + 32, min(j*16, 63)]
        unroll j in 0..4:                  =>    unroll i in 0..6: unroll j in 0..4: vectorize v in 0..16:
          vectorize v in 0..16:                    C.acc[i, j, v] = ...
            C.acc[i, j, v] =
              C.acc[i, j, v] + A[i, k]*B[k, j*16 + v]

*The next tile.* What is broadcast, such as A or the pixels of a convolution, is asked for with the nearest
loop around one iteration further, its lines spread over the iterations of the outermost loop of the reduction
that has enough of them. Six rows of 512 floats, one behind the other in memory, are 6 floats for each of 512:

    for i in 0..85:                            for i in 0..85:
      for k in 0..512:                     =>    for k in 0..512:
        ... A[i*6 + i.1, k] ...                    prefetch A[(i + 1)*6, k*6]
                                                   ... A[i*6 + i.1, k] ...

All goes to the second cache: the first is for what is used now. Panels whose rows follow each other, as
packed ones, processors see coming.

Source: micro-kernels of BLIS ask for the next panels of A and B so. On 2 cores of a Zen 4, 12 to 31 MB of
operands in a last cache of 32 MB: a product of 64 rows with a matrix of 16 MB 1.15 times as fast, batches of
four products of 512 1.02, 1x1 convolutions of 16 images 1.03.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from ansor.alignment import LINE
from ansor.dtypes import dtype_info
from ansor.ir.bounds import Bounds
from ansor.ir.nest import Alloc, Buffer, For, LoopKind, Prefetch, Stmt, Store, seq, walk_statements
from ansor.ir.passes.guards import remove_known_guards
from ansor.ir.passes.lane_reduction import REGISTER
from ansor.ir.prefetches import loads_of
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import map_statements, with_statements
from ansor.ir.simplify import interval, simplify
from ansor.ir.strides import even_step
from ansor.te.expr import (
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Var,
    free_vars,
    int_value,
    substitute,
)

DISTANCE: Final = 8192
"""How far ahead pieces of rows are asked for [bytes of them]: 32 rows of 256. 4 and 16 KiB do as well."""
LEAST_PASSES: Final = 8
"""A matrix has so many times as many rows: of fewer, many asked for lie behind the last."""
MOST_LINES: Final = 16
"""Lines of a next tile that are asked for at once, in an iteration of a loop around the innermost one."""
MOST_IN_STEP: Final = 2
"""The same in the innermost loop: beside more, there is little arithmetic to hide behind."""
LEAST_PIECE: Final = 512
"""Bytes of a piece of a row that is worth it: of short ones most lines have been read with those before.

A convolution of three channels took 1.04 of the time.
"""
_STRAIGHT: Final = frozenset({LoopKind.UNROLLED, LoopKind.VECTORIZED})


def ask_for_inputs(stmt: Stmt, inputs: Collection[Buffer], bounds: Bounds) -> Stmt:
    """Let register tiles ask for what they read next of some inputs.

    `bounds` are the ranges of variables around `stmt`.
    """
    if not inputs:
        return stmt
    known = bounds.extended(loop_ranges(stmt))
    asking = _visit(stmt, frozenset(inputs), known, ())
    return stmt if asking is stmt else remove_known_guards(asking, bounds.extended(loop_ranges(asking)))


def _visit(stmt: Stmt, inputs: frozenset[Buffer], bounds: Bounds, around: tuple[For, ...]) -> Stmt:
    """A statement in loops `around`, outermost first, all outside of register tiles."""
    if isinstance(stmt, Alloc) and stmt.buffer.scope == REGISTER:
        return with_statements(stmt, (_asking(stmt.body, _Place(bounds, around), inputs),))
    inner = (*around, stmt) if isinstance(stmt, For) else around
    return map_statements(stmt, lambda one: _visit(one, inputs, bounds, inner))


def _asking(stmt: Stmt, place: _Place, inputs: frozenset[Buffer]) -> Stmt:
    """A part of a register tile, whose serial loops ask for `inputs`, unless loops around have done so."""
    if not isinstance(stmt, For) or stmt.kind is not LoopKind.SERIAL:
        return map_statements(stmt, lambda one: _asking(one, place, inputs))
    parts = list(walk_statements(stmt.body))
    updates = [one.value for one in parts if isinstance(one, Store) and one.buffer.scope == REGISTER]
    inside = [one for one in parts if isinstance(one, For)]
    place = _Place(place.bounds, place.around, (*place.steps, stmt))
    loads = loads_of(updates, inputs)
    tiles = [(load.buffer, place.next_tile(load, inside)) for load in loads]
    asked = {buffer: ask for buffer, ask in reversed(tiles) if ask is not None}  # whole tiles, not their rest
    if all(one.kind in _STRAIGHT for one in inside):
        rows = [place.row(load, inside) for load in loads]
        found, body = [*asked.values(), *(row for row in rows if row is not None)], stmt.body
    else:
        found, body = list(asked.values()), _asking(stmt.body, place, inputs - asked.keys())
    return with_statements(stmt, (seq(*found, body),)) if found or body is not stmt.body else stmt


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a register tile asks: loops around it, and those of its reduction so far, outermost first."""

    bounds: Bounds
    around: tuple[For, ...]
    steps: tuple[For, ...] = ()

    def row(self, load: Load, inside: list[For]) -> Stmt | None:
        """A piece of a row some steps further on; None unless each step reads vectors of a row of its own."""
        loop, own = self.steps[-1], _used(load, inside)
        apart = {one: even_step(load.buffer, load.indices, one.var, self.bounds) for one in (loop, *own)}
        if not any(one.kind is LoopKind.VECTORIZED and apart[one] == 1 for one in own):
            return None
        size = dtype_info(load.buffer.dtype).bytes
        piece = prod(int_value(one.extent) or 1 for one in own) * size
        distance = max(1, DISTANCE // piece)
        dims = [dim for dim, index in enumerate(load.indices) if loop.var in free_vars(index)]
        rows = prod(int_value(load.buffer.shape[dim]) or 0 for dim in dims)
        if abs(apart[loop] or 0) * size <= piece or rows < LEAST_PASSES * distance:
            return None
        ahead: dict[Var, Expr] = {loop.var: _plus(loop.var, distance)}
        loops: list[tuple[Var, int]] = []
        run = 1
        for one in sorted(own, key=lambda one: abs(apart[one] or 0)):
            extent = int_value(one.extent) or 1
            if apart[one] == run:
                ahead[one.var], run = _number(0), run * extent
            else:
                ahead[one.var] = var = Var(one.var.name)
                loops.append((var, extent))
        indices = [substitute(index, ahead) for index in load.indices]
        part, line = Var("part"), max(1, LINE // size)
        # Of its last element, too: a piece may begin anywhere in a line.
        at = Binary(BinaryOp.MIN, _times(part, line), _number(run - 1), INDEX_DTYPE)
        indices[-1] = Binary(BinaryOp.ADD, indices[-1], at, INDEX_DTYPE)
        return self._lines(load, indices, [*loops, (part, -(-run // line) + 1)])

    def next_tile(self, load: Load, inside: list[For]) -> Stmt | None:
        """A part of what is read in the next iteration of the nearest loop around that the load depends on.

        None where it reads vectors, short pieces of rows, or no box of a width that is known, or too many
        lines for the iterations that there are, those of loops further inside not counted.
        """
        own, outside = _used(load, [*self.steps, *inside]), _used(load, self.around)
        count = prod(int_value(loop.extent) or 0 for loop in self.steps)
        if not outside or not count or any(one.kind is LoopKind.VECTORIZED for one in [*own, *outside]):
            return None
        by = outside[-1]
        origin: dict[Var, Expr] = {one.var: _number(0) for one in own}
        starts: list[Expr] = []
        widths: list[int] = []
        for index, shape in zip(load.indices, load.buffer.shape, strict=True):
            start, extent = substitute(index, origin), int_value(shape)
            low, high = interval(Binary(BinaryOp.SUB, index, start, INDEX_DTYPE), self.bounds)
            if low is None or high is None or extent is None:
                return None
            starts.append(_plus(substitute(start, {by.var: _plus(by.var, 1)}), low))
            widths.append(min(high - low + 1, extent))
        run, whole = _contiguous(load.buffer, widths)
        size = dtype_info(load.buffer.dtype).bytes
        if run * size < LEAST_PIECE:
            return None
        line = max(1, LINE // size)
        elements = -(-prod(widths) // count)
        lines = -(-elements // line)
        if lines > (MOST_IN_STEP if all(one.kind in _STRAIGHT for one in inside) else MOST_LINES):
            return None
        part = Var("part")
        position = self._position(elements if lines == 1 else lines * line)
        if lines > 1:
            position = Binary(BinaryOp.ADD, position, _times(part, line), INDEX_DTYPE)
        digits = _digits(position, [*widths[:whole], run])
        for dim, digit in zip([*range(whole), len(widths) - 1], digits, strict=True):
            starts[dim] = Binary(BinaryOp.ADD, starts[dim], digit, INDEX_DTYPE)
        return self._lines(load, starts, [(part, lines)] if lines > 1 else [])

    def _position(self, elements: int) -> Expr:
        """The number of the iteration, among all of the reduction's loops so far, times some elements."""
        number: Expr = _number(0)
        for loop in self.steps:
            number = Binary(BinaryOp.ADD, _times(number, int_value(loop.extent) or 1), loop.var, INDEX_DTYPE)
        return _times(number, elements)

    def _lines(self, load: Load, indices: list[Expr], loops: list[tuple[Var, int]]) -> Stmt:
        known = self.bounds.extended({var: (0, count - 1) for var, count in loops})
        result: Stmt = Prefetch(load.buffer, tuple(simplify(index, known) for index in indices))
        for var, count in reversed(loops):
            result = For(var, count, LoopKind.UNROLLED, result)
        return result


def _used(load: Load, loops: Sequence[For]) -> list[For]:
    """The loops whose variables a load depends on."""
    used = free_vars(*load.indices)
    return [loop for loop in loops if loop.var in used]


def _contiguous(buffer: Buffer, widths: list[int]) -> tuple[int, int]:
    """How many elements of a box of those widths lie in a row, and how many dimensions tell rows apart."""
    run, dim = 1, len(widths)
    while dim:
        dim -= 1
        run *= widths[dim]
        if widths[dim] != int_value(buffer.shape[dim]):
            break
    return run, dim


def _digits(position: Expr, widths: list[int]) -> list[Expr]:
    """A position among all elements of a box as places along its dimensions, the last of which runs on."""
    digits: list[Expr] = []
    for width in reversed(widths[1:]):
        digits.append(Binary(BinaryOp.FLOORMOD, position, _number(width), INDEX_DTYPE))
        position = Binary(BinaryOp.FLOORDIV, position, _number(width), INDEX_DTYPE)
    return [position, *reversed(digits)]


def _number(value: int) -> Expr:
    return Const(value, INDEX_DTYPE)


def _plus(expr: Expr, number: int) -> Expr:
    return Binary(BinaryOp.ADD, expr, _number(number), INDEX_DTYPE)


def _times(expr: Expr, number: int) -> Expr:
    return Binary(BinaryOp.MUL, expr, _number(number), INDEX_DTYPE)
