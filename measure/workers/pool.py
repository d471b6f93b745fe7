"""`WorkerPool`: worker processes behind the interface of `concurrent.futures.Executor`.

Builders and runners only use `submit(function, *args)` and the future it returns, so that another executor
(Dask's, say) can take the pool's place. Functions are named, not sent: they must be importable from a module,
and their arguments and results are plain values and byte strings (see `wire`).

What the pool adds to the interface is what measuring needs: a time limit per call, memory limits, a crash
that is an exception of that one future while the worker is replaced, and `abort`, which ends all work.

One thread per worker waits for it; idle workers cost nothing. Everything ends with the pool, with the
interpreter, and (see `worker`) with the death of this process. A copy of this process that `os.fork`
made has none of it: it can neither use a pool nor end it. A pool lives as long as somebody keeps
it or a call is not done yet: what was submitted is carried out, whatever becomes of the pool's name.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from ansor.errors import RunError
from measure.workers.process import WorkerProcess

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class _Epoch:
    """What `abort` ends: the calls submitted under a number. It is raised before workers are killed."""

    number: int = 0

    def is_past(self, number: int) -> bool:
        return number != self.number


@dataclass(frozen=True, slots=True)
class _Job:
    """A call that is to be made; it keeps the pool, whose end would be the worker's."""

    pool: WorkerPool
    epoch: int
    future: Future[Any]
    function: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    timeout: float | None


_Jobs = queue.SimpleQueue[_Job | None]


class WorkerPool(Executor):
    """Runs functions in persistent worker processes.

    Parameters
    ----------
    n_workers
        Number of processes; each is started when there is work for it.
    timeout
        Seconds that a call may take; None for no limit. A call that takes longer ends with a
        `MeasureTimeoutError` and its worker is replaced.
    memory_limit
        Bytes of address space per worker; None for no limit.
    environment
        Variables set in the workers' environment.
    initializer
        A function without arguments that each worker calls when it starts. Its time counts as the start's, so
        that no call's time limit has to allow for imports.
    """

    def __init__(
        self,
        n_workers: int = 1,
        *,
        timeout: float | None = None,
        memory_limit: int | None = None,
        environment: Mapping[str, str] | None = None,
        initializer: Callable[[], object] | None = None,
    ) -> None:
        if n_workers < 1:
            raise ValueError(f"a pool needs at least one worker, found n_workers={n_workers}")
        self.n_workers = n_workers
        self.timeout = timeout
        self._jobs: _Jobs = queue.SimpleQueue()
        first = None if initializer is None else function_name(initializer)
        self._processes = [WorkerProcess(memory_limit, environment, first) for _ in range(n_workers)]
        self._threads: list[threading.Thread] = []
        self._epoch = _Epoch()
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._finish = weakref.finalize(
            self, _finish, self._owner, self._jobs, self._processes, self._threads, self._epoch
        )

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call an importable function in a worker, with the pool's time limit.

        The future's exception is one of those of `WorkerProcess.call`.
        """
        return self.submit_timed(self.timeout, fn, *args, **kwargs)

    def submit_timed(
        self, timeout: float | None, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """As `submit`, with a time limit of its own in seconds.

        Raises
        ------
        RunError
            If this is a forked copy of the process that made the pool: its workers answer the other one.
        RuntimeError
            If the pool was shut down, or the system starts no more threads; nothing is submitted then.
        """
        if not self._is_ours:
            raise RunError(
                f"this process ({os.getpid()}) was forked from the one that made the pool ({self._owner}); "
                "make builders and runners of its own in it"
            )
        future: Future[T] = Future()
        with self._lock:
            if not self._finish.alive:
                raise RuntimeError("cannot submit work to a pool that was shut down")
            job = _Job(self, self._epoch.number, future, function_name(fn), args, kwargs, timeout)
            if len(self._threads) < self.n_workers:
                self._add_thread()
            self._jobs.put(job)
        return future

    def _add_thread(self) -> None:
        process = self._processes[len(self._threads)]
        thread = threading.Thread(
            target=_serve, args=(self._jobs, process, self._epoch), name="ansor-measure", daemon=True
        )
        thread.start()
        self._threads.append(thread)

    @property
    def _is_ours(self) -> bool:
        return os.getpid() == self._owner

    @property
    def pids(self) -> list[int]:
        """Ids of the worker processes that exist now."""
        return [pid for process in self._processes if (pid := process.pid) is not None]

    def abort(self) -> None:
        """Drop waiting calls and kill the workers; futures end as cancelled or with `WorkerCrashError`.

        The pool stays usable: the next call starts a worker.
        """
        if not self._is_ours:
            return
        with self._lock:
            self._epoch.number += 1
        _cancel_waiting(self._jobs)
        for process in self._processes:
            process.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers: after the calls in progress if `wait`, else at once."""
        if not self._is_ours:
            return
        with self._lock:
            alive = self._finish.detach() is not None
        if not alive:
            return
        if cancel_futures or not wait:
            _cancel_waiting(self._jobs)
        if wait:
            for _ in self._threads:
                self._jobs.put(None)
            for thread in self._threads:
                thread.join()
        else:
            _finish(self._owner, self._jobs, self._processes, self._threads, self._epoch)


def function_name(function: Callable[..., Any]) -> str:
    """Return ``module:name``, by which a worker imports a function.

    Raises
    ------
    TypeError
        If it cannot be imported by that name: a lambda, a local function, one of the main program.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        raise TypeError(f"workers run functions that can be imported from a module, found {function!r}")
    return f"{module}:{name}"


def _serve(jobs: _Jobs, process: WorkerProcess, epoch: _Epoch) -> None:
    """Work on jobs until there is a None; the thread's function. It keeps the pool by its jobs alone."""
    while True:
        job = jobs.get()
        if job is None:
            process.close()
            return
        if job.future.set_running_or_notify_cancel():
            is_over = partial(epoch.is_past, job.epoch)
            try:
                value = process.call(job.function, job.args, job.kwargs, job.timeout, is_over)
            except Exception as error:
                job.future.set_exception(error)
            else:
                job.future.set_result(value)
        del job  # Before the next one is waited for: the pool may end here.


def _cancel_waiting(jobs: _Jobs) -> None:
    while True:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            return
        if job is not None:
            job.future.cancel()


def _finish(
    owner: int,
    jobs: _Jobs,
    processes: list[WorkerProcess],
    threads: list[threading.Thread],
    epoch: _Epoch,
) -> None:
    """End everything now: when the pool is collected, or at the interpreter's exit."""
    if os.getpid() != owner:
        return
    epoch.number += 1
    _cancel_waiting(jobs)
    for process in processes:
        process.kill()
    for _ in threads:
        jobs.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(5.0)
