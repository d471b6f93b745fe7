"""`LocalBuilder`: states become object files or device programs, in worker processes of this machine.

This process lowers a state and writes its LLVM IR, or C for a device; a worker compiles that to bytes, which
is where time goes and where a malformed module or a driver can abort a process. While workers compile, this
process lowers the next states.

What goes wrong with one program is its `BuildResult`. What is no fault of the program (a bug in lowering, a
computation that is defined wrongly) is raised.
"""

from __future__ import annotations

import os
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final

from ansor.checks import check_integer, check_number
from ansor.errors import BuildError, MeasureTimeoutError, RunError, ScheduleError, TargetError
from measure.closing import Closing
from measure.emit import EmittedProgram, emit_program
from measure.host import group_memory
from measure.layouts import built_state
from measure.records.record import BuildResult, MeasureErrorNo, MeasureInput
from measure.scratch import ScratchFolder
from measure.workers.device import Reach, device_environment, prepare_compiler
from measure.workers.jobs import compile_program, prepare_builder
from measure.workers.pool import WorkerPool
from measure.workers.process import RemoteError, WorkerStartError
from measure.workers.processor import CPU, kind_of

MEMORY_SHARE: Final = 0.75


def default_memory_limit() -> int:
    """Bytes of address space that a worker may use: three quarters of the memory that there is."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min(machine, group_memory() or machine) * MEMORY_SHARE)


class ProgramBuilder(Closing, ABC):
    """Makes object files of programs; the interface that a measurer needs.

    Attributes
    ----------
    n_parallel
        Builds that run at the same time.
    """

    n_parallel: int = 1

    @abstractmethod
    def build_each(self, inputs: Sequence[MeasureInput]) -> Iterator[BuildResult]:
        """Yield one result per input, in order, each as soon as it and its predecessors are done."""

    def build(self, inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Build all inputs and return their results in order."""
        return list(self.build_each(inputs))


def emit_input(inp: MeasureInput) -> EmittedProgram:
    """Lower the program of a measure input, its layouts rewritten as the task says, and write its code."""
    state = built_state(inp)
    return emit_program(state, state.dag.tensors, inp.task.target, inp.task.hardware_params)


