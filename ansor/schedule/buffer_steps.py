"""The step that has a tile in shared memory filled one iteration ahead.

What a program computes does not depend on it. It takes effect where the loop around the copy has more than
one iteration and fills it before all else (`ansor.ir.passes.double_buffers`). TVM's schedules have this
primitive, its records have no such step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ansor.schedule.step_base import Step, refuse, stage_at

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class DoubleBufferStep(Step):
    """Keep a copy in shared memory twice, to fill one while the other is used."""

    code: ClassVar[str] = "DB"
    in_reference: ClassVar[bool] = False
    stage: int

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "double_buffer")
        if stage.scope != "shared":
            raise refuse(
                stage,
                f"double_buffer of stage {stage.name!r}: it is kept in {stage.scope} memory, and only what "
                "the threads of a block share is filled ahead; make it by cache_read(tensor, 'shared', ...)",
            )
        return state.with_stage(self.stage, replace(stage, double_buffer=True))
