"""Reductions to a few values: parallel parts, each summed in the lanes of vectors.

`AddRfactor` factors one part of a reduction out: the outer one can be parallel and is then scalar, the inner
one can be a vector and is then serial. A norm of a whole matrix wants both:

    parallel k.0:  for k.1:  vectorize k.2:  S.rf.rf[k.0, k.2] += ...
    for k.0:  vectorize k.2:  S.rf[k.2] += S.rf.rf[k.0, k.2]
    for k.2:  S += S.rf[k.2]

The lanes are factored out first, so the parts are merged as vectors; lanes beyond one vector are more
accumulators.

Source: rule 6 of the paper, applied twice. Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ansor.schedule.state import State
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.rfactor import TASKS_PER_CORE, fuse_reduction, reduction_in_parts

BYTES_PER_LANE: Final = 4


def elements_of_vector(context: SketchContext) -> int:
    """Elements of a vector of float32."""
    return max(1, context.hardware.vector_unit_bytes // BYTES_PER_LANE)


def vectors_for_all_tasks(context: SketchContext) -> int:
    """Elements that give every task of a well divided parallel loop a whole vector."""
    return TASKS_PER_CORE * context.hardware.num_cores * elements_of_vector(context)


class AddRfactorLanes:
    """Too few results to keep all cores busy, a vector of terms for each task -> parts, and lanes in each."""

    name = "AddRfactorLanes"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        products = reduction_in_parts(context, state, stage_id)
        if products is None:
            return Verdict.PASS
        results, terms = products
        few = results <= TASKS_PER_CORE * context.hardware.num_cores
        return Verdict.APPLY if few and terms >= vectors_for_all_tasks(context) else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        fused, spatial = fuse_reduction(state, stage_id)
        split = fused.split(stage_id, spatial, (1, 1))
        lanes = split.rfactor(stage_id, spatial + 2, spatial)
        parts = lanes.rfactor(stage_id, spatial + 1, spatial)
        outer = [*range(spatial), spatial]
        lane, serial = spatial + 1, spatial + 2
        made = parts.reorder(stage_id, [*outer, serial, lane])
        merge = stage_id + 1
        made = made.reorder(merge, [*range(spatial), spatial + 1, spatial])
        return [(made, stage_id - 1)]
