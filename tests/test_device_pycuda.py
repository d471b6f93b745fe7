"""PyCUDA without a GPU: what it is asked for, whose context is current, and whose errors are turned."""

from __future__ import annotations

import gc
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from ansor.errors import BuildError, NoDeviceError, RunError
from ansor.runtime.device import cuda_pycuda
from ansor.runtime.device.cuda import CUDALaunches, FoundCUDA
from ansor.runtime.device.cuda_pycuda import PyCUDADriver
from ansor.runtime.device.door import KernelCall, Memory

FACTS = {
    "COMPUTE_CAPABILITY_MAJOR": 8,
    "COMPUTE_CAPABILITY_MINOR": 6,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "L2_CACHE_SIZE": 6 << 20,
    "WARP_SIZE": 32,
}


class Owned:
    """What PyCUDA has on the device; it is freed if its context is current, or this thread opened it."""

    def __init__(self, cuda: FakePyCUDA, what: str) -> None:
        self.cuda = cuda
        self.what = what

    def __int__(self) -> int:
        return 0x5000

    def __del__(self) -> None:
        able = self.cuda.stack or threading.get_ident() == self.cuda.opened_by
        (self.cuda.freed if able else self.cuda.leaked).append(self.what)


class FakeModule(Owned):
    """A program with the kernel `k`, which its functions keep."""

    def get_function(self, name: str) -> Any:
        self.cuda.check_alive("cuModuleGetFunction")
        if name != "k":
            raise self.cuda.Error("cuModuleGetFunction failed: named symbol not found")
        return types.SimpleNamespace(
            module=self,
            get_attribute=lambda what: 512,
            prepare=self.cuda.noted("prepare", inside=True),
            prepared_async_call=self.cuda.noted("launch", inside=True),
        )


class FakeContext:
    """On a thread's stack it stays if the driver fails to take it off, until it is detached."""

    def __init__(self, cuda: FakePyCUDA) -> None:
        self.cuda = cuda
        self.valid = True

    def push(self) -> None:
        self.cuda.leave()
        if not self.valid:
            raise self.cuda.Error("cuCtxPushCurrent failed: invalid device context")
        self.cuda.stack.append(self)

    def pop(self) -> None:
        self.cuda.leave()
        if not self.cuda.stack:
            raise self.cuda.Error("context::pop failed: invalid device context")
        self.cuda.stack.pop()

    def detach(self) -> None:
        if not self.valid:
            raise self.cuda.Error("context::detach failed: invalid device context")
        self.valid = False
        self.cuda.get_current()


class FakePyCUDA:
    """The module of PyCUDA with one device; it notes what it is asked for, and fails where told to."""

    class Error(Exception):
        pass

    class MemoryError(Error):  # noqa: A001 (as PyCUDA calls it)
        pass

    device_attribute = types.SimpleNamespace(
        **FACTS,
        **{f"MAX_{what}_DIM_{axis}": 1000 + i for what in ("BLOCK", "GRID") for i, axis in enumerate("XYZ")},
    )
    function_attribute = types.SimpleNamespace(MAX_THREADS_PER_BLOCK="threads")

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.lost = False
        """Whether a kernel has failed, and all that needs a context with it."""
        self.calls: list[tuple[Any, ...]] = []
        self.freed: list[str] = []
        self.leaked: list[str] = []
        self.opened_by: int | None = None
        """The thread in which PyCUDA makes the context current by itself."""
        self._stacks = threading.local()
        self.Context = types.SimpleNamespace(
            synchronize=self.noted("synchronize", inside=True), get_current=self.get_current
        )
        self.Event = lambda: types.SimpleNamespace(
            record=self.noted("record", inside=True),
            synchronize=self.noted("wait", inside=True),
            time_till=lambda end: 3.0,
        )
        self.memcpy_htod = self.noted("htod", inside=True)
        self.memcpy_dtoh = self.noted("dtoh", inside=True)
        self.memset_d8 = self.noted("memset", inside=True)

    @property
    def stack(self) -> list[FakeContext]:
        """The contexts of this thread."""
        stack: list[FakeContext] = self._stacks.__dict__.setdefault("stack", [])
        return stack

    def noted(self, name: str, answer: Any = None, inside: bool = False) -> Any:
        """A function that is noted; with `inside` it needs a context."""

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, *arguments))
            if inside:
                self.check_alive(name)
            assert self.stack or not inside, f"{name} without a context"
            if name in self.failing:
                raise self.Error(f"{name} failed: unspecified launch failure")
            return answer

        return call

    def check_alive(self, name: str) -> None:
        if self.lost:
            raise self.Error(f"{name} failed: an illegal memory access was encountered")

    def leave(self) -> None:
        """Take the context off the driver's own stack, which holds no more than the last one."""
        if self.stack:
            self.check_alive("cuCtxPopCurrent")

    def get_current(self) -> FakeContext | None:
        """The last context that is not detached; those above it are taken off."""
        while self.stack and not self.stack[-1].valid:
            self.stack.pop()
        return self.stack[-1] if self.stack else None

    def Device(self, number: int) -> Any:  # as PyCUDA calls it
        retained = self.noted("retain", FakeContext(self))

        def retain() -> Any:
            self.opened_by = threading.get_ident()
            return retained()

        return types.SimpleNamespace(
            name=lambda: "a GPU",
            total_memory=lambda: 1 << 30,
            get_attribute=lambda fact: fact,
            retain_primary_context=retain,
        )

    def get_driver_version(self) -> int:
        return 12080

    def mem_alloc(self, size: int) -> Owned:
        assert self.stack
        self.check_alive("cuMemAlloc")
        if size > 1 << 30:
            raise self.MemoryError("cuMemAlloc failed: out of memory")
        return Owned(self, "memory")

    def module_from_buffer(self, binary: bytes) -> Any:
        assert self.stack
        self.check_alive("cuModuleLoadDataEx")
        if not binary:
            raise self.Error("cuModuleLoadDataEx failed: device kernel image is invalid")
        return FakeModule(self, "module")


