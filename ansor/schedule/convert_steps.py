"""The step that stores a stage's result as its readers convert it.

Products of 16-bit floats are summed up in float32: each operand is converted where it is used, as often as it
is used. An operand that has been stored before, by padding or packing, can be converted there instead, once,
for a larger buffer. The same number is given to the same conversion, so results are the same to the last bit.

Not in TVM's records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeGuard

from ansor.schedule.rebuilding import rebuild, replace_body, reread
from ansor.schedule.stages import Annotation, ComputeAt, Stage
from ansor.schedule.step_base import Step, refuse, stage_at
from ansor.te.expr import Cast, Expr, Read, cast, distinct_nodes
from ansor.te.tensor import Tensor

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class StoreConvertedStep(Step):
    """Store a stage's result in the dtype that all its readers convert it to."""

    code: ClassVar[str] = "SC"
    in_reference: ClassVar[bool] = False
    stage: int

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "store_converted")
        dtype, reason = wanted_dtype(state, self.stage)
        if reason:
            raise refuse(stage, f"store_converted of stage {stage.name!r}: {reason}")
        op = stage.compute
        made = replace_body(op, (cast(op.body[0], dtype),))
        old, new = op.output(0), made.output(0)

        def change(node: Expr) -> Expr | None:
            if isinstance(node, Cast) and _reads(node.a, old):
                return Read(new, node.a.indices, new.dtype)
            return None

        converted = state.with_stage(self.stage, stage.with_op(made))
        stages = rebuild(converted.stages, lambda other: reread(other, (old,), change))
        return state.with_stages(stages, len(stages), 0)


def wanted_dtype(state: State, stage_id: int) -> tuple[str, str]:
    """The dtype that all readers of a computed stage convert its result to; or else empty, and why."""
    stage = state.stages[stage_id]
    readers = [other for other in state.stages if stage.op.output(0) in other.op.input_tensors]
    reason = _why_not_any(state, stage_id, readers)
    if reason:
        return "", reason
    wanted = _dtypes_of_uses(stage.op.output(0), readers)
    if stage.op.output(0).dtype in wanted:
        return "", "not all of its readers convert it"
    if len(wanted) > 1:
        return "", f"its readers convert it to {' and '.join(sorted(wanted))}"
    return wanted.pop(), ""


def _why_not_any(state: State, stage_id: int, readers: Sequence[Stage]) -> str:
    """Say why a computed stage cannot store its result in any other dtype; empty if it can."""
    stage = state.stages[stage_id]
    if state.is_output(stage_id):
        return "it is an output, which the caller wants as it is defined; cache_read it and convert the copy"
    if stage.compute_at is ComputeAt.INLINED:
        return "it is inlined, and stores nothing"
    if stage.op.num_outputs != 1:
        return "it has several outputs"
    if stage.combiner is not None:
        return "a reduction is done in the dtype of its result; cache_read it and convert the copy"
    for reader in readers:
        if any(loop.annotation is Annotation.TENSORIZE for loop in reader.iterators):
            return f"the tensor intrinsic of {reader.name!r} reads it as it is"
    return ""


def _dtypes_of_uses(tensor: Tensor, readers: Sequence[Stage]) -> set[str]:
    """The dtypes to which stages that read a tensor convert it, its own among them where they do not."""
    found: set[str] = set()
    for reader in readers:
        for root in reader.compute.body:
            if _reads(root, tensor):
                found.add(tensor.dtype)
            for node in distinct_nodes(root):
                if any(_reads(child, tensor) for child in node.children()):
                    found.add(node.dtype if isinstance(node, Cast) else tensor.dtype)
    return found


def _reads(node: Expr, tensor: Tensor) -> TypeGuard[Read]:
    return isinstance(node, Read) and node.tensor == tensor
