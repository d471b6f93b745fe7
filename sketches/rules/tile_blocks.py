"""Blocks of small tiles: what their transforms read and write stays in the caches of one core.

A convolution by Winograd's algorithm transforms tiles of its input, multiplies and adds up, and transforms
back: three passes over memory, between which each core reads what others have written. Instead the loop over
tiles of the last transform may be cut into blocks. In each of them are the products that it needs, and
before them the transform of the tiles that these read:

    n  h.0.0  { tiles; products }  h.0.1  w.0  c.0  [h.1  unroll w.1]  c.1

Every block reads the other factor of the products, the weights, as a whole, so few and large ones suit many
channels, and none at all more still. So both are tried, along each axis on which tiles of a block lie side
by side, where an output is the last transform. In blocks there is plain multi-level tiling alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ansor.schedule.kernels import root_of
from ansor.schedule.stages import made_from
from ansor.schedule.state import State
from ansor.te.tensor import Operation
from sketches.relations import axes_of_reads, needs_tiling, only_consumer
from sketches.small_tiles import first_of_tile, unrolled_tile


def axes_for_blocks(state: State, stage_id: int) -> Iterator[int]:
    """Numbers of the axes along which the tiles of an untouched last transform may be cut into blocks.

    Of these axes, the first ones, each has one loop outside of the tile: a number is a loop's position, too.
    """
    own = unrolled_tile(state, stage_id)
    if own is None or not own.lengths or not _ends_products(state, stage_id):
        return
    loops = state.stages[stage_id].iterators
    for number in range(min(min(own.lengths) + 1, len(loops) - 1)):
        extent = loops[number].extent
        if not isinstance(extent, int) or extent > own.lengths.get(number, 1):
            yield number


def _ends_products(state: State, stage_id: int) -> bool:
    """Whether a stage is an output made by transforms alone of what reuses its inputs, as products do."""
    opened: list[Operation] = [state.stages[stage_id].op] if state.is_output(stage_id) else []
    while opened:
        for read in state.access.producers(opened.pop()):
            stage = state.stage_id(read)
            if only_consumer(state, stage) is None:
                continue
            if needs_tiling(state, stage):
                return True
            own = unrolled_tile(state, stage)
            if own is not None and own.lengths:
                opened.append(read)
    return False


def block_of(state: State, stage_id: int) -> tuple[int, int] | None:
    """The stage and its loop over blocks that a stage belongs in; None for other stages.

    There belong products that a transform reads, and of what these read the tiles: what all lanes of their
    last axis share.
    """
    consumer = only_consumer(state, stage_id)
    if consumer is None:
        return None
    if needs_tiling(state, stage_id):
        if unrolled_tile(state, consumer) is None:
            return None
        root = root_of(state, consumer)
        at = _loop_over_blocks(state, root)
        return None if at is None else (root, at)
    place = state.attach.get(consumer)
    if place is None or place[1] != _loop_over_blocks(state, place[0]):
        return None
    lanes = state.stages[consumer].compute.axis[-1]
    return None if any(lanes in axes for axes in axes_of_reads(state, stage_id, consumer)) else place


def _loop_over_blocks(state: State, stage_id: int) -> int | None:
    """Position of the loop over blocks of a last transform, the outer one of two along an axis."""
    first = first_of_tile(state, stage_id)
    if not first:
        return None
    stage = state.stages[stage_id]
    axes = {axis.name for axis in stage.compute.axis}
    outer = [made_from(stage, loop.name) & axes for loop in stage.iterators[:first]]
    return next((at for at, (one, other) in enumerate(pairwise(outer)) if one == other), None)
