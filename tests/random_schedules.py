"""Random legal schedules: single steps of every kind, and combinations that sketches are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ansor.errors import ScheduleError
from ansor.ir.simplify import Bounds, interval
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.layout import Layout
from ansor.schedule.stages import Annotation, ComputeAt, IteratorKind
from ansor.schedule.state import State
from ansor.schedule.steps import (
    CacheReadPartStep,
    FollowLayoutStep,
    PadStep,
    PrefetchStep,
    ReadAheadStep,
    RewriteLayoutStep,
    SetScopeStep,
    SplitStep,
    StoreConvertedStep,
    StreamingStoresStep,
)
from ansor.te.expr import Expr, Read, distinct_nodes, int_value
from tests.random_choice import Chooser

LENGTHS = (1, 2, 3, 4, 5, 8, 16)
CPU_ANNOTATIONS = (Annotation.PARALLEL, Annotation.VECTORIZE, Annotation.UNROLL, Annotation.PIPELINE)

Move = Callable[[Chooser, State, int], State]
"""Change a stage; a `ScheduleError`, or the same state, where that is not possible."""


def random_state(c: Chooser, dag: ComputeDAG, max_steps: int = 8) -> State:
    """A legal, concrete state of `dag` reached by random moves; illegal ones are skipped."""
    state = State.initial(dag)
    for _ in range(c.between(0, max_steps)):
        state = random_move(c, state)
    return state


def random_move(c: Chooser, state: State) -> State:
    """The state after one random move, or the same state if the move is illegal or leaves no bounds."""
    stage = c.one_of([i for i, s in enumerate(state.stages) if not s.is_placeholder])
    move = c.one_of(MOVES)
    try:
        changed = move(c, state, stage)
        changed.with_bounds()
    except ScheduleError:
        return state
    return changed


def loops_of(state: State, stage: int) -> int:
    return len(state.stages[stage].iterators)


def pick_loop(c: Chooser, state: State, stage: int) -> int:
    count = loops_of(state, stage)
    if not count:
        raise ScheduleError("no loops")
    return c.below(count)


# -- loops ------------------------------------------------------------------------------------------------


def split(c: Chooser, state: State, stage: int) -> State:
    lengths = [c.one_of(LENGTHS) for _ in range(c.between(1, 3))]
    return state.split(stage, pick_loop(c, state, stage), lengths, inner_to_outer=not c.chance(4))


def fuse(c: Chooser, state: State, stage: int) -> State:
    first = pick_loop(c, state, stage)
    last = min(loops_of(state, stage), first + c.between(2, 3))
    return state.fuse(stage, range(first, last))


def reorder(c: Chooser, state: State, stage: int) -> State:
    return state.reorder(stage, c.permutation(loops_of(state, stage)))


def annotate(c: Chooser, state: State, stage: int) -> State:
    return state.annotate(stage, pick_loop(c, state, stage), c.one_of(CPU_ANNOTATIONS))


def pragma(c: Chooser, state: State, stage: int) -> State:
    return state.pragma(stage, 0, f"auto_unroll_max_step${c.one_of((0, 8, 64))}")


def storage_align(c: Chooser, state: State, stage: int) -> State:
    if any(not isinstance(extent, int) for t in state.dag.tensors for extent in t.shape):
        return state
    return state.storage_align(stage, pick_loop(c, state, stage), c.one_of((1, 4, 8)), c.below(4))


def follow_split(c: Chooser, state: State, stage: int) -> State:
    """Split a loop as an earlier step split another."""
    sources = [p for p, step in enumerate(state.steps) if isinstance(step, SplitStep)]
    if not sources:
        return state
    return state.follow_split(stage, pick_loop(c, state, stage), c.one_of(sources), c.between(1, 2))


def follow_fused_split(c: Chooser, state: State, stage: int) -> State:
    sources = [p for p, step in enumerate(state.steps) if isinstance(step, SplitStep)]
    if not sources:
        return state
    chosen = sorted({c.one_of(sources) for _ in range(c.between(1, 2))})
    return state.follow_fused_split(stage, pick_loop(c, state, stage), chosen, c.below(2), c.chance(2))


# -- places -----------------------------------------------------------------------------------------------


def compute_at(c: Chooser, state: State, stage: int) -> State:
    targets = sorted(state.transitive_consumers(stage))
    targets = [t for t in targets if state.stages[t].compute_at is not ComputeAt.INLINED]
    if not targets:
        return state
    target = c.one_of(targets)
    return state.compute_at(stage, target, pick_loop(c, state, target))


def compute_inline(_: Chooser, state: State, stage: int) -> State:
    return state.compute_inline(stage)


def compute_root(_: Chooser, state: State, stage: int) -> State:
    return state.compute_root(stage)


def set_scope(c: Chooser, state: State, stage: int) -> State:
    return state.apply(SetScopeStep(stage, c.one_of(("local", "global"))))


def streaming_stores(_: Chooser, state: State, stage: int) -> State:
    return state.apply(StreamingStoresStep(stage))


def prefetch(c: Chooser, state: State, stage: int) -> State:
    return state.apply(PrefetchStep(stage, c.one_of((0, 64, 1024, 1 << 16))))


def read_ahead(c: Chooser, state: State, stage: int) -> State:
    return state.apply(ReadAheadStep(stage, c.one_of((0, 1024))))


def store_converted(_: Chooser, state: State, stage: int) -> State:
    return state.apply(StoreConvertedStep(stage))


# -- new stages ---------------------------------------------------------------------------------------------


def cache_write(c: Chooser, state: State, stage: int) -> State:
    return state.cache_write(stage, c.one_of(("local", "global")))


def cache_read(c: Chooser, state: State, stage: int) -> State:
    """Copy this stage, or one of its inputs, for some of its readers."""
    source = c.one_of([stage, *sorted(state.direct_producers(stage))])
    wanted = state.stages[source].op.outputs[0]
    readers = [i for i, s in enumerate(state.stages) if not s.is_placeholder and wanted in s.op.input_tensors]
    if not readers:
        return state
    chosen = readers if c.chance(2) else [c.one_of(readers)]
    if c.chance(3):
        scope = c.one_of(("local", "global"))
        return state.apply(CacheReadPartStep(source, scope, (c.one_of(readers),), c.below(2)))
    return state.cache_read(source, c.one_of(("local", "global")), chosen)


def random_digits(c: Chooser, shape: Sequence[Any]) -> list[tuple[int, int]]:
    """The pieces of all dimensions in some order; nothing needs to divide."""
    digits = []
    for dim, extent in enumerate(shape):
        if not isinstance(extent, int):
            raise ScheduleError("symbolic")
        inner = [c.one_of(LENGTHS) for _ in range(c.below(3))]
        covered = prod(inner)
        digits += [(dim, -(-extent // covered)), *((dim, length) for length in inner)]
    return [digits[at] for at in c.permutation(len(digits))]


def covering(shape: Sequence[Any], digits: Sequence[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """The digits of a layout with strides, those of one dimension from the outside in."""
    return Layout.of(tuple(shape), list(digits)).to_json()


def rewrite_layout(c: Chooser, state: State, stage: int) -> State:
    """Change the order of a stage's result, or copy one of its inputs into another order for it."""
    if c.chance(2):
        shape = state.stages[stage].op.output(0).shape
        return state.apply(RewriteLayoutStep(stage, covering(shape, random_digits(c, shape))))
    sources = sorted(state.direct_producers(stage))
    if not sources:
        return state
    source = c.one_of(sources)
    shape = state.stages[source].op.output(0).shape
    return state.apply(RewriteLayoutStep(source, covering(shape, random_digits(c, shape)), (stage,)))


