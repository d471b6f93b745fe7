"""Frames: what replaying a history with open lengths leaves to be done once they are known.

The steps of a family differ from population to population in the lengths of splits only. Mostly these change
neither the operations nor which loops there are, so the history is replayed once, with its holes, and the
lengths are put into the loops' derivations afterwards. All populations of a family then share their
operations, and whatever is known of those need not be found out again.

Factored reductions and packed tiles are exceptions: how their operations index depends on the lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
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
)
"""Steps that make the same operations and loops whatever the lengths of splits."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """
    A structure with open lengths.

    Parameters
    ----------
    state
        What the history leads to while its holes are open.
    splits
        For each stage that was split, by position: the step behind each of its derivations, -1 for a fuse.
    """

    state: State
    splits: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(cls, dag: ComputeDAG, steps: tuple[Step, ...]) -> Frame | None:
        """Replay a history with holes; None if its operations depend on what fills them."""
        if not all(isinstance(step, _WHATEVER_THE_LENGTHS) for step in steps):
            return None
        state, made = State.initial(dag), dict[int, int]()
        try:
            for position, step in enumerate(steps):
                state = state.apply(step)
                if isinstance(step, SplitStep | FollowSplitStep | FollowFusedSplitStep):
                    made[id(state.stages[step.stage].relations[-1])] = position
        except ScheduleError:
            return None
        splits = {
            stage_id: tuple(made.get(id(relation), -1) for relation in stage.relations)
            for stage_id, stage in enumerate(state.stages)
            if stage.relations
        }
        known = sum(isinstance(r, SplitRelation) for stage in state.stages for r in stage.relations)
        return cls(state, splits) if known == sum(at >= 0 for a in splits.values() for at in a) else None

    def filled(self, steps: tuple[Step, ...]) -> State:
        """Put the lengths of a history without holes into the structure."""
        stages = list(self.state.stages)
        for stage_id, splits in self.splits.items():
            stages[stage_id] = _with_lengths(stages[stage_id], splits, steps)
        return replace(self.state, stages=tuple(stages), steps=steps)


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
