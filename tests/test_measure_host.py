"""What this machine cannot measure is refused before the first trial; slow programs still get a cost."""

import errno
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor import te
from ansor.codegen.machine import Machine
from ansor.errors import DefinitionError, RunError, TargetError
from ansor.runtime.interference import unwatched
from ansor.task.isa import architecture
from measure import LocalBuilder, LocalRunner, MeasureInput, RecordToFile
from measure.correctness.reference import ReferenceStore
from measure.host import available_memory, check_memory, check_target, group_memory
from measure.workers import cpu, jobs

HERE = architecture(ansor.Target("llvm"))
FOREIGN = "llvm -mtriple=" + ("aarch64-linux-gnu" if HERE != "aarch64" else "x86_64-linux-gnu")


def scaled(n: int) -> list[te.Tensor]:
    a = te.placeholder((n,), name="A")
    return [a, te.compute((n,), lambda i: a[i] * 2.0, name="B")]


def test_another_architecture_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    task = ansor.SearchTask(compute_dag=scaled(16), target=FOREIGN)
    log = tmp_path / "log.json"
    with pytest.raises(TargetError, match="cannot run on this machine: they are for"):
        task.tune(ansor.TuningOptions(2, measure_callbacks=[RecordToFile(log)], verbose=0))
    assert not log.exists()


def test_the_runner_itself_refuses_too() -> None:
    task = ansor.SearchTask(compute_dag=scaled(16), target=FOREIGN)
    state = ansor.State.initial(task.compute_dag)
    inputs = [MeasureInput(task, state)]
    with LocalBuilder(n_parallel=1) as builder, LocalRunner() as runner:
        builds = builder.build(inputs)
        with pytest.raises(TargetError, match="tune on a machine of that kind"):
            runner.run(inputs, builds)


@pytest.mark.skipif(HERE != "x86_64", reason="names features of x86")
def test_features_that_the_cpu_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from measure import host

    narrow = replace(Machine.host(), vector_bits=256)  # It keeps what it asked LLVM for.
    monkeypatch.setattr("measure.host.llvm.get_host_cpu_features", lambda: {"avx2": True, "avx512f": False})
    monkeypatch.setattr(Machine, "host", lambda: narrow)
    host._lacking.cache_clear()
    try:
        check_target(ansor.Target("llvm -mattr=+avx2"))
        check_target(ansor.Target("llvm -mcpu=x86-64"))
        with pytest.raises(TargetError, match="no avx512f"):
            check_target(ansor.Target("llvm -mattr=+avx2,+avx512f"))
        with pytest.raises(TargetError, match="vectors of 512 bits"):
            check_target(ansor.Target("llvm -mcpu=znver4"))
    finally:
        host._lacking.cache_clear()


def test_a_task_too_big_for_memory_is_refused(tmp_path: Path) -> None:
    a = te.placeholder((1 << 20, 1 << 20), name="A")
    task = ansor.SearchTask(compute_dag=[a, te.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="B")])
    log = tmp_path / "log.json"
    with pytest.raises(RunError, match=r"take 8,796,093,022,208 bytes.*available"):
        task.tune(ansor.TuningOptions(2, measure_callbacks=[RecordToFile(log)], verbose=0))
    assert not log.exists()


def test_the_limit_of_the_worker_counts() -> None:
    with pytest.raises(RunError, match=r"8,000 bytes.* 7,999 bytes are what"):
        check_memory(ansor.ComputeDAG(scaled(1000)), 7999)
    check_memory(ansor.ComputeDAG(scaled(1000)), 8000)


def test_memory_that_runs_out_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Any:
        raise MemoryError("Unable to allocate")

    monkeypatch.setattr("measure.correctness.reference.fill_inputs", full)
    with pytest.raises(RunError, match="not enough memory to compute the right answer"):
        ReferenceStore().get(ansor.SearchTask(compute_dag=scaled(16)))


