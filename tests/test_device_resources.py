"""What kernels take of a multiprocessor: as compilers tell it, and how many blocks fit; no GPU is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ansor
from ansor.codegen.c.compile import Resources
from ansor.codegen.c.cuda_compilers import CudaCompiler, find_nvcc, find_nvrtc
from ansor.errors import BuildError, DefinitionError
from ansor.runtime.device.module import DeviceModule
from ansor.runtime.device.resources import KernelResources, resources_of
from ansor.task.device import DeviceModel, block_shared_bytes
from ansor.task.target import Target
from tests.device_kernels import double, scale

H100 = DeviceModel.for_target(Target("cuda -arch=sm_90"))


class Reporting:
    """A compiler that says what was put into its mouth."""

    name = "reporting"

    def __init__(self, *said: Resources) -> None:
        self.said = said
        self.asked: list[str] = []

    def compile(self, text: str, arch: str, form: str) -> tuple[bytes, str]:
        self.asked.append(arch)
        return b"", "\n".join(
            f"ptxas info    : Compiling entry function '{one.kernel}' for '{arch}'\n"
            f"    {one.stack_bytes} bytes stack frame, {one.spill_store_bytes} bytes spill stores, "
            f"{one.spill_load_bytes} bytes spill loads\n"
            f"ptxas info    : Used {one.registers} registers, {one.shared_bytes} bytes smem"
            for one in self.said
        )


def test_kernels_are_told_in_the_order_of_their_launches() -> None:
    first, second = Resources("scale_kernel0", 16), Resources("scale_kernel1", 40, 256, 8, 4, 12)
    compiler = Reporting(second, first)
    found = resources_of(replace(scale("cuda"), arch="sm_80"), compiler=compiler)
    assert compiler.asked == ["sm_80"]
    assert found == (
        KernelResources("scale_kernel0", "sm_80", 64, 16, 0, 0, 0, 0, 0, 32, 1.0),
        KernelResources("scale_kernel1", "sm_80", 64, 40, 256, 0, 8, 4, 12, 24, 0.75),
    )
    assert str(found[1]) == (
        "scale_kernel1 for sm_80: 64 threads, 40 registers, 256 + 0 bytes shared, 8 stack, 4 + 12 spilled, "
        "24 blocks at a time, occupancy 75%"
    )


def test_shared_memory_is_declared_or_asked_for() -> None:
    """Of what kernels may not declare the compiler does not know."""
    first, second = Resources("scale_kernel0", 16), Resources("scale_kernel1", 16, 256)
    package = replace(scale("cuda"), arch="sm_80", shared_bytes=(100 << 10, 256))
    found = resources_of(package, compiler=Reporting(first, second))
    assert [one.shared_bytes for one in found] == [100 << 10, 256]
    assert [(one.declared_bytes, one.asked_bytes) for one in found] == [(0, 100 << 10), (256, 0)]
    assert found[0].blocks == 1


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (32, 16, 0, 32),  # the most blocks
        (1024, 32, 0, 2),  # threads
        (128, 128, 0, 4),  # registers: 4 warps in each of 4 parts
        (256, 255, 0, 1),
        (1024, 65, 0, 0),  # more than there are
        (96, 40, 0, 16),  # 48 warps of 1280 registers, 3 of a block
        (128, 32, 48 << 10, 4),  # shared memory: 49 KB each of 228
        (100, 32, 0, 16),  # as for 128 threads
    ],
)
def test_blocks_that_a_multiprocessor_holds(threads: int, registers: int, shared: int, blocks: int) -> None:
    """By NVIDIA's occupancy calculator for compute capability 9.0."""
    assert H100.resident_blocks(threads, registers, shared) == blocks


@pytest.mark.parametrize(
    ("threads", "registers"), [(64, 255), (256, 255), (320, 168), (512, 128), (640, 96), (1000, 64)]
)
def test_registers_that_threads_of_a_block_may_have(threads: int, registers: int) -> None:
    """Warps are divided among four parts, and given 8 registers a thread at once."""
    assert H100.registers_of_thread(threads) == registers
    assert H100.resident_blocks(threads, registers, 0) >= 1
    assert registers == 255 or H100.resident_blocks(threads, registers + 1, 0) == 0


def test_many_blocks_are_looked_at_together() -> None:
    threads, registers = np.array([128.0, 640.0]), np.array([128.0, 96.0])
    assert H100.resident_blocks(threads, registers, np.array([0.0, 1024.0])).tolist() == [4, 1]
    assert H100.registers_of_thread(threads).tolist() == [255, 96]


@pytest.mark.parametrize("find", [find_nvcc, find_nvrtc])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_what_compilers_tell(find: object, arch: str) -> None:
    assert callable(find)
    compiler: CudaCompiler | None = find()
    if compiler is None:
        pytest.skip("the compiler is not installed")
    first, second = resources_of(replace(scale("cuda"), arch="sm_90"), arch, compiler)
    assert (first.kernel, first.arch, first.threads) == ("scale_kernel0", arch, 64)
    assert (first.shared_bytes, second.shared_bytes) == (0, 256)
    for one in (first, second):
        assert 0 < one.registers < 64
        assert (one.stack_bytes, one.spill_store_bytes, one.spill_load_bytes) == (0, 0, 0)
        assert (one.blocks, one.occupancy) == (32, 1.0)


def test_a_module_tells() -> None:
    if find_nvcc() is None and find_nvrtc() is None:
        pytest.skip("neither nvcc nor NVRTC is installed")
    (found,) = DeviceModule(replace(double(8, kind="cuda"), arch="sm_80")).resources()
    assert (found.kernel, found.arch) == ("program_kernel0", "sm_80")
    (found,) = DeviceModule(replace(double(8, kind="cuda"), arch="sm_80")).resources("sm_90")
    assert found.arch == "sm_90"


def test_a_compiler_that_does_not_tell() -> None:
    with pytest.raises(BuildError, match="does not tell what scale_kernel1 of scale takes"):
        resources_of(replace(scale("cuda"), arch="sm_80"), compiler=Reporting(Resources("scale_kernel0", 16)))


def test_drivers_of_opencl_do_not_tell() -> None:
    with pytest.raises(DefinitionError, match=r"program is a program for opencl, .* build it for 'cuda'"):
        DeviceModule(double(8)).resources()


@pytest.mark.parametrize(
    ("arch", "shared"), [("sm_70", 98304), ("sm_75", 65536), ("sm_80", 163 << 10), ("sm_90", 227 << 10)]
)
def test_a_block_may_have_what_it_is_allowed(arch: str, shared: int) -> None:
    """All of it once; of halves two, less what newer devices keep of each."""
    target = Target(f"cuda -arch={arch}")
    model = DeviceModel.for_target(target)
    assert block_shared_bytes(target) == shared
    assert [model.resident_blocks(32, 32, shared // part) for part in (1, 2)] == [
        1,
        1 if model.reserved_bytes else 2,
    ]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_no_program_is_believed_to_be_faster_than_tensor_cores(arch: str) -> None:
    args = (4096, 4096, 4096, "float16", "float32", "float16")
    task = ansor.SearchTask("ansor.matmul", args, target=f"cuda -arch={arch}")
    states = ansor.sample_programs(task, 24, np.random.default_rng(0))
    model = DeviceModel.for_target(task.target)
    peak = 2.0 * model.multiprocessors * model.lanes * model.tensor * model.hertz
    assert task.compute_dag.flop_count / ansor.AnalyticModel().seconds(task, states).min() < peak
