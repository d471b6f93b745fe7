"""Questions about a stage among the other stages of a state, as the sketch rules ask them.

Consumers and producers look through inlined stages (`State.consumers`); what an operation reads and whether
it should be tiled comes from the state's access analysis.
"""

from __future__ import annotations

from ansor.schedule.access import NO_SPLIT_ATTR, SIMPLIFY_CONST_ATTR, reads_own_element, same_shape
from ansor.schedule.inlining import effective_reads, inlined_operations
from ansor.schedule.kernels import root_of
from ansor.schedule.stages import Annotation, ComputeAt, IteratorKind, made_from
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep
from ansor.schedule.structure import axis_names
from ansor.te.expr import IterVar, Var
from ansor.te.tensor import ComputeOp, Operation

CACHE_WRITE_SCOPE = "local"
"""Where the cache_write rule keeps a tile's result; part of the new stage's name."""


def is_computed(state: State, stage_id: int) -> bool:
    """Whether the stage has loops of its own: neither a placeholder nor inlined."""
    stage = state.stages[stage_id]
    return not stage.is_placeholder and stage.compute_at is not ComputeAt.INLINED


def is_converted(state: State, stage_id: int) -> bool:
    """Whether a step has made the stage store what its readers convert its result to."""
    stage = state.stages[stage_id]
    return stage.handles[0].output(0).dtype != stage.op.output(0).dtype


def is_copy(state: State, stage_id: int) -> bool:
    """Whether a step has made the stage to copy what others read, as packing does."""
    stage = state.stages[stage_id]
    return stage.handles[0] not in state.dag.ops and not stage.compute.reduce_axis


def has_reduce_iterator(state: State, stage_id: int) -> bool:
    """Whether some loop of the stage runs over a reduction."""
    return any(loop.kind is not IteratorKind.SPATIAL for loop in state.stages[stage_id].iterators)


def has_cross_thread_reduction(state: State, stage_id: int) -> bool:
    """Whether a reduction loop of the stage runs over the threads of a block."""
    return any(
        loop.kind is IteratorKind.REDUCE and loop.annotation.is_thread
        for loop in state.stages[stage_id].iterators
    )


def needs_tiling(state: State, stage_id: int) -> bool:
    """Whether the stage's operation reuses its inputs, so that multi-level tiling pays."""
    return state.access.needs_multi_level_tiling(state.stages[stage_id].op)


def plain_operation(state: State, stage_id: int) -> ComputeOp | None:
    """The operation of a stage with its loops as defined, all of which may be split, that reuses nothing."""
    stage = state.stages[stage_id]
    if not isinstance(stage.op, ComputeOp) or not is_computed(state, stage_id) or stage.relations:
        return None
    if needs_tiling(state, stage_id) or SIMPLIFY_CONST_ATTR in stage.op.attrs:
        return None
    return None if attribute_names(state, stage_id, NO_SPLIT_ATTR) else stage.op


def axes_of_reads(state: State, stage_id: int, consumer: int) -> set[frozenset[Var]]:
    """The axes along which a consumer reads the stage directly; several sets if there are several ways."""
    op, access = state.stages[consumer].op, state.access
    return {
        axes
        for producer in access.reads(op)
        if state.stage_id(producer) == stage_id and isinstance(op, ComputeOp)
        for axes in access.axes_of_reads(op, producer)
    }


def is_tensorized(state: State, stage_id: int) -> bool:
    """Whether the innermost loops of the stage are those of a tensor intrinsic."""
    loops = state.stages[stage_id].iterators
    return bool(loops) and loops[-1].annotation is Annotation.TENSORIZE


def is_pipelined(state: State, stage_id: int) -> bool:
    """Whether the stage is computed in a loop whose iterations overlap, as one of the passes."""
    if stage_id not in state.attach:
        return False
    target, position = state.attach[stage_id]
    return state.stages[target].iterators[position].annotation is Annotation.PIPELINE


def is_tiled(state: State, stage_id: int) -> bool:
    """Whether the number of loops differs from the number of axes: the stage was split or follows a split."""
    stage = state.stages[stage_id]
    if not isinstance(stage.op, ComputeOp):
        return False
    return len(stage.iterators) != len(stage.op.axis) + len(stage.op.reduce_axis)


def vector_axis(state: State, stage_id: int) -> IterVar:
    """The axis that the innermost spatial loop of a stage is a part of, where its vectors are."""
    stage = state.stages[stage_id]
    spatial = next(loop for loop in reversed(stage.iterators) if loop.kind is IteratorKind.SPATIAL)
    origin = made_from(stage, spatial.name)
    return next(axis for axis in reversed(stage.compute.axis) if axis.name in origin)


