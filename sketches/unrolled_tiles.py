"""Transforms of small tiles: the stages of Winograd convolution before and after its products.

Each value of such a stage is a sum of a few values of its producer, which ones and with what factors depends
on the place in a tile of a few elements. Its operation says so, `attrs={"unrolled_tiles": {"e": 6, "v": 6}}`:
the tile's axes and lengths. Those that its conditions are on are unrolled, all of them if none is: then every
condition is a number and every factor a constant; zeros are not even there. The others stay loops, as their
elements are computed by the same code: six times less of it for each half of F(4 x 4)'s transforms. The last
axis, along the memory, stays innermost and becomes vectors; here the conditions are on `v`:

    p  c.0  [e  unroll v]  c.1

A producer of such a stage that is itself one computes no more than that tile, just outside of its loops.
Nothing else is tried, so that the search is about the products. A stage with `{}` has no tile of its
own and does the same: it gathers what a tile needs.

What alone uses the values of a transform, one for each of its own, as an activation behind a convolution
does, has the tile of that transform, which is inlined into it: the values never see memory.

Source: Lavin and Gray, 2016, for the transforms. TVM unrolls them with the vectors outside
(`SimplifyComputeWithConstTensor`) and draws their places at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ansor.schedule.access import AccessAnalysis, named_tile
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.te.expr import Select, distinct_nodes, free_vars
from ansor.te.tensor import ComputeOp, Operation
from sketches.relations import is_computed
from sketches.rule import SketchContext, Successor, Verdict


class UnrolledTiles:
    """A transform -> its tile unrolled around vectors, inside that of its consumer; or inlined into it."""

    name = "UnrolledTiles"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        untouched = is_computed(state, stage_id) and not state.stages[stage_id].relations
        fits = untouched and unrolled_tile(state, stage_id) is not None
        return Verdict.APPLY_AND_SKIP_REST if fits else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        tile = unrolled_tile(state, stage_id)
        assert tile is not None
        if _passes_on(state, stage_id):
            return [(state.compute_inline(stage_id), stage_id - 1)]
        place = _place(state, stage_id)
        loops = state.stages[stage_id].iterators
        outer: list[int] = []
        kept: list[int] = []
        unrolled: list[int] = []
        inner: list[int] = []
        position = 0
        for number, loop in enumerate(loops):
            if number in tile.lengths:
                if loop.extent != tile.lengths[number]:
                    state = state.split(stage_id, position, (tile.lengths[number],))
                    outer.append(position)
                    position += 1
                if number in tile.unrolled:
                    state = state.annotate(stage_id, position, Annotation.UNROLL)
                    unrolled.append(position)
                else:
                    kept.append(position)
            elif number < len(loops) - 1:
                outer.append(position)
            else:
                if place is None:
                    state = state.split(stage_id, position, (None,))
                    outer.append(position)
                    position += 1
                inner.append(position)
            position += 1
        state = state.reorder(stage_id, [*outer, *kept, *unrolled, *inner])
        if place is not None:
            state = state.compute_at(stage_id, *place)
        return [(state, stage_id - 1)]


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of a transform: its lengths by positions of axes, and which of these are unrolled."""

    lengths: Mapping[int, int]
    unrolled: frozenset[int]


def unrolled_tile(state: State, stage_id: int) -> Tile | None:
    """The tile of a transform; None for other stages."""
    return _tiles(state.access).get(state.stages[stage_id].op)


@lru_cache(maxsize=256)
def _tiles(access: AccessAnalysis) -> Mapping[Operation, Tile]:
    """Operation -> the tile that its author names, or that of what it alone reads element by element."""
    tiles: dict[Operation, Tile] = {}
    for op in access.ops:
        lengths = named_tile(op)
        if not isinstance(op, ComputeOp):
            continue
        if lengths is not None:
            tiles[op] = Tile(lengths, _deciding(op) & lengths.keys() or frozenset(lengths))
        elif not op.reduce_axis:
            read = (one for one in access.producers(op) if one in tiles and tiles[one].lengths)
            first = next((one for one in read if access.elementwise_match(one, op)), None)
            if first is not None:
                tiles[op] = tiles[first]
    return tiles


def _deciding(op: ComputeOp) -> frozenset[int]:
    """Positions of the axes that decide which of several sums an element is."""
    conditions = [node.cond for root in op.body for node in distinct_nodes(root) if isinstance(node, Select)]
    deciding = {var for condition in conditions for var in free_vars(condition)}
    return frozenset(number for number, axis in enumerate(op.axis) if axis in deciding)


def _passes_on(state: State, stage_id: int) -> bool:
    """Whether a transform's values are used by one other of the same tile only, each for one of its own."""
    consumers = state.consumers(stage_id)
    if len(consumers) != 1 or state.is_output(stage_id):
        return False
    (consumer,) = consumers
    same = unrolled_tile(state, stage_id) == unrolled_tile(state, consumer)
    return same and state.access.elementwise_match(state.stages[stage_id].op, state.stages[consumer].op)


def _place(state: State, stage_id: int) -> tuple[int, int] | None:
    """The only consumer and its loop just outside its tile; None if it is no transform."""
    consumers = state.consumers(stage_id)
    if len(consumers) != 1 or state.is_output(stage_id):
        return None
    (consumer,) = consumers
    tile = unrolled_tile(state, consumer)
    if tile is None or not tile.lengths:
        return None
    within = len({*tile.lengths, len(state.stages[consumer].compute.axis) - 1})
    first = len(state.stages[consumer].iterators) - within
    return (consumer, first - 1) if first else None
