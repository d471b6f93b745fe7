"""Frames: what replaying a history with open lengths leaves to be done once they are known.

The steps of a family differ from population to population in the lengths of splits only. Mostly these change
neither the operations nor which loops there are, so the history is replayed once, with its holes, and the
lengths are put into the loops' derivations afterwards. All populations of a family then share their
operations, and whatever is known of those need not be found out again.

Factored reductions and packed tiles are exceptions: how their operations index depends on the lengths. A
history is then replayed from the first such step on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ansor.errors import ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.extents import Extent
from ansor.schedule.stages import SplitRelation, Stage
from ansor.schedule.state import State
from ansor.schedule.steps import (
    AnnotationStep,
    CacheReadStep,
    CacheWriteStep,
    ComputeAtStep,
    ComputeInlineStep,
    ComputeRootStep,
    DistributeStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    PragmaStep,
    ReorderStep,
    SplitStep,
    Step,
    StoreConvertedStep,
    TensorizeStep,
)

_WHATEVER_THE_LENGTHS: Final = (
    AnnotationStep,
    CacheReadStep,
    CacheWriteStep,
    ComputeAtStep,
    ComputeInlineStep,
    ComputeRootStep,
    DistributeStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    PragmaStep,
    ReorderStep,
    SplitStep,
    StoreConvertedStep,
    TensorizeStep,
)
"""Steps that make the same operations and loops whatever the lengths of splits."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """
    What a history with open lengths leads to before its first step that needs to know them.

    Parameters
    ----------
    state
        What the steps before that one lead to while their holes are open.
    splits
        For each stage that was split, by position: the step behind each of its derivations, -1 for a fuse.
    is_whole
        Whether no step needs to know the lengths; then all that fills the history shares its operations.
    """

    state: State
    splits: Mapping[int, tuple[int, ...]]
    is_whole: bool

    @classmethod
    def of(cls, dag: ComputeDAG, steps: Sequence[Step]) -> Frame:
        """Replay a history with holes, as far as it does not need to know what fills them."""
        return cls(State.initial(dag), {}, is_whole=True).extended(steps)

    def extended(self, steps: Sequence[Step]) -> Frame:
        """The frame of a history that goes on with `steps`."""
        if not self.is_whole:
            return self
        state, first = self.state, len(self.state.steps)
        made = {
            id(relation): at
            for stage_id, splits in self.splits.items()
            for relation, at in zip(state.stages[stage_id].relations, splits, strict=True)
        }
        for position, step in enumerate(steps, start=first):
            if not isinstance(step, _WHATEVER_THE_LENGTHS):
                break
            try:
                state = state.apply(step)
            except ScheduleError:
                break
            if isinstance(step, SplitStep | FollowSplitStep | FollowFusedSplitStep):
                made[id(state.stages[step.stage].relations[-1])] = position
        splits = {
            stage_id: tuple(made.get(id(relation), -1) for relation in stage.relations)
            for stage_id, stage in enumerate(state.stages)
            if stage.relations
        }
        known = sum(isinstance(r, SplitRelation) for stage in state.stages for r in stage.relations)
        if known != sum(at >= 0 for a in splits.values() for at in a):
            return Frame(State.initial(state.dag), {}, is_whole=False)
        return Frame(state, splits, len(state.steps) == first + len(steps))

    def filled(self, steps: Sequence[Step]) -> State:
        """
        Put the lengths of a history without holes into the structure, and replay the rest of it.

        Raises
        ------
        ScheduleError
            If a step of the rest is illegal; the message names its position in the history.
        """
        own, stages = tuple(steps[: len(self.state.steps)]), list(self.state.stages)
        for stage_id, splits in self.splits.items():
            stages[stage_id] = _with_lengths(stages[stage_id], splits, own)
        state = replace(self.state, stages=tuple(stages), steps=own)
        for position in range(len(own), len(steps)):
            state = state.replayed(position, steps[position])
        return state


def _with_lengths(stage: Stage, splits: tuple[int, ...], steps: tuple[Step, ...]) -> Stage:
    relations = tuple(
        replace(relation, lengths=_lengths(steps[at], steps))
        if isinstance(relation, SplitRelation)
        else relation
        for relation, at in zip(stage.relations, splits, strict=True)
    )
    return replace(stage, relations=relations)


def _lengths(step: Step, steps: tuple[Step, ...]) -> tuple[Extent | None, ...]:
    """Lengths of a step that splits a loop."""
    if isinstance(step, SplitStep):
        return tuple(step.lengths)
    if isinstance(step, FollowSplitStep):
        return step.lengths(steps)
    assert isinstance(step, FollowFusedSplitStep)
    return (step.length(steps),)