class LocalBuilder(ProgramBuilder):
    """Compiles in worker processes of this machine.

    Parameters
    ----------
    timeout
        Seconds that compiling one program may take.
    n_parallel
        Worker processes; None for the cores that this process may use.
    memory_limit
        Bytes of address space per worker, but for OpenCL, whose drivers map memory at will; None for three
        quarters of the machine's memory.
    emit
        What turns an input into code; replaced to compile something else.
    executor
        Where to compile instead of in own worker processes; it must apply time limits itself.

    Raises
    ------
    DefinitionError
        If a number is out of range.
    """

    def __init__(
        self,
        timeout: float = 15.0,
        n_parallel: int | None = None,
        *,
        memory_limit: int | None = None,
        emit: Callable[[MeasureInput], EmittedProgram] = emit_input,
        executor: Executor | None = None,
    ) -> None:
        from ansor.task.host import available_cores

        timeout = check_number("LocalBuilder(timeout)", timeout, above=0)
        if n_parallel is not None:
            n_parallel = check_integer("LocalBuilder(n_parallel)", n_parallel, low=1)
        if memory_limit is not None:
            memory_limit = check_integer("LocalBuilder(memory_limit)", memory_limit, low=1)
        self.timeout = timeout
        self.n_parallel = n_parallel or available_cores()
        self._emit = emit
        self._own_executor = executor is None
        self._limit = memory_limit or default_memory_limit()
        self._executor = executor or WorkerPool(
            self.n_parallel, timeout=timeout, memory_limit=self._limit, initializer=prepare_builder
        )
        self._devices: dict[str, WorkerPool] = {}
        self._remove: list[Callable[[], object]] = []
        self._reach = Reach()

    def build_each(self, inputs: Sequence[MeasureInput]) -> Iterator[BuildResult]:
        self.check_open()
        waiting: deque[BuildResult | _Pending] = deque()
        try:
            for inp in inputs:
                waiting.append(self._start(inp))
                while waiting and (len(waiting) > 2 * self.n_parallel or _is_done(waiting[0])):
                    yield self._finish(waiting.popleft())
            while waiting:
                yield self._finish(waiting.popleft())
        finally:
            self._drop(waiting)

    def _start(self, inp: MeasureInput) -> BuildResult | _Pending:
        start = time.perf_counter()
        try:
            program = self._emit(inp)
        except ScheduleError as error:
            return BuildResult.failed(
                MeasureErrorNo.INSTANTIATION_ERROR, str(error), time.perf_counter() - start
            )
        except BuildError as error:
            where = _compile_error(kind_of(inp.task.target))
            return BuildResult.failed(where, str(error), time.perf_counter() - start)
        emitted = time.perf_counter() - start
        executor = self._executor_for(program.kind)
        future = executor.submit(compile_program, program.text, program.machine, program.kind)
        return _Pending(future, program.entry, emitted, program.kind)

    def _executor_for(self, kind: str) -> Executor:
        """Where programs of a kind are compiled: those of OpenCL in workers that have the device open.

        What compilers for devices leave behind when their worker is killed goes with this object.
        """
        if kind == CPU or not self._own_executor:
            return self._executor
        if kind not in self._devices:
            scratch = ScratchFolder()
            self._remove.append(weakref.finalize(self, scratch.remove))
            is_driver = kind == "opencl"
            self._devices[kind] = WorkerPool(
                self.n_parallel,
                timeout=self.timeout,
                memory_limit=None if is_driver else self._limit,
                environment={**device_environment(scratch.path, threads=1), "TMPDIR": str(scratch.path)},
                initializer=prepare_compiler if is_driver else prepare_builder,
            )
        return self._devices[kind]

    def _finish(self, item: BuildResult | _Pending) -> BuildResult:
        if isinstance(item, BuildResult):
            return item
        start = time.perf_counter()
        try:
            built = item.future.result()
        except MeasureTimeoutError as error:
            return BuildResult.failed(
                MeasureErrorNo.BUILD_TIMEOUT, str(error), item.emit_seconds + self.timeout
            )
        except (BuildError, RunError, MemoryError, RemoteError, TargetError) as error:
            if isinstance(error, WorkerStartError) or (item.kind == CPU and isinstance(error, TargetError)):
                raise  # It is not the program's.
            self._reach.note(item.kind, error)
            unknown = isinstance(error, RemoteError)
            where = MeasureErrorNo.UNKNOWN_ERROR if unknown else _compile_error(item.kind)
            text = f"out of memory: {error}" if isinstance(error, MemoryError) else str(error)
            return BuildResult.failed(where, text, item.emit_seconds + time.perf_counter() - start)
        self._reach.note(item.kind, None)
        return BuildResult(built["object"], item.entry, time_cost=item.emit_seconds + float(built["seconds"]))

    def _drop(self, waiting: deque[BuildResult | _Pending]) -> None:
        """Stop what was begun and is not wanted any more: after an error, Ctrl-C, or an early end."""
        pending = [item for item in waiting if isinstance(item, _Pending)]
        for item in pending:
            item.future.cancel()
        if all(item.future.done() for item in pending):
            return
        for executor in (self._executor, *self._devices.values()):
            if isinstance(executor, WorkerPool):
                executor.abort()

    def close(self) -> None:
        self.closed = True
        if self._own_executor:
            self._executor.shutdown(wait=False)
        for pool in self._devices.values():
            pool.shutdown(wait=False)
        for remove in self._remove:
            remove()


class _Pending:
    """A program that is being compiled."""

    __slots__ = ("emit_seconds", "entry", "future", "kind")

    def __init__(self, future: Future[dict[str, Any]], entry: str, emit_seconds: float, kind: str) -> None:
        self.future = future
        self.entry = entry
        self.emit_seconds = emit_seconds
        self.kind = kind


def _compile_error(kind: str) -> MeasureErrorNo:
    """The error code of a program for a kind of processor that could not be compiled."""
    return MeasureErrorNo.COMPILE_HOST if kind == CPU else MeasureErrorNo.COMPILE_DEVICE


def _is_done(item: BuildResult | _Pending) -> bool:
    return isinstance(item, BuildResult) or item.future.done()