def opened(*failing: str) -> tuple[FakePyCUDA, PyCUDADriver]:
    cuda = FakePyCUDA(*failing)
    driver = PyCUDADriver(cuda, 0)
    driver.open()
    return cuda, driver


CALL = KernelCall("k", (Memory(0x5000, 64), np.int32(3), np.int64(-1)), (4, 2, 1), (64, 1, 1))


def test_the_device_is_described() -> None:
    info = FoundCUDA(PyCUDADriver(FakePyCUDA(), 0)).info
    assert (info.kind, info.name, info.arch, info.number) == ("cuda", "a GPU", "sm_86", 0)
    assert (info.memory_bytes, info.cache_bytes, info.cuda_release) == (1 << 30, 6 << 20, 12)
    assert info.max_grid == (1000, 1001, 1002)


def test_the_context_is_current_only_meanwhile() -> None:
    cuda, driver = opened()
    with driver.current(), driver.current():
        assert len(cuda.stack) == 2
        driver.synchronize()
    assert cuda.stack == []
    cuda, driver = opened("synchronize")
    with pytest.raises(RunError, match="the CUDA driver failed: synchronize failed"), driver.current():
        driver.synchronize()
    assert cuda.stack == []


def test_kernels_are_launched_with_their_arguments() -> None:
    cuda, driver = opened()
    with driver.current():
        launch = driver.launcher(driver.load(b"cubin"), CALL)
        launch(None)
    assert ("prepare", ["P", np.dtype("int32"), np.dtype("int64")]) in cuda.calls
    assert cuda.calls[-1] == ("launch", (4, 2, 1), (64, 1, 1), None, 0x5000, 3, -1)


@pytest.mark.parametrize("calls", [3, 70])
def test_calls_are_timed_between_events(calls: int) -> None:
    """As those of the other binding, only that each is a launch."""
    cuda, driver = opened()
    with driver.current():
        launch = driver.launcher(driver.load(b"cubin"), CALL)
    assert CUDALaunches(driver, [CALL] * 2, [launch] * 2).seconds(calls) == pytest.approx(3e-3)
    names = [call[0] for call in cuda.calls if call[0] not in ("retain", "prepare")]
    assert names == ["record", *["launch"] * 2 * calls, "record", "wait"]


def test_what_does_not_suit_the_device_is_a_build_error() -> None:
    _, driver = opened()
    with driver.current():
        with pytest.raises(BuildError, match=r"a GPU does not load the program: .*image is invalid"):
            driver.load(b"")
        loaded = driver.load(b"cubin")
        with pytest.raises(BuildError, match=r"no kernel 'l': .*symbol not found"):
            driver.launcher(loaded, KernelCall("l", (), (1, 1, 1), (1, 1, 1)))
        with pytest.raises(BuildError, match=r"k takes 513 threads .* registers for 512"):
            driver.launcher(loaded, KernelCall("k", (), (1, 1, 1), (513, 1, 1)))


