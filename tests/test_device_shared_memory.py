"""Kernels whose blocks share more memory than CUDA lets them declare: launches ask for it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ansor
from ansor.codegen.c import CUDA, OPENCL, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda
from ansor.codegen.c.cuda_compilers import CudaCompiler
from ansor.errors import BuildError
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, LoopNest, seq
from ansor.ir.shared_memory import in_whole, shared_bytes
from ansor.runtime.device.build import package_nest
from ansor.runtime.device.resources import resources_of
from ansor.schedule.kernel_usage import kernel_usages
from ansor.task.gpu_limits import count_kernels
from ansor.task.hardware import HardwareParams
from ansor.task.target import Target
from ansor.te.expr import Var, cast, const
from sketches import ProgramSpace
from sketches.limits import refusals
from tests.cuda_on_host import run_cuda_on_host
from tests.device_kernels import opencl, why_no_device
from tests.device_nests import SERIAL, launch, load, store
from tests.gpu_cases import gpu_task
from tests.opencl_helper import run_opencl
from tests.sketches_cases import matmul


def reversed_rows(n: int = 16384) -> LoopNest:
    """Each block reverses a row of `n` floats in shared memory, beside which it has five bytes there."""
    b, t, i, j = (Var(name) for name in "btij")
    x, y = Buffer("X", "float32", (2, n)), Buffer("Y", "float32", (2, n))
    ones, row = Buffer("ones", "uint8", (5,), "shared"), Buffer("row", "float32", (n,), "shared")
    body = seq(
        If(t < 5, store(ones, (t,), const(1, "uint8"))),
        For(i, n // 256, SERIAL, store(row, (i * 256 + t,), load(x, b, i * 256 + t))),
        Barrier(),
        For(
            j,
            n // 256,
            SERIAL,
            store(
                y,
                (b, j * 256 + t),
                load(row, const(n - 1) - (j * 256 + t)) + cast(load(ones, 3), "float32"),
            ),
        ),
    )
    whole = launch(Alloc(ones, Alloc(row, body)), bx=(b, 2), tx=(t, 256))
    return LoopNest("reversed", (x, y), (), whole, (1,))


def test_arrays_lie_one_behind_the_other() -> None:
    nest = reversed_rows(256)
    assert in_whole(5) == 16
    assert shared_bytes(nest.body) == 16 + 1024
    assert count_kernels(nest)[0].shared_bytes == 16 + 1024
    np.testing.assert_array_equal(in_whole(np.array([0, 1, 16, 17])), [0, 16, 16, 32])


def test_large_kernels_have_parts_of_one_array() -> None:
    text = emit_c(split_kernels(reversed_rows()), CUDA)
    found = re.search(r"extern __shared__ __align__\(16\) unsigned char (\w+)\[\];", text)
    assert found is not None
    assert f"unsigned char* const ones = (unsigned char*)&{found[1]}[0];" in text
    assert f"float* const row = (float*)&{found[1]}[16];" in text
    assert CUDA.asked_bytes(16 + 65536) == 16 + 65536


def test_small_kernels_declare_what_they_have() -> None:
    text = emit_c(split_kernels(reversed_rows(12032)), CUDA)
    assert "__shared__ __align__(16) float row[12032];" in text
    assert "extern" not in text.replace('extern "C"', "")
    assert CUDA.asked_bytes(49152) == 0


def test_opencl_declares_whatever_there_is() -> None:
    text = emit_c(split_kernels(reversed_rows()), OPENCL)
    assert "__local float row[16384] __attribute__((aligned(16)));" in text
    assert OPENCL.asked_bytes(1 << 20) == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_large_kernels_compile_without_warnings(compiler: CudaCompiler, arch: str) -> None:
    done = compile_cuda(emit_c(split_kernels(reversed_rows()), CUDA), arch, compiler)
    assert done.warnings == ""
    assert done.resources[0].shared_bytes == 0
    package = package_nest(reversed_rows(), Target(f"cuda -arch={arch}"), "reversed")
    (found,) = resources_of(package, compiler=compiler)
    assert found.shared_bytes == 16 + 65536
    assert found.blocks == {"sm_80": 2, "sm_90": 3}[arch]


def test_large_kernels_run() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (2, 16384)).astype(np.float32)
    expected, y = np.zeros_like(x), np.zeros_like(x)
    run_nest(reversed_rows(), [x, expected], check_races=True)
    np.testing.assert_array_equal(expected, x[:, ::-1] + 1)
    run_cuda_on_host(reversed_rows(), x, y)
    np.testing.assert_array_equal(y, expected)
    y[...] = 0
    if why_no_device("opencl") or opencl().info.max_shared_memory_per_block < 16 + 65536:
        pytest.skip("no OpenCL device with so much shared memory")
    run_opencl(reversed_rows(), x, y)
    np.testing.assert_array_equal(y, expected)


def test_architectures_have_their_limits() -> None:
    nest = reversed_rows()
    for arch in ("sm_80", "sm_90"):
        assert ansor.build(nest, target=f"cuda -arch={arch}").package.shared_bytes == (16 + 65536,)
    with pytest.raises(BuildError, match="65552 bytes of shared memory, 65536 are allowed"):
        ansor.build(nest, target="cuda -arch=sm_75")
    with pytest.raises(BuildError, match="65552 bytes of shared memory, 50000 are allowed"):
        ansor.build(nest, target="cuda -arch=sm_80 -max_shared_memory_per_block=50000")


def test_a_search_proposes_large_kernels_where_they_may_be() -> None:
    """As large as the architecture allows, and no larger."""
    taken = {}
    for arch in ("sm_61", "sm_90"):
        hardware = HardwareParams.for_target(Target(f"cuda -arch={arch}"))
        task = gpu_task(matmul(1024, 1024, 1024), f"cuda -arch={arch}", hardware)
        space = ProgramSpace.of(task)
        (population,) = space.sample(400, np.random.default_rng(0)).populations
        assert not refusals(population, space.context)
        (kernel,) = kernel_usages(population.stored(population.inferred))
        taken[arch] = int(np.max(kernel.shared_bytes))
    assert taken["sm_61"] <= 49152 < taken["sm_90"] <= 227 * 1024
