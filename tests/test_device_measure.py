"""Measuring programs for devices: right ones pass, each that misbehaves costs one trial."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.codegen.c.launches import Launch
from ansor.errors import BuildError, NoDeviceError, RunError, TargetError
from ansor.knobs import DEVICE
from ansor.runtime.device.door import DeviceInfo, device_info, open_device
from ansor.runtime.device.package import DevicePackage
from ansor.schedule.dag import ComputeDAG
from ansor.task.task import Task
from measure import LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, host
from measure.emit import EmittedProgram
from measure.workers.arguments import ArgumentSet, ArgumentSpec
from measure.workers.check import Tolerance
from measure.workers.device import CANARY_BYTES, GuardedBuffer, Reach, device_environment, guarded_bytes
from measure.workers.processor import CPU, kind_of
from tests.device_kernels import double, each_device, each_device_of_workers, scale

SIZE = 1001

FAULTS = {
    "wrong element": (
        {"body": "if (i == 7) B[i] = 0.0f;"},
        MeasureErrorNo.WRONG_ANSWER,
        r"output 'B': 1 of 1001 elements are wrong, first \[7\]: expected .*, found 0",
    ),
    "element left out": (
        {"where": " && i != 7"},
        MeasureErrorNo.WRONG_ANSWER,
        r"output 'B': 1 of 1001 elements are wrong, first \[7\]",
    ),
    "changed input": (
        {"body": "if (i == 5) A[i] = 0.0f;"},
        MeasureErrorNo.WRONG_ANSWER,
        r"changed its input 'A': element \[5\]",
    ),
    "one past the end": (
        {"body": f"if (i == 0) B[{SIZE}] = 1.0f;"},
        MeasureErrorNo.WRONG_ANSWER,
        r"outside argument 'B': \d byte\(s\) past its end",
    ),
    "one before the start": (
        {"body": "if (i == 0) B[-1] = 1.0f;"},
        MeasureErrorNo.WRONG_ANSWER,
        r"outside argument 'B': \d byte\(s\) before its start",
    ),
    "crash": (
        {"body": "if (i == 3) *(volatile __global int*)(size_t)64 = 1;"},
        MeasureErrorNo.RUNTIME_DEVICE,
        "the worker was killed by signal|a kernel failed, and this process cannot use the GPU again",
    ),
    "too many threads": ({"block": 1 << 20}, MeasureErrorNo.COMPILE_DEVICE, "threads in a block"),
    "too much shared memory": ({"shared": 1 << 40}, MeasureErrorNo.COMPILE_DEVICE, "bytes of shared memory"),
}


@dataclass(frozen=True)
class Program:
    """Stands where a state stands."""

    package: DevicePackage | str

    @property
    def steps(self) -> tuple[()]:
        return ()


def good(kind: str = "opencl") -> Program:
    return program(kind)


def program(kind: str, body: str = "", **changes: Any) -> Program:
    """One that doubles, changed, for the device of a kind."""
    arch = device_info(kind).arch if kind == "cuda" else ""
    return Program(replace(double(SIZE, body, kind=kind, **changes), arch=arch))


def emit(inp: MeasureInput) -> EmittedProgram:
    assert isinstance(inp.state, Program)
    package = inp.state.package
    if isinstance(package, str):
        raise BuildError(package)
    return EmittedProgram(package.source, "program", package.to_json(), package.kind)


@cache
def doubling(kind: str) -> Task:
    a = te.placeholder((SIZE,), name="A")
    b = te.compute((SIZE,), lambda i: a[i] * 2.0, name="B")
    return Task.create(ComputeDAG([a, b]), f'["double by {kind}"]', kind)


@pytest.fixture
def task() -> Task:
    return doubling("opencl")


@pytest.fixture(scope="module")
def builder() -> Iterator[LocalBuilder]:
    with LocalBuilder(n_parallel=1, emit=emit) as made:
        yield made


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    with LocalRunner(timeout=30.0, number=1, repeat=2, min_repeat_ms=0.01) as made:
        yield made


def inputs(task: Task, *programs: Program) -> list[MeasureInput]:
    return [MeasureInput(task, program) for program in programs]  # type: ignore[arg-type]


@each_device_of_workers
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_costs_one_trial(kind: str, builder: LocalBuilder, runner: LocalRunner, fault: str) -> None:
    changes, error_no, message = FAULTS[fault]
    pair = inputs(doubling(kind), program(kind, **changes), good(kind))
    builds = builder.build(pair)
    assert [build.error_msg for build in builds] == ["", ""]
    bad, after = runner.run(pair, builds)
    assert bad.error_no is error_no, bad
    assert re.search(message, bad.error_msg), bad.error_msg
    assert list(bad.costs) == [1e10]
    assert after.ok, after
    assert all(0 < cost < 10 for cost in after.costs)
    assert len(after.costs) == 2


@each_device_of_workers
def test_what_the_compiler_refuses_is_not_run(kind: str, builder: LocalBuilder, runner: LocalRunner) -> None:
    pair = inputs(doubling(kind), program(kind, "undeclared = 1;"), good(kind))
    builds = builder.build(pair)
    assert builds[0].error_no is MeasureErrorNo.COMPILE_DEVICE
    assert re.search("refuses the (generated )?code", builds[0].error_msg)
    assert builds[0].object_bytes is None
    assert builds[1].error_msg == ""
    assert [result.error_no for result in runner.run(pair, builds)] == [
        MeasureErrorNo.COMPILE_DEVICE,
        MeasureErrorNo.NO_ERROR,
    ]


def test_the_driver_is_told_nothing_that_is_set_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_MAX_PTHREAD_COUNT", "7")
    monkeypatch.delenv("POCL_CACHE_DIR", raising=False)
    monkeypatch.delenv("POCL_KERNEL_CACHE", raising=False)
    assert device_environment(Path("here"), 2) == {"POCL_CACHE_DIR": "here", "POCL_KERNEL_CACHE": "0"}


@each_device_of_workers
def test_a_program_that_hangs_costs_its_time_limit(kind: str, builder: LocalBuilder) -> None:
    endless = program(kind, "if (i == 0) while (*(volatile __global float*)A < 3e38f) {}")
    pair = inputs(doubling(kind), endless, good(kind))
    with LocalRunner(timeout=4.0, number=1, repeat=1, min_repeat_ms=0.01, num_threads=1) as runner:
        bad, after = runner.run(pair, builder.build(pair))
    assert bad.error_no is MeasureErrorNo.RUN_TIMEOUT, bad
    assert after.ok, after


@each_device_of_workers
def test_caches_are_emptied_and_what_is_kept_goes_with_the_runner(kind: str, builder: LocalBuilder) -> None:
    with LocalRunner(timeout=30.0, repeat=2, enable_cpu_cache_flush=True) as runner:
        folder = runner.references.make_folder("pocl")
        left = []
        for scale in (2.0, 2.0, 2.0):
            programs = inputs(doubling(kind), program(kind, f"if (i < 0) B[i] = {scale + len(left)}f;"))
            (result,) = runner.run(programs, builder.build(programs))
            left.append(sum(path.is_file() for path in folder.rglob("*")))
        assert left[0] == left[2]
    assert result.ok, result
    assert len(result.costs) == 2
    assert not folder.exists()


@each_device_of_workers
def test_scratch_memory_between_kernels_is_poisoned(
    kind: str, builder: LocalBuilder, runner: LocalRunner
) -> None:
    """A second kernel that reads what the first did not write gets no zeros."""
    a = te.placeholder((100,), name="A")
    b = te.compute((100,), lambda i: a[i] * 2.0 + 1.0, name="B")
    task = Task.create(ComputeDAG([a, b]), f'["scale by {kind}"]', kind)

    def fixed(package: DevicePackage) -> DevicePackage:
        """The package with n = 100 for its size."""
        text = package.source.replace(", int n)", ")").replace("< n", "< 100")
        fields: Any = replace(package, arch=device_info(kind).arch).to_json()
        fields["signature"]["sizes"] = []
        for argument in fields["signature"]["arguments"]:
            argument["shape"] = [100]
        for launch in fields["launches"]:
            launch["arguments"], launch["grid"] = launch["arguments"][:2], [2, 1, 1]
        fields["scratch"][0]["shape"] = [100]
        return DevicePackage.from_json(fields, text)

    right = fixed(scale(kind))
    wrong = fixed(
        scale(kind, right.source.replace("T[i] = 2.0f*A[i]", "if (A[i] == 77.0f) T[i] = 2.0f*A[i]"))
    )
    pair = inputs(task, Program(right), Program(wrong))
    ok, bad = runner.run(pair, builder.build(pair))
    assert ok.ok, ok
    assert bad.error_no is MeasureErrorNo.WRONG_ANSWER, bad
    assert "100 of 100 elements are wrong" in bad.error_msg


@each_device
def test_arguments_on_a_device_are_guarded(kind: str, tmp_path: Path) -> None:
    device = open_device(kind)
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    data.tofile(tmp_path / "A")
    output = ArgumentSpec("A", "float32", (2, 3), True, str(tmp_path / "A"), Tolerance(1e-5, 1.0))
    held = ArgumentSet(lambda shape, dtype, *_: GuardedBuffer(device, shape, dtype), [output])
    (guarded,) = held.memories
    held.prepare()
    with pytest.raises(RunError, match="output 'A': 6 of 6 elements are wrong"):
        held.verify()
    device.upload(data, guarded.memory)
    held.verify()
    whole = guarded.memory.whole
    assert whole is not None
    assert whole.size == guarded_bytes(24, device.alignment)
    end = whole.size - CANARY_BYTES
    for place, where in ((end + 2, "3 byte.s. past its end"), (end - 24 - 9, "5 byte.s. before its start")):
        held.prepare()
        device.upload(data, guarded.memory)
        device.upload(np.zeros(5, np.uint8), whole, place)
        with pytest.raises(RunError, match=f"outside argument 'A': {where}"):
            held.verify()
    held.prepare()
    device.upload(data, guarded.memory)
    held.verify()


# -- without a device ----------------------------------------------------------------------------------


def test_what_cannot_be_emitted_is_an_error_of_the_device(task: Task, builder: LocalBuilder) -> None:
    (build,) = builder.build(inputs(task, Program("there is no code for it")))
    assert build.error_no is MeasureErrorNo.COMPILE_DEVICE
    assert build.error_msg == "there is no code for it"


def test_packages_are_built_without_a_device(task: Task, builder: LocalBuilder) -> None:
    (build,) = builder.build(inputs(task, good()))
    assert build.object_bytes is not None
    assert DevicePackage.from_bytes(build.object_bytes) == double(SIZE)
    broken = Program(
        DevicePackage(
            "opencl", double(1).signature, "", (Launch("k", (("param", 9),), (1, 1, 1), (1, 1, 1)),), (0,)
        )
    )
    (build,) = builder.build(inputs(task, broken))
    assert build.error_no is MeasureErrorNo.COMPILE_DEVICE
    assert "takes the param 9 of 2" in build.error_msg


def test_tasks_without_a_device_are_refused_at_once(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(kind: str) -> DeviceInfo:
        raise TargetError(f"no device for {kind}; install one")

    monkeypatch.setattr(host, "device_info", none)
    with LocalRunner() as runner, pytest.raises(TargetError, match="no device for opencl; install one"):
        runner.check_task(task)
    with pytest.raises(TargetError, match="no code for metal"):
        host.check_target(Task.create(None, "[]", "metal").target)


def test_a_device_that_cannot_be_opened_again_ends_the_run(
    task: Task, builder: LocalBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = DeviceInfo("opencl", "a GPU", "", 64, (64, 64, 64), (9, 9, 9), 1 << 15, 1 << 30)
    monkeypatch.setattr(host, "device_info", lambda kind: gone)
    monkeypatch.setattr("measure.runner.device_info", lambda kind: gone)
    programs = inputs(task, good(), good(), good())
    builds = builder.build(programs)
    monkeypatch.setenv(DEVICE, "a device that is gone")
    with LocalRunner() as runner:
        results = runner.run_each(programs, builds)
        for _ in range(2):
            assert next(results).error_no is MeasureErrorNo.RUNTIME_DEVICE
        with pytest.raises(TargetError, match="no program for opencl can be measured any more"):
            next(results)


class Refusing(Executor):
    """Compiles nothing, for lack of a device."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(NoDeviceError("it is gone"))
        return future


