"""Names of the integers that tell the programs of one family apart.

The same decision has the same name in every family of a task, whatever the step numbers: that is how values
move from one family to another when a search mutates structure or crosses two programs.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from ansor.errors import ScheduleError
from ansor.schedule.rfactor_step import RfactorStep
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import AnnotationStep, FollowSplitStep, SplitStep, Step


class ColumnKind(StrEnum):
    """What an integer decides."""

    TILE = "tile"
    """Length of one level of a split [iterations]; level 1 is the first inner one."""
    THREADS = "threads"
    """How many threads of a GPU run a loop together: the inner length of a split over threads."""
    PARTS = "parts"
    """Into how many parts a reduction is divided, each for blocks of its own: the outer length of a split."""
    FETCH = "fetch"
    """How many neighbouring elements a thread of a GPU copies into shared memory at once."""
    PARALLEL = "parallel"
    """How many loops of a run are fused and made parallel; level is the run's number in its stage."""
    UNROLL = "unroll"
    """The stage's `auto_unroll_max_step`."""
    VECTORIZE = "vectorize"
    """How many innermost loops are fused and vectorised."""
    STREAM = "stream"
    """1 if the stage's stores pass the caches by, else 0."""
    LEAD = "lead"
    """How many iterations ahead the copies in shared memory that the stage reads are filled; 0 for not."""
    PAD = "pad"
    """Rows of a copy in shared memory begin at odd multiples of so many elements; 0 leaves them dense.

    Or they store their pieces in different orders (`sketches.padding.SWIZZLED`).
    """


@dataclass(frozen=True, slots=True)
class Column:
    """The name of one integer."""

    kind: ColumnKind
    stage: str
    axis: str = ""
    level: int = 0

    def __str__(self) -> str:
        axis = f".{self.axis}" if self.axis else ""
        level = f"[{self.level}]" if self.kind in (ColumnKind.TILE, ColumnKind.PARALLEL) else ""
        return f"{self.kind} {self.stage}{axis}{level}"


_ORDER = (ColumnKind.TILE, ColumnKind.THREADS, ColumnKind.PARTS, ColumnKind.FETCH)
"""Kinds of columns that fill splits, in the order of their columns."""


@dataclass(frozen=True, slots=True)
class Hole:
    """
    A split to be filled.

    Parameters
    ----------
    step
        Its position in the history.
    extent
        Iterations to split; of `THREADS` the most that one of the loops split alike has; 0 where the length
        of such a loop depends on other columns.
    start
        Its lengths are the columns from here on, outermost level first.
    columns
        Their names, all of one kind.
    loop
        What is split: the stage's position in the end, and the loop's name.
    """

    step: int
    extent: int
    start: int
    columns: tuple[Column, ...]
    loop: tuple[int, str] = (-1, "")

    @property
    def stop(self) -> int:
        """Position behind the last column."""
        return self.start + len(self.columns)

    @property
    def kind(self) -> ColumnKind:
        """What the lengths are."""
        return self.columns[0].kind


def find_holes(
    states: Sequence[State], steps: tuple[Step, ...], binding_from: int | None = None
) -> tuple[Hole, ...]:
    """
    List the open splits of a history, by kind, those of one kind in their order.

    Parameters
    ----------
    states
        Those that the same history leads through (see `Replays`), lengths that replay needs set.
    steps
        The history with open lengths None.
    binding_from
        Position of the first of the steps that bind loops to the threads of a GPU, and of those that make
        copies in shared memory. Default: there are none, and whatever a rule splits is a tile.

    Raises
    ------
    ScheduleError
        If an open split is over a loop whose extent is not known as a number.
    """
    found: dict[int, Hole] = {}
    taken: dict[tuple[str, str], int] = {}
    divided: set[str] = set()
    for position, (step, (state, following)) in enumerate(zip(steps, pairwise(states), strict=True)):
        if isinstance(step, SplitStep) and any(length is None for length in step.lengths):
            kind = ColumnKind.TILE if binding_from is None else _kind_of(steps, position, binding_from)
            found[position] = _open_split(state, step, position, kind, taken, divided)
        elif isinstance(step, FollowSplitStep) and step.source in found:
            found[step.source] = _split_alike(found[step.source], state, step, divided)
        elif isinstance(step, RfactorStep) and position - 1 in found:
            divided |= {stage.name for stage in following.stages[step.stage : step.stage + 2]}
        _follow_stages(found, state, following)
    holes: list[Hole] = []
    for hole in sorted(found.values(), key=lambda hole: _ORDER.index(hole.kind)):
        holes.append(replace(hole, start=holes[-1].stop if holes else 0))
    return tuple(holes)


