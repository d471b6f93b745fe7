"""Tasks for GPUs that tests share, and what must hold of every complete GPU program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ansor import te
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.stages import Annotation, ComputeAt
from ansor.schedule.state import State
from ansor.task.gpu_limits import gpu_faults, verify_gpu
from ansor.task.hardware import HardwareParams
from ansor.task.task import Task
from ansor.te import Tensor
from ansor.workloads.catalogue import get_workload
from sketches import Population, SketchContext
from sketches.limits import refusals
from tests.sketches_cases import SMALL, check_program, matmul, matmul_relu, padded_conv1d, row_sum, softmax
from tests.tensor_core_schedules import half_own_transpose, half_product

GPU = HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32)


def row_means(rows: int, terms: int) -> list[Tensor]:
    x, k = te.placeholder((rows, terms), name="X"), te.reduce_axis((0, terms), name="k")
    total = te.compute((rows,), lambda i: te.sum(x[i, k], axis=k), name="S")
    return [x, te.compute((rows,), lambda i: total[i] * (1.0 / terms), name="Mean")]


def group_norm(batch: int, groups: int, each: int, pixels: int) -> list[Tensor]:
    """Channels less the mean of their group."""
    x = te.placeholder((batch, groups * each, pixels), name="X")
    c, p = te.reduce_axis((0, each), name="c"), te.reduce_axis((0, pixels), name="p")
    total = te.compute((batch, groups), lambda n, g: te.sum(x[n, g * each + c, p], axis=[c, p]), name="S")
    out = te.compute(
        (batch, groups * each, pixels),
        lambda n, d, q: x[n, d, q] - total[n, te.floordiv(d, each)] * (1.0 / (each * pixels)),
        name="Y",
    )
    return [x, out]


def rms_norm_product(rows: int, terms: int, columns: int) -> list[Tensor]:
    x, w = te.placeholder((rows, terms), name="X"), te.placeholder((terms, columns), name="W")
    q, k = te.reduce_axis((0, terms), name="q"), te.reduce_axis((0, terms), name="k")
    total = te.compute((rows,), lambda i: te.sum(x[i, q] * x[i, q], axis=q), name="S")
    scaled = te.compute((rows, terms), lambda i, j: x[i, j] * te.rsqrt(total[i] + 1.0), name="N")
    return [x, w, te.compute((rows, columns), lambda i, j: te.sum(scaled[i, k] * w[k, j], axis=k), name="Y")]


def gated_product(n: int) -> list[Tensor]:
    """What is costly to compute, and read by a product and beside it."""
    x, w, k = te.placeholder((n, n), name="X"), te.placeholder((n, n), name="W"), te.reduce_axis((0, n), "k")
    a = te.compute((n, n), lambda i, j: te.exp(x[i, j]), name="A")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    return [x, w, te.compute((n, n), lambda i, j: c[i, j] + a[i, j], name="Y")]


GPU_SMALL: dict[str, Callable[[], list[Tensor]]] = {
    **SMALL,
    "square": lambda: matmul(64, 48, 40),
    "fused square": lambda: matmul_relu(48, 64, 32),
    "wide softmax": lambda: softmax(12, 100),
    "convolution": lambda: padded_conv1d(32, 8, 16),
    "wide row sum": lambda: row_sum(8, 150),
    "row means": lambda: row_means(12, 70),
    "group norm": lambda: group_norm(2, 2, 3, 20),
    "norm and product": lambda: rms_norm_product(24, 32, 32),
    "gated product": lambda: gated_product(32),
}
"""Small computations, those that fill a block among them."""


TENSOR_CORES: dict[str, Callable[[], list[Tensor]]] = {
    "product of halves": lambda: _workload("matmul", 32, 32, 32, "float16", "float32"),
    "transposed product of halves": lambda: _workload("dense", 16, 128, 16, "bfloat16", "float32"),
    "columns of halves": lambda: list(half_product(32, 16, 32, transposed="A")),
    "own transpose of halves": lambda: half_own_transpose(32, 16),
    "halves of one step": lambda: list(half_product(32, 16, 16)),
    "rounded product": lambda: list(half_product(32, 32, 32, "float32")),
    "transposed rounded product": lambda: list(half_product(32, 32, 32, "float32", "AB")),
    "batch of halves": lambda: _workload("batch_matmul", 2, 16, 16, 32, "float16", "float32"),
    "sum of halves": lambda: _workload("matmul_add", 32, 32, 16, "bfloat16", "float32"),
    "padded product of halves": lambda: _workload("matmul", 24, 24, 40, "float16", "float32"),
    "convolution of halves": lambda: _workload(
        "conv2d", 1, 1, 16, 16, 8, 3, 1, 1, 1, 1, "float16", "float32", "float16"
    ),
}
"""Small products that tensor cores multiply."""


def _workload(name: str, *args: int | str) -> list[Tensor]:
    return get_workload(name).tensors(*args)


def gpu_task(
    tensors: Sequence[Tensor], target: str = "cuda -arch=sm_80", hardware: HardwareParams = GPU
) -> Task:
    return Task.create(ComputeDAG(tensors), "[]", target, hardware_params=hardware)


def check_shared_memory(rows: Population, context: SketchContext, most: int) -> Counter[bool]:
    """Rows are refused for their shared memory if and only if as kernels they are.

    At most so many of each kind are looked at; returns how many were.
    """
    told = Counter[bool]()
    broken = refusals(rows, context).get(
        f"more than {context.hardware.max_shared_memory_per_block} bytes of shared memory",
        np.zeros(len(rows), np.bool_),
    )
    for row in (*np.flatnonzero(broken)[:most], *np.flatnonzero(~broken)[:most]):
        assert bool(gpu_faults(rows.materialize(int(row)), context.hardware)) == bool(broken[row])
        told[bool(broken[row])] += 1
    return told


def check_gpu_program(state: State, hardware: HardwareParams = GPU) -> None:
    """Complete, replayable, within the limits, and every kernel with its loops bound."""
    check_program(state)
    verify_gpu(state, hardware)
    bounded = state.with_bounds()
    for stage in bounded.stages:
        if stage.is_placeholder or stage.compute_at is not ComputeAt.ROOT:
            continue
        marks = {loop.annotation for loop in stage.iterators}
        if stage.iterators and not any(mark.is_block for mark in marks):
            assert Annotation.THREAD_X in marks, str(bounded)
        assert Annotation.PARALLEL not in marks