def follow_layout(c: Chooser, state: State, stage: int) -> State:
    """Pack what a stage reads in the order of its tiles, and perhaps compute the copy inside of them."""
    sources = sorted(state.direct_producers(stage))
    if not sources:
        return state
    source = c.one_of(sources)
    state = state.cache_read(source, c.one_of(("local", "global")), [stage])
    reader = stage + 1 if stage > source else stage
    state = state.apply(FollowLayoutStep(source + 1, reader))
    return state.compute_at(source + 1, reader, pick_loop(c, state, reader)) if c.chance(2) else state


def pad(c: Chooser, state: State, stage: int) -> State:
    """Compute a stage over longer axes, from copies of its inputs that are zero beyond them."""
    op = state.stages[stage].compute
    axes = (*op.axis, *op.reduce_axis)
    known = [extent for axis in axes if (extent := int_value(axis.extent))]
    if len(known) < len(axes):
        raise ScheduleError("symbolic")
    extents = [extent + c.one_of((0, 1, 3)) for extent in known]
    bounds = Bounds({axis: (0, extent - 1) for axis, extent in zip(axes, extents, strict=True)})
    shapes = {tensor: [int_value(extent) or 0 for extent in tensor.shape] for tensor in op.input_tensors}
    for read in (node for body in op.body for node in distinct_nodes(body) if isinstance(node, Read)):
        for dim, index in enumerate(read.indices):
            high = interval(index, bounds)[1] if not reads_tensor(index) else None
            shapes[read.tensor][dim] = max(shapes[read.tensor][dim], (high or 0) + 1)
    for tensor, shape in shapes.items():
        if tuple(shape) != tuple(map(int_value, tensor.shape)):
            digits = tuple((dim, extent, 1) for dim, extent in enumerate(shape))
            state = state.apply(RewriteLayoutStep(state.stage_id(tensor), digits, (stage,)))
            stage += 1
    return state.apply(PadStep(stage, c.one_of(("local", "global")), tuple(extents)))


