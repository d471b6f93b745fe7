"""Sums of many rows: parallel parts of the rows, each summed in vectors of columns.

Gradients of a bias and the statistics of a batch norm are such sums. `WindowTiling` divides the columns among
the cores, which then read short pieces of every row, and leaves cores idle where there are few columns;
`AddRfactor` takes the columns one by one. Here each core reads whole rows, one after the other:

    parallel k.0:  for c.0:  for k.1 k.2:  vectorize c.1:  S.rf[k.0, c] += ...
    for k.0:  vectorize c:  S[c] += S.rf[k.0, c]

Source: rule 6 of the paper, the new axis outside of the columns. Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansor.schedule.state import State
from ansor.te.expr import free_vars, int_value
from ansor.te.tensor import ComputeOp
from sketches.relations import plain_operation
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.rfactor import TASKS_PER_CORE, fuse_reduction, reduction_of_one_loop
from sketches.rules.rfactor_lanes import elements_of_vector


class AddRfactorColumns:
    """A sum of more rows than it has results, a vector of columns at least -> parts of the rows, merged."""

    name = "AddRfactorColumns"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        op, products = plain_operation(state, stage_id), reduction_of_one_loop(context, state, stage_id)
        if op is None or products is None or not op.axis or not _reads_rows(state, op):
            return Verdict.PASS
        results, terms = products
        wide = (int_value(op.axis[-1].extent) or 0) >= elements_of_vector(context)
        long = terms >= max(results, TASKS_PER_CORE * context.hardware.num_cores)
        return Verdict.APPLY if wide and long else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        fused, spatial = fuse_reduction(state, stage_id)
        split = fused.split(stage_id, spatial, (1, 1))
        parts = split.rfactor(stage_id, spatial, 0)
        columns = spatial  # Of the factored stage, whose first axis is the part.
        tiled = parts.split(stage_id, columns, (None,))
        outer, inner, serial = [*range(columns + 1)], columns + 1, [columns + 2, columns + 3]
        made = tiled.reorder(stage_id, [*outer, *serial, inner])
        merge = stage_id + 1
        made = made.reorder(merge, [*range(spatial - 1), spatial, spatial - 1])
        return [(made, stage_id - 1)]


def _reads_rows(state: State, op: ComputeOp) -> bool:
    """Whether what is summed is read along the last axis of the results, terms lying further apart."""
    columns, terms = op.axis[-1], set(op.reduce_axis)
    reads = [indices for accesses in state.access.reads(op).values() for indices in accesses if indices]
    return any(
        columns in free_vars(indices[-1])
        and terms.isdisjoint(free_vars(indices[-1]))
        and any(terms & free_vars(index) for index in indices)
        for indices in reads
    )
