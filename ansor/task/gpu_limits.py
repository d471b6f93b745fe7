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
    return [_Counter(outside).run(stmt) for stmt in _kernels(nest.body, outside)]


def _kernels(stmt: Stmt, outside: list[Buffer]) -> Iterator[Stmt]:
    """The statements that are kernels; what is allocated around them goes to `outside`."""
    if isinstance(stmt, Alloc):
        outside.append(stmt.buffer)
        yield from _kernels(stmt.body, outside)
    elif isinstance(stmt, Seq):
        for inner in stmt.stmts:
            yield from _kernels(inner, outside)
    else:
        yield stmt


class _Counter:
    def __init__(self, outside: list[Buffer]) -> None:
        self.outside = outside
        self.found = KernelCount()
        self.private: set[Buffer] = set()

    def run(self, kernel: Stmt) -> KernelCount:
        self._visit(kernel, [])
        stored = {stmt.buffer for stmt in walk_statements(kernel) if isinstance(stmt, Store)}
        for buffer in self.outside:  # A kernel of one block: its scratch stands beside it.
            if buffer in stored and buffer.scope != "global":
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
        elif buffer.scope != "global" or alone:
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