@pytest.mark.parametrize("kind", ["opencl", "cuda"])
def test_what_compilers_for_devices_leave_behind_goes_with_the_builder(kind: str) -> None:
    with LocalBuilder(n_parallel=1, emit=emit) as builder:
        folder = Path(builder._executor_for(kind).submit(os.getenv, "TMPDIR").result() or "")
        (folder / "left").write_text("")
    assert folder.name
    assert not folder.exists()


def test_a_device_that_a_builder_lacks_ends_the_run(task: Task) -> None:
    programs = inputs(task, good(), good(), good())
    results = LocalBuilder(emit=emit, executor=Refusing()).build_each(programs)
    for _ in range(2):
        failed = next(results)
        assert (failed.error_no, failed.error_msg) == (MeasureErrorNo.COMPILE_DEVICE, "it is gone")
    with pytest.raises(TargetError, match="3 in a row failed with: it is gone"):
        next(results)


def test_only_failures_in_a_row_count() -> None:
    reach = Reach()
    gone = TargetError("gone")
    errors: list[Exception | None] = [gone, gone, None, gone, gone, RunError("x"), gone]
    for error in errors:
        reach.note("cuda", error)
    reach.note("opencl", TargetError("gone"))
    reach.note("cuda", TargetError("gone"))
    with pytest.raises(TargetError, match="no program for cuda"):
        reach.note("cuda", TargetError("gone"))


