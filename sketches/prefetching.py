"""Which stages ask memory for the inputs of the next iteration around them.

A row that several stages of one loop pass over comes from memory in the first pass alone. In a softmax its
maximum waits for memory, then memory waits for its exponentials. So a later pass asks for the next row
(`ansor.schedule.prefetch_steps`), where the input is more than the second cache holds. It is no choice of the
search: it costs an instruction a line.

Not in the reference.
"""

from __future__ import annotations

from ansor.schedule.bounds import enclosing_loops
from ansor.schedule.prefetch_steps import inputs_read, why_not_prefetch
from ansor.schedule.state import State
from sketches.memory import bytes_of, machine_of
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
    before = [other for other in computed if other < stage and place in enclosing_loops(state, other)]
    met = {tensor for other in before for tensor in inputs_read(state, other)}
    return any(bytes_of(tensor) > least for tensor in met & inputs_read(state, stage))


def _second_cache(target: str) -> int:
    """Bytes of the cache that a core of a target's machine has to itself."""
    return machine_of(target).l2_bytes
