"""Tiles whose vectors run along another axis than the last one.

A convolution in the layout "NCHW" writes rows of an image, and reads its weights, which nobody but the
program looks at, in whatever order suits it. Vectors along a row are right for long rows. A row of 14 or 7
leaves lanes idle, one of 56 half a vector, and with a stride of 2 the lanes are gathered. Along the output
channels all of this is gone: the weights are vectors, the image is read one element for all lanes. Then the
innermost tile has its loops in another order,

    n.0 f.0 y.0 x.0  ..  n.3 y.3 x.3 f.3

The sums are turned in registers as they are stored to the tile's scratch (`ansor.codegen.llvm.interleave`),
so that its consumer, an activation or the cached stage, copies rows out as ever:

    n.0 f.0 y.0 x.0  n.1 f.1 y.1 x.1

An axis can carry the vectors if each input that is read along it lies along it, is free of layout, or can be
packed (`packing`); then it is packed. So the vectors of a filter of an image with three interleaved
channels run along its rows, which are copied tile by tile.

Source: Georganas et al., Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures, 2018,
for vectors of channels. TVM's vectors are always along the last axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from ansor.dtypes import dtype_info
from ansor.schedule.layout_reading import read_indices, reading_axes, reading_of, trailing_forms
from ansor.schedule.state import State
from ansor.te.expr import Expr, IterVar, free_vars, int_value
from sketches.relations import has_reduce_iterator
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.packing import is_packable
from sketches.rules.tiling import can_fuse_tiles, fused_tiles

POOR: Final = 1.1
"""So many lanes of the vectors along the last axis for each of its elements are too many."""
MOST_WASTE: Final = 1.5
"""An axis for which there would be so many has no room for a vector."""

WINDOW_WASTE: Final = 2
"""So many are too many where an axis with good vectors takes a copy of a tile and a window's margin."""


class TurnedTiling:
    """A reduction to tile with poor vectors along its last axis -> also tiles with vectors along another."""

    name = "TurnedTiling"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if not can_fuse_tiles(context, state, stage_id) or not has_reduce_iterator(state, stage_id):
            return Verdict.PASS
        return Verdict.PASS if turned_axis(context, state, stage_id) is None else Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        axis = turned_axis(context, state, stage_id)
        assert axis is not None
        return fused_tiles(context, state, stage_id, lanes=axis.name)


def turned_axis(context: SketchContext, state: State, stage_id: int) -> IterVar | None:
    """The axis of a reduction that makes better vectors than the last one; None if that one's are good.

    The fewer inputs are packed for it the better, and then the fewer lanes are idle.
    """
    stage = state.stages[stage_id]
    *others, last = stage.compute.axis
    lanes = context.hardware.vector_unit_bytes // max(1, dtype_info(stage.op.output(0).dtype).bytes)
    if lanes < 2 or any(int_value(axis.extent) is None for axis in stage.compute.axis):
        return None
    limit = inf if _copies(context, state, stage_id, last) is None else _waste(last, lanes)
    if limit < POOR:
        return None
    found: dict[IterVar, int] = {}
    for axis in reversed(others):
        waste = _waste(axis, lanes)
        if waste < min(limit, MOST_WASTE):
            windows = limit >= WINDOW_WASTE and waste < POOR
            copies = _copies(context, state, stage_id, axis, windows)
            found |= {} if copies is None else {axis: copies}
    return min(found, key=lambda axis: (found[axis], _waste(axis, lanes)), default=None)


def _waste(axis: IterVar, lanes: int) -> float:
    """Lanes of all vectors along an axis over its extent."""
    extent = int_value(axis.extent) or 1
    return -(-extent // lanes) * lanes / extent


def _copies(
    context: SketchContext, state: State, stage_id: int, axis: IterVar, windows: bool = True
) -> int | None:
    """How many inputs have to be packed for vectors along an axis; None if that is not enough.

    Those that windows pass over can be if `windows` says so.
    What does not move with the reduction is read once for a tile, however it lies.
    """
    op = state.stages[stage_id].compute
    terms, free, copies = set(op.reduce_axis), context.free_layouts(op), 0
    for producer, accesses in state.access.reads(op).items():
        source = state.stage_id(producer)
        used = ((read, free_vars(*read)) for read in accesses)
        moved = [read for read, found in used if axis in found and not terms.isdisjoint(found)]
        if all(_lies_along(state, stage_id, read, axis) for read in moved):
            continue
        if state.stages[source].handles[0] in free:
            if not _can_be_laid_along(state, source, stage_id, axis):
                return None
        elif context.params.cpu_packed_read and _can_be_packed_along(state, source, stage_id, axis, windows):
            copies += 1
        else:
            return None
    return copies


def _lies_along(state: State, stage_id: int, indices: Sequence[Expr], axis: IterVar) -> bool:
    """Whether the element that an axis reads next is the neighbour in memory."""
    *outer, last = indices
    reading = reading_of(state.stages[stage_id], last)
    return reading is not None and reading.steps.get(axis.name) == 1 and axis not in free_vars(*outer)


def _can_be_packed_along(state: State, source: int, stage_id: int, axis: IterVar, windows: bool) -> bool:
    """Whether neighbours along an axis, which lie apart in an input, are neighbours in a packed copy."""
    found = reading_axes(state, source, stage_id)
    if isinstance(found, str) or not is_packable(state, source, stage_id):
        return False
    step = next((reading.steps[axis.name] for reading in found[:-1] if axis.name in reading.steps), 0)
    return abs(step) == 1 and (windows or not any(reading.is_window for reading in found))


def _can_be_laid_along(state: State, source: int, stage_id: int, axis: IterVar) -> bool:
    """Whether an input can have a layout in which the element that an axis reads next is the neighbour."""
    indices = read_indices(state, source, stage_id)
    if isinstance(indices, str):
        return False
    kept = len(indices) - len(trailing_forms(state.stages[stage_id], stage_id, indices))
    return axis not in free_vars(*indices[:kept])
