"""Tensor cores in sketches: tiles of what the threads of a warp multiply with one instruction.

`TensorCores` finds the intrinsic of warps that a stage matches (`ansor.intrinsics.warp`), if the target's GPU
has it. The stage keeps its sums in the registers of a block's warps, each thread four of every 16 by 8. So it
is given a layout that takes rows and columns apart into tiles, lanes, and what a lane holds. Lanes are
threads, their number fixed; tiles are shared out to blocks and warps. Of C[i, j] comes

    [i_0 j_0].0  [i_0 j_0 i_2 j_1].1  k.0.0  k.0.1  [i_0 j_0].2  [i_1 j_2 k.1]

that is blocks, threads, what a block loads at once, and for each step of it the tiles of a warp, all of which
use what is loaded for one of them. So there is no other level to tile by, and virtual threads have no use.
All is inside of the stage that reads it, or of a copy where none can share its tiles. The operands go through
shared memory as ever (`AddCacheRead`).

Sizes that tiles do not divide are left to the other rules. Not in the reference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ansor.intrinsics import WarpIntrinsic, match_warp, warp_intrinsics
from ansor.intrinsics.warp import Axes
from ansor.schedule.access import NO_SPLIT_ATTR
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import RewriteLayoutStep, TensorizeStep
from ansor.task.device import stated_arch
from ansor.task.target import Target
from ansor.te.expr import int_value
from ansor.te.tensor import ComputeOp
from sketches.relations import CACHE_WRITE_SCOPE, attribute_names
from sketches.rule import SketchContext, Successor, Verdict
from sketches.tiling import can_tile, follow_tiling, tile, tile_consumer

_STRUCTURE: Final = "SSRRS"
"""Levels of tiles (`sketches.tiling`): blocks, warps; what is loaded at once, its steps; what a warp has."""
_OUTER: Final = 2
"""Spatial levels outside of the reduction."""


class TensorCores:
    """A stage that warps multiply by an instruction -> tiled by it, in its consumer or a copy.

    There is no sketch of such a stage without the instruction.
    """

    name = "TensorCores"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        fits = _found(context, state, stage_id) is not None
        return Verdict.APPLY_AND_SKIP_REST if fits else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        found = _found(context, state, stage_id)
        assert found is not None
        intrinsic, axes = found
        consumer = tile_consumer(state, stage_id)
        if consumer is None:
            state, consumer = state.cache_write(stage_id, CACHE_WRITE_SCOPE), stage_id + 1
        state, splits = _products(state, stage_id, intrinsic, axes)
        state = _consumer(state, consumer, splits, intrinsic, axes)
        return [(state.compute_at(stage_id, consumer, _OUTER * len(splits) - 1), stage_id - 1)]


def _products(
    state: State, stage_id: int, intrinsic: WarpIntrinsic, axes: Axes
) -> tuple[State, tuple[int, ...]]:
    """The stage by tiles; and which steps split its loops over tiles and lanes."""
    op = state.stages[stage_id].compute
    count = len(op.axis)
    state = state.apply(RewriteLayoutStep(stage_id, _digits(op, intrinsic, axes)))
    loops = [loop.name for loop in state.stages[stage_id].iterators]
    row, column, held, products = count, count + 1, [count + 2, count + 3], count + 4 + axes.reduce
    state = state.split(stage_id, products, (intrinsic.depth,))
    rest = [at for at in range(len(loops) + 1) if at not in (*held, products + 1)]
    state = state.reorder(stage_id, [*rest, *held, products + 1])
    lanes = {row: intrinsic.row[1], column: intrinsic.column[1]}
    fixed = {loops[at]: (length, 1) for at, length in lanes.items()}
    state, splits = tile(state, stage_id, _STRUCTURE, len(intrinsic.held), fixed)
    first = len(state.stages[stage_id].iterators) - len(intrinsic.held)
    return state.apply(TensorizeStep(stage_id, first, intrinsic.name)), splits


def _digits(op: ComputeOp, intrinsic: WarpIntrinsic, axes: Axes) -> tuple[tuple[int, int, int], ...]:
    """The layout of the sums: tiles of all dimensions, lanes of rows and columns, and what they hold."""
    extents = [int_value(axis.extent) or 0 for axis in op.axis]
    tiles = {axes.row: intrinsic.rows, axes.column: intrinsic.columns}
    return (
        *((dim, extent // tiles.get(dim, 1), tiles.get(dim, 1)) for dim, extent in enumerate(extents)),
        (axes.row, intrinsic.row[1], 1),
        (axes.column, intrinsic.column[1], intrinsic.column[0]),
        (axes.row, intrinsic.row[0], intrinsic.row[1]),
        (axes.column, intrinsic.column[0], 1),
    )


def _consumer(
    state: State, consumer: int, splits: Sequence[int], intrinsic: WarpIntrinsic, axes: Axes
) -> State:
    """The stage that takes the sums, by the same tiles; neighbours that a thread holds are one vector."""
    count = len(state.stages[consumer].iterators)
    (held_rows, row_lanes), (held_columns, column_lanes) = intrinsic.row, intrinsic.column
    parts = {axes.row: (held_rows, row_lanes), axes.column: (column_lanes, held_columns)}
    starts: list[int] = []
    position = 0
    for dim in range(count):
        starts.append(position)
        if dim in parts:
            state = state.split(consumer, position, parts[dim])
            position += len(parts[dim])
        position += 1
    row, column = starts[axes.row], starts[axes.column]
    state = state.reorder(consumer, [*starts, row + 2, column + 1, row + 1, column + 2])
    state = follow_tiling(state, consumer, splits, _OUTER, innermost=2)
    last = len(state.stages[consumer].iterators) - 1
    return state.annotate(consumer, last, Annotation.VECTORIZE)


def _found(context: SketchContext, state: State, stage_id: int) -> tuple[WarpIntrinsic, Axes] | None:
    """An intrinsic of the target, and axes of a stage that it divides."""
    op = state.stages[stage_id].op
    if not isinstance(op, ComputeOp) or not can_tile(context, state, stage_id):
        return None
    if attribute_names(state, stage_id, NO_SPLIT_ATTR):
        return None
    extents = [int_value(axis.extent) for axis in (*op.axis, *op.reduce_axis)]
    sizes = [extent for extent in extents if extent is not None]
    if len(sizes) < len(extents):
        return None
    for intrinsic in warp_intrinsics():
        for axes in match_warp(op, intrinsic) if has_warp_intrinsic(context.target, intrinsic) else ():
            products = sizes[len(op.axis) + axes.reduce]
            tiles = sizes[axes.row] % intrinsic.rows or sizes[axes.column] % intrinsic.columns
            if not tiles and products % intrinsic.depth == 0:
                return intrinsic, axes
    return None


def has_warp_intrinsic(target: Target, intrinsic: WarpIntrinsic) -> bool:
    """Whether the GPU that a target names has an intrinsic."""
    found = re.fullmatch(r"sm_(\d+)[a-z]?", (stated_arch(target) or "") if target.kind == "cuda" else "")
    return found is not None and int(found[1]) >= intrinsic.capability
