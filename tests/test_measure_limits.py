"""Programs that a device could not run are refused before they are built, wherever they come from.

The limits are those of the target, so that none of this takes a device or a compiler for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor import te
from ansor.schedule.state import State
from ansor.task.hardware import HardwareParams
from ansor.task.task import Task
from measure import (
    BuildResult,
    LocalBuilder,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    ProgramMeasurer,
    ProgramRunner,
    load_records,
    save_records,
)
from measure.simulate import result_of
from search import TemplateTask
from tests.gpu_cases import GPU
from tests.test_target_gpu_limits import tiled


class Compiler(Executor):
    """Compiles nothing, and counts how often it is asked to."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.asked += 1
        future: Future[Any] = Future()
        future.set_result({"object": b"code", "seconds": 0.0})
        return future


class Millisecond(ProgramRunner):
    """Whatever has been built takes one."""

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for build in builds:
            if build.object_bytes is None:
                yield MeasureResult.failed(build.error_no, build.error_msg, build.time_cost, 0)
            else:
                yield result_of(1e-3)


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


def task_of(state: State, hardware: HardwareParams, target: str) -> Task:
    return Task.create(state.dag, '["by hand"]', target, hardware_params=hardware)


def vectors(lanes: int) -> State:
    """Y = 2 X in vectors of so many lanes."""
    x = te.placeholder((64, 64), name="X")
    y = te.compute((64, 64), lambda i, j: x[i, j] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    outer, inner = s[y].split(y.op.axis[1], factor=lanes)
    s[y].bind(y.op.axis[0], te.thread_axis("blockIdx.x"))
    s[y].bind(outer, te.thread_axis("threadIdx.x"))
    s[y].vectorize(inner)
    return s.state


@pytest.mark.parametrize("target", ["opencl", "cuda -arch=sm_80"])
@pytest.mark.parametrize(
    ("state", "limits", "message"),
    [
        (tiled().state, {"max_threads_per_block": 255}, "kernel 0 takes 256 threads in a block, 255 are"),
        (tiled().state, {"max_shared_memory_per_block": 4095}, "4096 bytes of shared memory, 4095 are"),
        (tiled().state, {"max_local_memory_per_block": 127}, "128 bytes of memory of each thread, 127 are"),
        (vectors(8), {}, "32 bytes in a vector, 16 are allowed"),
    ],
    ids=["threads", "shared memory", "private memory", "vectors"],
)
def test_steps_by_hand_that_break_a_limit_are_not_built(
    compiler: Compiler, target: str, state: State, limits: dict[str, int], message: str
) -> None:
    with LocalBuilder(executor=compiler) as builder:
        (build,) = builder.build([MeasureInput(task_of(state, replace(GPU, **limits), target), state)])
    assert compiler.asked == 0
    assert build.error_no is MeasureErrorNo.INSTANTIATION_ERROR
    assert build.error_msg.startswith("the program does not fit the GPU: ")
    assert message in build.error_msg


@pytest.mark.parametrize("hardware", [GPU, HardwareParams(-1)], ids=["just enough", "not known"])
def test_programs_within_the_limits_are_built(compiler: Compiler, hardware: HardwareParams) -> None:
    """A limit that is 0 is not known."""
    exact = replace(
        hardware,
        max_threads_per_block=min(hardware.max_threads_per_block, 256),
        max_shared_memory_per_block=min(hardware.max_shared_memory_per_block, 4096),
        max_local_memory_per_block=min(hardware.max_local_memory_per_block, 128),
    )
    inputs = [MeasureInput(task_of(s, exact, "opencl"), s) for s in (tiled().state, vectors(4))]
    with LocalBuilder(executor=compiler) as builder:
        assert [build.error_msg for build in builder.build(inputs)] == ["", ""]
    assert compiler.asked == 2


def test_what_all_cuda_devices_allow_along_a_dimension_counts(compiler: Compiler) -> None:
    x = te.placeholder((4, 65), name="X")
    y = te.compute((4, 65), lambda i, j: x[i, j] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    s[y].bind(y.op.axis[0], te.thread_axis("blockIdx.x"))
    s[y].bind(y.op.axis[1], te.thread_axis("threadIdx.z"))
    with LocalBuilder(executor=compiler) as builder:
        fits, refused = builder.build(
            [MeasureInput(task_of(s.state, GPU, target), s.state) for target in ("opencl", "cuda")]
        )
    assert fits.error_msg == ""
    assert "65 threads along z, 64 are allowed" in refused.error_msg


def test_programs_of_a_log_of_a_larger_gpu_are_refused_and_counted(
    compiler: Compiler, tmp_path: Path
) -> None:
    log, state = tmp_path / "log.json", tiled().state
    large, small = (
        task_of(state, replace(GPU, max_threads_per_block=threads), "opencl") for threads in (1024, 128)
    )
    save_records(log, [MeasureInput(large, state)], [result_of(1e-3)])
    logged = [inp.state.replay(state.dag) for inp, _ in load_records(log)]  # type: ignore[union-attr]
    with LocalBuilder(executor=compiler) as builder:
        measurer = ProgramMeasurer(builder, Millisecond())
        (refused,) = measurer.measure([MeasureInput(small, one) for one in logged])
        (measured,) = measurer.measure([MeasureInput(large, one) for one in logged])
    assert refused.error_no is MeasureErrorNo.INSTANTIATION_ERROR
    assert measured.ok
    assert measurer.errors == {MeasureErrorNo.INSTANTIATION_ERROR: 1}
    assert measurer.trials == 2


@ansor.template("tests.doubled_on_gpu")
def doubled(cfg: ansor.Config, n: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] * 2.0, name="Y")
    s = te.create_schedule(y)
    cfg.define_knob("threads", [32, 64, 128, 256])
    outer, inner = s[y].split(y.op.axis[0], factor=cfg["threads"].val)
    s[y].bind(outer, te.thread_axis("blockIdx.x"))
    s[y].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [x, y]


def test_configurations_of_a_template_that_break_a_limit_cost_a_trial_each(compiler: Compiler) -> None:
    small = replace(GPU, max_threads_per_block=64)
    task = TemplateTask(doubled, (1024,), target="opencl", hardware_params=small)
    with LocalBuilder(executor=compiler) as builder:
        options = ansor.TuningOptions(
            num_measure_trials=4, builder=builder, runner=Millisecond(), num_finalists=0, verbose=0
        )
        result = task.tune(options, ansor.GridSearchTuner(task))
    assert (result.trials, compiler.asked) == (4, 2)
    assert result.errors == {MeasureErrorNo.INSTANTIATION_ERROR: 2}
    (example,) = result.error_examples.values()
    assert "threads in a block, 64 are allowed" in example
    assert result.best_state is not None
