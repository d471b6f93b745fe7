"""NVIDIA's bindings without a GPU: what they are asked for, and that nothing stays behind."""

from __future__ import annotations

import ctypes
import enum
import gc
import types
from functools import partial
from typing import Any

import numpy as np
import pytest

from ansor.errors import BuildError, NoDeviceError, RunError
from ansor.knobs import DEVICE
from ansor.runtime.device import cuda, cuda_bindings, cuda_pycuda
from ansor.runtime.device.cuda_bindings import BindingsDriver
from ansor.runtime.device.door import KernelCall, Memory

ANSWERS: dict[str, tuple[Any, ...]] = {
    "cuDeviceGetAttribute": (0, 32),
    "cuDeviceGetCount": (0, 1),
    "cuDeviceGetName": (0, b"a GPU\0"),
    "cuDeviceTotalMem": (0, 1 << 30),
    "cuDriverGetVersion": (0, 13010),
    "cuEventElapsedTime": (0, 2.0),
    "cuGetErrorName": (0, b"CUDA_ERROR_X"),
    "cuGetErrorString": (0, b"it is broken"),
    "cuLaunchKernel": (0,),
    "cuFuncGetAttribute": (0, 1024),
}


class FakeCU:
    """cuda-bindings' module of the driver, which notes what it is asked for."""

    CUDA_KERNEL_NODE_PARAMS = types.SimpleNamespace
    CUfunction_attribute = types.SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK=0, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8
    )
    CUdevice_attribute = types.SimpleNamespace(CU_DEVICE_ATTRIBUTE_WARP_SIZE=0)
    CUresult = int

    def __init__(self, **answers: tuple[Any, ...]) -> None:
        self.answers = {**ANSWERS, **answers}
        self.calls: list[str] = []
        self.arguments: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object) -> tuple[Any, ...]:
            self.calls.append(name)
            self.arguments.append(arguments)
            return self.answers.get(name, (0, f"{name} {len(self.calls)}"))

        return call

    def count(self, name: str) -> int:
        return self.calls.count(name)


def opened(**answers: tuple[Any, ...]) -> tuple[FakeCU, BindingsDriver]:
    cu = FakeCU(**answers)
    driver = BindingsDriver(cu, 0)
    driver.open()
    return cu, driver


def timer_of(driver: BindingsDriver, *launchers: cuda.Launcher) -> cuda.CUDALaunches:
    return cuda.CUDALaunches(driver, [], list(launchers))


def kernel(block: tuple[int, int, int] = (64, 1, 1)) -> KernelCall:
    return KernelCall("k", (np.int32(3),), (1, 1, 1), block)


def test_a_program_is_unloaded_when_nothing_refers_to_it() -> None:
    cu, driver = opened()
    module = driver.load(b"cubin")
    launch = driver.launcher(module, kernel())
    del module
    gc.collect()
    launch(None)
    assert cu.count("cuModuleUnload") == 0
    del launch
    gc.collect()
    assert cu.calls[-4:] == ["cuCtxPushCurrent", "cuCtxSynchronize", "cuModuleUnload", "cuCtxPopCurrent"]


@pytest.mark.parametrize(
    ("number", "launches", "graphs"), [(1, 1, [1]), (31, 1, [31]), (32, 1, [32]), (100, 4, [32, 4])]
)
def test_calls_are_timed_as_graphs_which_are_kept_and_destroyed(
    number: int, launches: int, graphs: list[int]
) -> None:
    cu, driver = opened()
    clock = timer_of(driver, driver.launcher(driver.load(b""), kernel()))
    assert clock.seconds(number) == pytest.approx(2e-3)
    assert cu.count("cuGraphAddKernelNode") == sum(graphs)
    assert cu.count("cuLaunchKernel") == 0
    assert cu.count("cuGraphLaunch") == launches
    clock.seconds(number)
    assert cu.count("cuGraphAddKernelNode") == sum(graphs)
    assert cu.count("cuGraphLaunch") == 2 * launches
    assert cu.count("cuGraphInstantiate") == cu.count("cuGraphDestroy") == len(graphs)
    assert cu.count("cuGraphExecDestroy") == 0
    del clock
    gc.collect()
    assert cu.count("cuGraphExecDestroy") == len(graphs)


def test_the_kernels_of_a_graph_run_one_behind_the_other() -> None:
    cu, driver = opened()
    module = driver.load(b"")
    second = KernelCall("l", (np.int64(-7),), (5, 2, 3), (8, 4, 1))
    timer_of(driver, driver.launcher(module, kernel()), driver.launcher(module, second)).seconds(2)
    nodes = [
        (name, *arguments)
        for name, arguments in zip(cu.calls, cu.arguments, strict=True)
        if name == "cuGraphAddKernelNode"
    ]
    names = [f"cuGraphAddKernelNode {i + 1}" for i, name in enumerate(cu.calls) if name == nodes[0][0]]
    assert [node[2] for node in nodes] == [[], [names[0]], [names[1]], [names[2]]]
    assert [node[3] for node in nodes] == [0, 1, 1, 1]
    found: Any = nodes[1][4]
    assert (found.gridDimX, found.gridDimY, found.gridDimZ) == (5, 2, 3)
    assert (found.blockDimX, found.blockDimY, found.blockDimZ) == (8, 4, 1)


