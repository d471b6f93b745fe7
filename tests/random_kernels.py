"""Random GPU schedules: random loops and places, bound to blocks, threads and virtual threads at random.

Not every such schedule is a program that a GPU can run; lowering refuses those with a `ScheduleError`. To
make most of them run, what ends up at root without a binding gets one as sketches give it.
"""

from __future__ import annotations

from ansor.errors import ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.kernels import root_of
from ansor.schedule.stages import Annotation, ComputeAt, IteratorKind
from ansor.schedule.state import State
from ansor.schedule.steps import MultiBufferStep, SetScopeStep, SwizzleStep
from tests.random_choice import Chooser
from tests.random_schedules import (
    Move,
    cache_write,
    compute_at,
    compute_inline,
    compute_root,
    follow_fused_split,
    follow_split,
    fuse,
    loops_of,
    pad,
    pick_loop,
    pragma,
    reduce_loops,
    reorder,
    rfactor_fused,
    split,
    storage_align,
)

THREADS = (2, 3, 4, 5, 8, 16, 32)
GPU_ANNOTATIONS = (
    *(Annotation.THREAD_X, Annotation.THREAD_X, Annotation.THREAD_Y, Annotation.THREAD_Z),
    *(Annotation.BLOCK_X, Annotation.BLOCK_Y, Annotation.VTHREAD, Annotation.UNROLL, Annotation.VECTORIZE),
)


def random_gpu_state(c: Chooser, dag: ComputeDAG, max_steps: int = 10) -> State:
    """A concrete state of `dag` whose kernels are bound, or mostly so."""
    state = State.initial(dag)
    for _ in range(c.between(0, max_steps)):
        state = moved(c, state, c.one_of(MOVES), c.one_of(computed(state)))
    for stage in computed(state):
        if stage not in state.attach and not is_bound(state, stage):
            state = moved(c, state, bind_spatial, stage)
    return state


def moved(c: Chooser, state: State, move: Move, stage: int) -> State:
    """The state after a move, or the same state if the move is illegal or leaves no bounds."""
    try:
        changed = move(c, state, stage)
        changed.with_bounds()
    except ScheduleError:
        return state
    return changed


def computed(state: State) -> list[int]:
    return [i for i, s in enumerate(state.stages) if not s.is_placeholder]


def is_bound(state: State, root: int) -> bool:
    """Whether a kernel has a loop that is bound, or none to bind."""
    members = [s for s in computed(state) if root_of(state, s) == root]
    loops = [loop for member in members for loop in state.stages[member].iterators]
    inlined = state.stages[root].compute_at is ComputeAt.INLINED
    return inlined or any(loop.annotation.is_thread or loop.annotation.is_block for loop in loops)


# -- moves -------------------------------------------------------------------------------------------------


def annotate(c: Chooser, state: State, stage: int) -> State:
    return state.annotate(stage, pick_loop(c, state, stage), c.one_of(GPU_ANNOTATIONS))


def set_scope(c: Chooser, state: State, stage: int) -> State:
    return state.apply(SetScopeStep(stage, c.one_of(("local", "shared", "global"))))


def multi_buffer(c: Chooser, state: State, stage: int) -> State:
    return state.apply(MultiBufferStep(stage, c.one_of((2, 2, 3, 4))))


def swizzle(_: Chooser, state: State, stage: int) -> State:
    return state.apply(SwizzleStep(stage))


def bind_spatial(c: Chooser, state: State, stage: int) -> State:
    """The outer spatial loops as blocks, virtual threads and threads, or some of these."""
    loops = state.stages[stage].iterators
    spatial = 0
    while spatial < len(loops) and loops[spatial].kind is IteratorKind.SPATIAL:
        if loops[spatial].annotation is not Annotation.NONE:
            break
        spatial += 1
    if not spatial:
        return bind_reduction(c, state, stage)
    state = state.fuse(stage, range(spatial)) if spatial > 1 else state
    if c.chance(4):
        return state.annotate(stage, 0, c.one_of((Annotation.BLOCK_X, Annotation.THREAD_X)))
    lengths = [c.one_of((2, 3)), c.one_of(THREADS)] if c.chance(3) else [c.one_of(THREADS)]
    state = state.split(stage, 0, lengths)
    state = state.annotate(stage, 0, Annotation.BLOCK_X)
    if len(lengths) == 2:
        state = state.annotate(stage, 1, Annotation.VTHREAD)
    return state.annotate(stage, len(lengths), Annotation.THREAD_X)


