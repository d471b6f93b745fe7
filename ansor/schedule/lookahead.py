"""What a loop's next iteration reads: boxes of inputs, their size, and a nest that asks for their lines.

A statement in loops reads of a buffer, while some of them range and the others stay, a box: an interval along
each axis. Windows that overlap are in one box together, so asking for its lines asks for each of them once.
Where indices divide, or two loops stride, the box may hold more than what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from ansor.alignment import LINE
from ansor.dtypes import dtype_info
from ansor.ir.nest import Buffer, For, LoopKind, Prefetch, Stmt
from ansor.schedule.affine import Affine, Interval, UnknownBoundError
from ansor.schedule.evaluation import evaluate
from ansor.schedule.extents import Extent
from ansor.te.expr import INDEX_DTYPE, Binary, BinaryOp, Const, Expr, Load, Var, substitute
from ansor.te.structure import same_place

Ranging = Mapping[Var, Extent]
"""Loops that range, by their variables, with their extents."""

NEAR: Final = 8192
"""Most bytes asked for at a time that go to the first cache, which is for what is used now; else the second.

Softmax on 2 cores of a Zen 4, the next row asked for in the first cache, against the second: rows of 4 KiB
0.88 of the time, rows of 32 KiB 1.4 to 1.8 of it.
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a buffer: an interval along each of its axes, of constant width."""

    buffer: Buffer
    intervals: tuple[Interval, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """How many elements it spans along each axis."""
        return tuple(int(interval.width) for interval in self.intervals)  # type: ignore[arg-type]

    @property
    def bytes(self) -> int:
        """Its size, in memory."""
        return prod(self.widths) * dtype_info(self.buffer.dtype).bytes

    def lines(self, form: Callable[[Affine], Expr], near: bool) -> Stmt:
        """Ask for its lines, in loops; `form` makes expressions of where the intervals begin."""
        line = LINE // dtype_info(self.buffer.dtype).bytes
        indices: list[Expr] = []
        loops: list[tuple[Var, int]] = []
        for dim, (interval, width) in enumerate(zip(self.intervals, self.widths, strict=True)):
            step = line if dim == len(self.intervals) - 1 else 1
            index, count = form(interval.base), -(-width // step)
            if count > 1:
                var = Var(f"ahead{dim}")
                loops.append((var, count))
                offset = Binary(BinaryOp.MUL, var, Const(step, INDEX_DTYPE), INDEX_DTYPE)
                index = Binary(BinaryOp.ADD, index, offset if step > 1 else var, INDEX_DTYPE)
            indices.append(index)
        stmt: Stmt = Prefetch(self.buffer, tuple(indices), near)
        for var, count in reversed(loops):
            stmt = For(var, count, LoopKind.SERIAL, stmt)
        return stmt


def boxes(loads: Iterable[Load], ranging: Ranging) -> list[Box] | None:
    """What loads read while loops range, a box each; None where an index is no interval of known width."""
    variables = {var: Interval.full(extent) for var, extent in ranging.items()}
    try:
        found = [Box(load.buffer, tuple(evaluate(i, variables) for i in load.indices)) for load in loads]
    except UnknownBoundError:
        return None
    known = all(isinstance(interval.width, int) for box in found for interval in box.intervals)
    return found if known else None


def read_ahead(
    loads: Sequence[Load], outwards: Sequence[tuple[Var, Extent]], ranging: Ranging, room: int
) -> tuple[list[Load], bool]:
    """
    Find what loads read in the next iteration of a loop, and whether the first cache has room for all of it.

    Parameters
    ----------
    loads
        What is read.
    outwards
        The loops around with their extents, the nearest first.
    ranging
        The loops inside of these.
    room
        The loop is the outermost one whose iterations read at most so many bytes; for 0 it is the nearest.

    Returns
    -------
    tuple[list[Load], bool]
        Without loads that read the same in that iteration; none where there is no such loop.
    """
    by, inside, around = None, ranging, dict(ranging)
    for var, extent in outwards if room else outwards[:1]:
        if room and not _fit(boxes(loads, around), room):
            break
        by, inside = var, dict(around)
        around[var] = extent
    if by is None:
        return [], False
    ahead = _next_iteration(loads, by)
    return ahead, _fit(boxes(ahead, inside), NEAR)


def _fit(read: Sequence[Box] | None, room: int) -> bool:
    """Whether what is read is known, and at most so many bytes."""
    return read is not None and sum(box.bytes for box in read) <= room


def _next_iteration(loads: Iterable[Load], by: Var) -> list[Load]:
    """What loads read in the next iteration of a loop; without those that read the same there."""
    ahead = Binary(BinaryOp.ADD, by, Const(1, INDEX_DTYPE), INDEX_DTYPE)
    found: list[Load] = []
    for load in loads:
        indices = tuple(substitute(index, {by: ahead}) for index in load.indices)
        if not same_place(indices, load.indices):
            found.append(Load(load.buffer, indices, load.dtype))
    return found
