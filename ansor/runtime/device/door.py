"""The door to devices: GPUs, and processors that run programs written for one.

A `Device` compiles kernels, holds memory, launches, and times by its own clock. What is behind it is found at
the first use and not before: OpenCL by pyopencl (`ansor.runtime.device.opencl`), CUDA by PyCUDA or NVIDIA's
cuda-bindings (`ansor.runtime.device.cuda`). Nothing else in ansor touches these libraries.

What a device can do (`device_info`) is asked without opening it, which takes memory on the device and some
tenths of a second. There is one device per kind in a process, for all its threads. A process that has one
open must not fork and use it in the child.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Protocol, Union

import numpy as np
import numpy.typing as npt

from ansor.errors import BuildError, NoDeviceError, RunError, TargetError
from ansor.knobs import DEVICE, device_choice
from ansor.locks import fork_safe_lock
from ansor.task.limits import KernelCount, Limits, Triple

Array = npt.NDArray[Any]

KINDS: Final = ("opencl", "cuda")
"""Kinds of targets whose programs run on devices."""

SUFFIX: Final = ".ansor"
"""Of files that hold programs for devices."""

FLUSH_BYTES: Final = 32 << 20
"""Least size of the memory that is written to empty a device's caches."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a device is and allows; sizes in bytes, extents in threads and blocks.

    `arch` is what CUDA compiles for ("sm_90"), empty for OpenCL. `cache_bytes` is the last cache, 0 if nobody
    tells. `warp_size` is None if nobody tells. `is_cpu`: it is a CPU, by OpenCL. `max_allocation` is the
    largest array, None if all of the memory may be one. `cuda_release` is the newest version of CUDA, before
    the point, whose code its driver runs; 0 if nobody tells. `number` is its place among the devices of its
    kind, by which other libraries name it. `binding` is the distribution that reaches it ("pycuda").
    `alignment`: memory that is allocated begins at a multiple of it, and parts of memory have to.
    """

    kind: str
    name: str
    arch: str
    max_threads_per_block: int
    max_block: Triple
    max_grid: Triple
    max_shared_memory_per_block: int
    memory_bytes: int
    cache_bytes: int = 0
    warp_size: int | None = None
    is_cpu: bool = False
    max_allocation: int | None = None
    cuda_release: int = 0
    number: int = 0
    binding: str = ""
    alignment: int = 256

    @property
    def limits(self) -> Limits:
        """What it allows of a launch."""
        return Limits(
            self.max_threads_per_block,
            self.max_shared_memory_per_block,
            block=self.max_block,
            grid=self.max_grid,
        )


class Memory:
    """Bytes in a device's memory, freed when nothing refers to them any more.

    `handle` is the binding's object; `size` is in bytes; `whole` is what it is a part of, and keeps.
    """

    __slots__ = ("handle", "size", "whole")

    def __init__(self, handle: Any, size: int, whole: Memory | None = None) -> None:
        self.handle = handle
        self.size = size
        self.whole = whole


KernelArgument = Union[Memory, "np.integer[Any]"]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch with all that it needs: `grid` counts blocks, `block` threads; shared memory is in bytes."""

    kernel: str
    arguments: tuple[KernelArgument, ...]
    grid: Triple
    block: Triple
    shared_bytes: int = 0


class Launches(Protocol):
    """Kernels with their arguments, ready to be launched one after another, again and again."""

    def enqueue(self) -> None:
        """Launch each once; they run when the device comes to it."""

    def seconds(self, number: int) -> float:
        """Launch all so many times, wait, and tell how long that kept the device, by its own clock.

        While the device waits for this process between two calls, or before the first, no time is counted as
        far as its interface allows.
        """


