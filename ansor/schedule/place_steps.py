"""The steps that say where a stage is computed and where its result is kept.

Source: the step table of TVM's auto_scheduler (v0.16); `SetScopeStep` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ansor.schedule.derivation import loop_extents
from ansor.schedule.stages import ComputeAt
from ansor.schedule.step_base import Step, iterator_at, refuse, refuse_stage_in_lanes, stage_at

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class ComputeAtStep(Step):
    """Compute a stage inside a loop of a stage that uses it.

    Its loops then cover only what the iteration of the target loop needs; their extents are unknown
    until bound inference.
    """

    code: ClassVar[str] = "CA"
    stage: int
    target_stage: int
    target_iterator: int

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "compute_at")
        target, _ = iterator_at(state, self.target_stage, self.target_iterator, "compute_at")
        _refuse_output(state, self.stage, "compute_at")
        if self.target_stage not in state.transitive_consumers(self.stage):
            raise refuse(
                target,
                f"compute_at: stage {target.name!r} does not consume stage {stage.name!r}; its consumers are "
                + (
                    ", ".join(repr(state.stages[c].name) for c in sorted(state.consumers(self.stage)))
                    or "none"
                ),
                self.target_iterator,
            )
        loops = tuple(replace(loop, extent=None) for loop in stage.iterators)
        moved = replace(stage, compute_at=ComputeAt.ITER, iterators=loops)
        placed = state.with_stage(self.stage, moved).with_attach(
            self.stage, (self.target_stage, self.target_iterator)
        )
        refuse_stage_in_lanes(placed, self.target_stage, "compute_at")
        return placed


def _refuse_output(state: State, stage: int, what: str) -> None:
    if state.is_output(stage):
        raise refuse(
            state.stages[stage],
            f"{what}: stage {state.stages[stage].name!r} is an output and has to stay at root",
        )


@dataclass(frozen=True, slots=True)
class ComputeRootStep(Step):
    """Compute a stage in a loop nest of its own, whose loops cover all of its axes."""

    code: ClassVar[str] = "CR"
    stage: int

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "compute_root")
        extents = loop_extents(stage)
        loops = tuple(replace(loop, extent=extents.get(loop.name)) for loop in stage.iterators)
        moved = replace(stage, compute_at=ComputeAt.ROOT, iterators=loops)
        return state.with_stage(self.stage, moved).with_attach(self.stage, None)


@dataclass(frozen=True, slots=True)
class ComputeInlineStep(Step):
    """Substitute a stage's expression into its consumers; not for reductions, outputs or attach targets."""

    code: ClassVar[str] = "CI"
    stage: int

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "compute_inline")
        _refuse_output(state, self.stage, "compute_inline")
        if stage.combiner is not None:
            raise refuse(stage, f"compute_inline: stage {stage.name!r} is a reduction and cannot be inlined")
        for position in range(len(stage.iterators)):
            inner = state.attached_to(self.stage, position)
            if inner:
                raise refuse(
                    stage,
                    f"compute_inline: {state.stages[inner[0]].name!r} is computed inside {stage.name!r}; "
                    "move it first",
                    position,
                )
        moved = replace(stage, compute_at=ComputeAt.INLINED)
        return state.with_stage(self.stage, moved).with_attach(self.stage, None)


@dataclass(frozen=True, slots=True)
class SetScopeStep(Step):
    """Store a stage's result in `scope`: "global", "local" or "shared"."""

    code: ClassVar[str] = "SCOPE"
    in_reference: ClassVar[bool] = False
    stage: int
    scope: str

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "set_scope")
        if self.scope not in ("global", "local", "shared"):
            raise refuse(
                stage,
                f"set_scope of stage {stage.name!r}: unknown scope {self.scope!r}; "
                "use 'global', 'local' or 'shared'",
            )
        if state.is_output(self.stage):
            raise refuse(
                stage,
                f"set_scope: stage {stage.name!r} is an output, which the caller stores; cache_write it",
            )
        return state.with_stage(self.stage, replace(stage, scope=self.scope))
