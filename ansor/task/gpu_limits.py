"""Whether one GPU program keeps the limits of its device: counted on its kernels, in plain integers.

Populations are checked as columns before anything is lowered (`sketches.limits`). This is the other check, of
a single program by what it became, which shares no code with that one: tests compare the two, and whoever
builds a program that came from elsewhere asks here first.

How many virtual threads a program may have is a matter of the space that is searched. Of kernels they are
code and private memory, which count.

Source: the checks of the reference's GPU verifier, section 7.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ansor.dtypes import dtype_info
from ansor.errors import ScheduleError
from ansor.ir.kernel_form import LAUNCH_KINDS, kernels_of, open_kernel
from ansor.ir.nest import Alloc, For, If, LoopKind, LoopNest, Stmt, Store, sub_statements
from ansor.ir.shared_memory import in_whole
from ansor.task.hardware import HardwareParams
from ansor.te.expr import int_value

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(slots=True)
class KernelCount:
    """
    What one kernel of a nest takes.

    Attributes
    ----------
    threads
        Of a block.
    shared_bytes, local_bytes
        Memory allocated for a block, and for a thread, registers not counted; of what is on the two sides of
        a condition a thread has one at a time.
    vector_bytes
        The longest vector loop, by what it stores.
    """

    threads: int
    shared_bytes: int = 0
    local_bytes: int = 0
    vector_bytes: int = 0


def verify_gpu(program: State | LoopNest, hardware: HardwareParams) -> None:
    """
    Refuse a program that a device cannot run.

    Parameters
    ----------
    program
        A program, or the kernels that it was lowered to.
    hardware
        The device's limits; one that is 0 is not known.

    Raises
    ------
    ScheduleError
        If a kernel takes more than the device has; it names the kernel, and what it takes.
    """
    faults = gpu_faults(program, hardware)
    if faults:
        raise ScheduleError(
            "the program does not fit the GPU: "
            + "; ".join(faults)
            + "; choose smaller tiles, or fewer threads"
        )


def gpu_faults(program: State | LoopNest, hardware: HardwareParams) -> tuple[str, ...]:
    """List the limits that a program breaks, in words; none if a device can run it."""
    nest = program if isinstance(program, LoopNest) else _lowered(program)
    limits = hardware.limits
    faults: list[str] = []
    for number, kernel in enumerate(count_kernels(nest)):
        taken = (
            ("threads in a block", kernel.threads, limits.max_threads_per_block),
            ("bytes of shared memory", kernel.shared_bytes, limits.max_shared_memory_per_block),
            ("bytes of memory of each thread", kernel.local_bytes, limits.max_local_memory_per_block),
            ("bytes in a vector", kernel.vector_bytes, limits.vector_unit_bytes),
        )
        faults += [f"kernel {number} takes {n} {what}, of {most}" for what, n, most in taken if n > most]
    return tuple(faults)


def _lowered(state: State) -> LoopNest:
    from ansor.schedule.lowering import lower

    return lower(state, kernels=True)


def count_kernels(nest: LoopNest) -> list[KernelCount]:
    """
    Count what each kernel of a nest in kernel form takes, kernels in order.

    Raises
    ------
    ScheduleError
        If the nest is not in kernel form.
    """
    found: list[KernelCount] = []
    for kernel in kernels_of(nest):
        opened = open_kernel(kernel)
        found.append(KernelCount(prod(_length(loop, nest) for loop in opened.threads)))
        _count(opened.body, 1, found[-1], nest)
    return found


def _count(stmt: Stmt, lanes: int, into: KernelCount, nest: LoopNest) -> None:
    """Add what a statement inside of vector loops of so many `lanes` takes."""
    match stmt:
        case For(kind=LoopKind.VECTORIZED):
            lanes *= _length(stmt, nest)
        case For(kind=kind) if kind in LAUNCH_KINDS or kind is LoopKind.VTHREAD:
            raise _no_kernels(nest, f"a {kind} loop stands inside of a kernel")
        case Alloc(buffer=buffer) if buffer.scope == "shared":
            into.shared_bytes += in_whole(buffer.size_bytes)
        case Alloc(buffer=buffer) if buffer.scope == "local":
            into.local_bytes += buffer.size_bytes
        case Store(buffer=buffer):
            into.vector_bytes = max(into.vector_bytes, lanes * dtype_info(buffer.dtype).bytes)
        case If():
            before = most = into.local_bytes
            for side in sub_statements(stmt):
                into.local_bytes = before
                _count(side, lanes, into, nest)
                most = max(most, into.local_bytes)
            into.local_bytes = most
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
