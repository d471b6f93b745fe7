"""Streams: stages that use every element once, walked so that vectors are whole and cache lines are used up.

TVM leaves such a stage as it was written. That is right where its last axis is long and every read
runs along it. Two kinds do better:

- The last axis is short, as the channels of an interleaved image: a vector of 3 of 16 lanes. The loop before
  it becomes the vector, and the short one is unrolled just outside: `y x.0 c x.1`. Loads and stores at a
  small constant stride are shuffles of whole lines. Where all reads run alike, the two loops may also be one
  vector, `y x.0 (x.1 c)`: its loads and stores are contiguous.
- Some read runs along another axis than the stores, as in a transpose: both axes are tiled,
  `i.0 j.0 i.1 j.1`, so that the lines which a tile reads are still in the cache when their next elements are
  due.

Tiles of one iteration are the loops as written, so nothing else is tried. Left alone is what reads a
reduction: that may want the tiles of its consumer for itself. A stage that others read may also be moved into
them, which tiles prevent: of such stages, transposes alone are tiled, if reductions use an element several
times, themselves or from packed copies; if they use it often, nothing else is tried. Where rows lie a power
of two apart, those that a vector of a transpose is gathered from share a cache set: they evict each other
before their next elements are due.

Source: blocked transposition is textbook (e.g. Lam, Rothberg and Wolf, 1991). Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from ansor.schedule.places import NO_AXIS
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.te.expr import free_vars, int_value
from ansor.te.tensor import ComputeOp
from sketches.places import places_read
from sketches.relations import has_reduce_iterator, plain_operation
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.inline import will_be_inlined
from sketches.rules.recompute import MANY, SOME, uses_per_element

LONGEST_SHORT_AXIS: Final = 4
"""An axis of so many iterations at most is unrolled rather than vectorised."""


class StreamTiles(NamedTuple):
    """Positions of the axes that become the vector, are tiled beside it, and are unrolled around it."""

    vector: int
    tiled: tuple[int, ...]
    unrolled: tuple[int, ...]


def stream_tiles(context: SketchContext, state: State, stage_id: int) -> StreamTiles | None:
    """Choose the tiles of an untransformed stage without reduction or reuse; None if it is well as it is."""
    op = plain_operation(state, stage_id)
    if op is None or has_reduce_iterator(state, stage_id) or _reads_reduction(context, state, stage_id):
        return None
    extents = [int_value(axis.extent) for axis in op.axis]
    wide = [at for at, extent in enumerate(extents) if extent is not None and extent > 1]
    long = [at for at in wide if extents[at] > LONGEST_SHORT_AXIS]  # type: ignore[operator]
    if None in extents or not long:
        return None
    vector = long[-1]
    unrolled = tuple(at for at in wide if at > vector)
    turned = _turned_axes(context, state, stage_id, vector) - {vector, *unrolled}
    tiled = tuple(at for at in long if at in turned)
    if not tiled and not (unrolled and state.is_output(stage_id)):
        return None
    return StreamTiles(vector, tiled, unrolled)


def _reads_reduction(context: SketchContext, state: State, stage_id: int) -> bool:
    """Whether a stage reads results of a reduction in the order of its own, and so may share its tiles.

    What will be inlined between the two does not count.
    """
    own, pending, seen = state.stages[stage_id].op, [stage_id], {stage_id}
    while pending:
        for producer in state.direct_producers(pending.pop()) - seen:
            seen.add(producer)
            op = state.stages[producer].op
            if isinstance(op, ComputeOp) and op.reduce_axis and state.access.elementwise_match(op, own):
                return True
            if will_be_inlined(context, state, producer):
                pending.append(producer)
    return False


def _turned_axes(context: SketchContext, state: State, stage_id: int, vector: int) -> set[int]:
    """
    Axes, by position, that some read runs along, having them in its last index, and not along the vector.

    It has the vector in another index: of one that does not have it, a scale of each row, say, one element
    is all that a row reads. Reads of stages that will be inlined count.
    """
    op, found = state.stages[stage_id].op, set[int]()
    assert isinstance(op, ComputeOp)
    for accesses in state.access.reads(op).values():
        for *outer, last in filter(None, accesses):
            if any(op.axis[vector] in free_vars(index) for index in outer):
                used = free_vars(last)
                found |= {at for at, axis in enumerate(op.axis) if axis in used}
    for _, places in places_read(state, stage_id, partial(will_be_inlined, context, state)):
        for *around, (along, _, _) in filter(None, places):
            if along != NO_AXIS and vector in (axis for axis, _, _ in around):
                found.add(along)
    return found


def runs_in_order(state: State, op: ComputeOp) -> bool:
    """Whether every read is of the element that is stored, up to constant shifts."""
    return all(pattern is not None and pattern.is_elementwise for pattern in state.access.patterns(op))


class StreamTiling:
    """An output with a short last axis, or a stage that reads across -> vectors along a long axis, tiles."""

    name = "StreamTiling"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        output = state.is_output(stage_id)
        uses = MANY if output else uses_per_element(state, stage_id, of_copies=True)
        if uses < SOME or stream_tiles(context, state, stage_id) is None:
            return Verdict.PASS
        return Verdict.APPLY if uses < MANY else Verdict.APPLY_AND_SKIP_REST

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        tiles, op = stream_tiles(context, state, stage_id), state.stages[stage_id].op
        assert tiles is not None
        assert isinstance(op, ComputeOp)
        results: list[Successor] = [(self._around(state, stage_id, tiles), stage_id - 1)]
        if tiles.unrolled and not tiles.tiled and runs_in_order(state, op):
            results.append((self._within(state, stage_id, tiles), stage_id - 1))
        return results

    @staticmethod
    def _around(state: State, stage_id: int, tiles: StreamTiles) -> State:
        """Tile, with the short loops unrolled around the vector."""
        outer: list[int] = []
        inner: list[int] = []
        unrolled: list[int] = []
        vector = position = 0
        for axis in range(len(state.stages[stage_id].iterators)):
            if axis in tiles.unrolled:
                state = state.annotate(stage_id, position, Annotation.UNROLL)
                unrolled.append(position)
            else:
                outer.append(position)
            if axis == tiles.vector or axis in tiles.tiled:
                state = state.split(stage_id, position, (None,))
                position += 1
                if axis == tiles.vector:
                    vector = position
                else:
                    inner.append(position)
            position += 1
        return state.reorder(stage_id, [*outer, *inner, *unrolled, vector])

    @staticmethod
    def _within(state: State, stage_id: int, tiles: StreamTiles) -> State:
        """Make one vector of a part of the long loop and everything inside it."""
        state = state.split(stage_id, tiles.vector, (None,))
        lanes = range(tiles.vector + 1, len(state.stages[stage_id].iterators))
        return state.fuse(stage_id, lanes).annotate(stage_id, lanes.start, Annotation.VECTORIZE)
