"""Copies in shared memory padded or swizzled, so that threads read from different banks.

Shared memory has banks, a power of two of them, that each deliver a word at a time; neighbouring words are in
neighbouring banks. Threads that read along a column of a copy, a row apart each, wait for each other where
their rows begin in the same bank. If rows begin at odd multiples of one word, no two of as many rows as there
are banks do; if at odd multiples of the words that a thread reads at once, the same holds of such reads, and
they stay aligned. So the integer is that number of elements, and the step is TVM's `storage_align`.

Or rows store their pieces in different orders (`ansor.ir.swizzles`), which takes no memory: `SWIZZLED`.

Which axis is padded follows from the structure: of those along which threads are apart, the last one but the
axis in which elements are neighbours. If there is no other between these two, rows may be swizzled.

What warps multiply by instructions they load as matrices: rows of 16 bytes each, a row of the copy apart, and
aligned. So it is padded by that or not at all, along the last axis but one. Elements of 32 bits may lie
across the products; then threads load words, of four rows eight each, which are in different banks if rows
begin at odd multiples of 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.dtypes import dtype_info
from ansor.ir.swizzles import can_swizzle
from ansor.schedule.bounds import Bounds
from ansor.schedule.stages import ComputeAt, Stage
from ansor.schedule.state import State
from ansor.schedule.steps import StorageAlignStep, SwizzleStep
from ansor.te.expr import free_vars
from sketches.launch import load_bytes
from sketches.relations import is_tensorized
from sketches.rule import SketchContext

Values = NDArray[np.int64]

SWIZZLED: Final = 1 << 8
"""The integer of swizzled rows, which is no length of padding."""
_WORD: Final = 4
_MOST_WORDS: Final = 4
"""Words that a thread reads at once at most."""


@dataclass(frozen=True, slots=True)
class PadSite:
    """
    A copy in shared memory that may be padded or swizzled.

    Parameters
    ----------
    stage
        Its position.
    iterator
        Position of the axis' loop before loops are bound.
    axis
        The axis whose rows are set apart.
    values
        Integers to choose from, ascending: 0, lengths of padding [elements], `SWIZZLED`.
    size
        Bytes of an element.
    """

    stage: int
    iterator: int
    axis: str
    values: tuple[int, ...]
    size: int

    def step(self, value: int) -> StorageAlignStep | SwizzleStep:
        """The step that lets rows begin at odd multiples of `value` elements, above 0, or swizzles them."""
        if value == SWIZZLED:
            return SwizzleStep(self.stage)
        return StorageAlignStep(self.stage, self.iterator, 2 * value, value)

    def settled(self, bounds: Bounds, wished: Values) -> Values:
        """The wished values, but 0 where nothing moves: there is one row, or rows are as wished anyway."""
        names = [axis.name for axis in bounds.state.stages[self.stage].compute.axis]
        widths: list[Any] = [region.width for region in bounds.stages[self.stage].region]
        at = names.index(self.axis)
        rows, row = prod(widths[: at + 1]), prod(widths[at + 1 :])
        padded = row % np.maximum(2 * wished, 1) != wished
        moves = (rows > 1) & np.where(wished == SWIZZLED, can_swizzle(row, self.size), padded)
        return np.asarray(np.where(moves, wished, 0))


def pad_sites(context: SketchContext, state: State) -> tuple[PadSite, ...]:
    """List the copies of a structure, loops not yet bound, that may be padded or swizzled."""
    sites: list[PadSite] = []
    for stage_id, stage in enumerate(state.stages):
        if stage.scope != "shared" or stage.compute_at is not ComputeAt.ITER or stage.storage_align:
            continue
        size = max(dtype_info(tensor.dtype).bytes for tensor in stage.op.outputs)
        lengths, axis = _lengths(context, size), _axis_of_threads(state, stage_id)
        if any(is_tensorized(state, reader) for reader in state.consumers(stage_id)):
            lengths, axis = lengths[-1:], _last_but_one(stage)
            if size == _WORD:
                lengths = (*lengths, *(2 * length for length in lengths))
        iterator = None if axis is None else stage.index_of(axis)
        if axis is None or iterator is None:
            continue
        by_rows = context.params.gpu_swizzle and axis == _last_but_one(stage)
        values = (0, *lengths, *((SWIZZLED,) if by_rows else ()))
        if len(values) > 1:
            sites.append(PadSite(stage_id, iterator, axis, values, size))
    return tuple(sites)


def _axis_of_threads(state: State, stage_id: int) -> str | None:
    """The last axis of a copy, but the innermost, that the elements of its readers move along."""
    op = state.stages[stage_id].compute
    moved: set[int] = set()
    for consumer in state.consumers(stage_id):
        reader = state.stages[consumer].compute
        for indices in state.access.reads(reader).get(op, ()):
            moved.update(d for d, index in enumerate(indices) if not free_vars(index).isdisjoint(reader.axis))
    found = max(moved - {len(op.axis) - 1}, default=None)
    return None if found is None else op.axis[found].name


def _last_but_one(stage: Stage) -> str | None:
    axes = stage.compute.axis
    return axes[-2].name if len(axes) > 1 else None


def _lengths(context: SketchContext, size: int) -> tuple[int, ...]:
    """The elements, of `size` bytes, of one word, two, and so on, as many as a thread may read at once."""
    if not context.params.gpu_storage_padding:
        return ()
    sizes = [_WORD << shift for shift in range(_MOST_WORDS.bit_length())]
    most = load_bytes(context.hardware)
    return tuple(taken // size for taken in sizes if size <= taken <= most)


def padded(bounds: Bounds, sites: Sequence[PadSite], columns: Sequence[Values]) -> Bounds:
    """Bounds with the padding and swizzling of copies, one column of integers per site."""
    if not any(column.any() for column in columns):
        return bounds
    stages = list(bounds.state.stages)
    for site, column in zip(sites, columns, strict=True):
        swizzle = column == SWIZZLED
        length = np.where(swizzle, 0, column)
        padding = site.axis, np.maximum(2 * length, 1), length
        stages[site.stage] = replace(stages[site.stage], storage_align=padding, swizzle=swizzle)
    return replace(bounds, state=replace(bounds.state, stages=tuple(stages)))
