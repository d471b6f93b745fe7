"""What a reduction reads next of large arrays, asked for while its accumulators are in registers.

Arrays that lie in the last cache or beyond are waited for, however much arithmetic there is: processors
foresee a long row, not the beginning of the next one, nor the many short ones that a tile is made of. To ask
for a whole tile at once blocks what the loop itself reads. So the reduction asks for a few lines at a time,
in one of three ways, by how the array is read:

*Rows of a panel.* A product that reads B[k, j] where it lies takes a few vectors of each row. It asks for
the piece of a row some steps further on, with the line of its last element, wherever in a line it begins:

    for k in 0..512:                           for k in 0..512:
      unroll i in 0..6:                          unroll j in 0..5: prefetch B[k + 32, min(j*16, 63)]
        unroll j in 0..4:                  =>    unroll i in 0..6: unroll j in 0..4: vectorize v in 0..16:
          vectorize v in 0..16:                    C.acc[i, j, v] = ...
            C.acc[i, j, v] =
              C.acc[i, j, v] + A[i, k]*B[k, j*16 + v]

*The next tile.* What is broadcast, such as A or the pixels of a convolution, is asked for with the nearest
loop around that moves it one iteration further, spread over the iterations of the outermost loop of the
reduction that has enough of them. Six rows of 512 floats, one behind the other in memory, are 6 floats for
each of 512; a line that is asked for again, in loops between, too, costs an instruction:

    for i in 0..85:                            for i in 0..85:
      for k in 0..512:                     =>    for k in 0..512:
        ... A[i*6 + i.1, k] ...                    prefetch A[(i + 1)*6, k*6]
                                                   ... A[i*6 + i.1, k] ...

*The next panel.* One whose rows follow each other, as packed ones do, is in the second cache while tiles pass
over it in turn, and has come from further away for the first of them. The next panel is asked for by all of
them, each for its part:

    for j in 0..42:                            for j in 0..42:
      for i in 0..16:                            for i in 0..16:
        for k in 0..2048:                =>        for k in 0..2048:
          ... B[j, k, v] ...                         prefetch B[j + 1, 0, i*6144 + k*3]
                                                     ... B[j, k, v] ...

All goes to the second cache: the first is for what is used now. The rows of a panel processors see coming.

Source: micro-kernels of BLIS ask for the next panels of A and B so. On 2 cores of a Zen 4, 12 to 31 MB of
operands in a last cache of 32 MB: a product of 64 rows with a matrix of 16 MB 1.15 times as fast, batches of
four products of 512 1.02, 1x1 convolutions of 16 images 1.03. The next panel, on 2 cores of a Granite Rapids
with 2 MiB of second cache each: products of 2048 with 16 tiles to a panel 1.13 times as fast, a 1x1
convolution of 16 images of 7 x 7, 2048 to 512 channels, 1.02.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from ansor.ir.strides import coefficient, even_step
from ansor.te.construct import binary, cast, const
from ansor.te.expr import Binary, BinaryOp, Expr, Load, Var, free_vars, int_value, substitute
from ansor.te.structure import same_place

DISTANCE: Final = 8192
"""How far ahead pieces of rows are asked for [bytes of them]: 32 rows of 256. 4 and 16 KiB do as well."""
LEAST_PASSES: Final = 8
"""A matrix has so many times the rows that are asked for ahead, or many of these lie behind the last one."""
MOST_LINES: Final = 16
"""Lines of a next tile that are asked for at once, in an iteration of a loop around the innermost one."""
MOST_IN_STEP: Final = 2
"""The same in the innermost loop: beside more, there is little arithmetic to hide behind."""
LEAST_RUN: Final = 512
"""Bytes that follow each other in a next tile, at least: of short runs most lines have been read before.

