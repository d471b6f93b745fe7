"""OpenCL devices, by pyopencl: the door to it, and to PoCL, which makes a device of the CPU.

pyopencl is imported when a device is looked for. Timing is by the profiling of events, in the device's own
nanoseconds: of each call from the start of its first kernel to the end of its last, all of which are enqueued
before the first may start. Kernels of a queue run in order.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any, Final, cast

import numpy as np

from ansor.alignment import bytes_of
from ansor.errors import BuildError, NoDeviceError, RunError
from ansor.runtime.device.door import (
    Array,
    Device,
    DeviceInfo,
    KernelCall,
    Launches,
    Memory,
    choose_device,
)
from ansor.runtime.device.pocl import PLATFORM, name_cpu
from ansor.runtime.device.pocl_barriers import with_hidden_indices
from ansor.task.limits import ANY, Triple

INSTALL: Final = (
    "pip install 'ansor[opencl]' brings pyopencl and, on Linux x86-64, PoCL, which runs OpenCL on the CPU; "
    "a GPU needs its vendor's OpenCL driver"
)
_EXACT: Final = "-cl-fp32-correctly-rounded-divide-sqrt"
_QUIET: Final = "-w"
"""No warnings: PoCL's compiler counts them on the standard error stream."""
_BATCH: Final = 256
"""Launches that are timed between two waits: each has an event, which takes memory."""


