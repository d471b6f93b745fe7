"""Interference: threads that waited for a core, repeats that are done again, and how a result tells."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.medians import median_interval
from ansor.runtime import interference
from ansor.runtime.interference import CountingWatch, seconds_waited, waited_share
from ansor.runtime.pool_ir import Waiting, default_waiting
from ansor.runtime.timing import TimeResult, time_calls
from ansor.task.host import available_cores
from measure.workers.arguments import ArgumentSpec
from measure.workers.check import Tolerance
from measure.workers.jobs import measure_program
from tests.runtime_kernels import axpy


def test_a_thread_that_shares_its_core_is_seen_to_wait() -> None:
    if seconds_waited() is None:
        assert waited_share(None, None, 1.0) == 0.0
        return
    core = min(os.sched_getaffinity(0))
    code = (
        "import os, time\n"
        f"os.sched_setaffinity(0, {{{core}}})\n"
        "from ansor.runtime.interference import seconds_waited, waited_share\n"
        "print('ready', flush=True); input()\n"
        "before, start = seconds_waited(), time.perf_counter()\n"
        "while time.perf_counter() - start < 0.4: pass\n"
        "print(waited_share(before, seconds_waited(), time.perf_counter() - start))\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    shares = [float(process.communicate()[0]) for process in both]
    assert max(shares) > 0.1


@pytest.mark.skipif(default_waiting(Machine.host().triple) is not Waiting.FUTEX, reason="nobody counts")
def test_work_of_threads_that_have_no_core_is_a_disturbance() -> None:
    core = min(os.sched_getaffinity(0))
    code = (
        "import os, numpy as np, ansor\n"
        "from ansor.runtime.interference import seconds_disturbed\n"
        "from ansor.runtime.pool import seconds_alone\n"
        "from tests.runtime_kernels import axpy\n"
        "ansor.set_num_threads(2)\n"
        "x, y = np.ones(1 << 20, np.float32), np.ones(1 << 20, np.float32)\n"
        "kernel = axpy()\n"
        "kernel(x, y)\n"
        f"for thread in os.listdir('/proc/self/task'): os.sched_setaffinity(int(thread), {{{core}}})\n"
        "for _ in range(100): kernel(x, y)\n"
        "assert seconds_disturbed() >= seconds_alone() > 0, (seconds_disturbed(), seconds_alone())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_a_hypervisor_takes_of_the_cores_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = sorted(os.sched_getaffinity(0))
    stat = tmp_path / "stat"
    monkeypatch.setattr(interference, "_CORES", str(stat))
    assert interference.seconds_stolen() == 0.0  # there is no such file
    ticks = os.sysconf("SC_CLK_TCK")
    lines = [f"cpu{core} 9 9 9 9 9 9 9 {ticks} 0 0" for core in cores]
    others = [
        "cpu  9 9 9 9 9 9 9 99 0 0",
        f"cpu{cores[-1] + 1} 9 9 9 9 9 9 9 99 0 0",
        "intr 8 9 9 9 9 9 9 9 9",
    ]
    stat.write_text("\n".join([*others, *lines]))
    assert interference.seconds_stolen() == len(cores)
    monkeypatch.setattr(interference, "seconds_waited", lambda: 2.0)
    monkeypatch.setattr(interference, "seconds_alone", lambda: 3.0)
    assert interference.seconds_disturbed() == 5.0 + len(cores)
    stat.write_text(f"cpu{cores[0]} 1 2\n")
    assert interference.seconds_stolen() == 0.0


def test_another_process_is_read_while_it_lives() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    assert (seconds_waited(child.pid) is None) == (seconds_waited() is None)
    child.communicate("\n")
    assert seconds_waited(child.pid) is None


def test_waiting_is_counted_upwards_and_what_is_unknown_is_no_interference() -> None:
    before = seconds_waited()
    time.sleep(0.01)
    after = seconds_waited()
    assert (before is None) == (after is None)
    assert waited_share(1.0, 1.5, 2.0) == 0.25
    assert waited_share(None, 1.5, 2.0) == waited_share(1.0, None, 2.0) == 0.0
    assert waited_share(1.5, 1.0, 2.0) == 0.0  # a thread that had waited has ended
    assert waited_share(1.0, 2.0, 0.0) == 0.0


def _clocks(calls: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Times of calls, and readings of the waiting clock before and after each; from (time, waited) pairs."""
    readings, now = [], 0.0
    for _, waited in calls:
        readings += [now, now + waited]
        now += waited
    return [seconds for seconds, _ in calls], readings


