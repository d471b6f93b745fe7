"""Inlining: a stage that is cheap to recompute disappears into its consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ansor.schedule.inlining import effective_reads, inlined_operations
from ansor.schedule.state import State
from ansor.te.tensor import ComputeOp
from sketches.relations import has_reduce_iterator, is_converted
from sketches.rule import SketchContext, Successor, Verdict

MOST_READS: Final = 64
"""A chain of stages that each read the one before twice would become 2, 4, 8, ... reads of the first."""


def is_always_inlineable(context: SketchContext, state: State, stage_id: int) -> bool:
    """Whether a computed stage can only gain by being inlined.

    On a CPU a stage with a branch, an expensive call or a transposed read keeps its loops, because it may
    be worth storing; on a GPU recomputing is cheaper than memory, if it is not done at more than `MOST_READS`
    places. What has been converted is stored.
    """
    stage = state.stages[stage_id]
    if stage.is_placeholder or state.is_output(stage_id) or has_reduce_iterator(state, stage_id):
        return False
    if is_converted(state, stage_id):
        return False
    if not context.is_gpu and not state.access.is_strictly_inlineable(stage.op):
        return False
    return reads_of(state, stage_id) <= MOST_READS


def reads_of(state: State, stage_id: int) -> int:
    """At how many places its consumers read a stage, with what is inlined into them already."""
    outputs, inlined = state.stages[stage_id].op.outputs, inlined_operations(state)
    consumers = [state.stages[consumer].op for consumer in state.consumers(stage_id)]
    return sum(
        read.tensor in outputs
        for consumer in consumers
        if isinstance(consumer, ComputeOp)
        for read in effective_reads(consumer, inlined)
    )


class AlwaysInline:
    """A cheap stage that reads in order and is no output -> it is inlined. Source: rule 2 of the paper."""

    name = "AlwaysInline"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        inline = is_always_inlineable(context, state, stage_id)
        return Verdict.APPLY_AND_SKIP_REST if inline else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state.compute_inline(stage_id), stage_id - 1)]
