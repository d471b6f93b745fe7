"""From a state to what a builder process compiles: lowering and code emission, in this process.

Both are plain Python on small trees, need the objects of the search, and take milliseconds; what can take
long or abort the process is LLVM, and that happens elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ansor.depth import with_depth
from ansor.task.target import Target

if TYPE_CHECKING:
    from ansor.codegen.machine import Machine
    from ansor.ir.nest import LoopNest
    from ansor.schedule.state import State
    from ansor.te.tensor import Tensor

ENTRY: Final = "ansor_program"


@dataclass(frozen=True, slots=True)
class EmittedProgram:
    """LLVM IR that defines `entry`, and the machine to compile it for (`Machine.to_json`)."""

    text: str
    entry: str
    machine: dict[str, Any]


@lru_cache(maxsize=16)
def machine_for(target: Target) -> Machine:
    """Return the machine of a target; asking LLVM takes milliseconds, so the answer is kept."""
    from ansor.codegen.machine import Machine

    return Machine.for_target(target)


_MOST_NESTS: Final = 128
_NESTS: OrderedDict[tuple[int, tuple[int, ...], str], tuple[State, LoopNest]] = OrderedDict()
"""Nests made lately, by the identity of their states (which stay alive here), the oldest first."""


def lowered(state: State, tensors: Sequence[Tensor], target: Target) -> LoopNest:
    """
    Lower a state for its target, once: a search that has looked at a nest does not make its builder wait.

    Raises
    ------
    ScheduleError
        If the state cannot be lowered because of a choice that its steps made.
    """
    from ansor.schedule.lowering import lower

    key = (id(state), (*map(id, tensors),), str(target))
    found = _NESTS.get(key)
    if found is not None and found[0] is state:
        return found[1]
    limits = machine_for(target).register_limits
    nest = with_depth(lambda: lower(state, list(tensors), name=ENTRY, limits=limits))
    _NESTS[key] = (state, nest)
    if len(_NESTS) > _MOST_NESTS:
        _NESTS.popitem(last=False)
    return nest


def emit_program(state: State, tensors: Sequence[Tensor], target: Target) -> EmittedProgram:
    """Lower a state and write its code.

    Raises
    ------
    ScheduleError
        If the state cannot be lowered because of a choice that its steps made.
    BuildError
        If there is no code for something in it.
    """
    from ansor.codegen.llvm import emit_llvm

    machine = machine_for(target)
    return EmittedProgram(
        emit_llvm(lowered(state, tensors, target), machine, ENTRY), ENTRY, machine.to_json()
    )
