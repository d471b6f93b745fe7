"""Worker processes: clean start, time and memory limits, replacement, and nothing left behind."""

import builtins
import ctypes
import importlib
import operator
import os
import posixpath
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measure.workers.process as process_module
from ansor.errors import DefinitionError, MeasureTimeoutError, RunError
from measure.workers.pool import WorkerPool, function_name
from measure.workers.process import RemoteError, WorkerCrashError, WorkerProcess, WorkerStartError
from measure.workers.wire import FrameError, FrameReader, encode
from tests.forks import in_a_fork

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1, timeout=20.0) as made:
        yield made


def is_gone(pid: int, patience: float = 5.0, zombie: bool = False) -> bool:
    """Whether a process disappears within some seconds; by default not even a zombie may be left."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        status = Path(f"/proc/{pid}/stat")
        if zombie and status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


# -- frames --------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES, max_size=3), st.integers(1, 50))
def test_frames_arrive_as_sent_whatever_the_pieces(values: list[object], piece: int) -> None:
    stream = b"".join(map(encode, values))
    reader, found = FrameReader(), []
    for start in range(0, len(stream), piece):
        reader.feed(stream[start : start + piece])
        while (frame := reader.next_frame()) is not None:
            found.append(frame[0])
    assert found == values


@pytest.mark.parametrize(
    "data",
    [
        b"garbage garbage garbage",
        encode({"a": 1})[:16] + b"{" * 40,
        encode([b"xy"]).replace(b'"$bytes": 0', b'"$bytes": 7'),
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    reader = FrameReader()
    reader.feed(data)
    with pytest.raises(FrameError):
        reader.next_frame()


# -- calls ---------------------------------------------------------------------------------------------


def test_calls_go_to_another_process_that_persists(pool: WorkerPool) -> None:
    assert isinstance(pool, Executor)
    first = pool.submit(os.getpid).result()
    assert first != os.getpid()
    assert pool.submit(os.getpid).result() == first
    assert pool.pids == [first]
    assert list(pool.map(operator.add, [b"a", b"c"], [b"b", b"d"])) == [b"ab", b"cd"]


def test_worker_leads_its_own_session_and_is_a_child(pool: WorkerPool) -> None:
    pid = pool.submit(os.getpid).result()
    assert pool.submit(os.getppid).result() == os.getpid()
    assert pool.submit(os.getsid, 0).result() == pid


def test_large_values_cross(pool: WorkerPool) -> None:
    data = os.urandom(1 << 20)
    assert pool.submit(operator.mul, data, 3).result() == data * 3


def test_errors_of_ansor_come_back_as_themselves(pool: WorkerPool) -> None:
    from ansor.dtypes import dtype_info

    with pytest.raises(DefinitionError, match="unknown dtype 'float7'") as caught:
        pool.submit(dtype_info, "float7").result()
    assert "in the worker" in caught.value.__notes__[0]


def test_other_errors_come_back_by_name(pool: WorkerPool) -> None:
    with pytest.raises(RemoteError, match="ZeroDivisionError: ") as caught:
        pool.submit(operator.floordiv, 1, 0).result()
    assert caught.value.kind == "ZeroDivisionError"
    with pytest.raises(RemoteError, match="not JSON serializable"):
        pool.submit(importlib.import_module, "os").result()


def test_what_a_program_prints_does_not_disturb(pool: WorkerPool) -> None:
    assert pool.submit(os.write, 1, b"noise\n").result() == 6
    assert pool.submit(builtins.print, "noise", flush=True).result() is None
    assert pool.submit(operator.add, 1, 2).result() == 3


def test_functions_must_be_importable() -> None:
    assert function_name(posixpath.join) == "posixpath:join"
    for nameless in (lambda: 1, is_gone.__class__(is_gone.__code__, {}, "x")):
        with pytest.raises(TypeError, match="imported from a module"):
            function_name(nameless)


@pytest.mark.parametrize(
    ("function", "arguments", "how"),
    [
        (os._exit, (3,), "exited with code 3"),
        (os.abort, (), r"signal 6 \(SIGABRT\)"),
        (ctypes.string_at, (8,), r"signal 11 \(SIGSEGV\)"),
        (os.closerange, (3, 100), "the worker"),
    ],
)
def test_a_crash_costs_one_call(pool: WorkerPool, function, arguments, how: str) -> None:  # type: ignore[no-untyped-def]
    before = pool.submit(os.getpid).result()
    with pytest.raises(WorkerCrashError, match=how):
        pool.submit(function, *arguments).result()
    after = pool.submit(os.getpid).result()
    assert after != before
    assert is_gone(before)


def test_last_words_are_kept(pool: WorkerPool) -> None:
    pool.submit(os.write, 2, b"LLVM ERROR: cannot select\n").result()
    with pytest.raises(WorkerCrashError, match="it printed: LLVM ERROR: cannot select"):
        pool.submit(os._exit, 1).result()


def test_a_hang_is_killed_and_costs_one_call(pool: WorkerPool) -> None:
    before = pool.submit(os.getpid).result()
    start = time.monotonic()
    with pytest.raises(MeasureTimeoutError, match=r"within 0\.2 s"):
        pool.submit_timed(0.2, time.sleep, 60).result()
    assert time.monotonic() - start < 20
    assert pool.submit(operator.add, 1, 2).result() == 3
    assert is_gone(before)


@pytest.mark.parametrize("seconds", [1e7, 1e300])
def test_a_time_limit_may_be_as_long_as_one_likes(seconds: float) -> None:
    with WorkerPool(1, timeout=seconds) as pool:
        assert pool.submit(operator.add, 1, 2).result(20.0) == 3


def test_a_killed_idle_worker_is_replaced(pool: WorkerPool) -> None:
    pid = pool.submit(os.getpid).result()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert pool.submit(operator.add, 1, 2).result() == 3


def test_memory_is_limited() -> None:
    with WorkerPool(1, timeout=20.0, memory_limit=1 << 30) as pool:
        with pytest.raises(MemoryError):
            pool.submit(bytes, 1 << 31).result()
        assert pool.submit(operator.add, 1, 2).result() == 3


def test_calls_run_side_by_side() -> None:
    with WorkerPool(2, timeout=20.0) as pool:
        futures = [pool.submit(time.sleep, 0.1) for _ in range(4)]
        assert [future.result() for future in futures] == [None] * 4
        assert len(pool.pids) == 2
        pids = pool.pids
    assert all(is_gone(pid) for pid in pids)


def test_environment_reaches_the_worker() -> None:
    with WorkerPool(1, timeout=20.0, environment={"ANSOR_NUM_THREADS": "3"}) as pool:
        assert pool.submit(os.getenv, "ANSOR_NUM_THREADS").result() == "3"


def test_initializer_runs_before_the_first_call() -> None:
    refused = pytest.raises(RemoteError, match="PermissionError")
    with WorkerPool(1, timeout=20.0, initializer=os.setsid) as pool, refused:
        pool.submit(os.getpid).result()  # A worker leads its session already.
    crashed = pytest.raises(WorkerCrashError, match=r"could not start: .*SIGABRT")
    with WorkerPool(1, timeout=20.0, initializer=os.abort) as pool, crashed:
        pool.submit(os.getpid).result()
    with WorkerPool(1, timeout=20.0, initializer=os.getpid) as pool:
        assert pool.submit(operator.add, 1, 2).result() == 3


def test_abort_ends_everything_and_the_pool_goes_on() -> None:
    with WorkerPool(1, timeout=20.0) as pool:
        pid = pool.submit(os.getpid).result()
        running, waiting = pool.submit(time.sleep, 60), pool.submit(time.sleep, 60)
        while not running.running():
            time.sleep(0.001)
        pool.abort()
        with pytest.raises(WorkerCrashError):
            running.result()
        assert waiting.cancelled()
        assert pool.submit(operator.add, 1, 2).result() == 3
        assert is_gone(pid)


def test_shutdown_without_waiting_kills() -> None:
    pool = WorkerPool(1, timeout=20.0)
    pid = pool.submit(os.getpid).result()
    future = pool.submit(time.sleep, 60)
    pool.shutdown(wait=False)
    assert future.cancelled() or isinstance(future.exception(), WorkerCrashError)
    assert is_gone(pid)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(os.getpid)
    pool.shutdown()


def test_a_thread_that_does_not_start_leaves_the_pool_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with WorkerPool(1, timeout=20.0) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                pool.submit(os.abort)
        assert pool.submit(operator.add, 1, 2).result() == 3
    with WorkerPool(1) as pool, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(os.abort)


@pytest.mark.parametrize("end", [WorkerPool.abort, partial(WorkerPool.shutdown, wait=False)])
def test_a_call_ends_whose_worker_is_still_starting(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[WorkerPool], None]
) -> None:
    pids: list[int] = []

    def spawn(*args: Any, spawn: Any = subprocess.Popen, **options: Any) -> Any:
        process = spawn(*args, **options)
        pids.append(process.pid)
        end(pool)
        return process

    monkeypatch.setattr(subprocess, "Popen", spawn)
    pool = WorkerPool(1)
    future = pool.submit(time.sleep, 60)
    with pytest.raises(WorkerCrashError, match="the worker was stopped"):
        future.result(20.0)
    assert is_gone(pids[0])
    if end is WorkerPool.abort:
        monkeypatch.undo()
        assert pool.submit(operator.add, 1, 2).result(20.0) == 3
        pool.shutdown()


def test_a_forgotten_pool_is_collected() -> None:
    pool = WorkerPool(1, timeout=20.0)
    pid = pool.submit(os.getpid).result()
    del pool
    assert is_gone(pid)


def test_calls_outlive_the_name_of_their_pool() -> None:
    pool = WorkerPool(1, timeout=20.0)
    pid = pool.submit(os.getpid).result()
    running, waiting = pool.submit(time.sleep, 0.2), pool.submit(operator.add, 1, 2)
    dropped = pool.submit(os.getpid)
    while not running.running():
        time.sleep(0.001)
    assert dropped.cancel()
    del pool
    assert running.result() is None
    assert waiting.result() == 3
    assert is_gone(pid)


def test_a_forked_copy_neither_uses_nor_ends_a_pool(pool: WorkerPool) -> None:
    pid = pool.submit(os.getpid).result()

    def use() -> None:
        with pytest.raises(RunError, match="was forked from the one that made the pool"):
            pool.submit(os.getpid)
        pool.abort()
        pool.shutdown(wait=False)
        pool._finish()

    assert in_a_fork(use)
    assert pool.submit(os.getpid).result() == pid


def test_pool_of_no_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        WorkerPool(0)


def test_process_is_used_again_after_close() -> None:
    process = WorkerProcess()
    assert process.pid is None
    first = process.call("os:getpid", (), {}, 20.0)
    process.close()
    process.close()
    assert process.call("os:getpid", (), {}, 20.0) != first
    process.close()


@pytest.mark.parametrize(
    ("module", "what"), [(subprocess, "Popen"), (tempfile, "TemporaryFile")], ids=["process", "file"]
)
@pytest.mark.parametrize("failures", [1, 2])
def test_a_start_that_the_machine_refuses_is_tried_again_once(
    monkeypatch: pytest.MonkeyPatch, module: Any, what: str, failures: int
) -> None:
    real, reports = getattr(module, what), []
    refusals = iter(range(failures))

    def sometimes(*args: Any, **options: Any) -> Any:
        reports.append(options.get("stderr"))
        if next(refusals, None) is not None:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real(*args, **options)

    monkeypatch.setattr(module, what, sometimes)
    with WorkerPool(1) as pool:
        first = pool.submit(operator.add, 1, 2)
        if failures == 1:
            assert first.result(20.0) == 3
        else:
            with pytest.raises(WorkerStartError, match=r"could not start: .* unavailable; it needs"):
                first.result(20.0)
            assert pool.submit(operator.add, 1, 2).result(20.0) == 3
        assert all(report is None or report.closed for report in reports[:failures])


# -- workers that stay though they are killed ------------------------------------------------------------


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Let workers live on that are killed, as while they wait for a driver; gives those that were, so far."""
    killed: list[subprocess.Popen[bytes]] = []
    kill = process_module._kill_group
    monkeypatch.setattr(process_module, "_kill_group", killed.append)
    monkeypatch.setattr(process_module, "_DYING", 0.1)
    yield killed
    for process in killed:
        kill(process)
        process.wait()