def test_a_full_directory_of_temporary_files_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("measure.correctness.argument_files.bytes_of", full)
    with pytest.raises(RunError, match=r"cannot write 64 bytes of 'A'.*No space left on device.*TMPDIR"):
        ReferenceStore().get(ansor.SearchTask(compute_dag=scaled(16)))


def test_a_worker_that_cannot_start_says_nothing_about_programs(tmp_path: Path) -> None:
    """Nothing is logged, so that a later run with room for workers tries these programs."""
    log, task = tmp_path / "log.json", ansor.SearchTask(compute_dag=scaled(16), target="llvm")
    with LocalBuilder(memory_limit=4096) as builder:
        callbacks = [RecordToFile(str(log))]
        options = ansor.TuningOptions(2, builder=builder, measure_callbacks=callbacks, verbose=0)
        with pytest.raises(RunError, match=r"(?s)could not start.*memory_limit is 4,096 bytes"):
            task.tune(options)
    assert not log.exists() or not log.read_text()


def test_programs_that_run_on_other_threads_than_planned_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cores = ansor.get_num_threads()
    silent = ansor.SearchTask(compute_dag=scaled(16), target="llvm")
    named = ansor.SearchTask(compute_dag=scaled(16), target=f"llvm -num-cores={cores}")
    for task, threads, warned in ((named, cores + 1, 0), (silent, cores, 0), (silent, cores + 1, 1)):
        with LocalRunner(num_threads=threads) as runner:
            runner.check_task(task)
        assert caplog.text.count(f"run on {cores + 1} threads") == warned


def test_a_worker_may_have_what_the_control_group_has(tmp_path: Path) -> None:
    assert group_memory(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    assert group_memory(tmp_path) is None
    (tmp_path / "memory.max").write_text("5000\n")
    assert group_memory(tmp_path) == 5000


def test_available_memory_is_the_least_of_machine_and_group(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 8 kB\n")
    assert available_memory(tmp_path / "meminfo", tmp_path) == 8192
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 7\ninactive_file 500\n")
    assert available_memory(tmp_path / "meminfo", tmp_path) == 2500
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path / "meminfo", tmp_path) == 8192


def measured(
    monkeypatch: pytest.MonkeyPatch, seconds: float, longest: float
) -> tuple[list[float], list[int]]:
    """Costs and calls of `measure_program` for a program that takes so long, whatever else runs."""
    calls: list[int] = []

    def timed(number: int) -> float:
        calls.append(number)
        return number * seconds

    monkeypatch.setattr(cpu, "load_program", lambda *_: {"main": 0})
    monkeypatch.setattr(cpu, "compiled_timer", lambda *_: timed)
    monkeypatch.setattr(cpu, "watch_kernel", lambda *_, **__: unwatched)
    timing = {"number": 3, "repeat": 2, "min_repeat_ms": 100.0, "flush": False, "longest_call": longest}
    return jobs.measure_program(b"", "main", [], timing, {})["costs"], calls


def test_a_slow_program_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch, 2.6, 2.5) == ([2.6], [1])
    costs, calls = measured(monkeypatch, 2.4, 2.5)
    assert (costs, calls) == ([2.4, 2.4], [1, 1, 1])


@pytest.mark.parametrize("value", [math.nan, math.inf, 0, "1", None])
def test_numbers_of_builder_and_runner_are_checked(value: Any) -> None:
    for make in (LocalBuilder, LocalRunner):
        with pytest.raises(DefinitionError, match=r"\(timeout\) must be"):
            make(timeout=value)
    if value is not None:
        with pytest.raises(DefinitionError, match="n_parallel"):
            LocalBuilder(n_parallel=value)
        with pytest.raises(DefinitionError, match="num_threads"):
            LocalRunner(num_threads=value)
        with pytest.raises(DefinitionError, match="number"):
            LocalRunner(number=value)
    if value != 0:
        with pytest.raises(DefinitionError, match="num_cores"):
            ansor.HardwareParams(num_cores=value)
