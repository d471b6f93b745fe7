"""Whether one GPU program keeps the limits of its device: counted on its kernels, in plain integers.

Populations are checked as columns before anything is lowered (`sketches.limits`). This is the other check, of
a single program by what it became, which counts by itself: tests compare the two. Whoever builds a program
that came from elsewhere asks here first, as builders of programs to be measured do.

How many virtual threads a program may have is a matter of the space that is searched. Of kernels they are
code and private memory, which count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansor.dtypes import dtype_info
from ansor.errors import ScheduleError
from ansor.ir.kernel_form import BLOCK_KINDS, LAUNCH_KINDS, THREAD_KINDS, kernels_of, open_kernel
from ansor.ir.nest import Alloc, For, If, LoopKind, LoopNest, Stmt, Store, sub_statements
from ansor.ir.shared_memory import in_whole
from ansor.task.hardware import HardwareParams
from ansor.task.limits import KernelCount, Limits, Triple
from ansor.te.expr import int_value

if TYPE_CHECKING:
    from ansor.schedule.state import State


def verify_gpu(program: State | LoopNest, hardware: HardwareParams, kind: str = "") -> None:
    """
    Refuse a program that a device cannot run.

    Parameters
    ----------
    program
        A program, or the kernels that it was lowered to.
    hardware
        The device's limits; one that is 0 is not known.
    kind
        The kind of target, such as "cuda": what all devices of the kind allow along single dimensions counts,
        too.

    Raises
    ------
    ScheduleError
        If a kernel takes more than the device has; it names the kernel, and what it takes.
    """
    faults = gpu_faults(program, hardware, kind)
    if faults:
        raise ScheduleError(f"the program does not fit the GPU: {'; '.join(faults)}")


def gpu_faults(program: State | LoopNest, hardware: HardwareParams, kind: str = "") -> tuple[str, ...]:
    """List the limits that a program breaks, in words; none if a device can run it."""
    nest = program if isinstance(program, LoopNest) else _lowered(program)
    limits = Limits.of_hardware(hardware, kind)
    return tuple(
        f"kernel {number} {fault}"
        for number, kernel in enumerate(count_kernels(nest))
        for fault in limits.broken_by(kernel)
    )


def _lowered(state: State) -> LoopNest:
    from ansor.schedule.lowering import lower

    return lower(state, kernels=True)


def count_kernels(nest: LoopNest) -> list[KernelCount]:
    """
    Count what each kernel of a nest in kernel form takes, kernels in order.

    Blocks whose number depends on symbolic sizes count as one along that dimension. Of the memory on the two
    sides of a condition a thread has one at a time.

    Raises
    ------
    ScheduleError
        If the nest is not in kernel form.
    """
    found: list[KernelCount] = []
    for kernel in kernels_of(nest):
        opened = open_kernel(kernel)
        for loop in opened.threads:
            _length(loop, nest)
        memory = _Memory()
        _count(opened.body, 1, memory, nest)
        grid, block = _extents(opened.blocks, BLOCK_KINDS), _extents(opened.threads, THREAD_KINDS)
        found.append(KernelCount(grid, block, memory.shared, memory.local, memory.vector))
    return found


def _extents(loops: Sequence[For], kinds: Sequence[LoopKind]) -> Triple:
    """Extents along x, y and z of the loops of a launch, whose `kinds` are in the order z, y, x."""
    extents = {loop.kind: int_value(loop.extent) or 1 for loop in loops}
    z, y, x = (extents.get(kind, 1) for kind in kinds)
    return x, y, z


@dataclass(slots=True)
class _Memory:
    """Bytes met so far: shared by a block, of a thread, and in the longest vector."""

    shared: int = 0
    local: int = 0
    vector: int = 0


def _count(stmt: Stmt, lanes: int, into: _Memory, nest: LoopNest) -> None:
    """Add what a statement inside of vector loops of so many `lanes` takes."""
    match stmt:
        case For(kind=LoopKind.VECTORIZED):
            lanes *= _length(stmt, nest)
        case For(kind=kind) if kind in LAUNCH_KINDS or kind is LoopKind.VTHREAD:
            raise _no_kernels(nest, f"a {kind} loop stands inside of a kernel")
        case Alloc(buffer=buffer) if buffer.scope == "shared":
            into.shared += in_whole(buffer.size_bytes)
        case Alloc(buffer=buffer) if buffer.scope == "local":
            into.local += buffer.size_bytes
        case Store(buffer=buffer):
            into.vector = max(into.vector, lanes * dtype_info(buffer.dtype).bytes)
        case If():
            before = most = into.local
            for side in sub_statements(stmt):
                into.local = before
                _count(side, lanes, into, nest)
                most = max(most, into.local)
            into.local = most
            return
        case _:
            pass
    for inner in sub_statements(stmt):
        _count(inner, lanes, into, nest)


def _length(loop: For, nest: LoopNest) -> int:
    extent = int_value(loop.extent)
    if extent is None:
        raise _no_kernels(nest, f"the {loop.kind} loop {loop.var.name!r} has the extent `{loop.extent}`")
    return extent


def _no_kernels(nest: LoopNest, why: str) -> ScheduleError:
    return ScheduleError(
        f"{nest.name} is not in the form of kernels: {why}; lower the program for its GPU, as in "
        "ansor.lower(schedule, tensors, target='cuda')"
    )
