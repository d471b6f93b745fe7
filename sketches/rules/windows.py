"""Windows: reductions without reuse whose spatial axes run along the memory that they read.

Pooling reads each element for a few outputs, a column sum for one. TVM takes neither for tiling, so
the reduction stays innermost and no vector is possible. Tiled as "SRS", outputs that are neighbours in memory
lie inside the reduction: they become vectors, several of them, which lowering keeps in registers:

    n.0 h.0 w.0 c.0  rh rw  n.1 h.1 w.1 c.1

Tiles of one iteration are the loops as written. So nothing else is tried for an output, or inside its tiles,
unless there are so few results that the reduction might rather be factored.

Source: rules 3 and 4 of the paper, applied to what its condition of reuse leaves out. Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ansor.schedule.stages import IteratorKind
from ansor.schedule.state import State
from ansor.te.expr import free_vars, int_value
from ansor.te.tensor import ComputeOp
from sketches.relations import elementwise_consumer, extents_product, plain_operation
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.rfactor_lanes import vectors_for_all_tasks
from sketches.rules.tiling import follow_tiling, tile

STRUCTURE: Final = "SRS"
FOLLOW_LEVEL: Final = 1


def runs_along_memory(state: State, op: ComputeOp) -> bool:
    """Whether some read of what is reduced has a spatial axis longer than 1 in its last index."""
    wide, terms = {axis for axis in op.axis if int_value(axis.extent) != 1}, set(op.reduce_axis)
    return any(
        not wide.isdisjoint(free_vars(indices[-1])) and any(terms & free_vars(index) for index in indices)
        for accesses in state.access.reads(op).values()
        for indices in accesses
        if indices
    )


class WindowTiling:
    """A reduction without reuse that reads along a spatial axis -> tiled, inside its elementwise consumer."""

    name = "WindowTiling"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        op = plain_operation(state, stage_id)
        if op is None or not op.reduce_axis or any(int_value(axis.extent) is None for axis in op.axis):
            return Verdict.PASS
        if not runs_along_memory(state, op):
            return Verdict.PASS
        last = stage_id if (consumer := self._follower(state, stage_id)) is None else consumer
        products = extents_product(state, stage_id)
        enough = vectors_for_all_tasks(context)
        only = state.is_output(last) and products is not None and products[0] >= enough
        return Verdict.APPLY_AND_SKIP_REST if only else Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        tiled, splits = tile(state, stage_id, STRUCTURE)
        consumer = self._follower(state, stage_id)
        if consumer is None:
            return [(tiled, stage_id - 1)]
        fused = follow_tiling(tiled, consumer, splits, FOLLOW_LEVEL)
        return [(fused.compute_at(stage_id, consumer, FOLLOW_LEVEL * len(splits) - 1), stage_id - 1)]

    @staticmethod
    def _follower(state: State, stage_id: int) -> int | None:
        """The consumer that can share the tiles: elementwise, with as many loops."""
        consumer = elementwise_consumer(state, stage_id)
        if consumer is None:
            return None
        spatial = [x for x in state.stages[stage_id].iterators if x.kind is IteratorKind.SPATIAL]
        return consumer if len(state.stages[consumer].iterators) == len(spatial) else None