def _open_split(
    state: State,
    step: SplitStep,
    position: int,
    kind: ColumnKind,
    taken: dict[tuple[str, str], int],
    divided: Container[str],
) -> Hole:
    """The hole of an open split; extents in stages that are `divided` depend on other columns."""
    stage = state.stages[step.stage]
    loop = stage.iterators[step.iterator]
    if step.extent is None and kind is not ColumnKind.FETCH:
        raise ScheduleError(
            f"split of loop {loop.name!r} of stage {stage.name!r}: its extent is not a number, so "
            "its lengths cannot be sampled; tile a stage before it is attached, with constant sizes"
        )
    name = numbered(loop.name, taken, stage.name)
    levels = range(1, len(step.lengths) + 1)
    columns = tuple(Column(kind, stage.name, name, level) for level in levels)
    varies = kind is ColumnKind.THREADS and stage.name in divided
    return Hole(position, 0 if varies else step.extent or 0, 0, columns, (step.stage, loop.name))


def _split_alike(hole: Hole, state: State, step: FollowSplitStep, divided: Container[str]) -> Hole:
    """A hole whose lengths also split the loop of another step."""
    stage = state.stages[step.stage]
    extent = stage.iterators[step.iterator].extent
    if hole.kind is not ColumnKind.THREADS or not hole.extent or not isinstance(extent, int):
        return hole
    return replace(hole, extent=0 if stage.name in divided else max(hole.extent, extent))


def _follow_stages(found: dict[int, Hole], before: State, after: State) -> None:
    """Let holes name the stages that they are in by the positions that these have after a step."""
    added = len(after.stages) - len(before.stages)
    if not added:
        return
    pairs = zip(before.stages, after.stages, strict=False)
    first = next((at for at, (old, new) in enumerate(pairs) if old.name != new.name), len(before.stages))
    for step, hole in found.items():
        stage, loop = hole.loop
        found[step] = replace(hole, loop=(stage + added * (stage >= first), loop))


def _kind_of(steps: Sequence[Step], position: int, binding_from: int) -> ColumnKind:
    """What the lengths of a split are in a program for a GPU, by what the next steps do with its parts.

    Vectors of a rule are no copies.
    """
    split = steps[position]
    assert isinstance(split, SplitStep)
    following = steps[position + 1 :]
    if not split.inner_to_outer and following and isinstance(following[0], RfactorStep):
        return ColumnKind.PARTS
    for step in following:
        if not isinstance(step, AnnotationStep) or step.stage != split.stage:
            break
        if step.iterator == split.iterator + len(split.lengths):
            if Annotation(step.annotation).is_thread:
                return ColumnKind.THREADS
            if step.annotation == Annotation.VECTORIZE and position >= binding_from:
                return ColumnKind.FETCH
    return ColumnKind.TILE


def numbered(name: str, taken: dict[tuple[str, str], int], scope: str = "") -> str:
    """Return `name` the first time it occurs in `scope`, then `name#2`, `name#3`, and so on."""
    count = taken[scope, name] = taken.get((scope, name), 0) + 1
    return name if count == 1 else f"{name}#{count}"


def stage_names(state: State) -> tuple[str, ...]:
    """Return a distinct name for every stage: its own, numbered where several share one."""
    taken: dict[tuple[str, str], int] = {}
    return tuple(numbered(stage.name, taken) for stage in state.stages)


def fill_holes(steps: tuple[Step, ...], holes: tuple[Hole, ...], lengths: Sequence[Any]) -> list[Step]:
    """Return the history with its open splits closed; `lengths` are ints or columns, one per tile column."""
    filled = list(steps)
    for hole in holes:
        split = filled[hole.step]
        assert isinstance(split, SplitStep)
        filled[hole.step] = replace(split, lengths=tuple(lengths[hole.start : hole.stop]))
    return filled
