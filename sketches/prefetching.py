"""Which stages ask memory for the inputs of the next iteration around them.

A row that several stages of one loop pass over comes from memory in the first pass alone. In a softmax its
maximum waits for memory, then memory waits for its exponentials. So a later pass asks for the next row
(`ansor.schedule.prefetch_steps`), where the input is more than the second cache holds. It is no choice of the
search: it costs an instruction a line.

Not in the reference.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ansor.dtypes import dtype_info
from ansor.schedule.prefetch_steps import inputs_read, why_not_prefetch
from ansor.schedule.state import State
from ansor.task.hardware import MachineModel
from ansor.task.target import Target
from ansor.te.expr import int_value
from sketches.relations import is_computed
from sketches.rule import SketchContext


def prefetch_sites(context: SketchContext, state: State) -> tuple[int, ...]:
    """List the stages that pass over inputs after others of the same iteration."""
    if not context.params.cpu_prefetch:
        return ()
    least = _second_cache(str(context.target))
    computed = [stage for stage in range(len(state.stages)) if is_computed(state, stage)]
    return tuple(stage for stage in computed if _passes_again(state, stage, computed, least))


def _passes_again(state: State, stage: int, computed: list[int], least: int) -> bool:
    """Whether the stage reads an input of more bytes than that, as a stage before it in the same loop did."""
    if why_not_prefetch(state, stage):
        return False
    place = state.attach[stage]
    before = [other for other in computed if other < stage and _is_inside(state, other, place)]
    met = {source for other in before for source in inputs_read(state, other)}
    return any(source in met and _bytes(state, source) > least for source in inputs_read(state, stage))


def _is_inside(state: State, stage: int, place: tuple[int, int]) -> bool:
    """Whether a stage is computed at a loop of another one, or further inside."""
    target, position = place
    at = state.attach.get(stage)
    while at is not None:
        if at[0] == target and at[1] >= position:
            return True
        at = state.attach.get(at[0])
    return False


def _bytes(state: State, stage: int) -> int:
    """Size of an input [bytes]; a symbolic one counts as empty."""
    tensor = state.stages[stage].op.output(0)
    return prod(int_value(extent) or 0 for extent in tensor.shape) * dtype_info(tensor.dtype).bytes


@lru_cache(maxsize=64)
def _second_cache(target: str) -> int:
    """Bytes of the cache that a core of a target's machine has to itself."""
    return MachineModel.for_target(Target.parse(target)).l2_bytes
