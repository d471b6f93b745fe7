"""Programs that misbehave: each costs one trial with the right code, and the next trial works."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ansor import te
from ansor.codegen.machine import Machine
from ansor.errors import RunError, ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.task.task import Task
from measure import (
    BuildResult,
    LocalBuilder,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    ProgramMeasurer,
    load_records,
)
from measure.emit import EmittedProgram

ROOT = Path(__file__).parent.parent
SIZE = 1001
"""Floats of an argument: 4004 bytes, so 28 bytes of canary lie between the end and the guard page."""

FAULTS = {
    "store to null": ("store i32 1, ptr null", MeasureErrorNo.RUNTIME_DEVICE, "SIGSEGV"),
    "hang": (
        "br label %forever\nforever:\nbr label %forever",
        MeasureErrorNo.RUN_TIMEOUT,
        "no answer within",
    ),
    "exit": ("call void @_exit(i32 0)", MeasureErrorNo.RUNTIME_DEVICE, "exited with code 0"),
    "abort": ("call void @abort()", MeasureErrorNo.RUNTIME_DEVICE, "SIGABRT"),
    "illegal instruction": ("call void @llvm.trap()", MeasureErrorNo.RUNTIME_DEVICE, "signal"),
    "one past the end": (
        f"%p = getelementptr float, ptr %b, i64 {SIZE}\nstore float 1.0, ptr %p",
        MeasureErrorNo.WRONG_ANSWER,
        r"outside argument 'B': 1 byte\(s\) past its end",
    ),
    "one before the start": (
        "%p = getelementptr float, ptr %b, i64 -1\nstore float 1.0, ptr %p",
        MeasureErrorNo.WRONG_ANSWER,
        r"outside argument 'B': \d byte\(s\) before its start",
    ),
    "a line past the end": (
        f"%p = getelementptr float, ptr %b, i64 {SIZE + 16}\nstore float 1.0, ptr %p",
        MeasureErrorNo.RUNTIME_DEVICE,
        "SIGSEGV",
    ),
    "read past the end": (
        f"%p = getelementptr float, ptr %a, i64 {SIZE + 16}\n%v = load volatile float, ptr %p",
        MeasureErrorNo.RUNTIME_DEVICE,
        "SIGSEGV",
    ),
    "changed input": (
        "%p = getelementptr float, ptr %a, i64 5\nstore float 0.0, ptr %p",
        MeasureErrorNo.WRONG_ANSWER,
        r"changed its input 'A': element \[5\]",
    ),
    "wrong element": (
        "%p = getelementptr float, ptr %b, i64 7\nstore float 0.0, ptr %p",
        MeasureErrorNo.WRONG_ANSWER,
        r"output 'B': 1 of 1001 elements are wrong, first \[7\]: expected .*, found 0",
    ),
    "out of memory": (
        "br label %more\nmore:\n%m = call ptr @malloc(i64 67108864)\n"
        "store volatile i32 1, ptr %m\nbr label %more",
        MeasureErrorNo.RUNTIME_DEVICE,
        "SIGSEGV",
    ),
    "endless recursion": ("call void @deep(ptr %a)", MeasureErrorNo.RUNTIME_DEVICE, "SIGSEGV"),
    "closes every file": (
        "call i32 @close_range(i32 0, i32 1000, i32 0)",
        MeasureErrorNo.RUNTIME_DEVICE,
        "worker",
    ),
    "missing symbol": ("call void @no_such_function()", MeasureErrorNo.COMPILE_HOST, "cannot be loaded"),
}


@dataclass(frozen=True)
class Program:
    """Stands where a state stands: the length of the doubling loop, and code that runs after it."""

    extra: str = ""
    count: int = SIZE

    @property
    def steps(self) -> tuple[()]:
        return ()


def program_text(program: Program) -> str:
    return f"""
declare void @_exit(i32)
declare void @abort()
declare void @llvm.trap()
declare ptr @malloc(i64)
declare i32 @close_range(i32, i32, i32)
declare i32 @puts(ptr)
declare void @no_such_function()
define internal void @deep(ptr %p) noinline {{
  %q = alloca [4096 x i8]
  store volatile i8 1, ptr %q
  call void @deep(ptr %q)
  %v = load volatile i8, ptr %q
  ret void
}}
define void @program(ptr %a, ptr %b) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %a, i64 %i
  %to = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %from
  %y = fadd float %x, %x
  store float %y, ptr %to
  %next = add i64 %i, 1
  %more.elements = icmp slt i64 %next, {program.count}
  br i1 %more.elements, label %loop, label %done
