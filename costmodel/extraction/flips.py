"""What the signs of bytes cost a tensor intrinsic that multiplies unsigned by signed ones.

It takes a factor of the other sign than the program has it (`ansor.codegen.llvm.flipping`): the factor that
all lanes share is flipped once for each load, unless it lies in a copy of the program's own, which is stored
flipped; and each load of the other factor is multiplied once more for what that adds.
"""

from __future__ import annotations

from ansor.intrinsics import TensorIntrinsic, get_tensor_intrinsic, is_warp_intrinsic
from ansor.schedule.stages import innermost_pieces
from ansor.schedule.state import State
from ansor.schedule.steps import TensorizeStep
from ansor.te.expr import free_vars
from costmodel.extraction.body import Access
from sketches.relations import is_tensorized


def flips(state: State, stage_id: int, access: Access) -> bool:
    """Whether each load of a factor takes a tensorized stage of a CPU one more instruction."""
    if not is_tensorized(state, stage_id):
        return False
    dtype = access.tensor.dtype
    if not any(one.flipped is not None and dtype in _dtypes(one) for one in _intrinsics(state)):
        return False
    stage = state.stages[stage_id]
    lanes = innermost_pieces(stage, stage.iterators[-2].name)
    varies = lanes is not None and lanes[-1] in {axis.name for axis in free_vars(*access.indices)}
    return varies or state.stages[state.stage_id(access.tensor)].is_placeholder


def _intrinsics(state: State) -> list[TensorIntrinsic]:
    """Those of a CPU that the program is written for."""
    names = [step.intrinsic for step in state.steps if isinstance(step, TensorizeStep)]
    return [get_tensor_intrinsic(name) for name in names if not is_warp_intrinsic(name)]


def _dtypes(intrinsic: TensorIntrinsic) -> set[str]:
    return {operand.dtype for operand in intrinsic.operands}