@dataclass(frozen=True, slots=True)
class FoundOpenCL:
    """An OpenCL device, by pyopencl's module and object."""

    cl: Any
    device: Any

    @property
    def info(self) -> DeviceInfo:
        try:
            return self._ask()
        except self.cl.Error as error:
            raise NoDeviceError(
                f"the OpenCL device {_title(self.device)} does not tell what it allows ({error}); choose "
                "another, or update its driver"
            ) from None

    def _warp_size(self) -> int | None:
        """Threads that run in step, where a vendor's extension tells."""
        for name in ("warp_size_nv", "wavefront_width_amd"):
            try:
                return int(getattr(self.device, name))
            except (AttributeError, self.cl.Error):  # an extension that this driver does not have
                continue
        return None

    def _ask(self) -> DeviceInfo:
        device = self.device
        sizes = [int(size) for size in device.max_work_item_sizes][:3]
        block = cast(Triple, tuple([*sizes, 1, 1, 1][:3]))
        return DeviceInfo(
            kind="opencl",
            name=_title(device),
            arch="",
            max_threads_per_block=int(device.max_work_group_size),
            max_block=block,
            max_grid=ANY,
            max_shared_memory_per_block=int(device.local_mem_size),
            memory_bytes=int(device.global_mem_size),
            cache_bytes=int(device.global_mem_cache_size),
            warp_size=self._warp_size(),
            is_cpu=bool(device.type & self.cl.device_type.CPU),
            max_allocation=int(device.max_mem_alloc_size),
            binding="pyopencl",
            alignment=max(1, int(device.mem_base_addr_align) // 8),  # It is told in bits.
        )

    def open(self) -> Device:
        return OpenCLDevice(self)


def find_device() -> FoundOpenCL:
    """Find the OpenCL device to use: GPUs first, then accelerators, then CPUs.

    Raises
    ------
    NoDeviceError
        If pyopencl is not installed, or finds no platform or no device, or one that compiles nothing.
    TargetError
        If `ANSOR_DEVICE` names none of them.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of its own dependencies, when it is imported.
            cl: Any = import_module("pyopencl")
    except ImportError as error:
        raise NoDeviceError(
            f"programs for OpenCL need pyopencl, which cannot be imported ({error}); {INSTALL}"
        ) from None
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:  # the loader's word for: no driver is installed
        raise NoDeviceError(f"pyopencl finds no OpenCL platform ({error}); {INSTALL}") from None
    devices: list[Any] = []
    found: list[str] = []
    for platform in platforms:
        try:
            devices += platform.get_devices()
            found.append(str(platform.name))
        except cl.Error as error:  # as a driver says it whose GPU is not there
            found.append(f"{platform.name}, which says {error}")
    if not devices:
        listed = ", ".join(found) or "none"
        raise NoDeviceError(f"pyopencl finds no OpenCL device (platforms: {listed}); {INSTALL}")
    kinds = cl.device_type

    def rank(device: Any) -> int:
        order = (kinds.GPU, kinds.ACCELERATOR)
        return next((place for place, kind in enumerate(order) if device.type & kind), len(order))

    devices.sort(key=rank)
    chosen = devices[choose_device("opencl", [_title(device) for device in devices])]
    return FoundOpenCL(cl, chosen)


class OpenCLDevice(Device):
    """An OpenCL device with a context and a queue of its own."""

    def __init__(self, found: FoundOpenCL) -> None:
        super().__init__(found.info)
        self._cl = cl = found.cl
        self._device = found.device
        name_cpu(found.device)
        with self._saying(f"opening {self.name}"):
            self._context = cl.Context([found.device])
            self._queue = cl.CommandQueue(
                self._context, found.device, cl.command_queue_properties.PROFILING_ENABLE
            )
            exact = found.device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        self._options = ["-cl-std=CL1.2", _QUIET, *([_EXACT] if exact else [])]

    def compile(self, source: str) -> Any:
        if self.info.is_cpu and self._device.platform.name == PLATFORM:
            source = with_hidden_indices(source)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Remarks of a compiler that accepted the source.
                return self._cl.Program(self._context, source).build(options=self._options, cache_dir=False)
        except self._cl.Error as error:
            raise BuildError(f"the OpenCL compiler of {self.name} refuses the code: {error}") from None

    def load(self, binary: bytes) -> Any:
        raise BuildError("programs for OpenCL are loaded from their source, not from a binary")

    def allocate(self, size: int) -> Memory:
        with self._saying(f"taking {size} bytes of memory of {self.name}"):
            handle = self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(1, size))
        return Memory(handle, size)

    def part(self, memory: Memory, offset: int, size: int) -> Memory:
        with self._saying(f"taking a part of memory of {self.name}"):
            handle = memory.handle.get_sub_region(offset, max(1, size))
        return Memory(handle, size, memory)

    def upload(self, array: Array, memory: Memory, offset: int = 0) -> None:
        if array.nbytes:
            with self._saying(f"copying {array.nbytes} bytes to {self.name}"):
                self._cl.enqueue_copy(self._queue, memory.handle, bytes_of(array), dst_offset=offset)

    def download(self, memory: Memory, array: Array, offset: int = 0) -> None:
        if array.nbytes:
            with self._saying(f"copying {array.nbytes} bytes from {self.name}"):
                self._cl.enqueue_copy(self._queue, bytes_of(array), memory.handle, src_offset=offset)

    def fill(self, memory: Memory, byte: int) -> None:
        if memory.size:
            with self._saying(f"filling memory of {self.name}"):
                self._cl.enqueue_fill_buffer(self._queue, memory.handle, np.uint8(byte), 0, memory.size)

    def synchronize(self) -> None:
        with self._saying(f"running kernels on {self.name}"):
            self._queue.finish()

    def _launches(self, loaded: Any, calls: Sequence[KernelCall]) -> Launches:
        return _Launches(self, [self._bound(loaded, call) for call in calls])

    def _bound(self, loaded: Any, call: KernelCall) -> _Bound:
        cl = self._cl
        try:
            kernel = cl.Kernel(loaded, call.kernel)
        except cl.Error as error:
            raise BuildError(f"the program has no kernel {call.kernel!r}: {error}") from None
        try:
            for position, argument in enumerate(call.arguments):
                kernel.set_arg(position, argument.handle if isinstance(argument, Memory) else argument)
            most = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, self._device)
        except cl.Error as error:
            raise BuildError(f"passing the arguments of {call.kernel} failed: {error}") from None
        if prod(call.block) > most:
            raise BuildError(
                f"{call.kernel} takes {prod(call.block)} threads in a block, and {self.name} allows {most} "
                "for it; bind shorter loops to threads, or keep less in registers"
            )
        everywhere = tuple(blocks * threads for blocks, threads in zip(call.grid, call.block, strict=True))
        return _Bound(call.kernel, kernel, call.arguments, cast(Triple, everywhere), call.block)

    @contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        """Turn an error of OpenCL into a `RunError` that says what was being done."""
        try:
            yield
        except self._cl.Error as error:
            raise RunError(f"{what} failed: {error}") from None


@dataclass(frozen=True, slots=True)
class _Bound:
    """A kernel with its arguments; all threads, and those of a block."""

    name: str
    kernel: Any
    arguments: tuple[object, ...]
    """Kept alive: a kernel does not do so."""
    global_size: Triple
    local_size: Triple


class _Launches:
    """See `Launches`."""

    def __init__(self, device: OpenCLDevice, bound: Sequence[_Bound]) -> None:
        self._device = device
        self._bound = bound

    def enqueue(self) -> None:
        for _ in self._events():
            pass
        self._device._queue.flush()

    def seconds(self, number: int) -> float:
        if not self._bound:
            return 0.0
        total, rest = 0, number
        while rest:
            calls = min(rest, max(1, _BATCH // len(self._bound)))
            ends = [self._call() for _ in range(calls)]
            self._device.synchronize()
            with self._device._saying("reading the time that kernels took"):
                total += sum(int(last.profile.end) - int(first.profile.start) for first, last in ends)
            rest -= calls
        return total * 1e-9

    def _call(self) -> tuple[Any, Any]:
        """Launch each once; gives the events of the first and the last."""
        with self._held_back() as until:
            events = list(self._events(until))
        return events[0], events[-1]

    @contextmanager
    def _held_back(self) -> Iterator[Any]:
        """Give an event that happens at the end, for kernels to wait for; None for one alone."""
        if len(self._bound) == 1:
            yield None
            return
        device = self._device
        with device._saying("making an event"):
            event = device._cl.UserEvent(device._context)
        try:
            yield event
        finally:
            with device._saying("setting an event"):
                event.set_status(device._cl.command_execution_status.COMPLETE)

    def _events(self, until: Any = None) -> Iterator[Any]:
        """Launch each once, the first not before an event."""
        device = self._device
        for position, bound in enumerate(self._bound):
            wait_for = None if until is None or position else [until]
            try:
                event = device._cl.enqueue_nd_range_kernel(
                    device._queue, bound.kernel, bound.global_size, bound.local_size, wait_for=wait_for
                )
            except device._cl.Error as error:
                raise RunError(
                    f"launching {bound.name} in blocks of {bound.local_size} threads failed: {error}"
                ) from None
            yield event


def _title(device: Any) -> str:
    return f"{str(device.name).strip()} ({str(device.platform.name).strip()})"
