"""Inlining: a stage that is cheap to recompute disappears into its consumers."""

from __future__ import annotations

from collections.abc import Sequence

from ansor.schedule.state import State
from sketches.relations import has_reduce_iterator, is_converted
from sketches.rule import SketchContext, Successor, Verdict


def is_always_inlineable(context: SketchContext, state: State, stage_id: int) -> bool:
    """Whether a computed stage can only gain by being inlined.

    On a CPU a stage with a branch, an expensive call or a transposed read keeps its loops, because it may
    be worth storing; on a GPU recomputing is always cheaper than memory. What has been converted is stored.
    """
    stage = state.stages[stage_id]
    if stage.is_placeholder or state.is_output(stage_id) or has_reduce_iterator(state, stage_id):
        return False
    if is_converted(state, stage_id):
        return False
    return context.is_gpu or state.access.is_strictly_inlineable(stage.op)


class AlwaysInline:
    """A cheap stage that reads in order and is no output -> it is inlined. Source: rule 2 of the paper."""

    name = "AlwaysInline"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        inline = is_always_inlineable(context, state, stage_id)
        return Verdict.APPLY_AND_SKIP_REST if inline else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state.compute_inline(stage_id), stage_id - 1)]
