"""Rules for the memory of GPUs: inputs of a tile go through shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from ansor.schedule.access import SIMPLIFY_CONST_ATTR
from ansor.schedule.stages import Annotation, IteratorKind
from ansor.schedule.state import State
from ansor.schedule.steps import CacheReadPartStep
from sketches.relations import attribute_names, axes_of_reads, has_cross_thread_reduction, needs_tiling
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.inline import is_always_inlineable


def shared_place(state: State, consumer: int) -> int | None:
    """Position of the last loop of a tiled stage's outermost reduction level; None without reduction."""
    stage = state.stages[consumer]
    first = next((at for at, x in enumerate(stage.iterators) if x.kind is IteratorKind.REDUCE), None)
    if first is None:
        return None
    last = first
    while (
        last + 1 < len(stage.iterators)
        and last + 1 - first < len(stage.compute.reduce_axis)
        and stage.iterators[last + 1].kind is IteratorKind.REDUCE
    ):
        last += 1
    return last


class AddCacheRead:
    """A stage read by tiled ones -> a copy in shared memory for each of them, filled tile by tile.

    The walk revisits the stage, which then is read by its copies and usually gets inlined into them. What has
    no tiles goes on reading it where it is (TVM looks at the first consumer only). One that reads it along
    different axes, as a product with its own transpose does, has a copy for each way: a single one would hold
    all that lies between. What has several outputs is read where it is, as none of them is copied alone, and
    so is a tensor without axes, of which nothing is fetched together.
    """

    name = "AddCacheRead"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        source = state.stages[stage_id].op
        if source.num_outputs != 1 or not source.output(0).shape:
            return Verdict.PASS
        return Verdict.APPLY_AND_SKIP_REST if _tiled_readers(context, state, stage_id) else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        consumers = _tiled_readers(context, state, stage_id)[::-1]
        while consumers:
            consumer = consumers.pop()
            if len(axes_of_reads(state, stage_id, consumer)) > 1:
                state = state.apply(CacheReadPartStep(stage_id, "shared", (consumer,), 0))
                consumers.append(consumer)
            else:
                state = state.cache_read(stage_id, "shared", [consumer])
            consumers = [one + 1 for one in consumers]
            place = shared_place(state, consumer + 1)
            assert place is not None
            state = state.compute_at(stage_id + 1, consumer + 1, place)
        return [(state, stage_id)]


def _tiled_readers(context: SketchContext, state: State, stage_id: int) -> list[int]:
    """The consumers that have tiles to be filled with what they read of the stage, in order."""
    return [
        consumer
        for consumer in sorted(state.consumers(stage_id))
        if needs_tiling(state, consumer)
        and not has_cross_thread_reduction(state, consumer)
        and stage_id in state.direct_producers(consumer)
        and (context.params.gpu_read_parts or len(axes_of_reads(state, stage_id, consumer)) == 1)
        and shared_place(state, consumer) is not None
    ]


class SpecialComputeLocationGPU:
    """An inlineable stage read by a constant-tensor stage only -> computed outside its unrolled loops."""

    name = "SpecialComputeLocationGPU"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        if not state.producers(stage_id) or not is_always_inlineable(context, state, stage_id):
            return Verdict.PASS
        consumers = state.consumers(stage_id)
        if len(consumers) != 1 or not self._place(state, next(iter(consumers))):
            return Verdict.PASS
        return Verdict.APPLY_AND_SKIP_REST

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        (consumer,) = state.consumers(stage_id)
        return [(state.compute_at(stage_id, consumer, self._place(state, consumer) - 1), stage_id - 1)]

    @staticmethod
    def _place(state: State, consumer: int) -> int:
        """Position of the first unrolled loop of a constant-tensor stage; 0 if no loop is outside of it."""
        if not attribute_names(state, consumer, SIMPLIFY_CONST_ATTR):
            return 0
        loops = state.stages[consumer].iterators
        return next((at for at, loop in enumerate(loops) if loop.annotation is Annotation.UNROLL), 0)
