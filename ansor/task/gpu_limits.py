"""Whether one GPU program keeps the limits of its device: counted on its loop nest, in plain integers.

Populations are checked as columns before anything is lowered (`sketches.limits`). This is the other check, of
a single program by what it became, which shares no code with that one: tests compare the two, and whoever
builds a program that came from elsewhere asks here first.

A nest may be in kernel form, or as a schedule says it (`simple_mode`), where loops bound to one thread index
may lie within each other.

Source: the checks of the reference's GPU verifier, section 7.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Final

from ansor.dtypes import dtype_info
from ansor.errors import ScheduleError
from ansor.ir.nest import (
    Alloc,
    Buffer,
    For,
    LoopKind,
    LoopNest,
    Seq,
    Stmt,
    Store,
    sub_statements,
    walk_statements,
)
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.task.hardware import HardwareParams
from ansor.te.expr import Load, free_vars, int_value, walk

_THREADS: Final = (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)
_BLOCKS: Final = (LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.BLOCK_Z)


@dataclass(slots=True)
class KernelCount:
    """
    What one kernel of a nest takes.

    Attributes
    ----------
    threads
        The lengths of the loops bound to each thread index.
    vthreads
        Virtual threads of a thread.
    shared_bytes, local_bytes
        Of a block, and of a thread.
    vector_bytes
        The longest vector loop, by what it stores.
    """

    threads: dict[LoopKind, set[int]] = field(default_factory=dict)
    vthreads: int = 1
    shared_bytes: int = 0
    local_bytes: int = 0
    vector_bytes: int = 0

    @property
    def block_threads(self) -> int:
        """Threads of a block: the longest loop of each index."""
        return prod(max(lengths) for lengths in self.threads.values())


def verify_gpu(program: State | LoopNest, hardware: HardwareParams) -> None:
    """
    Refuse a program that a device cannot run.

    Parameters
    ----------
    program
        A program, or the nest it was lowered to.
    hardware
        The device's limits.

    Raises
    ------
    ScheduleError
        If a kernel takes more than the device has, or loops bound to one thread index differ in length; it
        names the kernel, and what it takes.
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
    nest = lower(program, simple_mode=True) if isinstance(program, State) else program
    faults: list[str] = []
    for number, kernel in enumerate(count_kernels(nest)):
        taken = (
            ("threads in a block", kernel.block_threads, hardware.max_threads_per_block),
            ("virtual threads", kernel.vthreads, hardware.max_vthread_extent),
            ("bytes of shared memory", kernel.shared_bytes, hardware.max_shared_memory_per_block),
            ("bytes of memory of each thread", kernel.local_bytes, hardware.max_local_memory_per_block),
            ("bytes in a vector", kernel.vector_bytes, hardware.vector_unit_bytes),
        )
        faults += [f"kernel {number} takes {n} {what}, of {most}" for what, n, most in taken if n > most]
        faults += [
            f"kernel {number} binds loops of {', '.join(map(str, sorted(lengths)))} iterations to {kind}"
            for kind, lengths in kernel.threads.items()
            if len(lengths) > 1
        ]
    return tuple(faults)


def count_kernels(nest: LoopNest) -> list[KernelCount]:
    """Count what each kernel of a nest takes, kernels in order; scratch between them is no kernel's."""
    outside: list[Buffer] = []
    list(_statements(nest.body, outside))
    kernels = kernel_statements(nest.body)
    users = [{buffer for stmt in kernel for buffer in _used(stmt)} for kernel in kernels]
    own = [
        [x for x in outside if x.scope != "global" and x in used and sum(x in one for one in users) == 1]
        for used in users
    ]
    return [_Counter().run(kernel, scratch) for kernel, scratch in zip(kernels, own, strict=True)]


def kernel_statements(body: Stmt) -> list[list[Stmt]]:
    """
    Divide the outer statements of a nest into those of each kernel.

    A kernel of one block and one thread has no loop around it, and may be several statements: those that
    store the same buffer, or use the same scratch that is not in the device's memory, with all between them.
    """
    outside: list[Buffer] = []
    statements = list(_statements(body, outside))
    scratch = {buffer for buffer in outside if buffer.scope != "global"}
    last: dict[Buffer, int] = {}
    for number, stmt in enumerate(statements):
        if not _is_launched(stmt):
            stored = {one.buffer for one in walk_statements(stmt) if isinstance(one, Store)}
            last.update(dict.fromkeys(stored | (scratch & set(_used(stmt))), number))
    kernels: list[list[Stmt]] = []
    end = -1
    for number, stmt in enumerate(statements):
        if number > end:
            kernels.append([])
        kernels[-1].append(stmt)
        end = max([end, *(last.get(buffer, -1) for buffer in _used(stmt) if not _is_launched(stmt))])
    return kernels


