"""The step that lets an output's stores pass the caches by.

A store through the caches first reads the line that it is about to overwrite, and later evicts another one.
Where the result is much larger than the caches and nobody reads it again soon, both are in vain: streaming
(non-temporal) stores write whole lines to memory and leave the caches to the inputs. Where the result would
have stayed in a cache they cost a trip to memory, so this is a choice of each program.

What a program computes does not depend on it. Code generators apply it to the stores of whole, aligned
vectors; a machine without such instructions has none. A reduction's results stream where registers hold them
from its first term to its last; where it reads partial sums that it has stored, they had better stay in the
caches, and do. Not in TVM's records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ansor.schedule.step_base import Step, refuse, stage_at

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class StreamingStoresStep(Step):
    """Let the vector stores of an output pass the caches by.

    Only for an output that no other stage reads.
    """

    code: ClassVar[str] = "NTS"
    in_reference: ClassVar[bool] = False
    stage: int

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "streaming_stores")
        reason = why_not_streaming(state, self.stage)
        if reason:
            raise refuse(stage, f"streaming_stores of stage {stage.name!r}: {reason}")
        return state.with_stage(self.stage, replace(stage, streaming=True))


def why_not_streaming(state: State, stage_id: int) -> str:
    """Say why the stores of a computed stage may not pass the caches by; empty if they may."""
    if not state.is_output(stage_id):
        return "it is no output, so what it stores is read again"
    readers = state.access.consumers(state.stages[stage_id].op)
    if readers:
        return f"what it stores is read again, by {min(op.name for op in readers)!r}"
    return ""
