"""One worker process, as its parent sees it: started clean, called with a time limit, replaced when it dies.

*Clean* means a fresh interpreter that shares nothing with the parent but files: no forked locks or threads,
and no modules found in the user's directory (``-P``; the directory that holds our packages comes first in
``PYTHONPATH``). It leads its own session, so that a Ctrl-C in the terminal reaches the parent alone.
Starting one takes some tenths of a second, noticing a crash and killing a hanging one a few milliseconds.
One that does not die of that, as while it waits for a driver, is left alone after some seconds.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import IO, Any, Final

import ansor.errors
from ansor.errors import AnsorError, MeasureTimeoutError, RunError
from measure.workers.wire import FrameError, FrameReader, encode

HOME: Final = Path(__file__).resolve().parent.parent
START_TIMEOUT: Final = 60.0
_PIECE: Final = 1 << 20
_REPORT_BYTES: Final = 2000
_STOPPED: Final = "the worker was stopped"
_DYING: Final = 5.0
"""Seconds that a killed process is waited for."""
_LOOK: Final = 1.0
"""Seconds after which who waits for a process looks whether it was left alone."""

_note = logging.getLogger(__name__)


class WorkerCrashError(RunError):
    """A worker process ended while it was working on a call."""


class WorkerStartError(WorkerCrashError):
    """A worker process could not start: of the machine, and not of a program that was to be built or run."""


class RemoteError(AnsorError):
    """A function raised in a worker; `kind` is the exception's class name there, notes hold its traceback."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class WorkerProcess:
    """A worker that is started when it is first called, and again after it was killed or died.

    Used by one thread at a time, except for `kill`, which any thread may call.

    Parameters
    ----------
    memory_limit
        Address space in bytes that the process may use, None for no limit.
    environment
        Variables set in addition to this process's.
    initializer
        ``module:name`` of a function that each new process calls first; its time is part of the start.
    """

    def __init__(
        self,
        memory_limit: int | None = None,
        environment: Mapping[str, str] | None = None,
        initializer: str | None = None,
    ) -> None:
        self._memory_limit = memory_limit
        self._initializer = initializer
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = FrameReader()
        self._report: IO[bytes] | None = None
        self._is_stuck = False
        """Whether the process was killed, and is there all the same."""
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process's id while it exists."""
        process = self._process
        return None if process is None else process.pid

    def call(
        self,
        function: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        timeout: float | None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Any:
        """Call ``module:name`` in the worker and return its result.

        Parameters
        ----------
        timeout
            Seconds until the result; starting the worker does not count.
        is_over
            Whether nobody wants the call any more. Who makes it true, and calls `kill` then, ends the call
            however far it is: a process that is not made yet, of which `kill` knows nothing, ends once it is.

        Raises
        ------
        MeasureTimeoutError
            If no answer came in time; the worker has been killed.
        WorkerCrashError
            If the worker ended or sent nonsense instead of an answer, or `is_over`.
        WorkerStartError
            If it could not be started, nor at a second attempt.
        RemoteError, AnsorError, MemoryError
            If the function raised: errors of ansor as themselves, others as `RemoteError`.
        """
        request = encode({"call": function, "args": args, "kwargs": dict(kwargs)})
        if is_over():
            raise WorkerCrashError(_STOPPED)
        if self._process is None or self._is_stuck or self._process.poll() is not None:
            try:
                self._start(is_over)
            except WorkerStartError:  # Once may be an accident: memory was short for a moment.
                self._start(is_over)
        reply = self._exchange(request, timeout)
        if "ok" in reply:
            return reply["ok"]
        raise _remote_error(reply)

    def _exchange(self, request: bytes, timeout: float | None) -> dict[str, Any]:
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            self._write(request, deadline)
            reply = self._read(deadline)
        except TimeoutError:
            self.close()
            raise MeasureTimeoutError(f"no answer within {timeout:g} s; the worker was killed") from None
        except (EOFError, OSError):
            raise WorkerCrashError(self._obituary()) from None
        except FrameError as error:
            self.close()
            raise WorkerCrashError(f"the worker's memory is corrupt: {error}") from None
        except BaseException:
            self.close()
            raise
        if not isinstance(reply, dict):
            self.close()
            raise WorkerCrashError(f"the worker's memory is corrupt: it answered {reply!r}")
        return reply

    # -- the process -----------------------------------------------------------------------------

    def _start(self, is_over: Callable[[], bool]) -> None:
        self._spawn(is_over)
        deadline = time.monotonic() + START_TIMEOUT
        try:
            self._read(deadline)
            if self._initializer is not None:
                self._write(encode({"call": self._initializer, "args": [], "kwargs": {}}), deadline)
                reply = self._read(deadline)
                if "ok" not in reply:
                    self.close()
                    raise _remote_error(reply)
        except TimeoutError:
            self.close()
            raise WorkerStartError(f"a worker did not start within {START_TIMEOUT:g} s") from None
        except (EOFError, OSError, FrameError):
            raise WorkerStartError(
                f"a worker could not start: {self._obituary()}{self._memory_hint()}"
            ) from None
        except BaseException:
            self.close()
            raise

    def _spawn(self, is_over: Callable[[], bool]) -> None:
        """Make the process, of which `kill` knows from here on."""
        self.close()
        path = [str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, **self._environment, "PYTHONPATH": os.pathsep.join(path)}
        arguments = [str(self._memory_limit or 0), str(os.getpid())]
        try:
            self._report = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "measure.workers.worker", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._report,
                bufsize=0,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            self.close()
            raise WorkerStartError(
                f"a worker could not start: {error}; it needs a process, two pipes and a temporary file"
            ) from error
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        with self._lock:
            self._process, self._reader = process, FrameReader()
            self._is_stuck = False
            stopped = is_over()  # Asked here, as `kill` may have come by before.
        if stopped:
            self.close()
            raise WorkerCrashError(_STOPPED)

    def kill(self) -> None:
        """End the process at once; a call in progress raises `WorkerCrashError`. Callable from any thread."""
        with self._lock:
            if self._process is not None and self._process.returncode is None:
                self._end(self._process)

    def close(self) -> None:
        """End the process, wait until it is gone, if it goes, and release what belongs to it."""
        with self._lock:
            process, self._process = self._process, None
            report, self._report = self._report, None
            if process is not None and process.poll() is None:
                self._end(process)
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if report is not None:
            report.close()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process and wait until it is gone, or else leave it alone; `subprocess` buries it then."""
        if self._is_stuck:
            return
        _kill_group(process)
        try:
            process.wait(_DYING)
        except subprocess.TimeoutExpired:
            self._is_stuck = True
            _note.warning(
                "worker %d was killed and is still there after %g s, as while it waits for a driver; "
                "another one takes its place",
                process.pid,
                _DYING,
            )

    def _obituary(self) -> str:
        """Reap a process that has closed its pipes, and say how it ended and what it printed last."""
        process, report = self._process, self._report
        if process is None or report is None:
            return _STOPPED
        if not self._is_stuck:
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
        self.kill()
        how = _ending(process.returncode)
        size = report.seek(0, os.SEEK_END)
        report.seek(max(0, size - _REPORT_BYTES))
        words = report.read().decode(errors="replace").strip()
        self.close()
        return f"the worker {how}" + (f"; it printed: {words}" if words else "")

    def _memory_hint(self) -> str:
        if self._memory_limit is None:
            return ""
        return f"; its memory_limit is {self._memory_limit:,} bytes: a worker needs some hundred million"

    # -- its pipes -------------------------------------------------------------------------------

    def _write(self, data: bytes, deadline: float | None) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise EOFError
        rest = memoryview(data)
        while rest:
            self._wait_for(process.stdin.fileno(), select.POLLOUT, deadline)
            try:
                rest = rest[os.write(process.stdin.fileno(), rest) :]
            except BlockingIOError:
                continue

    def _read(self, deadline: float | None) -> Any:
        process = self._process
        if process is None or process.stdout is None:
            raise EOFError
        while True:
            frame = self._reader.next_frame()
            if frame is not None:
                return frame[0]
            self._wait_for(process.stdout.fileno(), select.POLLIN, deadline)
            try:
                piece = os.read(process.stdout.fileno(), _PIECE)
            except BlockingIOError:
                continue
            if not piece:
                raise EOFError
            self._reader.feed(piece)

    def _wait_for(self, file: int, event: int, deadline: float | None) -> None:
        """Wait until a pipe can be used or has lost its other end.

        Raises
        ------
        TimeoutError
            At the deadline.
        EOFError
            If the process was left alone, whose end of the pipe stays.
        """
        poll = select.poll()
        poll.register(file, event)
        while (rest := inf if deadline is None else deadline - time.monotonic()) > 0:
            if poll.poll(1e3 * min(rest, _LOOK)):
                return
            if self._is_stuck:
                raise EOFError
        raise TimeoutError


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and whatever it started; it leads a process group of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


def _ending(code: int | None) -> str:
    """How a process ended, by its exit code."""
    if code is None:
        return "was killed and does not end"
    return f"was killed by signal {_signal_name(-code)}" if code < 0 else f"exited with code {code}"


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def _remote_error(reply: dict[str, Any]) -> Exception:
    """Return the exception that a worker's error reply describes."""
    kind, message = str(reply.get("error")), str(reply.get("message"))
    known = getattr(ansor.errors, kind, None)
    error: Exception
    if isinstance(known, type) and issubclass(known, AnsorError):
        error = known(message)
    elif kind == "MemoryError":
        error = MemoryError(message)
    else:
        error = RemoteError(kind, message)
    error.add_note(f"in the worker:\n{reply.get('details')}")
    return error