def _is_launched(stmt: Stmt) -> bool:
    """Whether a statement is a loop over blocks or threads, and so a whole kernel."""
    return isinstance(stmt, For) and stmt.kind in (*_BLOCKS, *_THREADS, LoopKind.VTHREAD)


def _used(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that a statement stores to or reads."""
    for one in walk_statements(stmt):
        if isinstance(one, Store):
            yield one.buffer
            yield from (node.buffer for node in walk(one.value) if isinstance(node, Load))


def _statements(stmt: Stmt, outside: list[Buffer]) -> Iterator[Stmt]:
    """The outer statements; what is allocated around them goes to `outside`."""
    if isinstance(stmt, Alloc):
        outside.append(stmt.buffer)
        yield from _statements(stmt.body, outside)
    elif isinstance(stmt, Seq):
        for inner in stmt.stmts:
            yield from _statements(inner, outside)
    else:
        yield stmt


class _Counter:
    def __init__(self) -> None:
        self.found = KernelCount()
        self.private: set[Buffer] = set()

    def run(self, kernel: list[Stmt], scratch: list[Buffer]) -> KernelCount:
        """Count a kernel; of one block, its own `scratch` may stand outside."""
        for stmt in kernel:
            self._visit(stmt, [])
        for buffer in scratch:
            self._allocate(buffer, [])
        return self.found

    def _visit(self, stmt: Stmt, around: list[For]) -> None:
        if isinstance(stmt, For):
            self._loop(stmt, around)
            around = [*around, stmt]
        elif isinstance(stmt, Alloc):
            self._allocate(stmt.buffer, around)
        elif isinstance(stmt, Store):
            self._store(stmt, around)
        for inner in sub_statements(stmt):
            self._visit(inner, around)

    def _loop(self, loop: For, around: list[For]) -> None:
        if loop.kind in _THREADS:
            self.found.threads.setdefault(loop.kind, set()).add(_length(loop))
        elif loop.kind is LoopKind.VTHREAD:
            virtual = prod(_length(one) for one in (*around, loop) if one.kind is LoopKind.VTHREAD)
            self.found.vthreads = max(self.found.vthreads, virtual)

    def _allocate(self, buffer: Buffer, around: list[For]) -> None:
        kinds = {loop.kind for loop in around}
        if kinds & {*_THREADS}:
            self.private.add(buffer)
        alone = bool(kinds & {*_THREADS, LoopKind.VTHREAD})
        if buffer.scope == "shared" or (buffer.scope == "global" and not alone and kinds & {*_BLOCKS}):
            self.found.shared_bytes += _bytes(buffer)
        elif buffer.scope == "local" or (buffer.scope == "global" and alone):
            virtual = prod(_length(loop) for loop in around if loop.kind is LoopKind.VTHREAD)
            self.found.local_bytes += _bytes(buffer) * virtual

    def _store(self, store: Store, around: list[For]) -> None:
        lanes = prod(_length(loop) for loop in around if loop.kind is LoopKind.VECTORIZED)
        size = dtype_info(store.buffer.dtype).bytes
        self.found.vector_bytes = max(self.found.vector_bytes, lanes * size)
        threads = [loop for loop in around if loop.kind in _THREADS]
        used = {var for index in store.indices for var in free_vars(index)}
        together = store.buffer not in self.private and any(loop.var not in used for loop in threads)
        if together and any(
            isinstance(one, Load) and one.buffer is store.buffer for one in walk(store.value)
        ):
            self.found.shared_bytes += size * prod(map(_length, threads))  # their partial results


def _length(loop: For) -> int:
    extent = int_value(loop.extent)
    if extent is None:
        raise ScheduleError(
            f"the loop {loop.var.name!r} on {loop.kind} has the symbolic length {loop.extent}; split it by a "
            "constant and bind the inner part"
        )
    return extent


def _bytes(buffer: Buffer) -> int:
    try:
        return buffer.size_bytes
    except ValueError as error:
        raise ScheduleError(f"{error}; scratch of a kernel has to have a constant one") from None
