"""Binding the loops of a sketch to the blocks and threads of a GPU.

Nothing here is drawn: which loops are bound follows from the structure; how long they are are holes, filled
like those of tiles. Stages are visited from the last to the first:

- A tiled stage at root: its outer spatial levels are blocks, virtual threads and threads.
- A stage that reduces over threads, or has such a stage inside: its outer spatial loops are blocks.
- Another stage at root: its outer spatial loops, fused, are threads if they are few, else they are split into
  blocks and threads. Without spatial loops its reduction runs over threads. What one loop variable cannot
  count is not all fused: the outermost loops, or parts of one, are blocks along y then, or around the threads
  of a reduction.
- A copy in shared memory: all threads of the block fill it together, several neighbouring elements each.

Source: ThreadBind of TVM (`sketch_policy_rules.cc`). Differs in that the number of threads of a stage that is
not tiled is drawn instead of set, that a copy's loops have the extents of the whole block's copy, and in
blocks along y.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from ansor.errors import DefinitionError, ScheduleError
from ansor.schedule.extents import MAX_EXTENT, ceil_div, extent_of
from ansor.schedule.stages import Annotation, IteratorKind, SplitRelation, Stage
from ansor.schedule.state import State
from ansor.schedule.steps import SplitStep, Step
from sketches.columns import Hole
from sketches.derive import Sketch
from sketches.launch import Binding, Launch, divides_into_warps, least_threads, most_threads
from sketches.relations import has_cross_thread_reduction, is_computed, needs_tiling, split_steps
from sketches.rule import SketchContext

_ROLES: Final = {
    2: (Annotation.BLOCK_X, Annotation.THREAD_X),
    3: (Annotation.BLOCK_X, Annotation.VTHREAD, Annotation.THREAD_X),
}
"""What the outer spatial levels of a tiled stage become, by their number."""

Edit = Callable[[State], State]


def bound(context: SketchContext, sketch: Sketch) -> Sketch:
    """
    Return a sketch with its loops bound, as the context's target needs them.

    Raises
    ------
    ScheduleError
        If a tiled stage has no levels for blocks and threads.
    DefinitionError
        If a size is symbolic.
    """
    if not context.is_gpu or sketch.binding is not None:
        return sketch
    state = sketch.bare
    binder = _Binder(context, state, sketch.coarse())
    for stage_id in range(len(state.stages) - 1, -1, -1):
        if is_computed(state, stage_id):
            binder.visit(stage_id)
    count = len(sketch.steps)
    steps = (*sketch.steps, *_opened(binder.structure.steps[count:]))
    spelling = (*sketch.steps, *_opened(binder.program.steps[count:]))
    made = Binding(binder.structure, binder.program, spelling, count)
    plain = replace(sketch, steps=steps, binding=made)
    holes = {hole.step: hole for hole in plain.holes}
    launches = [_launch(context, state, tiled, holes) for tiled in binder.tiled]
    return replace(plain, binding=replace(made, launches=tuple(filter(None, launches))))


def _opened(steps: Sequence[Step]) -> list[Step]:
    """The steps with all splits open, but for those into a number of parts."""
    return [
        replace(step, lengths=(None,) * len(step.lengths))
        if isinstance(step, SplitStep) and step.inner_to_outer
        else step
        for step in steps
    ]


def _launch(
    context: SketchContext, state: State, tiled: tuple[int, tuple[int, ...], int], holes: Mapping[int, Hole]
) -> Launch | None:
    """Find the columns of a tiled stage's threads: `tiled` is its root, splits, levels.

    Splits of lengths that a rule has set have none; their threads are there in any case.
    """
    root, splits, levels = tiled
    own = [holes[step] for step in splits if step in holes]
    if not own:
        return None
    given = [step for at in splits if at not in holes and isinstance(step := state.steps[at], SplitStep)]
    starts = [hole.start for hole in own]
    elements = prod(_number(state.stages[root], extent_of(x.extent)) for x in state.stages[root].compute.axis)
    hardware = context.hardware
    few = elements <= 2 * hardware.warp_size
    return Launch(
        own[0].columns[0].stage,
        tuple(starts) if levels > 2 else (),
        tuple(start + levels - 2 for start in starts),
        few or not divides_into_warps([hole.extent for hole in own], hardware),
        prod(int(step.lengths[levels - 2]) for step in given),
    )


class _Binder:
    """Binds the stages of a state, in both forms at once.

    In programs, which fuse loops, tiles are as long as in `coarse`, the same state with other lengths.
    """

    def __init__(self, context: SketchContext, state: State, coarse: State) -> None:
        self.context, self.state = context, state
        self.structure, self.program = state, coarse
        self.tiled: list[tuple[int, tuple[int, ...], int]] = []

    def visit(self, stage_id: int) -> None:
        stage = self.state.stages[stage_id]
        if stage_id in self.state.attach:
            if stage.scope == "shared":
                self._fetch(stage_id)
            return
        inside = [inner for inner, place in self.state.attach.items() if place[0] == stage_id]
        if any(has_cross_thread_reduction(self.state, one) for one in (stage_id, *inside)):
            self._bind(stage_id, 0, self._outer_loops(stage_id), Annotation.BLOCK_X)
        elif any(loop.annotation.is_thread for loop in stage.iterators):
            return
        elif stage.relations and any(needs_tiling(self.state, one) for one in (stage_id, *inside)):
            self._bind_tiles(stage_id, inside)
        else:
            self._bind_plain(stage_id)

    def _both(self, edit: Edit) -> None:
        self.structure, self.program = edit(self.structure), edit(self.program)

    def _bind(self, stage_id: int, start: int, count: int, to: Annotation, at: int | None = None) -> None:
        """Bind neighbouring loops to one index; programs have them as one loop, at `at` (or at `start`)."""
        for position in range(start, start + count):
            self.structure = self.structure.annotate(stage_id, position, to)
        first = start if at is None else at
        if count > 1 or (count and at is not None):
            self.program = self.program.fuse(stage_id, range(first, first + count))
        if count:
            self.program = self.program.annotate(stage_id, first, to)

    def _outer_loops(self, stage_id: int) -> int:
        """How many outer spatial loops are free; the last of them may have stages inside."""
        count = 0
        for position, loop in enumerate(self.state.stages[stage_id].iterators):
            if loop.kind is not IteratorKind.SPATIAL or loop.annotation is not Annotation.NONE:
                break
            count += 1
            if self.state.attached_to(stage_id, position):
                break
        return count

    def _bind_tiles(self, root: int, inside: Sequence[int]) -> None:
        counts = _levels(self.state.stages[root])
        if len(counts) not in _ROLES:
            raise ScheduleError(
                f"stage {self.state.stages[root].name!r} is tiled in {len(counts)} outer spatial levels, and "
                "a GPU needs two, blocks and threads, or three, virtual threads between them; let the search "
                "parameter 'gpu_multi_level_tiling_structure' begin with SS or SSS"
            )
        start = 0
        for at, (count, role) in enumerate(zip(counts, _ROLES[len(counts)], strict=True)):
            self._bind(root, start, count, role, at)
            start += count
        for stage_id in (root, *inside):
            if needs_tiling(self.state, stage_id):
                self.tiled.append((root, _spatial_splits(self.state, stage_id), len(counts)))

    def _bind_plain(self, stage_id: int) -> None:
        """Bind the loops of a stage without tiles: to threads alone, or to blocks and threads."""
        count, kinds = self._outer_loops(stage_id), [x.kind for x in self.state.stages[stage_id].iterators]
        reduces = not count and IteratorKind.REDUCE in kinds
        if reduces:
            count = len(kinds)
        stage = self.state.stages[stage_id]
        least = least_threads(self.context.hardware)
        if prod(_number(stage, loop.extent) for loop in stage.iterators[:count]) <= least:
            self._bind(stage_id, 0, count, Annotation.THREAD_X)
            return
        around = self._fuse(stage_id, [_number(stage, loop.extent) for loop in stage.iterators[:count]])
        if not reduces:
            self._bind(stage_id, 0, around, Annotation.BLOCK_Y)
        self.structure = _over_threads(self.structure, stage_id, around, least, reduces)
        spelled = around if reduces else min(around, 1)
        self.program = _over_threads(self.program, stage_id, spelled, least, reduces)

    def _fuse(self, stage_id: int, extents: Sequence[int]) -> int:
        """Make one loop of the outer ones, which have these extents; return how many are around it.

        There are some where it would have more iterations than a loop variable can count, those of threads
        that do nothing included.
        """
        most = MAX_EXTENT - most_threads(self.context.hardware)
        around, inner = len(extents), 1
        while around and inner * extents[around - 1] <= most:
            around -= 1
            inner *= extents[around]
        stop = len(extents)
        if around:
            parts = ceil_div(extents[around - 1], most // inner)
            self._both(lambda state: state.split(stage_id, around - 1, (parts,), inner_to_outer=False))
            stop += 1
        if stop - around > 1:
            self._both(lambda state: state.fuse(stage_id, range(around, stop)))
        return around

    def _fetch(self, stage_id: int) -> None:
        """Let the threads of a block fill a shared copy together."""
        host = self.state.attach[stage_id][0]
        levels, sources = len(_levels(self.state.stages[host])), _spatial_splits(self.state, host)
        if levels not in _ROLES or not sources:
            raise ScheduleError(
                f"stage {self.state.stages[stage_id].name!r} is a shared copy for "
                f"{self.state.stages[host].name!r}, whose loops are not tiled for blocks and threads"
            )
        count = len(self.state.stages[stage_id].iterators)
        self._both(lambda state: state.fuse(stage_id, range(count)))
        self._both(lambda state: state.split(stage_id, 0, (1,)))
        self._both(lambda state: state.annotate(stage_id, 1, Annotation.VECTORIZE))
        self._both(lambda state: state.follow_fused_split(stage_id, 0, sources[::-1], levels - 2, True))
        self._both(lambda state: state.annotate(stage_id, 1, Annotation.THREAD_X))


def _over_threads(state: State, stage_id: int, position: int, threads: int, reduces: bool) -> State:
    """Split a loop, and bind its inner part to threads, the outer one to blocks if it does not reduce."""
    state = state.split(stage_id, position, (threads,))
    if not reduces:
        state = state.annotate(stage_id, position, Annotation.BLOCK_X)
    return state.annotate(stage_id, position + 1, Annotation.THREAD_X)


def _levels(stage: Stage) -> list[int]:
    """How many loops each outer spatial level of a tiled stage has, at most three levels."""
    splits = [relation for relation in stage.relations if isinstance(relation, SplitRelation)]
    counts: list[int] = []
    start = 0
    for level in range(3):
        parts = {relation.parts[level] for relation in splits if level < len(relation.parts) - 1}
        loops = stage.iterators[start:]
        count = next(
            (n for n, x in enumerate(loops) if x.name not in parts or x.kind is not IteratorKind.SPATIAL),
            len(loops),
        )
        if not count:
            break
        counts.append(count)
        start += count
    return counts


def _spatial_splits(state: State, stage_id: int) -> tuple[int, ...]:
    """Positions in the history of the splits of a stage's spatial loops, in loop order."""
    stage = state.stages[stage_id]
    kinds = {loop.name: loop.kind for loop in stage.iterators}
    splits = [relation for relation in stage.relations if isinstance(relation, SplitRelation)]
    steps = split_steps(state, stage_id)
    if len(steps) != len(splits):
        return ()
    return tuple(
        step
        for step, relation in zip(steps, splits, strict=True)
        if kinds.get(relation.parts[0]) is IteratorKind.SPATIAL
    )


def _number(stage: Stage, extent: object) -> int:
    if isinstance(extent, int):
        return extent
    raise DefinitionError(
        f"a loop of stage {stage.name!r} has the extent {extent}; sampling needs numbers: make the task from "
        "a computation with constant sizes"
    )
