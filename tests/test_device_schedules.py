"""From a schedule to a program that runs on OpenCL, and through measuring and a log back to its source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import BuildError, TargetError
from measure import LocalBuilder, LocalRunner, MeasureInput
from tests.device_kernels import needs_opencl

THREADS = te.thread_axis("threadIdx.x")
BLOCKS = te.thread_axis("blockIdx.x")


def added(n: int | te.Var, threads: int = 64) -> tuple[ansor.Schedule, list[te.Tensor]]:
    """C = A + B, a block for each `threads` elements."""
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=threads)
    s[c].bind(outer, BLOCKS)
    s[c].bind(inner, THREADS)
    return s, [a, b, c]


def staged_matmul(n: int, m: int, length: int) -> tuple[ansor.Schedule, list[te.Tensor]]:
    """A product in tiles of 16 x 16 threads, with both operands staged through shared memory."""
    a, b = te.placeholder((n, length), name="A"), te.placeholder((length, m), name="B")
    k = te.reduce_axis((0, length), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    shared = [s.cache_read(one, "shared", [c]) for one in (a, b)]
    block_y, block_x, y, x = s[c].tile(*c.op.axis, 16, 16)
    k_outer, k_inner = s[c].split(k, factor=8)
    s[c].reorder(block_y, block_x, y, x, k_outer, k_inner)
    for loop, index in (
        (block_y, "blockIdx.y"),
        (block_x, "blockIdx.x"),
        (y, "threadIdx.y"),
        (x, "threadIdx.x"),
    ):
        s[c].bind(loop, te.thread_axis(index))
    for one in shared:
        s[one].compute_at(s[c], k_outer)
        fused = s[one].fuse(*s[one].op.axis)
        rest, thread_x = s[one].split(fused, factor=16)
        _, thread_y = s[one].split(rest, factor=16)
        s[one].bind(thread_y, te.thread_axis("threadIdx.y"))
        s[one].bind(thread_x, te.thread_axis("threadIdx.x"))
    return s, [a, b, c]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["opencl", "cuda"])
def test_sources_are_written_without_a_device(kind: str) -> None:
    schedule, tensors = added(te.var("n"))
    module = ansor.build(schedule, tensors, target=kind, name="add")
    assert isinstance(module, ansor.DeviceModule)
    source = module.get_source(kind)
    assert "add_kernel0" in source
    assert module.get_source("nest").startswith("add(")
    assert [launch.kernel for launch in module.package.launches] == ["add_kernel0"]
    assert module.package.launches[0].block == (64, 1, 1)


def test_limits_of_the_target_are_kept() -> None:
    schedule, tensors = added(4096, threads=128)
    with pytest.raises(
        BuildError, match=r"add_kernel0 breaks a limit.*128 threads in a block, 32 are allowed"
    ):
        ansor.build(schedule, tensors, target="opencl -max_threads_per_block=32", name="add")
    with pytest.raises(TargetError, match="not a CPU"):
        ansor.build(schedule, tensors, target="metal")


@needs_opencl
@pytest.mark.parametrize("n", [1, 64, 1000])
def test_a_vector_addition_of_any_length_runs(n: int) -> None:
    schedule, tensors = added(te.var("n"))
    module = ansor.build(schedule, tensors, target="opencl")
    a, b = floats(n), floats(n) + 1
    np.testing.assert_array_equal(module(a, b), a + b)


@needs_opencl
@pytest.mark.parametrize("sizes", [(32, 32, 16), (33, 47, 19)])
def test_a_product_through_shared_memory_runs(sizes: tuple[int, int, int]) -> None:
    n, m, length = sizes
    schedule, tensors = staged_matmul(n, m, length)
    module = ansor.build(schedule, tensors, target="opencl", name="matmul")
    a, b = floats(n, length), floats(length, m)
    np.testing.assert_allclose(module(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert all(size > 0 for size in module.package.shared_bytes)


@needs_opencl
def test_programs_are_measured_logged_and_shown(tmp_path: Path) -> None:
    _, tensors = added(500)
    task = ansor.SearchTask(compute_dag=tensors, target="opencl")
    assert task.hardware_params.num_cores == -1
    schedule = ansor.Schedule(ansor.State.initial(task.compute_dag))
    c = task.compute_dag.outputs[0]
    outer, inner = schedule[c].split(c.op.axis[0], factor=32)
    schedule[c].bind(outer, BLOCKS)
    schedule[c].bind(inner, THREADS)
    pair = [MeasureInput(task, schedule.state)]
    with LocalBuilder(n_parallel=1) as builder, LocalRunner(timeout=30.0, min_repeat_ms=0.1) as runner:
        builds = builder.build(pair)
        assert builds[0].error_msg == ""
        (result,) = runner.run(pair, builds)
    assert result.ok, result
    log = tmp_path / "log.json"
    ansor.save_records(log, pair, [result])
    best, arguments = task.apply_best(log)
    x, y = floats(500), floats(500)
    np.testing.assert_array_equal(ansor.build(best, arguments, target=task.target)(x, y), x + y)
    source = task.print_best(log, print_mode="opencl")
    assert "__kernel" in source
    built = ansor.build(best, arguments, target="cuda")
    assert isinstance(built, ansor.DeviceModule)
    assert task.print_best(log, print_mode="cuda") == built.get_source()
