"""The door to devices: what is there, memory, launches, the device's clock, and how its absence is told."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ansor.codegen.c.dialect import POINTER_ALIGNMENT
from ansor.errors import BuildError, NoDeviceError, RunError, TargetError
from ansor.runtime.device import cuda, door, opencl
from ansor.runtime.device.door import (
    Device,
    DeviceInfo,
    KernelCall,
    check_call,
    choose_device,
    device_info,
    open_device,
)
from ansor.runtime.device.hardware import arch_of, hardware_params, settled_target
from ansor.task.hardware import HardwareParams
from ansor.task.target import Target
from tests.device_kernels import each_device, needs_opencl, written_for

ADD = """
__kernel void add(__global const float* a, __global float* b, int n, long step) {
  int i = get_global_id(0);
  if (i < n) b[i] = a[i] + step;
}
"""


@pytest.fixture
def device(kind: str) -> Device:
    return open_device(kind)


def compiled(device: Device) -> Any:
    return device.compile(written_for(device.kind, ADD))


def add_call(device: Device, n: int, grid: int = 2) -> tuple[KernelCall, Any, Any]:
    a, b = device.allocate(4 * n), device.allocate(4 * n)
    device.upload(np.arange(n, dtype=np.float32), a)
    return KernelCall("add", (a, b, np.int32(n), np.int64(3)), (grid, 1, 1), (64, 1, 1)), a, b


# -- a device ------------------------------------------------------------------------------------------


@each_device
def test_it_says_what_it_is_and_allows(device: Device) -> None:
    info = device_info(device.kind)
    assert info == device.info
    assert info.kind == device.kind
    assert info.arch.startswith("sm_" if device.kind == "cuda" else "")
    assert device.name == info.name != ""
    assert info.max_threads_per_block >= 64
    assert len(info.max_block) == 3
    assert info.max_shared_memory_per_block >= 1024
    assert info.memory_bytes > 1 << 26
    assert open_device(device.kind) is device


@each_device
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_memory_keeps_what_is_copied_to_it(device: Device, dtype: str) -> None:
    data = np.arange(24).reshape(2, 3, 4).astype(dtype)
    memory = device.allocate(data.nbytes + 16)
    assert memory.size == data.nbytes + 16
    device.fill(memory, 7)
    device.upload(data, memory)
    found = np.zeros_like(data)
    device.download(memory, found)
    np.testing.assert_array_equal(found, data)
    rest = np.zeros(16, np.uint8)
    device.download(memory, rest, data.nbytes)
    assert (rest == 7).all()
    device.upload(rest[:4] * 0, memory, data.nbytes + 4)
    device.download(memory, rest, data.nbytes)
    assert rest.tolist() == [7] * 4 + [0] * 4 + [7] * 8


@each_device
def test_a_part_of_memory_keeps_the_whole(device: Device) -> None:
    """A kernel takes it as it takes any memory, and may write before it."""
    before, size = device.alignment, 4 * 100
    assert before % POINTER_ALIGNMENT == 0
    whole = device.allocate(before + size)
    device.fill(whole, 0)
    call, a, _ = add_call(device, 100)
    part = device.part(whole, before, size)
    assert (part.size, device.part(whole, before, 0).size) == (size, 0)
    device.prepare(compiled(device), [replace(call, arguments=(a, part, *call.arguments[2:]))]).enqueue()
    found = np.ones(whole.size // 4, np.float32)
    device.download(whole, found)
    np.testing.assert_array_equal(found, [*[0] * (before // 4), *range(3, 103)])
    del whole
    device.upload(np.full(50, 7, np.float32), part, 200)
    found = np.zeros(100, np.float32)
    device.download(part, found)
    np.testing.assert_array_equal(found, [*range(3, 53), *[7] * 50])


@each_device
def test_read_only_bfloat16_and_empty_arrays_are_copied(device: Device) -> None:
    import ml_dtypes

    data = np.ones(5, ml_dtypes.bfloat16)
    data.flags.writeable = False
    memory = device.allocate(10)
    device.upload(data, memory)
    found = np.zeros(5, ml_dtypes.bfloat16)
    device.download(memory, found)
    assert (found == data).all()
    nothing = device.allocate(0)
    device.upload(np.zeros(0, np.float32), nothing)
    device.download(nothing, np.zeros(0, np.float32))
    device.fill(nothing, 1)


@each_device
def test_kernels_are_launched_and_timed(device: Device) -> None:
    """Timed they are launched as graphs of calls by NVIDIA's bindings alone: others have none."""
    loaded = compiled(device)
    call, _, b = add_call(device, 100)
    launches = device.prepare(loaded, [call])
    launches.enqueue()
    found = np.zeros(100, np.float32)
    device.download(b, found)
    np.testing.assert_array_equal(found, np.arange(100) + 3)
    one, many = launches.seconds(1), launches.seconds(600)
    assert 0 < one < 5
    assert 0 < many < 60
    device.flush_caches()
    device.synchronize()


