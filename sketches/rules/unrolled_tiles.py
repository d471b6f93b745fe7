"""Transforms of small tiles: the stages of Winograd convolution before and after its products.

Each value of such a stage is a sum of a few values of its producer, which ones and with what factors depends
on the place in a tile of a few elements. Its operation says so, `attrs={"unrolled_tiles": {"e": 6, "v": 6}}`:
the tile's axes and lengths. Those that its conditions are on are unrolled, all of them if none is: then every
condition is a number and every factor a constant; zeros are not even there. The others stay loops, as their
elements are computed by the same code: six times less of it for each half of F(4 x 4)'s transforms. The last
axis, along the memory, stays innermost and becomes vectors; here the conditions are on `v`:

    p  c.0  [e  unroll v]  c.1

A producer of such a stage that is itself one computes no more than that tile, just outside of its loops. A
stage with `{}` has no tile of its own and does the same: it gathers what a tile needs. Nothing else is tried,
so that the search is about the products, but for where these are: in a pass of their own, or in blocks of
tiles (`tile_blocks`).

What alone uses the values of a transform, one for each of its own, as an activation behind a convolution
does, has the tile of that transform, which is inlined into it: the values never see memory.

Source: Lavin and Gray, 2016, for the transforms. TVM unrolls them with the vectors outside
(`SimplifyComputeWithConstTensor`) and draws their places at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from sketches.relations import is_computed, only_consumer
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.tile_blocks import axes_for_blocks, block_of
from sketches.rules.tiling import can_tile, tile
from sketches.small_tiles import Tile, first_of_tile, unrolled_tile


@dataclass(frozen=True)
class UnrolledTiles:
    """A transform -> its tile unrolled around vectors, inside that of its consumer; or inlined into it.

    Parameters
    ----------
    blocks
        Whether the last transform has variants with blocks of tiles; what its products read is there, too.
    """

    blocks: bool = True
    name: ClassVar[str] = "UnrolledTiles"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if not is_computed(state, stage_id) or state.stages[stage_id].relations:
            return Verdict.PASS
        fits = unrolled_tile(state, stage_id) is not None or _is_blocked(context, state, stage_id)
        return Verdict.APPLY_AND_SKIP_REST if fits else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        own = unrolled_tile(state, stage_id)
        if own is None:
            block = block_of(state, stage_id)
            assert block is not None
            tiled, _ = tile(state, stage_id, context.tiling_structure)
            return [(tiled.compute_at(stage_id, *block), stage_id - 1)]
        if _passes_on(state, stage_id):
            return [(state.compute_inline(stage_id), stage_id - 1)]
        place = _place(state, stage_id)
        tiled = _tiled(state, stage_id, own, whole=place is not None)
        inside = place or block_of(state, stage_id)
        if inside is not None:
            return [(tiled.compute_at(stage_id, *inside), stage_id - 1)]
        cut = axes_for_blocks(state, stage_id) if self.blocks else ()
        return [
            (one, stage_id - 1) for one in (tiled, *(tiled.split(stage_id, axis, (None,)) for axis in cut))
        ]


def _is_blocked(context: SketchContext, state: State, stage_id: int) -> bool:
    """Whether a stage belongs in blocks of tiles, products among them."""
    return can_tile(context, state, stage_id) and block_of(state, stage_id) is not None


def _tiled(state: State, stage_id: int, own: Tile, whole: bool) -> State:
    """A transform with its tile around vectors; the last axis stays `whole`, or is split around the tile."""
    loops = state.stages[stage_id].iterators
    outer: list[int] = []
    kept: list[int] = []
    unrolled: list[int] = []
    inner: list[int] = []
    position = 0
    for number, loop in enumerate(loops):
        if number in own.lengths:
            if loop.extent != own.lengths[number]:
                state = state.split(stage_id, position, (own.lengths[number],))
                outer.append(position)
                position += 1
            if number in own.unrolled:
                state = state.annotate(stage_id, position, Annotation.UNROLL)
                unrolled.append(position)
            else:
                kept.append(position)
        elif number < len(loops) - 1:
            outer.append(position)
        else:
            if not whole:
                state = state.split(stage_id, position, (None,))
                outer.append(position)
                position += 1
            inner.append(position)
        position += 1
    return state.reorder(stage_id, [*outer, *kept, *unrolled, *inner])


def _passes_on(state: State, stage_id: int) -> bool:
    """Whether a transform's values are used by one other of the same tile only, each for one of its own."""
    consumer = only_consumer(state, stage_id)
    if consumer is None:
        return False
    same = unrolled_tile(state, stage_id) == unrolled_tile(state, consumer)
    return same and state.access.elementwise_match(state.stages[stage_id].op, state.stages[consumer].op)


def _place(state: State, stage_id: int) -> tuple[int, int] | None:
    """The only consumer and its loop just outside its tile; None if it is no transform."""
    consumer = only_consumer(state, stage_id)
    if consumer is None:
        return None
    first = first_of_tile(state, consumer)
    return (consumer, first - 1) if first else None
