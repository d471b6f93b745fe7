"""`LocalRunner`: programs are run, checked and timed, one after another, in a worker of this machine.

One worker process for each kind of processor, because two programs that are timed side by side disturb each
other. It persists, with the task's arguments in its memory; a program that crashes, hangs or writes where it
must not costs one trial and that process, which is replaced.

What is checked, and when, is told in `measure.workers.jobs.measure_program`; the right answer comes from
`measure.correctness.reference`.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ansor.checks import check_integer, check_number
from ansor.errors import (
    BuildError,
    MeasureTimeoutError,
    RunError,
    TargetError,
    WrongAnswerError,
)
from ansor.runtime.device.door import device_info
from ansor.task.task import Task
from measure.builder import default_memory_limit
from measure.closing import Closing
from measure.correctness.reducers import order_dependence
from measure.correctness.reference import ReferenceStore
from measure.host import check_memory, check_target
from measure.layouts import argument_digits
from measure.records.record import (
    BuildResult,
    LoggedTask,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Seconds,
    mostly_disturbed,
    recover_measure_input,
)
from measure.records.targets import runs_on
from measure.second_chance import PAUSE_SECONDS, SecondChance
from measure.workers.device import PREPARE, Reach, device_environment
from measure.workers.jobs import measure_program, prepare_runner
from measure.workers.pool import WorkerPool
from measure.workers.process import RemoteError, WorkerStartError
from measure.workers.processor import CPU, kind_of

_FAILURES: Final = (BuildError, RunError, MeasureTimeoutError, MemoryError, RemoteError, TargetError)
_SPOILING: Final = (MeasureErrorNo.WRONG_ANSWER, MeasureErrorNo.UNKNOWN_ERROR)
"""Failures after which a worker is not used again."""
_SHARE_OF_CALLS: Final = 0.6
"""Of the time for a program, what its calls may take; the rest is for checks, and for a load beside them."""
_LEAST_SECONDS: Final = 1e-9
"""What a call is taken to last where the clock saw no time pass."""

_note = logging.getLogger(__name__)


class ProgramRunner(Closing, ABC):
    """Runs built programs; the interface that a measurer needs.

    Attributes
    ----------
    noisy
        Whether another measurement of the same program may give another figure, so that it is worth making.
    """

    noisy: bool = False

    @abstractmethod
    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        """Yield one result per program, in order, each as soon as it is there; failed builds pass through."""

    def run(self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]) -> list[MeasureResult]:
        """Run all programs and return their results in order."""
        return list(self.run_each(inputs, builds))

    def check_task(self, task: Task) -> None:
        """Raise an `AnsorError` if no program of this task can be run here; asked before any is built."""


class LocalRunner(ProgramRunner):
    """Runs, checks and times programs in a worker process of this machine.

    Parameters
    ----------
    timeout
        Seconds that running one program may take, checks and repeats together. A program whose first call
        takes more than a quarter of that is not called again: that call is its one cost, without a warm-up
        before it and whatever `number`, `repeat` and `min_repeat_ms` say, rather than a failure. Of others
        that take long there are as many repeats as there is time for.
    number
        Calls that are averaged in one repeat, at first.
    repeat
        Number of costs. Repeats that another load on the machine disturbed are done again, at most so often.
    min_repeat_ms
        Least duration of a repeat in milliseconds; `number` grows until it is reached, and shrinks (to one
        call, if need be) where fewer calls reach it. Two measurements of a program differ by several
        times as much as repeats of one measurement do, so that longer repeats tell little more.
    cooldown_interval
        Seconds of rest after each program.
    enable_cpu_cache_flush
        Empty the caches, of a device its own, before each repeat. Forces ``number=1`` and
        ``min_repeat_ms=0``.
    num_threads
        Threads of parallel loops, and of PoCL if ``POCL_MAX_PTHREAD_COUNT`` is not set; None for what
        `ansor.set_num_threads` or the environment says, to PoCL when its worker starts. For parallel loops a
        target's ``-num-cores`` is an upper limit in any case.
    seed
        Seed of the random inputs.
    memory_limit
        Bytes of address space of the worker, but for devices, whose drivers map memory at will; None for
        three quarters of the machine's memory.
    aligned_inputs
        Inputs begin on cache lines, as those of PyTorch and `ansor.aligned_empty` do; else 16 bytes behind
        one, as large arrays of numpy do. Programs are chosen for what they are measured with, which counts
        where they read vectors of inputs. On devices it makes no difference.
    drop_factor
        A program that takes more than so many times as long as the best one known (`MeasureInput.rival`) has
        one cost, of some milliseconds of calls; None: all are timed alike.

    Raises
    ------
    DefinitionError
        If a number is out of range.
    """

    noisy = True

    def __init__(
        self,
        timeout: float = 10.0,
        number: int = 3,
        repeat: int = 3,
        min_repeat_ms: float = 15.0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        *,
        num_threads: int | None = None,
        seed: int = 0,
        memory_limit: int | None = None,
        aligned_inputs: bool = False,
        drop_factor: float | None = 1.5,
    ) -> None:
        timeout = check_number("LocalRunner(timeout)", timeout, above=0)
        number = check_integer("LocalRunner(number)", number, low=1)
        repeat = check_integer("LocalRunner(repeat)", repeat, low=1)
        min_repeat_ms = check_number("LocalRunner(min_repeat_ms)", min_repeat_ms, low=0)
        cooldown_interval = check_number("LocalRunner(cooldown_interval)", cooldown_interval, low=0)
        seed = check_integer("LocalRunner(seed)", seed, low=0)
        if num_threads is not None:
            num_threads = check_integer("LocalRunner(num_threads)", num_threads, low=1)
        if memory_limit is not None:
            memory_limit = check_integer("LocalRunner(memory_limit)", memory_limit, low=1)
        if drop_factor is not None:
            drop_factor = check_number("LocalRunner(drop_factor)", drop_factor, low=1)
        self.timeout = timeout
        self.drop_factor = drop_factor
        self.number = 1 if enable_cpu_cache_flush else number
        self.repeat = repeat
        self.min_repeat_ms = 0.0 if enable_cpu_cache_flush else min_repeat_ms
        self.cooldown_interval = cooldown_interval
        self.enable_cpu_cache_flush = enable_cpu_cache_flush
        self.num_threads = num_threads
        self.aligned_inputs = aligned_inputs
        self._memory_limit = memory_limit or default_memory_limit()
        self._checked: set[str] = set()
        self._pool = WorkerPool(
            1, timeout=timeout, memory_limit=self._memory_limit, initializer=prepare_runner
        )
        self._references = ReferenceStore(seed, aligned=aligned_inputs)
        self._second_chance = SecondChance()
        self._devices: dict[str, WorkerPool] = {}
        self._reach = Reach()

    @property
    def references(self) -> ReferenceStore:
        """The right answers of the tasks measured last."""
        return self._references

    def check_task(self, task: Task) -> None:
        """Make sure that programs of this task can run on this machine.

        Raises
        ------
        TargetError
            If they are for another architecture, use instructions that this CPU lacks, or need a device that
            is not there.
        RunError
            If there is no room for the task's arguments.
        """
        name = f"{task.key} {task.compute_dag.structure_hash}"
        if name not in self._checked:
            check_target(task.target)
            if kind_of(task.target) == CPU:
                check_memory(task.compute_dag, self._memory_limit)
                self._warn_of_threads(task)
            else:
                check_memory(task.compute_dag, device=device_info(task.target.kind))
            self._checked.add(name)

    def _warn_of_threads(self, task: Task) -> None:
        """Warn where programs are planned for other cores than they run on: records say what was planned."""
        planned, threads = runs_on(task).cores, self._threads()
        if planned not in (None, threads):
            _note.warning(
                "%s is planned for %d cores, as records of it say, and is run on %d threads; make the task "
                "after ansor.set_num_threads(%d), or for the target '%s -num-cores=%d'",
                task.workload_key,
                planned,
                threads,
                threads,
                task.target,
                threads,
            )

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        self.check_open()
        try:
            for inp, build in zip(inputs, builds, strict=True):
                if build.object_bytes is None:
                    yield MeasureResult.failed(build.error_no, build.error_msg, build.time_cost, time.time())
                else:
                    yield self._measure(inp, build, build.object_bytes)
                    if self.cooldown_interval:
                        time.sleep(self.cooldown_interval)
        except BaseException:
            for pool in self._pools():
                pool.abort()
            raise

    def _measure(
        self, inp: MeasureInput, build: BuildResult, object_bytes: bytes, since: float | None = None
    ) -> MeasureResult:
        """Run, check and time a program, which is being measured since then [s]."""
        if isinstance(inp.task, LoggedTask):
            inp = recover_measure_input(inp)
        task = inp.task
        assert not isinstance(task, LoggedTask)
        self.check_task(task)
        threads = self._threads()
        reference = self._references.get(task, self._pool, threads)
        kind = kind_of(task.target)
        pool = self._pool if kind == CPU else self._device_pool(kind)
        start = time.perf_counter() if since is None else since
        try:
            timed = self._undisturbed(
                pool,
                object_bytes,
                build.entry_name,
                reference.to_json(argument_digits(inp)),
                self._timing(inp.rival),
                {"threads": threads, "limit": task.target.num_cores} if kind == CPU else {},
                kind,
            )
        except _FAILURES as error:
            if isinstance(error, WorkerStartError) or (kind == CPU and isinstance(error, TargetError)):
                raise  # It is not the program's.
            self._reach.note(kind, error)
            error_no, message = _classify(error, kind)
            if error_no in _SPOILING or (kind != CPU and error_no is MeasureErrorNo.RUNTIME_DEVICE):
                # Who writes wrong values may have written anywhere, and a device that failed once fails on.
                pool.abort()
            if error_no is MeasureErrorNo.WRONG_ANSWER:
                if self._references.reconsider(task, self._pool, threads):
                    return self._measure(inp, build, object_bytes, start)
                reason = order_dependence(task.compute_dag)
                message += f"; {reason}" if reason else ""
            seconds = build.time_cost + time.perf_counter() - start
            return MeasureResult.failed(error_no, message, seconds, time.time())
        self._reach.note(kind, None)
        seconds = build.time_cost + time.perf_counter() - start
        return MeasureResult(
            tuple(Seconds(max(cost, _LEAST_SECONDS)) for cost in timed["costs"]),
            all_cost=seconds,
            timestamp=int(time.time()),
            disturbed=timed["disturbed"],
            redone=timed["redone"],
        )

    def _device_pool(self, kind: str) -> WorkerPool:
        """The pool of one worker that has the device of a kind open."""
        if kind not in self._devices:
            folder = self._references.make_folder("pocl")
            self._devices[kind] = WorkerPool(
                1,
                timeout=self.timeout,
                environment=device_environment(folder, self._threads()),
                initializer=PREPARE[kind],
            )
        return self._devices[kind]

    def _pools(self) -> tuple[WorkerPool, ...]:
        return (self._pool, *self._devices.values())

    def _undisturbed(self, pool: WorkerPool, *program: Any) -> dict[str, Any]:
        """Time a program, and once more later if a load disturbed most of that and may be over then.

        Of the second turn a wrong answer or a crash counts; a timeout leaves it at the first. A program whose
        one call took too long to be called again has none.
        """
        timed: dict[str, Any] = pool.submit(measure_program, *program).result()
        called_once = len(timed["costs"]) == 1 and timed["costs"][0] > self._longest_call
        if not _is_disturbed(timed) or called_once or not self._second_chance.is_due():
            return timed
        time.sleep(PAUSE_SECONDS)
        try:
            again: dict[str, Any] = pool.submit(measure_program, *program).result()
        except MeasureTimeoutError:
            self._second_chance.taken(helped=False)
            return timed
        helped = not _is_disturbed(again)
        self._second_chance.taken(helped=helped)
        kept, other = (again, timed) if helped else (timed, again)
        return {**kept, "redone": kept["redone"] + other["redone"] + len(other["costs"])}

    @property
    def _longest_call(self) -> float:
        """A program that takes longer [s] is called once."""
        return self.timeout / 4

    def _threads(self) -> int:
        if self.num_threads is not None:
            return self.num_threads
        from ansor.runtime import get_num_threads

        return get_num_threads()

    def _timing(self, rival: float | None) -> dict[str, Any]:
        slow = None if rival is None or self.drop_factor is None else self.drop_factor * rival
        return {
            "number": self.number,
            "repeat": self.repeat,
            "min_repeat_ms": self.min_repeat_ms,
            "flush": self.enable_cpu_cache_flush,
            "longest_call": self._longest_call,
            "all_calls": _SHARE_OF_CALLS * self.timeout,
            "slow_call": slow,
        }

    def close(self) -> None:
        self.closed = True
        for pool in self._pools():
            pool.shutdown(wait=False)
        self._references.close()


def _is_disturbed(timed: dict[str, Any]) -> bool:
    return mostly_disturbed(timed["disturbed"], len(timed["costs"]))


def _classify(error: Exception, kind: str) -> tuple[MeasureErrorNo, str]:
    """The error code and message of what a worker's call for a kind of processor raised."""
    match error:
        case MeasureTimeoutError():
            return MeasureErrorNo.RUN_TIMEOUT, str(error)
        case WrongAnswerError():
            return MeasureErrorNo.WRONG_ANSWER, str(error)
        case BuildError():
            return MeasureErrorNo.COMPILE_HOST if kind == CPU else MeasureErrorNo.COMPILE_DEVICE, str(error)
        case MemoryError():
            return MeasureErrorNo.RUNTIME_DEVICE, f"out of memory: {error}"
        case RunError() | TargetError():
            return MeasureErrorNo.RUNTIME_DEVICE, str(error)
        case _:
            return MeasureErrorNo.UNKNOWN_ERROR, str(error)