def test_kinds_of_processors() -> None:
    targets = {"llvm": CPU, "cuda": "cuda", "opencl": "opencl", "opencl -device=mali": "opencl", "metal": CPU}
    assert {text: kind_of(Task.create(None, "[]", text).target) for text in targets} == targets


@pytest.mark.parametrize(
    ("arch", "fits"),
    [("sm_90", True), ("sm_80", False), ("sm_89", False), ("sm_90a", True), ("sm_100", False)],
)
def test_code_for_another_gpu_is_refused(monkeypatch: pytest.MonkeyPatch, arch: str, fits: bool) -> None:
    gpu = DeviceInfo("cuda", "a GPU", "sm_90", 1024, (1, 1, 1), (1, 1, 1), 49152, 1 << 30)
    monkeypatch.setattr(host, "device_info", lambda kind: gpu)
    monkeypatch.setattr(host, "find_compiler", lambda: None)
    target = Task.create(None, "[]", f"cuda -arch={arch}").target
    if fits:
        host.check_target(target)
    else:
        with pytest.raises(TargetError, match=rf"they are for {arch}, and a GPU is sm_90"):
            host.check_target(target)


@pytest.mark.parametrize(
    ("compiler", "driver", "wheel"),
    [(13, 12, "nvidia-cuda-nvrtc-cu12'"), (14, 13, r"nvidia-cuda-nvrtc==13\.\*"), (13, 13, ""), (12, 13, "")],
)
def test_a_compiler_newer_than_the_driver_is_refused(
    monkeypatch: pytest.MonkeyPatch, compiler: int, driver: int, wheel: str
) -> None:
    gpu = DeviceInfo("cuda", "GPU", "sm_90", 1024, (1, 1, 1), (1, 1, 1), 9999, 1 << 30, cuda_release=driver)
    monkeypatch.setattr(host, "device_info", lambda kind: gpu)
    monkeypatch.setattr(host, "find_compiler", lambda: SimpleNamespace(name="NVRTC", release=compiler))
    target = Task.create(None, "[]", "cuda -arch=sm_90").target
    if wheel:
        with pytest.raises(TargetError, match=f"NVRTC is of CUDA {compiler}, .* of CUDA {driver} .*{wheel}"):
            host.check_target(target)
    else:
        host.check_target(target)


def test_arguments_larger_than_the_device_are_refused() -> None:
    """With the canaries around them."""
    a = te.placeholder((1000,), name="A")
    dag = ComputeDAG([a, te.compute((1000,), lambda i: a[i] * 2.0, name="B")])
    most = guarded_bytes(4000, 512)
    assert most == 1024 + 4000 + CANARY_BYTES
    gpu = DeviceInfo("opencl", "a GPU", "", 64, (64, 64, 64), (9, 9, 9), 1 << 15, 2 * most, alignment=512)
    host.check_memory(dag, device=replace(gpu, max_allocation=most))
    with pytest.raises(RunError, match=r"8,000 bytes.* needs 12,096, .* 12,095 bytes are the memory of the"):
        host.check_memory(dag, device=replace(gpu, memory_bytes=2 * most - 1))
    with pytest.raises(RunError, match=r"'A' .*4,000 bytes, 6,048 with .*, and a GPU allows 6,047 in one"):
        host.check_memory(dag, device=replace(gpu, max_allocation=most - 1))
    with pytest.raises(RunError, match=r"'A' .*4,000 bytes, 7,072 with "):
        host.check_memory(dag, device=replace(gpu, max_allocation=most, memory_bytes=1 << 20, alignment=2048))