class Device(ABC):
    """A device that is open; what is enqueued runs in order.

    Attributes
    ----------
    info
        What it is and allows.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self._flush: Memory | None = None
        self._flushed = 0

    @property
    def kind(self) -> str:
        """The kind of targets that it is for, "opencl" or "cuda"."""
        return self.info.kind

    @property
    def name(self) -> str:
        return self.info.name

    @abstractmethod
    def compile(self, source: str) -> Any:
        """Compile a source for this device and load it; gives what `prepare` takes.

        Raises
        ------
        BuildError
            If the compiler refuses it, or there is none.
        """

    @abstractmethod
    def load(self, binary: bytes) -> Any:
        """Load a compiled program; gives what `prepare` takes.

        Raises
        ------
        BuildError
            If it is not for this device.
        """

    @abstractmethod
    def allocate(self, size: int) -> Memory:
        """Take memory, uninitialised.

        Raises
        ------
        RunError
            If there is not so much.
        """

    @property
    def alignment(self) -> int:
        """Bytes of which memory that is allocated begins at a multiple, and of which parts of it have to."""
        return self.info.alignment

    @abstractmethod
    def part(self, memory: Memory, offset: int, size: int) -> Memory:
        """View bytes of allocated memory from `offset` on: a multiple of `alignment`, and not the end."""

    @abstractmethod
    def upload(self, array: Array, memory: Memory, offset: int = 0) -> None:
        """Copy a contiguous array to the memory, from byte `offset` on."""

    @abstractmethod
    def download(self, memory: Memory, array: Array, offset: int = 0) -> None:
        """Fill a contiguous array with the memory from byte `offset` on, when all before has run."""

    @abstractmethod
    def fill(self, memory: Memory, byte: int) -> None:
        """Set every byte of the memory."""

    @abstractmethod
    def _launches(self, loaded: Any, calls: Sequence[KernelCall]) -> Launches:
        """As `prepare`, for calls that the device allows."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all that was enqueued has run.

        Raises
        ------
        RunError
            If something of it failed.
        """

    def prepare(self, loaded: Any, calls: Sequence[KernelCall]) -> Launches:
        """Make calls of kernels ready; those of an empty grid are left out, as they have nothing to do.

        Nothing is launched, so that what is refused here is no fault of the device.

        Raises
        ------
        BuildError
            If a kernel is not in what was loaded or takes other arguments, or the device does not allow a
            call.
        """
        real = [call for call in calls if prod(call.grid)]
        for call in real:
            check_call(call, self.info)
        return self._launches(loaded, real)

    def synchronize_stream(self, stream: int) -> None:
        """Wait for a stream of another library that shares the device, by its handle."""
        self.synchronize()

    def flush_caches(self) -> None:
        """Evict everything from the device's caches by writing through more memory than they hold.

        It does not wait for that: what is launched next runs after it, and is enqueued while the device is
        busy.
        """
        if self._flush is None:
            self._flush = self.allocate(max(FLUSH_BYTES, 2 * self.info.cache_bytes))
        self._flushed = (self._flushed + 1) % 256
        self.fill(self._flush, self._flushed)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def check_call(call: KernelCall, info: DeviceInfo) -> None:
    """Refuse a launch that breaks a limit of a device.

    Raises
    ------
    BuildError
        With the limit, what the kernel wants, and what to do.
    """
    broken = info.limits.broken_by(KernelCount(call.grid, call.block, call.shared_bytes))
    if broken:
        raise BuildError(f"{call.kernel} cannot run on {info.name}: it {'; it '.join(broken)}")


_open: Final[dict[str, Device]] = {}
_lock: Final = fork_safe_lock()


def device_info(kind: str) -> DeviceInfo:
    """Tell what the device of a kind is and allows, without opening it.

    Raises
    ------
    NoDeviceError
        If there is none, or no library to reach it by; the message says what to install.
    TargetError
        If `ANSOR_DEVICE` names another one than there is.
    """
    _check_kind(kind)
    with _lock:
        if kind in _open:
            return _open[kind].info
    return _find(kind).info


def open_device(kind: str) -> Device:
    """Open the device of a kind, once for this process.

    The choice among several is that of the variable `ANSOR_DEVICE`, else the first; for OpenCL GPUs come
    before other devices.

    Raises
    ------
    NoDeviceError
        If there is none, or no library to reach it by, or it cannot be opened; the message says what to
        install.
    TargetError
        If `ANSOR_DEVICE` names another one than there is.
    """
    _check_kind(kind)
    with _lock:
        if kind not in _open:
            found = _find(kind)
            try:
                _open[kind] = found.open()
            except RunError as error:
                raise NoDeviceError(f"the device {found.info.name} cannot be opened: {error}") from None
        return _open[kind]


class FoundDevice(Protocol):
    """A device that is there and not open yet."""

    @property
    def info(self) -> DeviceInfo: ...

    def open(self) -> Device: ...


def _find(kind: str) -> FoundDevice:
    if kind == "opencl":
        from ansor.runtime.device import opencl

        return opencl.find_device()
    from ansor.runtime.device import cuda

    return cuda.find_device()


def choose_device(kind: str, names: Sequence[str]) -> int:
    """Choose among the devices of a kind by `ANSOR_DEVICE`, a position or a part of a name; else the first.

    Parameters
    ----------
    names
        The devices, at least one.

    Raises
    ------
    TargetError
        If the variable names none of them.
    """
    wanted = device_choice(kind, KINDS)
    if wanted is None:
        return 0
    if wanted.isdecimal():
        if int(wanted) < len(names):
            return int(wanted)
    else:
        for position, name in enumerate(names):
            if wanted.lower() in name.lower():
                return position
    listed = "; ".join(f"{position}: {name}" for position, name in enumerate(names))
    raise TargetError(
        f"{DEVICE}={wanted!r} names no device for {kind}; there are {listed}; what is meant for another "
        f"kind only is written {next(one for one in KINDS if one != kind)}:{wanted}"
    )


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise TargetError(f"there are no devices of kind {kind!r} here; kinds are {', '.join(KINDS)}")