@pytest.mark.parametrize("failing", ["load", "launcher", "launch", "allocate", "fill", "synchronize"])
def test_after_a_kernel_that_failed_it_is_the_device_that_is_blamed(failing: str) -> None:
    """What is asked for next is not at fault, and nothing helps but another process."""
    cuda, driver = opened()
    with driver.current():
        loaded = driver.load(b"cubin")
        launch = driver.launcher(loaded, CALL)
    asked = {
        "load": lambda: driver.load(b"another cubin"),
        "launcher": lambda: driver.launcher(loaded, CALL),
        "launch": lambda: launch(None),
        "allocate": lambda: driver.allocate(16),
        "fill": lambda: driver.fill(0x5000, 0, 16),
        "synchronize": driver.synchronize,
    }
    cuda.lost = True
    blamed = pytest.raises(RunError, match=r"illegal memory access .*; a kernel failed.*: start another$")
    with blamed, driver.current():
        asked[failing]()
    assert cuda.stack == []
    with pytest.raises(RunError, match=r"invalid device context; a kernel failed.*: start another$"):
        driver.current().__enter__()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_context_that_is_lost_stays_on_no_stack(depth: int) -> None:
    """PyCUDA ends the process with a thread that leaves one behind."""
    cuda, driver = opened()
    blamed = r"illegal memory access .*; a kernel failed.*: start another$"
    with ThreadPoolExecutor(1) as other:
        there = driver.current()
        other.submit(there.__enter__).result()
        with ExitStack() as stack:
            for _ in range(depth):
                stack.enter_context(driver.current())
            cuda.lost = True
            with pytest.raises(RunError, match=blamed):
                stack.close()
        assert cuda.stack == []
        with pytest.raises(RunError, match=blamed):
            other.submit(there.__exit__, None, None, None).result()
        assert other.submit(lambda: cuda.stack).result() == []


def test_a_context_that_is_lost_is_not_entered_again() -> None:
    cuda, driver = opened()
    blamed = pytest.raises(RunError, match=r"illegal memory access .*; a kernel failed.*: start another$")
    with blamed, driver.current():
        cuda.lost = True
        with driver.current():
            raise AssertionError("it was entered")
    assert cuda.stack == []


def test_a_failure_after_which_the_device_works_on_loses_nothing() -> None:
    _, driver = opened("launch")
    with driver.current():
        launch = driver.launcher(driver.load(b"cubin"), CALL)
    with pytest.raises(RunError, match=r"launch failed: unspecified launch failure$"), driver.current():
        launch(None)


def test_memory_that_is_not_there_is_a_run_error() -> None:
    _, driver = opened()
    with driver.current():
        assert int(driver.allocate(16)) == 0x5000
        with pytest.raises(RunError, match=r"a GPU has no \d+ bytes of memory left"):
            driver.allocate(1 << 40)


def test_what_is_on_the_device_is_freed_in_any_thread() -> None:
    """PyCUDA by itself frees it in the thread alone that opened the device."""
    with ThreadPoolExecutor(1) as other:
        cuda, driver = other.submit(opened).result()
    with driver.current():
        memory = driver.allocate(16)
        module = driver.load(b"cubin")
        launch = driver.launcher(module, CALL)
    del memory
    gc.collect()
    assert cuda.freed == ["memory"]
    del module
    gc.collect()
    assert cuda.freed == ["memory"], "a launch keeps its program"
    del launch
    gc.collect()
    assert cuda.freed == ["memory", "module"]
    assert cuda.leaked == []


def test_arrays_are_copied_by_address() -> None:
    cuda, driver = opened()
    data = np.zeros(4, np.uint8)
    with driver.current():
        driver.to_device(0x5010, data)
        driver.from_device(data, 0x5020)
        driver.fill(0x5000, 255, 64)
    assert [call[:2] for call in cuda.calls[-3:]] == [("htod", 0x5010), ("dtoh", data), ("memset", 0x5000)]
    assert cuda.calls[-1] == ("memset", 0x5000, 255, 64)


def test_a_device_that_cannot_be_opened_is_none() -> None:
    with pytest.raises(NoDeviceError, match=r"retain failed: .*; see `nvidia-smi`"):
        opened("retain")


def test_a_driver_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoDevice(FakePyCUDA):
        def init(self) -> None:
            raise self.Error("cuInit failed: no CUDA-capable device is detected")

    monkeypatch.setattr(cuda_pycuda, "import_module", lambda name: NoDevice())
    assert cuda_pycuda.device_names() == []