def bind_reduction(c: Chooser, state: State, stage: int) -> State:
    """The reduction loops fused and shared by threads."""
    reduced = reduce_loops(state, stage)
    if not reduced:
        return state
    if len(reduced) > 1:
        state = state.fuse(stage, reduced)
    state = state.split(stage, reduced[0], [c.one_of(THREADS)])
    at = reduced[0] + 1 - c.chance(5)
    return state.annotate(stage, at, c.one_of((Annotation.THREAD_X, Annotation.THREAD_Y)))


def load_together(c: Chooser, state: State, stage: int) -> State:
    """An input, or what is computed inside of a loop, brought to shared memory by all threads."""
    if stage not in state.attach:
        sources = sorted(state.direct_producers(stage))
        if not sources:
            return state
        source = c.one_of(sources)
        state = state.cache_read(source, "shared", [stage])
        reader = stage + 1 if stage > source else stage
        state, stage = state.compute_at(source + 1, reader, pick_loop(c, state, reader)), source + 1
    else:
        state = state.apply(SetScopeStep(stage, "shared"))
    count = loops_of(state, stage)
    if any(loop.kind is not IteratorKind.SPATIAL for loop in state.stages[stage].iterators):
        return state
    state = state.fuse(stage, range(count)) if count > 1 else state
    lengths = [c.one_of(THREADS), c.one_of((1, 2, 4))] if c.chance(2) else [c.one_of(THREADS)]
    state = state.split(stage, 0, lengths)
    if len(lengths) == 2:
        state = state.annotate(stage, 2, Annotation.VECTORIZE)
    return state.annotate(stage, 1, Annotation.THREAD_X)


def tile(c: Chooser, state: State, stage: int) -> State:
    """Every loop split, the parts of one level together, the levels blocks, virtual threads and threads."""
    count = loops_of(state, stage)
    loops = state.stages[stage].iterators
    spatial = sum(loop.kind is IteratorKind.SPATIAL for loop in loops)
    if not 1 <= count <= 4 or not spatial:
        return state
    levels = c.between(1, 3)
    for position in range(count - 1, -1, -1):
        state = state.split(stage, position, [c.one_of(THREADS[:4]) for _ in range(levels)])
    order = [axis * (levels + 1) + level for level in range(levels + 1) for axis in range(count)]
    order.sort(
        key=lambda at: (
            state.stages[stage].iterators[at].kind is not IteratorKind.SPATIAL and at % (levels + 1) < levels
        )
    )
    state = state.reorder(stage, order)
    bindings = (Annotation.BLOCK_X, Annotation.VTHREAD, Annotation.THREAD_X)
    for level, annotation in enumerate(bindings[-levels:] if c.chance(2) else bindings[:levels]):
        state = state.fuse(stage, range(level, level + spatial)) if spatial > 1 else state
        state = state.annotate(stage, level, annotation)
    return state


def tile_with_cache(c: Chooser, state: State, stage: int) -> State:
    """A reduction in private memory inside of a tile of the copy."""
    state = tile(c, state.cache_write(stage, c.one_of(("local", "shared"))), stage + 1)
    return state.compute_at(stage, stage + 1, pick_loop(c, state, stage + 1))


MOVES: tuple[Move, ...] = (
    *(split, split, fuse, reorder, annotate, annotate, annotate, pragma, set_scope, storage_align),
    *(compute_at, compute_at, compute_at, compute_inline, compute_root, cache_write, rfactor_fused),
    *(follow_split, follow_fused_split, bind_spatial, bind_spatial, bind_reduction, bind_reduction),
    *(load_together, load_together, load_together, tile, tile, tile_with_cache, tile_with_cache),
    *(multi_buffer, multi_buffer, swizzle, pad),
)
