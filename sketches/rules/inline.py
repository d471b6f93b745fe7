"""Inlining: a stage that is cheap to recompute, or is not recomputed, disappears into its consumers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from ansor.schedule.access import constant_extents, named_tile, reads_own_element, same_shape
from ansor.schedule.inlining import effective_reads, inlined_operations
from ansor.schedule.state import State
from ansor.te.expr import Read
from ansor.te.tensor import ComputeOp
from sketches.relations import has_reduce_iterator, is_converted, is_copy, only_consumer, plain_operation
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
    return sum(len(_reads_by(state, stage_id, consumer)) for consumer in state.consumers(stage_id))


def _reads_by(state: State, stage_id: int, consumer: int) -> list[Read]:
    """Where a consumer reads a stage, through what is inlined into it already."""
    outputs, op = state.stages[stage_id].op.outputs, state.stages[consumer].op
    if not isinstance(op, ComputeOp):
        return []
    return [read for read in effective_reads(op, inlined_operations(state)) if read.tensor in outputs]


def is_used_once(context: SketchContext, state: State, stage_id: int) -> bool:
    """
    Whether inlining a computed stage repeats no work, whatever it computes.

    One other stage without a reduction reads it, at one place, and has no more elements. Copies of tiles
    are filled more than once, and what a stencil reads may be computed more than once.
    """
    op, consumer = plain_operation(state, stage_id), only_consumer(state, stage_id)
    if not context.params.cpu_inline_used_once or op is None or op.reduce_axis or consumer is None:
        return False
    reader = state.stages[consumer].op
    if not isinstance(reader, ComputeOp) or reader.reduce_axis or named_tile(reader) is not None:
        return False
    if is_converted(state, stage_id) or is_copy(state, consumer) or state.access.is_read_around(reader):
        return False
    if len(_reads_by(state, stage_id, consumer)) != 1:
        return False
    own, its = constant_extents(op.axis), constant_extents(reader.axis)
    return own is not None and its is not None and prod(its) <= prod(own)


def will_be_inlined(context: SketchContext, state: State, stage_id: int) -> bool:
    """Whether the rules to come leave a stage no loops of its own."""
    return is_always_inlineable(context, state, stage_id) or is_used_once(context, state, stage_id)


class AlwaysInline:
    """A cheap stage that reads in order and is no output -> it is inlined. Source: rule 2 of the paper."""

    name = "AlwaysInline"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        inline = is_always_inlineable(context, state, stage_id)
        return Verdict.APPLY_AND_SKIP_REST if inline else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state.compute_inline(stage_id), stage_id - 1)]


class InlineUsedOnce:
    """
    A stage with a branch, a call or a transposed read, used once -> it is inlined, else also kept.

    It is only inlined where the stage that reads it does so element by element, and has no tiles, with which
    a product before it could not share its own. TVM keeps all of these stages: a product in front of an
    activation in a stage of its own is fused with that, and not with what follows. Not in TVM.
    """

    name = "InlineUsedOnce"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if not is_used_once(context, state, stage_id) or is_always_inlineable(context, state, stage_id):
            return Verdict.PASS
        consumer = only_consumer(state, stage_id)
        assert consumer is not None
        reader, (read,) = state.stages[consumer].op, _reads_by(state, stage_id, consumer)
        assert isinstance(reader, ComputeOp)
        in_step = reads_own_element(reader, read) and same_shape(read.tensor.shape, reader.output(0).shape)
        reads_sums = any(has_reduce_iterator(state, one) for one in state.direct_producers(stage_id))
        leaves_tiles = reads_sums and state.stages[consumer].relations
        return Verdict.APPLY_AND_SKIP_REST if in_step and not leaves_tiles else Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state.compute_inline(stage_id), stage_id - 1)]
