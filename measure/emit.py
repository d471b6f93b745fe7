"""From a state to what a builder process compiles: lowering and code emission, in this process.

Both are plain Python on small trees, need the objects of the search, and take milliseconds; what can take
long or abort the process is a compiler, and that happens elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ansor.collector import collector_paused
from ansor.task.target import Target
from measure.workers.processor import CPU, kind_of

if TYPE_CHECKING:
    from ansor.ir.nest import LoopNest
    from ansor.schedule.state import State
    from ansor.task.hardware import HardwareParams
    from ansor.te.tensor import Tensor

ENTRY: Final = "ansor_program"


@dataclass(frozen=True, slots=True)
class EmittedProgram:
    """Code that defines `entry`, and what to compile it for.

    For a CPU the text is LLVM IR and `machine` is `Machine.to_json`; for a device they are the source and the
    rest of its package (`DevicePackage.to_json`). `kind` says which (`measure.workers.processor`). On a CPU
    its outputs are to start on cache lines, as a runner's do (`ArgumentSpec.behind_line`).
    """

    text: str
    entry: str
    machine: dict[str, Any]
    kind: str = CPU


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
    from ansor.runtime.build import lower

    key = (id(state), (*map(id, tensors),), str(target))
    found = _NESTS.get(key)
    if found is not None and found[0] is state:
        return found[1]
    nest = lower(state, list(tensors), name=ENTRY, target=target)
    _NESTS[key] = (state, nest)
    if len(_NESTS) > _MOST_NESTS:
        _NESTS.popitem(last=False)
    return nest


def emit_program(
    state: State, tensors: Sequence[Tensor], target: Target, hardware: HardwareParams | None = None
) -> EmittedProgram:
    """Lower a state and write its code.

    Parameters
    ----------
    hardware
        Limits that a program for a device must keep; None: they are not looked at.

    Raises
    ------
    ScheduleError
        If the state cannot be lowered because of a choice that its steps made, or a kernel breaks a limit.
    BuildError
        If there is no code for something in it.
    """
    with collector_paused():
        nest = lowered(state, tensors, target)
        if kind_of(target) != CPU:
            return _emit_for_device(nest, target, hardware)
        return _emit_for_cpu(nest, target)


def _emit_for_cpu(nest: LoopNest, target: Target) -> EmittedProgram:
    from ansor.codegen.llvm import emit_llvm
    from ansor.codegen.machine import Machine

    machine = Machine.for_target(target)
    text = emit_llvm(nest, machine, ENTRY, aligned=True)
    return EmittedProgram(text, ENTRY, machine.to_json())


def _emit_for_device(nest: LoopNest, target: Target, hardware: HardwareParams | None) -> EmittedProgram:
    from ansor.runtime.device.build import package_nest
    from ansor.task.gpu_limits import verify_gpu

    if hardware is not None:
        verify_gpu(nest, hardware, target.kind)
    package = package_nest(nest, target, ENTRY)
    return EmittedProgram(package.source, ENTRY, package.to_json(), package.kind)
