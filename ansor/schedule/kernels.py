"""What lowering asks of a state that becomes the kernels of a GPU program: one for each stage at root."""

from __future__ import annotations

from math import prod

from ansor.schedule.bounds import enclosing_loops
from ansor.schedule.extents import is_one
from ansor.schedule.stages import Annotation, IteratorKind
from ansor.schedule.state import State
from ansor.schedule.step_base import refuse


def root_of(state: State, stage_id: int) -> int:
    """The stage at root that a stage is computed inside of, or is."""
    while stage_id in state.attach:
        stage_id = state.attach[stage_id][0]
    return stage_id


def check_bound(state: State, root: int) -> None:
    """
    Check that a kernel is for a GPU: some loop is bound, none is for the threads of a CPU.

    Parameters
    ----------
    state
        With bounds.
    root
        The position of a stage at root.

    Raises
    ------
    ScheduleError
        Naming the stage, and the loop that cannot be.
    """
    members = [s for s in range(len(state.stages)) if root_of(state, s) == root]
    bound = False
    for member in members:
        for position, loop in enumerate(state.stages[member].iterators):
            if loop.annotation is Annotation.PARALLEL:
                raise refuse(
                    state.stages[member],
                    f"lower: loop {loop.name!r} of stage {state.stages[member].name!r} is parallel, which is "
                    "for CPUs; for a GPU, bind it to blockIdx.x or threadIdx.x",
                    position,
                )
            bound |= loop.annotation.is_thread or loop.annotation.is_block
    stage = state.stages[root]
    several = [loop.kind is IteratorKind.SPATIAL and not is_one(loop.extent) for loop in stage.iterators]
    if any(several) and not bound:
        raise refuse(
            stage,
            f"lower: stage {stage.name!r} is a kernel of its own, and none of its loops is bound to the "
            f"blocks and threads of the GPU; bind its loops, as in s[{stage.name}].bind(loop, "
            'te.thread_axis("blockIdx.x")), or compute it inside of another stage',
            several.index(True),
        )


def virtual_threads(state: State, stage_id: int) -> int:
    """How many virtual threads compute a stage: what it unrolls, each of them does."""
    places = [*enclosing_loops(state, stage_id)]
    places += [(stage_id, position) for position in range(len(state.stages[stage_id].iterators))]
    loops = [state.stages[stage].iterators[position] for stage, position in places]
    return prod(
        loop.extent
        for loop in loops
        if loop.annotation is Annotation.VTHREAD and isinstance(loop.extent, int)
    )
