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

Sizes that the instruction does not divide are padded (`ansor.schedule.pad_steps`): the operands' copies in
shared memory are zero beyond the tensors, and only what is stored is guarded. Where that makes more than
`MOST_PADDED` of one product, or leaves lanes without any element, the stage is left to the other rules. Not
in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from ansor.errors import ScheduleError
from ansor.intrinsics import WarpIntrinsic, match_warp, warp_intrinsics
from ansor.intrinsics.warp import Axes
from ansor.ir.simplify import Bounds, interval
from ansor.schedule.access import NO_SPLIT_ATTR, constant_extents
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import PadStep, RewriteLayoutStep, TensorizeStep
from ansor.te.expr import Read, distinct_nodes, int_value
from ansor.te.tensor import ComputeOp
from sketches.relations import CACHE_WRITE_SCOPE, attribute_names
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.tiling import can_tile, follow_tiling, tile, tile_consumer

_STRUCTURE: Final = "SSRRS"
"""Levels of tiles (`tiling`): blocks, warps; what is loaded at once, its steps; what a warp has."""
_OUTER: Final = 2
"""Spatial levels outside of the reduction."""
MOST_PADDED: Final = 2.0
"""Products for one of those that are asked for, at most."""


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
        intrinsic, axes, extents = found
        consumer = tile_consumer(state, stage_id)
        op = state.stages[stage_id].compute
        if extents != constant_extents((*op.axis, *op.reduce_axis)):
            count = len(state.stages)
            state = _padded(state, stage_id, extents)
            copy = stage_id + len(state.stages) - count
            stage_id = copy - 1
            if consumer is not None:
                state, consumer = state.compute_inline(copy), consumer + len(state.stages) - count
            else:
                consumer = copy
        elif consumer is None:
            state, consumer = state.cache_write(stage_id, CACHE_WRITE_SCOPE), stage_id + 1
        state, splits = _products(state, stage_id, intrinsic, axes)
        state = _consumer(state, consumer, splits, intrinsic, axes)
        return [(state.compute_at(stage_id, consumer, _OUTER * len(splits) - 1), stage_id - 1)]


def _padded(state: State, stage_id: int, extents: tuple[int, ...]) -> State:
    """The stage over axes of these extents, behind it what was asked for; it reads zeros beyond operands."""
    op = state.stages[stage_id].compute
    axes = (*op.axis, *op.reduce_axis)
    bounds = Bounds({axis: (0, extent - 1) for axis, extent in zip(axes, extents, strict=True)})
    shapes = {tensor: [int_value(extent) or 0 for extent in tensor.shape] for tensor in op.input_tensors}
    for read in (node for node in distinct_nodes(op.body[0]) if isinstance(node, Read)):
        shape = shapes[read.tensor]
        for dim, index in enumerate(read.indices):
            if not any(isinstance(node, Read) for node in distinct_nodes(index)):
                shape[dim] = max(shape[dim], (interval(index, bounds)[1] or 0) + 1)
    for tensor, shape in shapes.items():
        if shape != [int_value(extent) for extent in tensor.shape]:
            digits = tuple((dim, extent, 1) for dim, extent in enumerate(shape))
            state = state.apply(RewriteLayoutStep(state.stage_id(tensor), digits, (stage_id,)))
            stage_id += 1
    return state.apply(PadStep(stage_id, CACHE_WRITE_SCOPE, extents))


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


def _found(
    context: SketchContext, state: State, stage_id: int
) -> tuple[WarpIntrinsic, Axes, tuple[int, ...]] | None:
    """An intrinsic of the target, axes of a stage, and the extents with padding; rather without any."""
    op = state.stages[stage_id].op
    if not isinstance(op, ComputeOp) or not can_tile(context, state, stage_id):
        return None
    if attribute_names(state, stage_id, NO_SPLIT_ATTR):
        return None
    old = constant_extents((*op.axis, *op.reduce_axis))
    if old is None:
        return None
    found: list[tuple[WarpIntrinsic, Axes, tuple[int, ...]]] = []
    for intrinsic in warp_intrinsics():
        for axes in match_warp(op, intrinsic) if context.target.has_warp_intrinsic(intrinsic) else ():
            if not _fills_warps(old[axes.row], old[axes.column], intrinsic):
                continue
            extents = list(old)
            for at, multiple in (
                (axes.row, intrinsic.rows),
                (axes.column, intrinsic.columns),
                (len(op.axis) + axes.reduce, intrinsic.depth),
            ):
                extents[at] = -(-extents[at] // multiple) * multiple
            found.append((intrinsic, axes, tuple(extents)))
    for one in sorted(found, key=lambda one: one[2] != old):
        if one[2] == old or (prod(one[2]) <= MOST_PADDED * prod(old) and _can_pad(state, stage_id, one[2])):
            return one
    return None


def _fills_warps(rows: int, columns: int, intrinsic: WarpIntrinsic) -> bool:
    """Whether what takes the sums of one tile has something to do for every lane, and so as many threads."""
    held, lanes = intrinsic.column
    return rows >= intrinsic.row[1] and columns > held * (lanes - 1)


def _can_pad(state: State, stage_id: int, extents: tuple[int, ...]) -> bool:
    """Whether what is added is nothing but zeros."""
    try:
        _padded(state, stage_id, extents)
    except ScheduleError:
        return False
    return True