A convolution of three channels took 1.04 of the time.
"""


def ask_for_inputs(stmt: Stmt, inputs: Mapping[str, Collection[Buffer]], bounds: Bounds) -> Stmt:
    """Let register tiles ask for what they read next.

    Parameters
    ----------
    inputs
        What tiles ask for, by the name of the buffer that they are of.
    bounds
        The ranges of variables around `stmt`.
    """
    if not inputs:
        return stmt
    known = bounds.extended(loop_ranges(stmt))
    asking = _visit(stmt, inputs, known, ())
    return stmt if asking is stmt else remove_known_guards(asking, bounds.extended(loop_ranges(asking)))


def _visit(
    stmt: Stmt, inputs: Mapping[str, Collection[Buffer]], bounds: Bounds, around: tuple[For, ...]
) -> Stmt:
    """A statement in loops `around`, outermost first, all outside of register tiles and none pipelined."""
    if isinstance(stmt, Alloc) and stmt.buffer.scope == REGISTER:
        stored = [one.buffer.name for one in walk_statements(stmt) if isinstance(one, Store)]
        wanted = frozenset(buffer for name in stored for buffer in inputs.get(name, ()))
        return with_statements(stmt, (_asking(stmt.body, _Place(bounds, around), wanted),))
    if isinstance(stmt, For) and stmt.kind is LoopKind.PIPELINED:
        return stmt  # What its iterations ask for is that of other rows.
    inner = (*around, stmt) if isinstance(stmt, For) else around
    return map_statements(stmt, lambda one: _visit(one, inputs, bounds, inner))


def _asking(stmt: Stmt, place: _Place, inputs: frozenset[Buffer]) -> Stmt:
    """A part of a register tile, whose serial loops ask for inputs.

    `inputs` are those whose next tile no loop around asks for, and of which rows may be asked for.
    """
    if not inputs or not isinstance(stmt, For) or stmt.kind is not LoopKind.SERIAL:
        return map_statements(stmt, lambda one: _asking(one, place, inputs)) if inputs else stmt
    parts = list(walk_statements(stmt.body))
    updates = [one.value for one in parts if isinstance(one, Store) and one.buffer.scope == REGISTER]
    inside = [one for one in parts if isinstance(one, For)]
    place = _Place(place.bounds, place.around, (*place.steps, stmt), tuple(inside))
    loads = place.distinct(loads_of(updates, inputs))
    found = [(load.buffer, place.next_tile(load, start)) for load, start in loads.items()]
    asked = [ask for _, ask in found if ask is not None]
    body = stmt.body
    if place.is_innermost:
        asked += [ask for load in loads if (ask := place.row(load)) is not None]
    else:
        body = _asking(body, place, inputs - {buffer for buffer, ask in found if ask is not None})
    return with_statements(stmt, (seq(*asked, body),)) if asked or body is not stmt.body else stmt


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a register tile asks: between loops around it, of its reduction so far, and further inside.

    The first two are outermost first.
    """

    bounds: Bounds
    around: tuple[For, ...]
    steps: tuple[For, ...] = ()
    inside: tuple[For, ...] = ()

    @property
    def is_innermost(self) -> bool:
        """Whether what is further inside is straight code."""
        return all(loop.kind is not LoopKind.SERIAL for loop in self.inside)

    def distinct(self, loads: Sequence[Load]) -> dict[Load, tuple[Expr, ...]]:
        """The loads of different tiles, and the indices where these begin.

        Versions of one tile without tests and with them read the same.
        """
        first: dict[Var, Expr] = {loop.var: const(0) for loop in (*self.steps, *self.inside)}
        found: dict[Load, tuple[Expr, ...]] = {}
        for load in loads:
            start = tuple(simplify(substitute(index, first), self.bounds) for index in load.indices)
            if not any(load.buffer is other.buffer and same_place(start, at) for other, at in found.items()):
                found[load] = start
        return found

    def row(self, load: Load) -> Stmt | None:
        """A piece of a row some steps further on; None unless each step reads vectors of a row of its own."""
        loop, own = self.steps[-1], _used(load.indices, self.inside)
        apart = {one: even_step(load.buffer, load.indices, one.var, self.bounds) for one in (loop, *own)}
        run = 1
        for one in sorted(own, key=lambda one: abs(apart[one] or 0)):
            if apart[one] != run:
                return None
            run *= int_value(one.extent) or 1
        size = dtype_info(load.buffer.dtype).bytes
        distance = max(1, DISTANCE // (run * size))
        dims = [dim for dim, index in enumerate(load.indices) if loop.var in free_vars(index)]
        rows = prod(int_value(load.buffer.shape[dim]) or 0 for dim in dims)
        vectors = any(one.kind is LoopKind.VECTORIZED for one in own)
        if not vectors or abs(apart[loop] or 0) <= run or rows < LEAST_PASSES * distance:
            return None
        ahead: dict[Var, Expr] = {one.var: const(0) for one in own}
        ahead[loop.var] = loop.var + distance
        indices = [substitute(index, ahead) for index in load.indices]
        part, line = Var("part"), max(1, LINE // size)
        # Of its last element, too: a piece may begin anywhere in a line.
        indices[-1] += cast(binary(BinaryOp.MIN, part * line, run - 1), indices[-1].dtype)
        return self._lines(load, indices, part, -(-run // line) + 1)

    def next_tile(self, load: Load, start: Sequence[Expr]) -> Stmt | None:
        """A part of what is read in the next iteration of the nearest loop around that moves it from `start`.

        Of vectors that is a panel, in which what steps read follows each other, of which all tiles before
        that iteration ask for a part. None where it is no box of a width that is known, of short runs, or
        more lines than there may be in the iterations so far, those of loops further inside not counted; and
        of panels with fewer elements than iterations: most ask for nothing new, and waiting for it is a small
        part of what is computed with it. Parts are whole lines, so the last ones may lie beyond the panel.
        """
        own = _used(load.indices, (*self.steps, *self.inside))
        outside = _used(start, self.around)
        if not outside or any(loop.kind is LoopKind.VECTORIZED for loop in outside) or load.buffer.strides:
            return None
        by, steps = outside[-1].var, self.steps
        alike = min(_iterations_alike(index, by) for index in start if by in free_vars(index))
        ahead, count = by + alike, 1
        number: Expr = const(0)
        vectors = any(loop.kind is LoopKind.VECTORIZED for loop in own)
        if vectors:  # A panel is used by all tiles in between, those of loops that were fused included.
            steps = (*self.around[self.around.index(outside[-1]) + 1 :], *steps)
            number, count = by % alike, alike
        count *= prod(int_value(loop.extent) or 0 for loop in steps)
        starts: list[Expr] = []
        widths: list[int] = []
        for index, first, shape in zip(load.indices, start, load.buffer.shape, strict=True):
            low, high = interval(index - first, self.bounds)
            linear = all(coefficient(index, one.var) is not None for one in own)
            extent = int_value(shape)
            if not linear or low is None or high is None or extent is None:
                return None
            starts.append(substitute(first, {by: ahead}) + low)
            widths.append(min(high - low + 1, extent))
        run, whole = _contiguous(load.buffer, widths)
        size = dtype_info(load.buffer.dtype).bytes
        if not count or run * size < LEAST_RUN:
            return None
        step = prod(int_value(loop.extent) or 0 for loop in own if loop.kind is not LoopKind.SERIAL)
        if vectors and (run <= step or prod(widths) < count):
            return None
        line = max(1, LINE // size)
        elements = -(-prod(widths) // count)
        lines = -(-elements // line)
        if lines > (MOST_IN_STEP if self.is_innermost else MOST_LINES):
            return None
        part, position = Var("part"), _position(number, steps, elements if lines == 1 else lines * line)
        if lines > 1:
            position += part * line
        digits = _digits(position, [*widths[:whole], run])
        for dim, digit in zip([*range(whole), len(widths) - 1], digits, strict=True):
            starts[dim] += cast(digit, starts[dim].dtype)
        return self._lines(load, starts, part, lines)

    def _lines(self, load: Load, indices: list[Expr], part: Var, lines: int) -> Stmt:
        """What asks for so many lines, the number of which is `part`."""
        known = self.bounds.extended({part: (0, lines - 1)})
        ask = Prefetch(load.buffer, tuple(simplify(index, known) for index in indices))
        return For(part, lines, LoopKind.UNROLLED, ask) if lines > 1 else ask


def _position(number: Expr, loops: Sequence[For], elements: int) -> Expr:
    """The number of the iteration, among all of some loops inside of iteration `number`, times elements."""
    for loop in loops:
        number = number * (int_value(loop.extent) or 1) + loop.var
    return number * elements


def _used(indices: Sequence[Expr], loops: Sequence[For]) -> list[For]:
    """The loops whose variables some indices depend on."""
    used = free_vars(*indices)
    return [loop for loop in loops if loop.var in used]


def _iterations_alike(index: Expr, var: Var) -> int:
    """In how many iterations of a loop, about, an index that depends on its variable stays as it is.

    For `f // 4 % 28`, as loops that were fused leave it, these are 4.
    """
    if not isinstance(index, Binary):
        return 1
    within = [_iterations_alike(part, var) for part in (index.a, index.b) if var in free_vars(part)]
    divisor = int_value(index.b) if index.op is BinaryOp.FLOORDIV else None
    return min(within, default=1) * (divisor or 1)


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
        digits.append(position % width)
        position //= width
    return [position, *reversed(digits)]