@each_device
def test_an_empty_grid_does_nothing(device: Device) -> None:
    call, _, b = add_call(device, 8, grid=0)
    device.fill(b, 0)
    launches = device.prepare(compiled(device), [call])
    launches.enqueue()
    assert launches.seconds(3) == 0
    found = np.ones(8, np.float32)
    device.download(b, found)
    assert (found == 0).all()


@each_device
def test_code_that_the_compiler_refuses_is_a_build_error(device: Device) -> None:
    with pytest.raises(BuildError, match="refuses the"):
        device.compile(written_for(device.kind, "__kernel void f(__global float* a) { a[0] = undeclared; }"))
    with pytest.raises(BuildError, match="no kernel 'sub'"):
        device.prepare(compiled(device), [KernelCall("sub", (), (1, 1, 1), (1, 1, 1))])
    with pytest.raises(BuildError, match=r"from their source|does not load"):
        device.load(b"")


@each_device
def test_what_the_device_does_not_allow_is_refused_before_it_is_launched(device: Device) -> None:
    loaded = compiled(device)
    call, *_ = add_call(device, 8)
    most = device.info.max_threads_per_block
    large = KernelCall(call.kernel, call.arguments, call.grid, (most + 1, 1, 1))
    with pytest.raises(BuildError, match=rf"{most + 1} threads in a block.*bind shorter loops"):
        device.prepare(loaded, [large])
    device.synchronize()
    with pytest.raises(RunError, match=r"failed|no \d+ bytes of memory left"):
        device.allocate(1 << 50)


@needs_opencl
def test_warnings_of_the_compiler_are_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    open_device("opencl").compile("__kernel void f(__global int* a) { a[0]; }")
    assert capfd.readouterr().err == ""


@needs_opencl
def test_a_wrong_number_of_arguments_is_noticed() -> None:
    device = open_device("opencl")
    call, *_ = add_call(device, 8)
    with pytest.raises(BuildError, match="arguments of add failed"):
        device.prepare(
            compiled(device), [KernelCall("add", (*call.arguments, np.int32(1)), (1, 1, 1), (1, 1, 1))]
        )


# -- limits --------------------------------------------------------------------------------------------

GPU = DeviceInfo(
    "cuda", "a GPU", "sm_90", 1024, (1024, 1024, 64), (2**31 - 1, 65535, 65535), 49152, 1 << 30, 0, 32
)