def test_arguments_are_passed_by_their_places() -> None:
    """As the driver reads them: a list of addresses, of a device's address and of numbers."""
    cu, driver = opened()
    arguments = (Memory(0x1234567890, 4), np.int32(-3), np.int64(1 << 40))
    launch = driver.launcher(driver.load(b""), KernelCall("k", arguments, (1, 1, 1), (1, 1, 1)))
    launch(None)
    *_, place, extra = cu.arguments[-1]
    assert isinstance(place, int)
    assert extra == 0
    places = (ctypes.c_void_p * 3).from_address(place)
    assert ctypes.c_uint64.from_address(places[0]).value == 0x1234567890
    assert ctypes.c_int32.from_address(places[1]).value == -3
    assert ctypes.c_int64.from_address(places[2]).value == 1 << 40


def test_nothing_happens_between_the_events_but_launches() -> None:
    cu, driver = opened()
    timer_of(driver, driver.launcher(driver.load(b""), kernel())).seconds(33)
    first = cu.calls.index("cuEventRecord")
    timed = ["cuEventRecord", "cuGraphLaunch", "cuGraphLaunch", "cuEventRecord", "cuEventSynchronize"]
    assert cu.calls[first : first + 5] == timed


@pytest.mark.parametrize("refused", ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate"])
def test_without_graphs_kernels_are_launched_one_by_one(refused: str) -> None:
    cu, driver = opened(**{refused: (801, None)})
    clock = timer_of(driver, driver.launcher(driver.load(b""), kernel()))
    clock.seconds(3)
    assert cu.count("cuLaunchKernel") == 3
    assert cu.count("cuGraphLaunch") == 0
    assert cu.count("cuGraphDestroy") == (refused != "cuGraphCreate")


def test_a_launch_that_fails_says_which() -> None:
    _, driver = opened(cuLaunchKernel=(1,))
    with pytest.raises(RunError, match=r"launching k in blocks of .64, 1, 1. threads failed: CUDA_ERROR_X"):
        driver.launcher(driver.load(b""), kernel())(None)


@pytest.mark.parametrize("failing", ["cuModuleLoadData", "cuModuleGetFunction", "cuEventSynchronize"])
def test_after_a_kernel_that_failed_it_is_the_device_that_is_blamed(failing: str) -> None:
    """What is loaded next is not at fault, and nothing helps but another process."""
    _, driver = opened(**{failing: (700, None)})
    with pytest.raises(RunError, match=r"CUDA_ERROR_X: it is broken; a kernel failed.*start another"):
        timer_of(driver, driver.launcher(driver.load(b""), kernel())).seconds(1)


def test_an_error_that_the_binding_does_not_know_has_its_number() -> None:
    cu, driver = opened(cuCtxSynchronize=(12345,))
    cu.CUresult = enum.IntEnum("CUresult", {"ONE": 1})  # type: ignore[misc, assignment]
    with pytest.raises(RunError, match="the CUDA driver failed with error 12345"):
        driver.synchronize()


def test_a_block_that_lacks_registers_is_refused_before_it_is_launched() -> None:
    _, driver = opened(cuFuncGetAttribute=(0, 512))
    driver.launcher(driver.load(b""), kernel((512, 1, 1)))
    with pytest.raises(BuildError, match="k takes 513 threads in a block, and the GPU has registers for 512"):
        driver.launcher(driver.load(b""), kernel((513, 1, 1)))


def test_launches_ask_for_more_shared_memory_than_kernels_declare() -> None:
    """The kernel is allowed it before, in graphs as well."""
    cu, driver = opened()
    module = driver.load(b"")
    for shared, asked in ((48 << 10, 0), (64 << 10, 64 << 10)):
        call = KernelCall("k", (np.int32(3),), (1, 1, 1), (64, 1, 1), shared)
        launch = driver.launcher(module, call)
        launch(None)
        assert cu.calls[-1] == "cuLaunchKernel"
        assert cu.arguments[-1][7] == asked
        timer_of(driver, launch).seconds(1)
        node: Any = cu.arguments[cu.calls.index("cuGraphAddKernelNode")][3]
        assert node.sharedMemBytes == asked
        noted = zip(cu.calls, cu.arguments, strict=True)
        allowed = [arguments[1:] for name, arguments in noted if name == "cuFuncSetAttribute"]
        assert allowed == ([(8, asked)] if asked else [])
        cu.calls.clear()
        cu.arguments.clear()


class PyCUDAFunction:
    """A kernel of PyCUDA's, which notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def get_attribute(self, name: str) -> int:
        return 1024

    def set_attribute(self, name: str, value: int) -> None:
        self.done.append((name, value))

    def prepare(self, kinds: list[str]) -> None:
        self.done.append(kinds)

    def prepared_async_call(self, *arguments: Any, shared_size: int) -> None:
        self.done.append(shared_size)


def test_pycuda_asks_for_shared_memory_too() -> None:
    device = types.SimpleNamespace(name=lambda: "a GPU", total_memory=lambda: 1 << 30)
    module: Any = types.SimpleNamespace(
        Error=ValueError,
        Device=lambda number: device,
        get_driver_version=lambda: 13010,
        function_attribute=types.SimpleNamespace(
            MAX_THREADS_PER_BLOCK="threads", MAX_DYNAMIC_SHARED_SIZE_BYTES="shared"
        ),
    )
    driver = cuda_pycuda.PyCUDADriver(module, 0)
    for shared, done in ((100, [["int32"], 0]), (64 << 10, [("shared", 64 << 10), ["int32"], 64 << 10])):
        function = PyCUDAFunction()
        loaded = types.SimpleNamespace(get_function=lambda name, function=function: function)
        module.module_from_buffer = lambda binary, loaded=loaded: loaded
        call = KernelCall("k", (np.int32(3),), (1, 1, 1), (64, 1, 1), shared)
        driver.launcher(driver.load(b""), call)(None)
        assert function.done == done


class Asked:
    """A driver that answers what it is asked for of the device, as far as its binding knows the question."""

    binding, name, number, memory_bytes, cuda_release = "a binding", "a GPU", 0, 1 << 30, 13

    def __init__(self, **known: int) -> None:
        self.known = known

    def attribute(self, name: str) -> int:
        if name.endswith("OPTIN") and name not in self.known:
            raise AttributeError(name)
        return self.known.get(name, 7)


def test_devices_allow_what_launches_may_ask_for() -> None:
    declared = Asked(MAX_SHARED_MEMORY_PER_BLOCK=49152)
    asked = Asked(MAX_SHARED_MEMORY_PER_BLOCK=49152, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=232448)
    assert cuda.FoundCUDA(declared).info.binding == "a binding"  # type: ignore[arg-type]
    assert cuda.FoundCUDA(declared).info.max_shared_memory_per_block == 49152  # type: ignore[arg-type]
    assert cuda.FoundCUDA(asked).info.max_shared_memory_per_block == 232448  # type: ignore[arg-type]


def test_what_does_not_load_or_is_not_there_is_a_build_error() -> None:
    _, driver = opened(cuModuleLoadData=(209, None))
    with pytest.raises(BuildError, match=r"a GPU does not load the program: .*CUDA_ERROR_X: it is broken"):
        driver.load(b"")
    _, driver = opened(cuModuleGetFunction=(500, None))
    with pytest.raises(BuildError, match="the program has no kernel 'k': CUDA_ERROR_X"):
        driver.launcher(driver.load(b""), kernel())


class FakePyCUDA:
    """PyCUDA's driver module, which fails."""

    class Error(Exception):
        pass

    def init(self) -> None:
        raise self.Error("cuInit failed: system not yet initialized")


@pytest.fixture
def _broken_pycuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEVICE, raising=False)
    monkeypatch.setattr(cuda_pycuda, "import_module", lambda name: FakePyCUDA())


