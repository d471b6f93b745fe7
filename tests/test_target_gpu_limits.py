"""What one GPU program takes, counted on its kernels, and what is said of one that takes too much."""

from __future__ import annotations

import pytest

import ansor
from ansor import te
from ansor.errors import ScheduleError
from ansor.schedule.bounds import infer_bounds
from ansor.schedule.kernel_usage import kernel_usages
from ansor.schedule.lowering import lower
from ansor.task.gpu_limits import count_kernels, gpu_faults
from ansor.task.hardware import HardwareParams
from ansor.task.limits import KernelCount
from tests.gpu_cases import GPU


def tiled(block: int = 16, inner: int = 4) -> ansor.Schedule:
    """A matrix product by hand, with threads in two dimensions, virtual ones, and a shared copy."""
    n = 256
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    i, j = s[c].op.axis
    bi, vi, ti, ii = s[c].split(i, factors=[2, block, inner])
    bj, vj, tj, jj = s[c].split(j, factors=[1, block, inner])
    s[c].reorder(bi, bj, vi, vj, ti, tj, ii, jj)
    for loop, name in ((bi, "blockIdx.y"), (bj, "blockIdx.x"), (vi, "vthread"), (ti, "threadIdx.y")):
        s[c].bind(loop, te.thread_axis(name))
    s[c].bind(tj, te.thread_axis("threadIdx.x"))
    s[local].compute_at(s[c], tj)
    ko, ki = s[local].split(s[local].op.reduce_axis[0], factor=8)
    li, lj = s[local].op.axis
    s[local].reorder(ko, ki, li, lj)
    copy = s.cache_read(a, "shared", [local])
    s[copy].compute_at(s[local], ko)
    fused = s[copy].fuse(*s[copy].op.axis)
    outer, x = s[copy].split(fused, factor=block)
    _, y = s[copy].split(outer, factor=block)
    s[copy].bind(x, te.thread_axis("threadIdx.x"))
    s[copy].bind(y, te.thread_axis("threadIdx.y"))
    return s


def counts(schedule: ansor.Schedule) -> list[KernelCount]:
    """What the kernels of a schedule take; that is what is told of columns."""
    found = count_kernels(lower(schedule.state, kernels=True))
    for usage, kernel in zip(kernel_usages(infer_bounds(schedule.state)), found, strict=True):
        assert usage.threads == kernel.threads
        assert usage.shared_bytes == kernel.shared_bytes
        assert usage.local_bytes == kernel.local_bytes
    return found


def test_a_kernel_is_counted() -> None:
    (kernel,) = counts(tiled())
    assert (kernel.grid, kernel.block) == ((4, 2, 1), (16, 16, 1))
    assert kernel.threads == 16 * 16
    assert kernel.shared_bytes == 2 * 16 * 4 * 8 * 4
    assert kernel.local_bytes == 4 * 4 * 4 * 2
    assert gpu_faults(tiled().state, GPU) == ()


@pytest.mark.parametrize(
    ("hardware", "message"),
    [
        ({"max_threads_per_block": 128}, "kernel 0 takes 256 threads in a block, 128 are allowed; bind"),
        ({"max_shared_memory_per_block": 2048}, "takes 4096 bytes of shared memory, 2048 are allowed; keep"),
        ({"max_local_memory_per_block": 100}, "takes 128 bytes of memory of each thread, 100 are allowed"),
    ],
)
def test_what_breaks_a_limit_is_named(hardware: dict[str, int], message: str) -> None:
    values = {name: getattr(GPU, name) for name in GPU.__slots__}
    small = HardwareParams(**{**values, **hardware})
    with pytest.raises(ScheduleError, match=message):
        ansor.verify_gpu(tiled().state, small)
    ansor.verify_gpu(lower(tiled().state, kernels=True), GPU)


def test_a_limit_of_0_is_not_known() -> None:
    ansor.verify_gpu(tiled().state, HardwareParams(-1, 0, 64))


def test_all_limits_that_are_broken_are_named() -> None:
    faults = gpu_faults(tiled().state, HardwareParams(-1, 16, 64, 2048, 100, 128))
    assert [fault.split(",")[0] for fault in faults] == [
        "kernel 0 takes 256 threads in a block",
        "kernel 0 takes 4096 bytes of shared memory",
        "kernel 0 takes 128 bytes of memory of each thread",
    ]


