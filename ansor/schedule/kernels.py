"""What one asks of a state that becomes the kernels of a GPU program: one for each stage at root."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ansor.errors import ScheduleError
from ansor.schedule.bounds import loops_outwards
from ansor.schedule.extents import Number, is_one, where
from ansor.schedule.stages import Annotation, Iterator, IteratorKind
from ansor.schedule.state import State
from ansor.schedule.step_base import refuse
from ansor.te.expr import Expr

THREADS: Final = (Annotation.THREAD_X, Annotation.THREAD_Y, Annotation.THREAD_Z)
"""The thread indices of a block, the one that runs fastest first."""
_FOR_CPUS: Final = {
    Annotation.PARALLEL: "bind it to blockIdx.x or threadIdx.x",
    Annotation.PIPELINE: "leave it out",
}
"""What threads of a GPU cannot do with a loop, and what to do about it."""


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
            if loop.annotation in _FOR_CPUS:
                raise refuse(
                    state.stages[member],
                    f"lower: loop {loop.name!r} of stage {state.stages[member].name!r} is annotated "
                    f"{loop.annotation.word}, which is for CPUs; for a GPU, {_FOR_CPUS[loop.annotation]}",
                    position,
                )
            bound |= loop.annotation.is_bound
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


def loops_around(state: State, stage_id: int) -> list[Iterator]:
    """The loops around the place where a stage is computed, the nearest first."""
    return [state.stages[stage].iterators[position] for stage, position in loops_outwards(state, stage_id)]


def iterations(loops: Iterable[Iterator], *annotations: Annotation) -> Number:
    """
    Multiply the extents of those loops that have one of some annotations.

    Raises
    ------
    ScheduleError
        If one is symbolic.
    """
    result: Number = 1
    for loop in loops:
        if loop.annotation in annotations:
            if loop.extent is None or isinstance(loop.extent, Expr):
                raise ScheduleError(
                    f"loop {loop.name!r} on {loop.annotation.word} has the size {loop.extent}, and what a "
                    "kernel takes of a GPU has to be known; split it by a constant, and bind the inner part"
                )
            result = result * loop.extent
    return result


def fills_blocks(state: State, stage_id: int) -> bool:
    """Whether all threads of its kernel's blocks compute a stage: no loop is longer than its own."""
    root, longest = root_of(state, stage_id), dict[Annotation, int]()
    for member, stage in enumerate(state.stages):
        for loop in stage.iterators if root_of(state, member) == root else ():
            if loop.annotation.is_thread:
                if not isinstance(loop.extent, int):
                    return False
                known = longest.setdefault(loop.annotation, loop.extent)
                longest[loop.annotation] = max(known, loop.extent)
    own = (*loops_around(state, stage_id), *state.stages[stage_id].iterators)
    return all(loop.extent in (1, longest[loop.annotation]) for loop in own if loop.annotation.is_thread)


def lead_of(state: State, stage_id: int) -> Number:
    """How many iterations ahead a stage's shared memory is filled: as asked, if there are as many more.

    They are those of the loops of the stage around it that have nothing else inside of them, or of the
    nearest loop that has several.
    """
    host, place = state.attach.get(stage_id, (-1, -1))
    kinds = [loop.kind for loop in state.stages[host].iterators]
    first = kinds.index(IteratorKind.REDUCE) if IteratorKind.REDUCE in kinds else 0
    inside = {position for target, position in state.attach.values() if target == host}
    again: Number = 1
    alone = True
    for target, position in loops_outwards(state, stage_id):
        loop = state.stages[target].iterators[position]
        if loop.annotation not in (Annotation.NONE, Annotation.UNROLL):
            continue
        if loop.extent is None or isinstance(loop.extent, Expr):
            break
        alone &= target == host and position >= first and (position == place or position not in inside)
        again = again * loop.extent if alone else where(again > 1, again, loop.extent)
    asked = state.stages[stage_id].lead
    return where(asked < again - 1, asked, again - 1)


def virtual_threads(state: State, stage_id: int) -> Number:
    """How many virtual threads compute a stage: what it unrolls, each of them does."""
    return iterations((*loops_around(state, stage_id), *state.stages[stage_id].iterators), Annotation.VTHREAD)
