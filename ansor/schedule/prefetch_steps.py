"""The steps that ask memory for arrays before they are read.

A row that is passed over several times, as softmax passes over its maximum, its exponentials and their sum,
comes from memory in the first pass; the processor waits there, and memory waits while it computes the rest.
Asked for while the row before it is computed, the row is in the second cache by the time it is wanted.
Windows of several rows are short pieces of memory, which processors do not foresee by themselves.

Which loop's next iteration is asked for depends on what an iteration reads: little of it comes too late, more
than the second cache holds is gone again. So a step says how much room there is, and the loop follows.

A product reads more than that in each iteration of any loop, and has arithmetic to hide it behind: it asks on
the way, for a few lines at a time (`ReadAheadStep`).

What a program computes does not depend on them. Not in TVM's records; its `te` had a primitive `prefetch`,
which asks for a tensor at a loop so many iterations ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ansor.errors import LogFormatError
from ansor.schedule.inlining import effective_reads, inlined_operations
from ansor.schedule.stages import ComputeAt
from ansor.schedule.step_base import Step, is_integer, refuse, stage_at
from ansor.te.tensor import PlaceholderOp, Tensor

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class PrefetchStep(Step):
    """Ask for what a stage reads of the graph's inputs, an iteration of a loop ahead.

    The loop is the outermost one around, the stage's own included, whose iterations read at most `room` bytes
    of inputs; for 0 it is the innermost one that the stage is computed at. Records leave out a 0.
    """

    code: ClassVar[str] = "PF"
    in_reference: ClassVar[bool] = False
    stage: int
    room: int = 0

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "prefetch")
        reason = why_not_prefetch(state, self.stage, self.room)
        if reason:
            raise refuse(stage, f"prefetch of stage {stage.name!r}: {reason}")
        return state.with_stage(self.stage, replace(stage, prefetch=self.room))

    def to_json(self) -> list[Any]:
        return [self.code, self.stage, *([self.room] if self.room else [])]

    @classmethod
    def from_fields(cls, values: Sequence[Any]) -> PrefetchStep:
        """The step of a record's fields."""
        given = (*values, 0) if len(values) == 1 else tuple(values)
        if len(given) != 2 or not all(map(is_integer, given)):
            raise LogFormatError(f"step {cls.code}: expected a stage and a room, found {list(values)!r}")
        return cls(*given)


@dataclass(frozen=True, slots=True)
class ReadAheadStep(Step):
    """Ask, while a reduction goes on, for what it reads next of arrays of more than `least` bytes.

    These are inputs of the graph and what is computed at root before it, such as packed operands. It is done
    where accumulators are in registers (`ansor.ir.passes.read_ahead`).
    """

    code: ClassVar[str] = "RA"
    in_reference: ClassVar[bool] = False
    stage: int
    least: int

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "read_ahead")
        reason = why_not_read_ahead(state, self.stage, self.least)
        if reason:
            raise refuse(stage, f"read_ahead of stage {stage.name!r}: {reason}")
        return state.with_stage(self.stage, replace(stage, read_ahead=self.least))


AskingStep = PrefetchStep | ReadAheadStep
"""What lets a stage ask memory for what it reads ahead."""


def why_not_prefetch(state: State, stage_id: int, room: int = 0) -> str:
    """Say why a computed stage cannot ask for its inputs ahead; empty if it can."""
    stage = state.stages[stage_id]
    if not is_integer(room) or room < 0:
        return f"the room is a number of bytes, found {room!r}"
    if stage.compute_at is ComputeAt.INLINED:
        return "it is inlined and has no loops"
    if not room and stage.compute_at is not ComputeAt.ITER:
        return (
            "there is no loop around it, whose next iteration would be asked for; compute_at it, or say "
            "how many bytes may be asked for, along loops of its own"
        )
    return "" if inputs_read(state, stage_id) else "it reads no input of the graph"


def why_not_read_ahead(state: State, stage_id: int, least: int = 0) -> str:
    """Say why a computed stage cannot ask for its inputs on the way; empty if it can."""
    stage = state.stages[stage_id]
    if not is_integer(least) or least < 0:
        return f"the least size of an array is a number of bytes, found {least!r}"
    if stage.compute_at is ComputeAt.INLINED:
        return "it is inlined and has no loops"
    if stage.combiner is None:
        return "it is no reduction; prefetch asks for what other stages read"
    if whole_when_read(state, stage_id):
        return ""
    return "it reads no input of the graph, and nothing that is computed at root"


def inputs_read(state: State, stage_id: int) -> frozenset[Tensor]:
    """The graph's inputs that a computed stage reads, itself or through inlined ones."""
    return frozenset(x for x in _read(state, stage_id) if isinstance(x.op, PlaceholderOp))


def whole_when_read(state: State, stage_id: int) -> frozenset[Tensor]:
    """What a stage reads that is whole by then: inputs of the graph, and what is computed at root."""
    read = _read(state, stage_id)
    return frozenset(x for x in read if state.stages[state.stage_id(x)].compute_at is ComputeAt.ROOT)


def _read(state: State, stage_id: int) -> frozenset[Tensor]:
    """The tensors that a computed stage reads, itself or through inlined ones."""
    reads = effective_reads(state.stages[stage_id].compute, inlined_operations(state))
    return frozenset(read.tensor for read in reads)
