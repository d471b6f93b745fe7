"""The step that asks memory for the next iteration's inputs.

A row that is passed over several times, as softmax passes over its maximum, its exponentials and their sum,
comes from memory in the first pass; the processor waits there, and memory waits while it computes the rest.
Asked for while the row before it is computed, the row is in the second cache by the time it is wanted.

What a program computes does not depend on it. Not in TVM's records; TVM's `te` had a primitive of this name,
which asks for a tensor at a loop so many iterations ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ansor.schedule.inlining import effective_reads, inlined_operations
from ansor.schedule.stages import ComputeAt
from ansor.schedule.step_base import Step, refuse, stage_at
from ansor.te.tensor import PlaceholderOp, Tensor

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class PrefetchStep(Step):
    """Ask for what a stage reads of the graph's inputs, an iteration ahead of the loop it is computed at."""

    code: ClassVar[str] = "PF"
    in_reference: ClassVar[bool] = False
    stage: int

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "prefetch")
        reason = why_not_prefetch(state, self.stage)
        if reason:
            raise refuse(stage, f"prefetch of stage {stage.name!r}: {reason}")
        return state.with_stage(self.stage, replace(stage, prefetch=True))


def why_not_prefetch(state: State, stage_id: int) -> str:
    """Say why a computed stage cannot ask for its inputs ahead; empty if it can."""
    stage = state.stages[stage_id]
    if stage.compute_at is not ComputeAt.ITER:
        return "there is no loop around it, whose next iteration would be asked for; compute_at it first"
    if stage.combiner is not None:
        return "it is a reduction; only stages that compute each element once ask ahead"
    if not inputs_read(state, stage_id):
        return "it reads no input of the graph"
    return ""


def inputs_read(state: State, stage_id: int) -> frozenset[Tensor]:
    """The graph's inputs that a computed stage reads, itself or through inlined ones."""
    reads = effective_reads(state.stages[stage_id].compute, inlined_operations(state))
    return frozenset(read.tensor for read in reads if isinstance(read.tensor.op, PlaceholderOp))