def test_a_disturbed_repeat_is_done_again() -> None:
    times, readings = _clocks([(1.0, 0.0), (3.0, 2.0), (1.5, 0.0)])
    seconds, clock = iter([9.0, *times]), iter(readings)  # the first call is not timed
    result = time_calls(
        lambda _: next(seconds), number=1, repeat=2, min_repeat_ms=0, watch=CountingWatch(lambda: next(clock))
    )
    assert result == TimeResult((1.0, 1.5), disturbed=0, redone=1)
    assert str(result).endswith("(2 repeats, 1 redone because of another load)")


def test_a_load_that_stays_is_not_waited_out() -> None:
    times, readings = _clocks([(3.0, 2.0), (2.0, 0.4), (5.0, 4.0)])
    seconds, clock = iter([9.0, *times]), iter(readings)
    result = time_calls(
        lambda _: next(seconds), number=1, repeat=2, min_repeat_ms=0, watch=CountingWatch(lambda: next(clock))
    )
    assert result == TimeResult((2.0, 5.0), disturbed=2, redone=1)
    assert str(result).endswith("(2 repeats, 2 disturbed and 1 redone because of another load)")


@pytest.fixture
def _always_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    readings = itertools.count(0.0, 1e9)
    monkeypatch.setattr(interference, "seconds_waited", lambda: next(readings))
    yield
    ansor.set_num_threads(2)


@pytest.mark.usefixtures("_always_waiting")
@pytest.mark.parametrize(
    ("more", "limit", "disturbed"), [(0, None, 2), (1, None, 0), (1, available_cores(), 2)]
)
def test_threads_that_take_cores_from_each_other_are_no_other_load(
    tmp_path: Path, more: int, limit: int | None, disturbed: int
) -> None:
    threads = available_cores() + more
    ansor.set_num_threads(threads)
    ones = np.ones(8, np.float32)
    module = axpy(threads=limit)
    assert module.time_evaluator(number=1, repeat=2)(ones, ones).disturbed == disturbed
    (tmp_path / "A").write_bytes(ones.tobytes())
    spec = ArgumentSpec("A", "float32", (8,), False, str(tmp_path / "A"), Tolerance(0.0))
    nothing = compile_ir("define void @f(ptr %a) {\n  ret void\n}\n", Machine.host())
    timing = {"number": 1, "repeat": 2, "min_repeat_ms": 0, "flush": False}
    settings = {"threads": threads, "limit": limit}
    assert measure_program(nothing, "f", [spec.to_json()], timing, settings)["disturbed"] == disturbed


def test_nothing_is_done_again_where_nobody_counts() -> None:
    seconds = iter([9.0, 1.0, 5.0])
    result = time_calls(
        lambda _: next(seconds), number=1, repeat=2, min_repeat_ms=0, watch=CountingWatch(lambda: None)
    )
    assert result == TimeResult((1.0, 5.0))


def test_the_interval_of_a_median() -> None:
    assert median_interval([3.0]) == (3.0, 3.0)
    assert median_interval([2.0, 1.0, 5.0, 3.0, 4.0]) == (1.0, 5.0)
    assert median_interval([float(n) for n in range(6)]) == (0.0, 5.0)  # 1 - 2 / 2 ** 6 is 97 %
    assert median_interval([float(n) for n in range(9)]) == (1.0, 7.0)  # 1 - 2 * 10 / 2 ** 9 is 96 %
    assert TimeResult((1.0, 2.0, 3.0)).interval == (1.0, 3.0)
    with pytest.raises(ValueError, match="no median of no values"):
        median_interval([])