@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        ((1, 1, 1), (32, 33, 1), 0, "1056 threads in a block, 1024 are allowed"),
        ((1, 1, 1), (1, 1, 65), 0, "65 threads along z, 64 are allowed"),
        ((1, 65536, 1), (1, 1, 1), 0, "65536 blocks along y, 65535 are allowed"),
        ((1, 1, 1), (32, 1, 1), 49153, "49153 bytes of shared memory, 49152 are allowed"),
    ],
)
def test_limits_are_checked_before_a_launch(
    grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, message: str
) -> None:
    check_call(KernelCall("k", (), (2**31 - 1, 1, 1), (1024, 1, 1), 49152), GPU)
    with pytest.raises(BuildError, match=f"k cannot run on a GPU: it takes {message}"):
        check_call(KernelCall("k", (), grid, block, shared), GPU)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a CUDA device that nobody runs anything on."""
    monkeypatch.setattr("ansor.runtime.device.hardware.device_info", lambda kind: _only(kind))


def _only(kind: str) -> DeviceInfo:
    if kind != "cuda":
        raise NoDeviceError("none")
    return GPU


@pytest.mark.usefixtures("gpu")
def test_hardware_is_what_the_target_says_and_else_what_the_device_says() -> None:
    assert hardware_params(Target("cuda")).to_json() == [-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32]
    assert hardware_params(Target("cuda -max_threads_per_block=256")).max_threads_per_block == 256
    assert hardware_params(Target("cuda -max_num_threads=512")).max_threads_per_block == 512
    assert hardware_params(Target("cuda -max_shared_memory_per_block=99")).max_shared_memory_per_block == 99
    for target in ("opencl", "opencl -device=mali", "llvm", "metal"):
        assert hardware_params(Target(target)) == HardwareParams.for_target(Target(target))


def test_another_device_changes_what_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    small = DeviceInfo("opencl", "small", "", 64, (64, 64, 64), (9, 9, 9), 1000, 1 << 20, 0, 16)
    monkeypatch.setattr("ansor.runtime.device.hardware.device_info", lambda kind: small)
    assert hardware_params(Target("opencl")).to_json() == [-1, 16, 64, 1000, 2**31 - 1, 64, 4, 16]
    assert hardware_params(Target("opencl -device=mali")).to_json() == [
        -1,
        16,
        64,
        32768,
        2**31 - 1,
        256,
        1,
        1,
    ]
    assert hardware_params(Target("opencl -thread_warp_size=8")).warp_size == 8


@pytest.mark.usefixtures("gpu")
def test_what_a_target_says_counts_though_it_is_the_default() -> None:
    assert hardware_params(Target("cuda -thread_warp_size=32 -max_num_threads=1024")).warp_size == 32
    for text in ("cuda -arch=sm_50", "cuda -arch=sm_50 -max_num_threads=1024"):
        assert arch_of(Target(text)) == "sm_50"
    assert arch_of(Target(str(Target("cuda")))) == "sm_90"


def test_a_cpu_that_poses_as_a_device_allows_no_more_than_gpus_do(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = DeviceInfo("opencl", "CPU", "", 4096, (4096, 9, 9), (9, 9, 9), 1 << 20, 1 << 30, is_cpu=True)
    monkeypatch.setattr("ansor.runtime.device.hardware.device_info", lambda kind: cpu)
    assert hardware_params(Target("opencl")) == HardwareParams.for_target(Target("opencl"))
    assert hardware_params(Target("opencl -max_num_threads=256")).max_threads_per_block == 256
    assert hardware_params(Target("opencl -max_num_threads=2048")).max_threads_per_block == 2048
    monkeypatch.setattr("ansor.runtime.device.hardware.device_info", lambda kind: replace(cpu, is_cpu=False))
    assert hardware_params(Target("opencl")).max_threads_per_block == 4096
    assert hardware_params(Target("opencl -max_num_threads=256")).max_threads_per_block == 256


@pytest.mark.usefixtures("gpu")
def test_the_architecture_is_the_targets_then_the_devices() -> None:
    assert arch_of(Target("cuda")) == "sm_90"
    assert arch_of(Target("cuda -arch=sm_80")) == "sm_80"
    assert arch_of(Target("opencl")) == ""
    assert settled_target(Target("cuda")) == Target("cuda -arch=sm_90")
    for text in ("cuda -arch=sm_80", "opencl", "llvm"):
        assert settled_target(Target(text)) == Target(text)
    other = hardware_params(Target("cuda -arch=sm_75"))
    assert other == HardwareParams.for_target(Target("cuda -arch=sm_75"))


def test_without_a_device_there_is_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(kind: str) -> DeviceInfo:
        raise NoDeviceError("none")

    monkeypatch.setattr("ansor.runtime.device.hardware.device_info", none)
    assert arch_of(Target("cuda")) == "sm_80"
    assert settled_target(Target("cuda")) == Target("cuda")
    assert hardware_params(Target("cuda")) == HardwareParams.for_target(Target("cuda"))


def test_a_wrong_choice_of_a_device_is_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(kind: str) -> DeviceInfo:
        choose_device(kind, ["a GPU"])
        return GPU

    monkeypatch.setattr("ansor.runtime.device.hardware.device_info", chosen)
    monkeypatch.setenv(door.DEVICE, "H1000")
    with pytest.raises(TargetError, match="ANSOR_DEVICE='H1000' names no device for cuda"):
        hardware_params(Target("cuda"))


# -- absence -------------------------------------------------------------------------------------------


def absent(*names: str) -> Any:
    """An `import_module` that does not find these."""
    from importlib import import_module

    def look(name: str) -> Any:
        if name.split(".")[0] in names:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return import_module(name)

    return look


def test_without_pyopencl_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "import_module", absent("pyopencl"))
    with pytest.raises(TargetError, match=r"need pyopencl.*No module named.*pip install 'ansor\[opencl\]'"):
        opencl.find_device()


class NoPlatformError(Exception):
    """Stands for pyopencl.LogicError."""


def fake_opencl(platforms: Any) -> Any:
    module: Any = types.ModuleType("pyopencl")
    module.Error = NoPlatformError
    module.device_type = types.SimpleNamespace(GPU=4, ACCELERATOR=8)
    module.get_platforms = platforms
    return lambda name: module


def test_without_a_platform_it_is_said_that_none_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise NoPlatformError("PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(opencl, "import_module", fake_opencl(refuse))
    with pytest.raises(TargetError, match=r"no OpenCL platform .PLATFORM_NOT_FOUND.*ansor\[opencl\]"):
        opencl.find_device()
    empty = types.SimpleNamespace(name="Empty", get_devices=lambda: [])
    monkeypatch.setattr(opencl, "import_module", fake_opencl(lambda: [empty]))
    with pytest.raises(TargetError, match=r"no OpenCL device .platforms: Empty."):
        opencl.find_device()


def test_a_platform_that_fails_does_not_hide_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise NoPlatformError("DEVICE_NOT_FOUND")

    monkeypatch.delenv(door.DEVICE, raising=False)
    broken = types.SimpleNamespace(name="Broken", get_devices=refuse)
    platform = types.SimpleNamespace(name="Good")
    device = types.SimpleNamespace(name="g", type=4, platform=platform)
    platform.get_devices = lambda: [device]
    monkeypatch.setattr(opencl, "import_module", fake_opencl(lambda: [broken, platform]))
    assert opencl.find_device().device is device
    monkeypatch.setattr(opencl, "import_module", fake_opencl(lambda: [broken]))
    with pytest.raises(NoDeviceError, match=r"platforms: Broken, which says DEVICE_NOT_FOUND"):
        opencl.find_device()


def test_a_device_that_does_not_tell_what_it_allows_is_none() -> None:
    class Silent:
        name = "silent"
        platform = types.SimpleNamespace(name="Broken")

        @property
        def max_work_item_sizes(self) -> Any:
            raise NoPlatformError("INVALID_VALUE")

    cl = fake_opencl(lambda: [])("pyopencl")
    with pytest.raises(NoDeviceError, match=r"silent .Broken. does not tell what it allows .INVALID_VALUE"):
        _ = opencl.FoundOpenCL(cl, Silent()).info


def test_a_device_that_cannot_be_opened_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        info = GPU

        def open(self) -> Any:
            raise RunError("out of memory")

    monkeypatch.setattr(door, "_open", {})
    monkeypatch.setattr(door, "_find", lambda kind: Found())
    with pytest.raises(NoDeviceError, match="the device a GPU cannot be opened: out of memory"):
        open_device("cuda")


def test_gpus_come_before_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(door.DEVICE, raising=False)
    platform = types.SimpleNamespace(name="Both")
    devices = [
        types.SimpleNamespace(name=name, type=kind, platform=platform) for name, kind in (("c", 2), ("g", 4))
    ]
    platform.get_devices = lambda: list(devices)
    monkeypatch.setattr(opencl, "import_module", fake_opencl(lambda: [platform]))
    assert opencl.find_device().device is devices[1]
    monkeypatch.setenv(door.DEVICE, "1")
    assert opencl.find_device().device is devices[0]


def test_the_variable_may_choose_for_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["one", "two", "three"]
    for text, opencl_choice, cuda_choice in (
        ("opencl:1", 1, 0),
        ("opencl:1,cuda:three", 1, 2),
        ("two, opencl:2", 2, 1),
        ("cuda:2,two", 1, 2),
    ):
        monkeypatch.setenv(door.DEVICE, text)
        assert (choose_device("opencl", names), choose_device("cuda", names)) == (opencl_choice, cuda_choice)


def test_the_variable_chooses_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["NVIDIA A100", "NVIDIA H100"]
    monkeypatch.delenv(door.DEVICE, raising=False)
    assert choose_device("cuda", names) == 0
    for text, position in (("1", 1), ("h100", 1), ("nvidia", 0)):
        monkeypatch.setenv(door.DEVICE, text)
        assert choose_device("cuda", names) == position
    for text in ("2", "amd"):
        monkeypatch.setenv(door.DEVICE, text)
        with pytest.raises(
            TargetError, match=r"names no device for cuda; there are 0: NVIDIA A100; 1: NVIDIA H100"
        ):
            choose_device("cuda", names)


def test_without_a_cuda_binding_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansor.runtime.device import cuda_bindings, cuda_pycuda

    monkeypatch.setattr(cuda_pycuda, "import_module", absent("pycuda"))
    monkeypatch.setattr(cuda_bindings, "import_module", absent("cuda"))
    with pytest.raises(
        TargetError, match=r"PyCUDA: No module.*cuda-bindings: No module.*ansor\[cuda-wheels\]"
    ):
        cuda.find_device()


def fake_bindings(code: int, count: int = 0) -> Any:
    module = types.SimpleNamespace(
        cuInit=lambda flags: (code,),
        cuDeviceGetCount=lambda: (0, count),
        CUresult=int,
        cuGetErrorName=lambda result: (0, b"CUDA_ERROR_X"),
        cuGetErrorString=lambda result: (0, b"it is broken"),
    )
    return lambda name: module


def test_without_a_driver_or_a_gpu_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansor.runtime.device import cuda_bindings, cuda_pycuda

    monkeypatch.setattr(cuda_pycuda, "import_module", absent("pycuda"))
    monkeypatch.setattr(cuda_bindings, "import_module", fake_bindings(100))
    with pytest.raises(TargetError, match="no CUDA device"):
        cuda.find_device()
    monkeypatch.setattr(cuda_bindings, "import_module", fake_bindings(999))
    with pytest.raises(TargetError, match=r"does not work .CUDA_ERROR_X: it is broken."):
        cuda.find_device()

    def missing(flags: int) -> Any:
        raise RuntimeError("libcuda.so.1 not found")

    module = types.SimpleNamespace(cuInit=missing)
    monkeypatch.setattr(cuda_bindings, "import_module", lambda name: module)
    with pytest.raises(TargetError, match=r"no NVIDIA driver on this machine .libcuda"):
        cuda.find_device()


def test_other_kinds_have_no_devices() -> None:
    for ask in (device_info, open_device):
        with pytest.raises(TargetError, match=r"no devices of kind 'metal'.*opencl, cuda"):
            ask("metal")


def test_programs_for_cpus_import_nothing_for_devices() -> None:
    import subprocess

    code = (
        "import sys, ansor\n"
        "ansor.build, ansor.lower, ansor.load_module, ansor.Module\n"
        "room = ('ansor.runtime.device.', 'ansor.codegen.c.')\n"
        "print(sorted(name for name in sys.modules if name.startswith(room)))\n"
        "print(ansor.DeviceModule.__name__, ansor.device_array.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "['ansor.runtime.device.door']",
        "DeviceModule device_array",
    ], done.stderr


def test_nothing_is_imported_before_a_device_is_looked_for() -> None:
    import subprocess

    code = (
        "import sys, ansor\n"
        "from ansor.runtime.build import build\n"
        "import measure.runner\n"
        "print(sorted({'pyopencl', 'pycuda', 'cuda'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