def extents_product(state: State, stage_id: int) -> tuple[int, int] | None:
    """Products of the spatial and of the reduction extents [iterations]; None if one is unknown."""
    products = {IteratorKind.SPATIAL: 1, IteratorKind.REDUCE: 1}
    for loop in state.stages[stage_id].iterators:
        if loop.kind not in products or not isinstance(loop.extent, int):
            return None
        products[loop.kind] *= loop.extent
    return products[IteratorKind.SPATIAL], products[IteratorKind.REDUCE]


def untouched_reduction(state: State, stage_id: int) -> tuple[int, int] | None:
    """Results, and terms of each, of a reduction with all its loops as they were defined.

    None for other stages, and for results of tiles.
    """
    if not has_reduce_iterator(state, stage_id) or state.stages[stage_id].relations:
        return None
    return None if is_cache_write(state, stage_id) else extents_product(state, stage_id)


def only_consumer(state: State, stage_id: int) -> int | None:
    """Find the one stage that uses the result of another one; None if there are more, or it is an output."""
    consumers = state.consumers(stage_id)
    return next(iter(consumers)) if len(consumers) == 1 and not state.is_output(stage_id) else None


def single_consumer(state: State, stage_id: int) -> int | None:
    """Find the stage that all uses of this one go to.

    With several consumers it is the root stage that all of them are, or are computed inside of; None if
    there is no such stage.
    """
    consumers = state.consumers(stage_id)
    if len(consumers) == 1:
        return next(iter(consumers))
    roots = {root_of(state, consumer) for consumer in consumers}
    return roots.pop() if len(roots) == 1 else None


def elementwise_consumer(state: State, stage_id: int) -> int | None:
    """Find the untransformed only consumer that uses each element at the same place, to share tiles with.

    None as well if the stage is an output, which stays outside all others, if both have a reduction, if the
    consumer is a copy into shared memory, or if it has been tiled for another of its inputs already.
    """
    consumer = only_consumer(state, stage_id)
    if consumer is None:
        return None
    stage, other = state.stages[stage_id], state.stages[consumer]
    if not state.access.elementwise_match(stage.op, other.op) and not _reads_elementwise(
        state, stage.op, other.op
    ):
        return None
    if has_reduce_iterator(state, stage_id) and has_reduce_iterator(state, consumer):
        return None
    if other.scope == "shared" or other.relations or consumer in state.attach:
        return None
    return consumer


def _reads_elementwise(state: State, op: Operation, reader: Operation) -> bool:
    """Whether all reads of an operation by another are of the same element, through what is inlined.

    So `x * sigmoid(x)` reads `x`, if the sigmoid is a stage that is inlined: in two ways that meet again.
    """
    if not isinstance(op, ComputeOp) or not isinstance(reader, ComputeOp):
        return False
    shape = op.output(0).shape
    if not all(same_shape(tensor.shape, shape) for tensor in (*op.outputs, *reader.outputs)):
        return False
    reads = effective_reads(reader, inlined_operations(state))
    return all(reads_own_element(reader, read) for read in reads if read.tensor in op.outputs)


def is_cache_write(state: State, stage_id: int) -> bool:
    """Whether the stage was made by a cache_write step: it computes what the next stage copies out."""
    stage, suffix = state.stages[stage_id], f".{CACHE_WRITE_SCOPE}"
    if stage.handles[0] in state.dag.ops or suffix not in stage.name:
        return False
    owner = stage.name[: stage.name.rindex(suffix)]
    return any(state.stages[consumer].name == owner for consumer in state.consumers(stage_id))


def attribute_names(state: State, stage_id: int, attribute: str) -> frozenset[str]:
    """Return the iterator names listed in an attribute of the stage's operation."""
    op = state.stages[stage_id].op
    value = op.attrs.get(attribute) if isinstance(op, ComputeOp) else None
    return frozenset() if value is None else frozenset(axis_names(value))


def split_steps(state: State, stage_id: int) -> tuple[int, ...]:
    """Positions in the history of the plain splits of a stage, oldest first."""
    found: list[int] = []
    for position in range(len(state.steps) - 1, -1, -1):
        step = state.steps[position]
        if stage_id in step.new_stages:
            break  # The stage was made here.
        if step.new_stages:
            stage_id -= len(step.new_stages) if stage_id > step.new_stages[-1] else 0
        elif isinstance(step, SplitStep) and step.stage == stage_id:
            found.append(position)
    return tuple(reversed(found))