@pytest.mark.usefixtures("_broken_pycuda")
def test_where_one_binding_fails_the_other_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_bindings, "import_module", lambda name: FakeCU(cuInit=(0,)))
    assert isinstance(cuda.find_device().driver, BindingsDriver)
    monkeypatch.setattr(cuda_bindings, "import_module", lambda name: FakeCU(cuInit=(100,)))
    with pytest.raises(NoDeviceError, match=r"system not yet initialized.*no CUDA device"):
        cuda.find_device()


def test_a_binding_without_a_driver_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyCUDA is linked to the driver's library, so that it cannot even be imported."""

    def broken(name: str) -> Any:
        raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")

    def absent(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'cuda'")

    monkeypatch.setattr(cuda_pycuda, "import_module", broken)
    monkeypatch.setattr(cuda_bindings, "import_module", absent)
    with pytest.raises(NoDeviceError, match=r"^there is no NVIDIA driver on this machine .libcuda.so.1: "):
        cuda.find_device()


@pytest.mark.usefixtures("_broken_pycuda")
@pytest.mark.parametrize("failing", ["cuDeviceGetCount", "cuDeviceGet", "cuDeviceTotalMem"])
def test_a_driver_that_does_not_tell_of_its_devices_has_none(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    cu = FakeCU(cuInit=(0,), **{failing: (999, None)})
    monkeypatch.setattr(cuda_bindings, "import_module", lambda name: cu)
    with pytest.raises(NoDeviceError, match="CUDA_ERROR_X: it is broken; see `nvidia-smi`"):
        cuda.find_device()


@pytest.mark.parametrize("failing", ["cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuStreamCreate"])
def test_a_device_that_cannot_be_asked_or_opened_is_none(failing: str) -> None:
    driver = BindingsDriver(FakeCU(**{failing: (2, None)}), 0)
    ask = partial(driver.attribute, "WARP_SIZE") if failing == "cuDeviceGetAttribute" else driver.open
    with pytest.raises(NoDeviceError, match="CUDA_ERROR_X"):
        ask()
