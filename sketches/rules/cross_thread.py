"""Reductions shared by the threads of a GPU block."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ansor.schedule.access import constant_extents
from ansor.schedule.stages import Annotation, SplitRelation
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep
from ansor.te.tensor import ComputeOp
from sketches.relations import (
    has_reduce_iterator,
    needs_tiling,
    single_consumer,
    split_steps,
)
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.rfactor import fuse_reduction, reduction_of_one_loop


class Host(NamedTuple):
    """
    A consumer to reduce inside of.

    Attributes
    ----------
    consumer
        Its stage.
    common
        The number of outer loops shared with it.
    has_block_for_each
        Whether each result is reduced by a block of its own: not where the loop that threads share runs over
        results, nor where loops inside of it do.
    """

    consumer: int
    common: int
    has_block_for_each: bool


class CrossThreadReduction:
    """A long reduction with few results -> its innermost part runs over the threads of a block.

    If all results go to one elementwise-like consumer and nowhere else, the reduction moves inside its outer
    loops and follows its split over threads, so that both share a block. Where a block would then reduce
    several results, one after the other, a second sketch reduces each in a block of its own, in a kernel of
    its own (`gpu_reduction_kernels`; not in TVM).
    """

    name = "CrossThreadReduction"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        products = reduction_of_one_loop(context, state, stage_id)
        if products is None:
            return Verdict.PASS
        spatial, reduction = products
        if needs_tiling(state, stage_id):
            fits = spatial <= context.hardware.limits.max_threads_per_block and spatial < reduction
        else:
            fits = reduction > max(1, context.hardware.warp_size)
        return Verdict.APPLY if fits else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        host = host_of(state, stage_id)
        apart = host is not None and not host.has_block_for_each and context.params.gpu_reduction_kernels
        places = [host, None] if apart else [host]
        return [(reduce_over_threads(context, state, stage_id, place), stage_id - 1) for place in places]


def reduce_over_threads(context: SketchContext, state: State, stage_id: int, host: Host | None) -> State:
    """Let the innermost part of an untouched stage's reduction run over the threads of a block."""
    warp = max(1, context.hardware.warp_size)
    state, position = fuse_reduction(state, stage_id)
    if host is None:
        state = state.split(stage_id, position, (warp,))
        return state.annotate(stage_id, position + 1, Annotation.THREAD_X)
    consumer, common = host.consumer, host.common
    steps = split_steps(state, consumer)
    if not steps:
        last = len(state.stages[consumer].iterators) - 1
        steps = (len(state.steps),)
        state = state.split(consumer, last, (warp,))
        state = state.annotate(consumer, last + 1, Annotation.THREAD_X)
    state = state.follow_split(stage_id, position, steps[0], 1)
    state = state.annotate(stage_id, position + 1, Annotation.THREAD_X)
    return state.compute_at(stage_id, consumer, common - 1)


def host_of(state: State, stage_id: int) -> Host | None:
    """The consumer that a reduction may move into; None if there is none.

    It must be untouched and without reduction, or split once by one length; and no part of a tile.
    """
    consumer = single_consumer(state, stage_id)
    if consumer is None or state.is_output(stage_id) or needs_tiling(state, consumer):
        return None
    target, op = state.stages[consumer], state.stages[stage_id].compute
    if consumer in state.attach:
        return None
    common = state.access.num_common_outer_iterators(target.op, op)
    if common == 0:
        return None
    host = Host(consumer, common, _has_block_for_each(op, target.compute, common))
    if target.relations:
        steps = [state.steps[at] for at in split_steps(state, consumer)]
        once = len(steps) == 1 and len(target.relations) == 1
        plain = once and isinstance(steps[0], SplitStep) and len(steps[0].lengths) == 1
        return host if plain and isinstance(target.relations[0], SplitRelation) else None
    return None if has_reduce_iterator(state, consumer) else host


def _has_block_for_each(op: ComputeOp, consumer: ComputeOp, common: int) -> bool:
    """Whether there are as many iterations around a consumer's threads, with its last loop, as results."""
    around = consumer.axis[: min(common, len(consumer.axis) - 1)]
    results, blocks = constant_extents(op.axis), constant_extents(around)
    if results is None or blocks is None:
        return len(op.axis) == len(around)
    return prod(results) <= prod(blocks)