def test_what_all_devices_of_a_kind_allow_along_a_dimension_counts_where_the_kind_is_told() -> None:
    x = te.placeholder((70000, 65), name="X")
    y = te.compute((70000, 65), lambda i, j: x[i, j] + x[i, j], name="Y")
    s = te.create_schedule(y.op)
    s[y].bind(y.op.axis[0], te.thread_axis("blockIdx.y"))
    s[y].bind(y.op.axis[1], te.thread_axis("threadIdx.z"))
    ansor.verify_gpu(s.state, GPU)
    ansor.verify_gpu(s.state, GPU, "opencl")
    assert gpu_faults(s.state, GPU, "cuda") == (
        "kernel 0 takes 65 threads along z, 64 are allowed; bind shorter loops",
        "kernel 0 takes 70000 blocks along y, 65535 are allowed; give each block more to do",
    )


def test_a_nest_without_kernels_is_refused() -> None:
    with pytest.raises(ScheduleError, match=r"not in the form of kernels: a vthread loop.*lower the program"):
        ansor.verify_gpu(lower(tiled().state, simple_mode=True), GPU)


def test_a_long_vector_is_refused() -> None:
    x = te.placeholder((64, 64), name="X")
    y = te.compute((64, 64), lambda i, j: x[i, j] + x[i, j], name="Y")
    s = te.create_schedule(y.op)
    i, j = y.op.axis
    outer, inner = s[y].split(j, factor=8)
    s[y].bind(i, te.thread_axis("blockIdx.x"))
    s[y].bind(outer, te.thread_axis("threadIdx.x"))
    s[y].vectorize(inner)
    with pytest.raises(ScheduleError, match="takes 32 bytes in a vector, 16 are allowed; vectorize"):
        ansor.verify_gpu(s.state, GPU)


def test_the_longest_loop_on_an_index_counts() -> None:
    """As of a copy with threads of its own: the other threads have nothing to do there."""
    x = te.placeholder((64,), name="X")
    y = te.compute((64,), lambda i: x[i] + x[i], name="Y")
    z = te.compute((64,), lambda i: y[i] * y[i], name="Z")
    t = te.create_schedule(z.op)
    outer, inner = t[z].split(z.op.axis[0], factor=32)
    t[z].bind(outer, te.thread_axis("blockIdx.x"))
    t[y].compute_at(t[z], outer)
    t[z].bind(inner, te.thread_axis("threadIdx.x"))
    _, own = t[y].split(t[y].op.axis[0], factor=16)
    t[y].bind(own, te.thread_axis("threadIdx.x"))
    (kernel,) = counts(t)
    assert kernel.threads == 32
    assert kernel.shared_bytes == 32 * 4
    assert gpu_faults(t.state, GPU) == ()


def test_a_reduction_over_threads_takes_an_element_of_each() -> None:
    x = te.placeholder((8, 512), name="X")
    k = te.reduce_axis((0, 512), name="k")
    y = te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    s = te.create_schedule(y.op)
    _, inner = s[y].split(y.op.reduce_axis[0], factor=128)
    s[y].bind(y.op.axis[0], te.thread_axis("blockIdx.x"))
    s[y].bind(inner, te.thread_axis("threadIdx.x"))
    (kernel,) = counts(s)
    assert kernel.shared_bytes == 128 * 4
    assert kernel.local_bytes == 4
    assert kernel.threads == 128


def test_what_threads_fill_together_exists_once_for_the_others() -> None:
    """Rows of threads that reduce, each with a result of its own."""
    x = te.placeholder((8, 512), name="X")
    k = te.reduce_axis((0, 512), name="k")
    y = te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    z = te.compute((8,), lambda i: y[i] * y[i], name="Z")
    s = te.create_schedule(z.op)
    s[y].compute_at(s[z], z.op.axis[0])
    _, inner = s[y].split(s[y].op.reduce_axis[0], factor=64)
    s[y].bind(inner, te.thread_axis("threadIdx.x"))
    s[z].bind(z.op.axis[0], te.thread_axis("threadIdx.y"))
    (kernel,) = counts(s)
    assert kernel.threads == 8 * 64
    assert kernel.shared_bytes == 8 * 4 + 8 * 64 * 4
    assert kernel.local_bytes == 4


def test_stages_at_root_are_kernels_of_their_own() -> None:
    x = te.placeholder((64,), name="X")
    y = te.compute((64,), lambda i: x[i] + x[i], name="Y")
    z = te.compute((64,), lambda i: y[i] * y[63 - i], name="Z")
    s = te.create_schedule(z.op)
    for tensor, name in ((y, "threadIdx.x"), (z, "blockIdx.x")):
        s[tensor].bind(tensor.op.axis[0], te.thread_axis(name))
    first, second = counts(s)
    assert (first.threads, second.threads) == (64, 1)
    assert first.shared_bytes == first.local_bytes == 0