done:
  {program.extra}
  {"" if program.extra.rstrip().endswith(("%forever", "%more")) else "ret void"}
}}
"""


def emit(inp: MeasureInput) -> EmittedProgram:
    assert isinstance(inp.state, Program)
    if inp.state.extra == "refuse":
        raise ScheduleError("the steps do not apply")
    text = "this is no module" if inp.state.extra == "garbage" else program_text(inp.state)
    return EmittedProgram(text, "program", Machine.host().to_json())


def make_task() -> Task:
    a = te.placeholder((SIZE,), name="A")
    b = te.compute((SIZE,), lambda i: a[i] * 2.0, name="B")
    return Task.create(ComputeDAG([a, b]), '["double"]', "llvm")


@pytest.fixture(scope="module")
def builder() -> Iterator[LocalBuilder]:
    with LocalBuilder(n_parallel=1, emit=emit) as made:
        yield made


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    with LocalRunner(timeout=2.0, min_repeat_ms=0.1, num_threads=1, memory_limit=3 << 30) as made:
        yield made


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task()


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_costs_one_trial(task: Task, builder: LocalBuilder, runner: LocalRunner, fault: str) -> None:
    code, error_no, message = FAULTS[fault]
    inputs = [MeasureInput(task, Program(code)), MeasureInput(task, Program())]  # type: ignore[arg-type]
    builds = builder.build(inputs)
    assert [build.error_msg for build in builds] == ["", ""]
    bad, good = runner.run(inputs, builds)
    assert bad.error_no is error_no, bad
    assert re.search(message, bad.error_msg), bad.error_msg
    assert list(bad.costs) == [1e10]
    assert good.ok, good
    assert good.costs[0] > 0
    assert good.all_cost > 0


@pytest.mark.parametrize("count", [0, 1, SIZE - 1, SIZE + 1])
def test_loop_of_the_wrong_length_is_a_wrong_answer(
    task: Task, builder: LocalBuilder, runner: LocalRunner, count: int
) -> None:
    inputs = [MeasureInput(task, Program(count=count))]  # type: ignore[arg-type]
    (result,) = runner.run(inputs, builder.build(inputs))
    assert result.error_no is MeasureErrorNo.WRONG_ANSWER, result


def test_faults_of_building(task: Task, builder: LocalBuilder, runner: LocalRunner) -> None:
    inputs = [MeasureInput(task, Program(extra)) for extra in ("refuse", "garbage", "")]  # type: ignore[arg-type]
    builds = builder.build(inputs)
    kinds = [MeasureErrorNo.INSTANTIATION_ERROR, MeasureErrorNo.COMPILE_HOST, MeasureErrorNo.NO_ERROR]
    assert [build.error_no for build in builds] == kinds
    assert "the steps do not apply" in builds[0].error_msg
    assert "LLVM refuses" in builds[1].error_msg
    results = runner.run(inputs, builds)
    assert [result.error_no for result in results] == kinds
    assert results[1].error_msg == builds[1].error_msg


@pytest.mark.slow
def test_slow_build_is_a_timeout_and_the_next_works(task: Task) -> None:
    slow = "".join(f"store volatile i32 {i}, ptr %b\n" for i in range(150_000))
    with LocalBuilder(timeout=1.0, n_parallel=1, emit=emit) as builder:
        one, two = builder.build(
            [MeasureInput(task, Program(slow)), MeasureInput(task, Program())]  # type: ignore[arg-type]
        )
    assert one.error_no is MeasureErrorNo.BUILD_TIMEOUT, one.error_msg
    assert one.time_cost >= 1.0
    assert two.object_bytes, two.error_msg


def test_what_a_program_prints_is_not_in_the_way(
    task: Task, builder: LocalBuilder, runner: LocalRunner
) -> None:
    inputs = [MeasureInput(task, Program("%n = call i32 @puts(ptr %a)"))]  # type: ignore[arg-type]
    (result,) = runner.run(inputs, builder.build(inputs))
    assert result.ok, result


def test_killed_worker_costs_one_trial(task: Task, builder: LocalBuilder) -> None:
    with LocalRunner(timeout=20.0, min_repeat_ms=0.1, num_threads=1) as runner:
        inputs = [MeasureInput(task, Program(FAULTS["hang"][0])), MeasureInput(task, Program())]  # type: ignore[arg-type]
        builds = builder.build(inputs)
        runner.run(inputs[1:], builds[1:])  # The worker has started.

        def kill() -> None:
            while not runner._pool.pids:
                time.sleep(0.001)
            time.sleep(0.3)
            os.kill(runner._pool.pids[0], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        bad, good = runner.run(inputs, builds)
        killer.join()
    assert bad.error_no is MeasureErrorNo.RUNTIME_DEVICE
    assert "SIGKILL" in bad.error_msg
    assert good.ok, good


def test_cache_flush_times_single_calls(task: Task, builder: LocalBuilder) -> None:
    with LocalRunner(number=7, repeat=3, enable_cpu_cache_flush=True, num_threads=1) as runner:
        assert (runner.number, runner.min_repeat_ms) == (1, 0)
        inputs = [MeasureInput(task, Program())]  # type: ignore[arg-type]
        (result,) = runner.run(inputs, builder.build(inputs))
    assert result.ok, result
    assert len(result.costs) == 3


def test_measurer_keeps_the_best_and_tells_of_each_result(
    task: Task, builder: LocalBuilder, runner: LocalRunner
) -> None:
    seen: list[tuple[object, int, int]] = []
    events: list[str] = []

    class Listener:
        def callback(self, policy: object, inputs: list[MeasureInput], results: list[MeasureResult]) -> None:
            seen.append((policy, len(inputs), int(results[0].error_no)))

    def on_event(event: object) -> None:
        events.append(type(event).__name__)

    measurer = ProgramMeasurer(builder, runner, [Listener()], on_event)
    states = [Program(), Program("refuse"), Program(FAULTS["wrong element"][0])]
    inputs = [MeasureInput(task, state) for state in states]  # type: ignore[arg-type]
    results = measurer.measure(inputs, policy="me")
    assert [result.error_no for result in results] == [0, 1, 5]
    assert seen == [("me", 1, 0), ("me", 1, 1), ("me", 1, 5)]
    assert events == ["BuiltEvent"] * 2 + ["MeasuredEvent"] * 2 + ["BuiltEvent", "MeasuredEvent"]
    assert measurer.trials == 3
    assert measurer.best[task.key].state is states[0]
    assert measurer.best[task.key].cost == results[0].mean_cost
    assert measurer.errors == {MeasureErrorNo.INSTANTIATION_ERROR: 1, MeasureErrorNo.WRONG_ANSWER: 1}
    assert measurer.continuous_errors == 2


def test_endless_failure_ends_the_measuring(task: Task, builder: LocalBuilder, runner: LocalRunner) -> None:
    measurer = ProgramMeasurer(builder, runner, max_continuous_error=3)
    inputs = [MeasureInput(task, Program("refuse")) for _ in range(5)]  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"3 programs in a row failed .3 x INSTANTIATION_ERROR.*do not apply"):
        measurer.measure(inputs)
    assert measurer.trials == 3


def test_failed_builds_pass_through_the_runner(task: Task, runner: LocalRunner) -> None:
    build = BuildResult.failed(MeasureErrorNo.BUILD_TIMEOUT, "slow", 15.0)
    (result,) = runner.run([MeasureInput(task, Program())], [build])  # type: ignore[arg-type]
    assert (result.error_no, result.error_msg, result.all_cost) == (6, "slow", 15.0)


# -- the measuring process itself is stopped ----------------------------------------------------------

SESSION = """
import sys
sys.path.insert(0, {tests!r})
from test_measure_faults import *
from measure import RecordToFile
events = lambda event: print(type(event).__name__, flush=True)
with LocalBuilder(n_parallel=1, emit=emit) as builder:
    with LocalRunner(timeout=60.0, min_repeat_ms=0.1, num_threads=1) as runner:
        measurer = ProgramMeasurer(builder, runner, [RecordToFile({log!r})], events)
        states = [Program(), Program(FAULTS["hang"][0])]
        task = make_task()
        measurer.measure([MeasureInput(task, state) for state in states])
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_stopped_session_loses_only_the_program_it_was_busy_with(
    tmp_path: Path, sent: signal.Signals
) -> None:
    log = tmp_path / "log.json"
    code = SESSION.format(tests=str(ROOT / "tests"), log=str(log))
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as session:
        assert session.stdout is not None
        lines = [session.stdout.readline().strip() for _ in range(3)]
        assert lines == ["BuiltEvent", "BuiltEvent", "MeasuredEvent"], session.communicate()
        time.sleep(0.05)
        children = _children(session.pid)
        assert children
        os.killpg(session.pid, sent)
        _, errors = session.communicate(timeout=20)
        assert session.returncode == -sent, errors
    (record,) = load_records(log)
    assert record[1].ok
    for child in children:
        _await_end(child)


def _children(pid: int) -> list[int]:
    text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(word) for word in text.split()]


def _await_end(pid: int) -> None:
    """Wait until a process is gone or a zombie that its new parent has yet to bury."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            return
        if fields[0] == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} outlived its session")