def reads_tensor(index: Expr) -> bool:
    return any(isinstance(node, Read) for node in distinct_nodes(index))


def reduce_loops(state: State, stage: int) -> list[int]:
    loops = state.stages[stage].iterators
    return [p for p, loop in enumerate(loops) if loop.kind is IteratorKind.REDUCE]


def rfactor(c: Chooser, state: State, stage: int) -> State:
    reduced = reduce_loops(state, stage)
    if not reduced:
        return state
    return state.rfactor(stage, c.one_of(reduced), c.below(len(state.stages[stage].compute.axis) + 1))


def rfactor_fused(c: Chooser, state: State, stage: int) -> State:
    """All reduction loops fused and split, then one part factored out, as sketches do."""
    reduced = reduce_loops(state, stage)
    if not reduced:
        return state
    if len(reduced) > 1:
        state = state.fuse(stage, reduced)
    at = reduced[0]
    state = state.split(stage, at, [c.one_of(LENGTHS)])
    return state.rfactor(stage, at + c.below(2), c.below(len(state.stages[stage].compute.axis) + 1))


# -- combinations ----------------------------------------------------------------------------------------


def tile(c: Chooser, state: State, stage: int) -> State:
    """Every loop split, the parts of one level together, outer spatial loops fused and parallel."""
    count = loops_of(state, stage)
    if not 1 <= count <= 4:
        return state
    levels = c.between(1, 2)
    for position in range(count - 1, -1, -1):
        state = state.split(stage, position, [c.one_of(LENGTHS) for _ in range(levels)])
    order = [axis * (levels + 1) + level for level in range(levels + 1) for axis in range(count)]
    state = state.reorder(stage, order)
    loops = state.stages[stage].iterators
    spatial = 0
    while spatial < count and loops[spatial].kind is IteratorKind.SPATIAL:
        spatial += 1
    if spatial and c.chance(2):
        state = state.fuse(stage, range(spatial)) if spatial > 1 else state
        state = state.annotate(stage, 0, Annotation.PARALLEL)
    last = len(state.stages[stage].iterators) - 1
    if state.stages[stage].iterators[last].kind is IteratorKind.SPATIAL and c.chance(2):
        state = state.annotate(stage, last, Annotation.VECTORIZE)
    return state


def tile_with_cache(c: Chooser, state: State, stage: int) -> State:
    """A tiled reduction whose result tile is computed inside a split loop of the copy."""
    state = state.cache_write(stage, c.one_of(("local", "global")))
    state = split(c, state, stage + 1)
    state = state.compute_at(stage, stage + 1, pick_loop(c, state, stage + 1))
    return tile(c, state, stage)


MOVES: tuple[Move, ...] = (
    *(split, split, split, fuse, reorder, reorder, annotate, annotate, pragma),
    *(compute_at, compute_at, compute_inline, compute_root, set_scope, storage_align),
    *(follow_split, follow_fused_split, cache_write, cache_read, rfactor, rfactor_fused),
    *(tile, tile, tile_with_cache, rewrite_layout, follow_layout, pad, streaming_stores),
    *(store_converted, prefetch, read_ahead),
)
