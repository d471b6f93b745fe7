"""CUDA devices: the door's `Device` over a driver binding, PyCUDA or NVIDIA's cuda-bindings.

What differs between the bindings is a `Driver`, of which there are two: `ansor.runtime.device.cuda_pycuda`
and `ansor.runtime.device.cuda_bindings`; PyCUDA is taken where both are installed. Everything happens in the
device's primary context and on the default stream, as other libraries have it: kernels run after what these
have started there, and their arrays are used where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any, Final, Protocol, cast

from ansor.alignment import bytes_of
from ansor.codegen.c.dialect import CUDA
from ansor.errors import BuildError, NoDeviceError
from ansor.runtime.device.door import (
    Array,
    Device,
    DeviceInfo,
    KernelCall,
    Launches,
    Memory,
    choose_device,
)

INSTALL: Final = (
    "pip install 'ansor[cuda-wheels]' brings NVIDIA's cuda-bindings and compiler; "
    "'ansor[cuda]' is PyCUDA, which is built from source and needs the CUDA toolkit"
)
_BINDINGS: Final = ("ansor.runtime.device.cuda_pycuda", "ansor.runtime.device.cuda_bindings")

_GRAPH_CALLS: Final = 32
"""Most calls that are launched at once, as a graph, when kernels are timed."""

_ALIGNMENT: Final = 256
"""Bytes of which the driver's allocations begin at a multiple, at least (CUDA C++ Programming Guide)."""

Launcher = Callable[[Any], None]
"""Launches one kernel with its arguments on a stream of the driver's; None is the default stream."""


class Driver(Protocol):
    """One device by one binding. What uses the context is called within `current`.

    What tells of the device and opens it raises a `NoDeviceError` if the driver fails.
    """

    @property
    def binding(self) -> str:
        """The distribution that the binding is of."""

    @property
    def name(self) -> str: ...

    @property
    def number(self) -> int:
        """Its place among the devices there are."""

    @property
    def memory_bytes(self) -> int: ...

    @property
    def cuda_release(self) -> int:
        """The newest version of CUDA that it knows, before the point."""

    def attribute(self, name: str) -> int:
        """A device attribute by the driver API's name, without its prefix."""

    def open(self) -> None:
        """Take the device's primary context."""

    def current(self) -> AbstractContextManager[object]:
        """Make that context this thread's for a while; in it the binding's errors are `RunError`s."""

    def load(self, binary: bytes) -> Any:
        """Load a cubin; a `BuildError` if it does not suit the device."""

    def launcher(self, module: Any, call: KernelCall) -> Launcher:
        """Prepare a launch; a `BuildError` if there is no such kernel, or it takes too many registers."""

    def allocate(self, size: int) -> Any:
        """An allocation that frees itself, and whose int is its address."""

    def to_device(self, address: int, data: Array) -> None: ...

    def from_device(self, data: Array, address: int) -> None: ...

    def fill(self, address: int, byte: int, size: int) -> None: ...

    def graph(self, launchers: Sequence[Launcher], calls: int) -> Launcher | None:
        """Make so many calls of these launches, one behind the other, one launch; None if it makes none."""

    def timed(self, work: Callable[[Any], None]) -> float:
        """Let `work` launch on a stream between two events, and give the seconds from one to the other."""

    def synchronize(self) -> None: ...

    def synchronize_stream(self, stream: int) -> None:
        """Wait for a stream of another library, by its handle."""


class Binding(Protocol):
    """What a module of a binding offers."""

    def device_names(self) -> list[str]:
        """The devices there are; an `ImportError` without the binding, a `NoDeviceError` without a driver."""

    def make_driver(self, number: int) -> Driver:
        """Give a device; a `NoDeviceError` if it does not say what it is."""
        ...


@dataclass(frozen=True, slots=True)
class FoundCUDA:
    """A CUDA device that is not open yet."""

    driver: Driver

    @property
    def info(self) -> DeviceInfo:
        def of(name: str) -> int:
            return self.driver.attribute(name)

        major, minor = of("COMPUTE_CAPABILITY_MAJOR"), of("COMPUTE_CAPABILITY_MINOR")
        return DeviceInfo(
            kind="cuda",
            name=self.driver.name,
            arch=f"sm_{major}{minor}",
            max_threads_per_block=of("MAX_THREADS_PER_BLOCK"),
            max_block=(of("MAX_BLOCK_DIM_X"), of("MAX_BLOCK_DIM_Y"), of("MAX_BLOCK_DIM_Z")),
            max_grid=(of("MAX_GRID_DIM_X"), of("MAX_GRID_DIM_Y"), of("MAX_GRID_DIM_Z")),
            max_shared_memory_per_block=_shared_memory(self.driver),
            memory_bytes=self.driver.memory_bytes,
            cache_bytes=of("L2_CACHE_SIZE"),
            warp_size=of("WARP_SIZE"),
            cuda_release=self.driver.cuda_release,
            number=self.driver.number,
            binding=self.driver.binding,
            alignment=_ALIGNMENT,
        )

    def open(self) -> Device:
        return CUDADevice(self)


def _shared_memory(driver: Driver) -> int:
    """Bytes that a block may share: with launches that ask for them, if the binding knows of that."""
    try:
        return driver.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    except AttributeError:
        return driver.attribute("MAX_SHARED_MEMORY_PER_BLOCK")


