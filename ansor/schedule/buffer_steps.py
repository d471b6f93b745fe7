"""The steps about how a tile in shared memory is kept: how far ahead it is filled, and in which order.

What a program computes does not depend on them. Tiles are filled ahead where the loop around the copy has
more than one iteration and fills it before all else (`ansor.ir.passes.multi_buffers`). TVM's schedules have a
primitive for two buffers, its records have none of these steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ansor.errors import LogFormatError
from ansor.schedule.step_base import Step, is_integer, refuse, stage_at

if TYPE_CHECKING:
    from ansor.schedule.state import State

_TWO: Final = 2


@dataclass(frozen=True, slots=True)
class MultiBufferStep(Step):
    """Keep a copy in shared memory so many times, to fill all but one while that one is used."""

    code: ClassVar[str] = "DB"
    in_reference: ClassVar[bool] = False
    stage: int
    buffers: int = _TWO

    @classmethod
    def from_fields(cls, values: Sequence[Any]) -> MultiBufferStep:
        """The step of a record's fields; the first records of this step leave two buffers out."""
        given = (*values, _TWO) if len(values) == 1 else tuple(values)
        if len(given) != 2 or not all(map(is_integer, given)):
            raise LogFormatError(
                f"step {cls.code}: expected a stage and a number of buffers, found {list(values)!r}"
            )
        return cls(*given)

    def apply(self, state: State) -> State:
        asked = "double_buffer" if self.buffers == _TWO else "multi_buffer"
        stage = stage_at(state, self.stage, asked)
        if stage.scope != "shared":
            raise refuse(
                stage,
                f"{asked} of stage {stage.name!r}: it is kept in {stage.scope} memory, and only what "
                "the threads of a block share is filled ahead; make it by cache_read(tensor, 'shared', ...)",
            )
        if self.buffers < _TWO:
            raise refuse(
                stage,
                f"{asked} of stage {stage.name!r}: one is used while the others are filled, so it takes 2 "
                f"buffers or more, found {self.buffers}",
            )
        return state.with_stage(self.stage, replace(stage, lead=self.buffers - 1))


@dataclass(frozen=True, slots=True)
class SwizzleStep(Step):
    """Store the rows of a copy in shared memory in different orders, so that threads read from all banks.

    Rows of the last axis have pieces of 16 bytes; where these are a power of two, at least two, they change
    places as `ansor.ir.swizzles` says, and it has no effect elsewhere or where rows are padded.
    """

    code: ClassVar[str] = "SW"
    in_reference: ClassVar[bool] = False
    stage: int

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "swizzle")
        if stage.scope != "shared":
            raise refuse(
                stage,
                f"swizzle of stage {stage.name!r}: it is kept in {stage.scope} memory, and only what the "
                "threads of a block share has banks; make it by cache_read(tensor, 'shared', ...)",
            )
        return state.with_stage(self.stage, replace(stage, swizzle=True))