def test_a_worker_that_does_not_die_is_left_alone(
    held: list[subprocess.Popen[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    worker = WorkerProcess()
    first = worker.call("os:getpid", (), {}, 20.0)
    with pytest.raises(MeasureTimeoutError, match=r"within 0\.2 s"):
        worker.call("time:sleep", (60,), {}, 0.2)
    (process,) = held
    assert (process.pid, process.poll()) == (first, None)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdin.closed
    assert process.stdout.closed
    assert f"worker {first} was killed and is still there after 0.1 s" in caplog.text
    assert worker.call("os:getpid", (), {}, 20.0) != first
    worker.kill()
    assert worker.call("os:getpid", (), {}, 20.0) not in (first, held[1].pid)
    worker.close()
    assert len(held) == 3
    assert len(caplog.records) == 3


def test_a_call_ends_whose_worker_does_not_die(held: list[subprocess.Popen[bytes]]) -> None:
    with WorkerPool(1) as pool:
        running = pool.submit(time.sleep, 60)
        while not pool.pids:
            time.sleep(0.001)
        pool.abort()
        with pytest.raises(WorkerCrashError, match="the worker was killed and does not end"):
            running.result(20.0)
        assert pool.submit(operator.add, 1, 2).result(20.0) == 3
    assert len(held) == 2


def test_the_parent_ends_whose_worker_does_not_die() -> None:
    unkillable = "import measure.workers.process as p; p._kill_group = print; p._DYING = 0.1; sys.exit(0)"
    with run_parent(unkillable) as parent:
        try:
            parent.communicate(timeout=20)
        finally:
            parent.kill()
        assert parent.returncode == 0


# -- the parent's end ----------------------------------------------------------------------------------

PARENT = """
import os, sys, time
from measure.workers.pool import WorkerPool
pool = WorkerPool(1)
print(pool.submit(os.getpid).result(), flush=True)
future = pool.submit(time.sleep, 60)
{then}
"""


def run_parent(then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT.format(then=then)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("then", "sent", "code"),
    [
        ("sys.exit(0)", None, 0),
        ("raise ValueError", None, 1),
        ("print('waiting', flush=True); future.result()", signal.SIGINT, -signal.SIGINT),
        ("print('waiting', flush=True); future.result()", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_workers_end_with_their_parent(then: str, sent: int | None, code: int) -> None:
    with run_parent(then) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        if sent is not None:
            parent.stdout.readline()
            os.killpg(parent.pid, sent)
        parent.communicate(timeout=20)
        assert parent.returncode == code
    assert is_gone(worker, zombie=True)  # An orphan is buried by the system, when it gets round to it.


def test_user_files_do_not_shadow_ours(tmp_path: Path) -> None:
    (tmp_path / "measure.py").write_text("raise SystemExit('the foreign file was executed')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import operator\n"
        "from measure.workers.pool import WorkerPool\n"
        "print(WorkerPool(1).submit(operator.add, 1, 2).result())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "3\n", done.stderr