def asked_bytes(call: KernelCall) -> int:
    """The shared memory that a launch asks for; its kernel has to be allowed that before."""
    return CUDA.asked_bytes(call.shared_bytes)


def check_threads(call: KernelCall, most: int) -> None:
    """Refuse a block of more threads than there are registers for; a `BuildError` that says so."""
    threads = prod(call.block)
    if threads > most:
        raise BuildError(
            f"{call.kernel} takes {threads} threads in a block, and the GPU has registers for {most} of it; "
            "bind shorter loops to threads, or keep less in registers"
        )


def lost(meaning: str) -> str:
    """What to say of an error after which nothing works in the context, and so in this process, any more."""
    return f"{meaning}; a kernel failed, and this process cannot use the GPU again: start another"


def no_driver(error: Exception) -> NoDeviceError:
    """What to raise where a binding does not find the driver's library."""
    return NoDeviceError(
        f"there is no NVIDIA driver on this machine ({error}); programs for CUDA are built here and run "
        "where there is one"
    )


def find_device() -> FoundCUDA:
    """Find the CUDA device to use, by whichever binding is installed.

    Raises
    ------
    NoDeviceError
        If no binding is installed, or with none that is there is a driver that works, and a device.
    TargetError
        If `ANSOR_DEVICE` names none of them.
    """
    missing: list[str] = []
    problems: list[str] = []
    for name in _BINDINGS:
        binding = cast(Binding, import_module(name))
        try:
            names = binding.device_names()
            if names:
                return FoundCUDA(binding.make_driver(choose_device("cuda", names)))
            problems.append("there is a CUDA driver and no CUDA device; see `nvidia-smi`")
        except ImportError as error:
            missing.append(str(error))
        except NoDeviceError as error:
            problems.append(str(error))
    if problems:
        raise NoDeviceError("; ".join(dict.fromkeys(problems)))
    raise NoDeviceError(
        f"programs for CUDA need PyCUDA or cuda-bindings to run ({'; '.join(missing)}); {INSTALL}"
    )


class CUDADevice(Device):
    """A CUDA device, in its primary context."""

    def __init__(self, found: FoundCUDA) -> None:
        super().__init__(found.info)
        self._driver = found.driver
        self._driver.open()

    def compile(self, source: str) -> Any:
        from ansor.codegen.c.compile import compile_cubin

        return self.load(compile_cubin(source, self.info.arch))

    def load(self, binary: bytes) -> Any:
        with self._driver.current():
            return self._driver.load(binary)

    def allocate(self, size: int) -> Memory:
        with self._driver.current():
            return Memory(self._driver.allocate(max(1, size)), size)

    def part(self, memory: Memory, offset: int, size: int) -> Memory:
        return Memory(int(memory.handle) + offset, size, memory)

    def upload(self, array: Array, memory: Memory, offset: int = 0) -> None:
        if array.nbytes:
            with self._driver.current():
                self._driver.to_device(int(memory.handle) + offset, bytes_of(array))

    def download(self, memory: Memory, array: Array, offset: int = 0) -> None:
        if array.nbytes:
            with self._driver.current():
                self._driver.from_device(bytes_of(array), int(memory.handle) + offset)

    def fill(self, memory: Memory, byte: int) -> None:
        if memory.size:
            with self._driver.current():
                self._driver.fill(int(memory.handle), byte, memory.size)

    def synchronize(self) -> None:
        with self._driver.current():
            self._driver.synchronize()

    def synchronize_stream(self, stream: int) -> None:
        """Wait for a stream of another library, by its handle."""
        with self._driver.current():
            self._driver.synchronize_stream(stream)

    def _launches(self, loaded: Any, calls: Sequence[KernelCall]) -> Launches:
        with self._driver.current():
            return CUDALaunches(self._driver, calls, [self._driver.launcher(loaded, call) for call in calls])


class CUDALaunches:
    """See `Launches`. It keeps the calls, whose memory must not be freed before.

    They are timed alike by all bindings: calls are launched as graphs, one at least, so that the GPU does not
    wait for Python between two kernels. Graphs are kept, so that a second timing of as many calls begins at
    once. Where a binding has no graphs calls are launched one by one; if kernels take less time than Python
    takes to launch them, some microseconds, that is what is timed.
    """

    def __init__(self, driver: Driver, calls: Sequence[KernelCall], launchers: list[Launcher]) -> None:
        self._driver = driver
        self._calls = calls
        self._launchers = launchers
        self._graphs: dict[int, Launcher | None] = {}
        """By the number of calls."""

    def enqueue(self) -> None:
        with self._driver.current():
            self._launch(None)

    def seconds(self, number: int) -> float:
        if not self._launchers:
            return 0.0
        whole, rest = divmod(number, _GRAPH_CALLS)
        parts = [(calls, times) for calls, times in ((_GRAPH_CALLS, whole), (rest, 1)) if calls and times]
        with self._driver.current():
            for calls, _ in parts:
                if calls not in self._graphs:
                    self._graphs[calls] = self._driver.graph(self._launchers, calls)
            return self._driver.timed(lambda stream: self._repeat(parts, stream))

    def _repeat(self, parts: Sequence[tuple[int, int]], stream: Any) -> None:
        """Launch so many calls together, each so many times."""
        for calls, times in parts:
            graph = self._graphs[calls]
            for _ in range(times if graph is not None else times * calls):
                (graph or self._launch)(stream)

    def _launch(self, stream: Any) -> None:
        for launch in self._launchers:
            launch(stream)
