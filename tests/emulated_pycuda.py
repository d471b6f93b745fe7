"""PyCUDA over the emulated CUDA device (`tests.emulated_cuda`), as far as ansor asks it.

What it does with contexts is what its source says. Each thread has a stack of them, of which the driver knows
the last one alone. What is on the device is freed in its context, which is made current for that in the
thread alone that opened it; what goes wrong then ends the process, and here the test.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.emulated_cuda import EmulatedDriver

OUT_OF_MEMORY, INVALID_CONTEXT = 2, 201


class DriverError(Exception):
    """`pycuda.driver.Error`."""


class OutOfMemory(DriverError):
    """`pycuda.driver.MemoryError`."""


class EmulatedPyCUDA:
    """The module `pycuda.driver` with one device."""

    Error = DriverError
    MemoryError = OutOfMemory

    def __init__(self, driver: EmulatedDriver) -> None:
        self.driver = driver
        self.device_attribute = driver.CUdevice_attribute
        self.function_attribute = driver.CUfunction_attribute
        self.init = partial(self.ask, "cuInit", 0)
        self.get_driver_version = partial(self.ask, "cuDriverGetVersion")
        self.memset_d8 = partial(self.ask, "cuMemsetD8")
        self.Device = partial(Device, self)
        self.Device.count = partial(self.ask, "cuDeviceGetCount")  # type: ignore[attr-defined]
        self.Context = SimpleNamespace(
            synchronize=partial(self.ask, "cuCtxSynchronize"), get_current=self.get_current
        )
        self.Event = partial(Event, self)

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call the driver; gives what it answers but the code, of which it makes an error."""
        code, *answer = getattr(self.driver, name)(*arguments)
        if code:
            raise self.error(name, code)
        return answer[0] if answer else None

    def error(self, name: str, code: int) -> DriverError:
        meaning = self.driver.cuGetErrorString(code)[1].decode()
        return (OutOfMemory if code == OUT_OF_MEMORY else DriverError)(f"{name} failed: {meaning}")

    # -- contexts ---------------------------------------------------------------------------------------

    @property
    def stack(self) -> list[Context]:
        """The contexts of this thread."""
        return self.driver.stacks["PyCUDA", threading.get_ident()]

    def leave(self) -> None:
        """Let no context be current before another one is."""
        if self.stack:
            self.ask("cuCtxPopCurrent")

    def get_current(self) -> Context | None:
        """The last context that is not detached; those above it are taken off."""
        while self.stack and not self.stack[-1].valid:
            self.stack.pop()
        return self.stack[-1] if self.stack else None

    def free(self, context: Context, freed_by: str, handle: Any) -> None:
        """Free what is on the device, whatever the driver answers."""
        switch = self.get_current() is not context
        if not context.valid or (switch and threading.get_ident() != context.thread):
            return
        if switch:
            context.push()
        getattr(self.driver, freed_by)(handle)
        if switch:
            context.pop()

    # -- memory and programs ----------------------------------------------------------------------------

    def mem_alloc(self, size: int) -> Owned:
        return Allocation(self, self.ask("cuMemAlloc", size))

    def memcpy_htod(self, address: int, data: np.ndarray[Any, Any]) -> None:
        assert data.flags.forc
        self.ask("cuMemcpyHtoD", address, data.ctypes.data, data.nbytes)

    def memcpy_dtoh(self, data: np.ndarray[Any, Any], address: int) -> None:
        assert data.flags.forc
        assert data.flags.writeable
        self.ask("cuMemcpyDtoH", data.ctypes.data, address, data.nbytes)

    def module_from_buffer(self, binary: bytes) -> Module:
        return Module(self, self.ask("cuModuleLoadData", binary))


class Device:
    def __init__(self, cuda: EmulatedPyCUDA, number: int) -> None:
        self.cuda = cuda
        self.handle = cuda.ask("cuDeviceGet", number)

    def name(self) -> str:
        name: bytes = self.cuda.ask("cuDeviceGetName", 1024, self.handle)
        return name.rstrip(b"\0").decode()

    def total_memory(self) -> int:
        return int(self.cuda.ask("cuDeviceTotalMem", self.handle))

    def get_attribute(self, name: str) -> int:
        return int(self.cuda.ask("cuDeviceGetAttribute", name, self.handle))

    def retain_primary_context(self) -> Context:
        return Context(self, self.cuda.ask("cuDevicePrimaryCtxRetain", self.handle))


class Context:
    """The primary context, which is current nowhere at first."""

    def __init__(self, device: Device, handle: Any) -> None:
        self.cuda = device.cuda
        self.device = device
        self.handle = handle
        self.valid = True
        self.thread = threading.get_ident()

    def push(self) -> None:
        self.cuda.leave()
        self.cuda.ask("cuCtxPushCurrent", self.handle)
        self.cuda.stack.append(self)

    def pop(self) -> None:
        self.cuda.leave()
        self.cuda.get_current()
        if not self.cuda.stack:
            raise self.cuda.error("m_stack::pop", INVALID_CONTEXT)
        self.cuda.stack.pop()
        self.enter()

    def detach(self) -> None:
        if not self.valid:
            raise self.cuda.error("context::detach", INVALID_CONTEXT)
        current = self.cuda.get_current() is self
        if current or self.thread == threading.get_ident():
            self.cuda.driver.cuDevicePrimaryCtxRelease(self.device.handle)
        self.valid = False
        if current:
            self.enter()

    def enter(self) -> None:
        """Let the driver know the last context of this thread."""
        last = self.cuda.get_current()
        if last is not None:
            self.cuda.ask("cuCtxPushCurrent", last.handle)


class Owned:
    """Something on the device, freed with the last reference to it."""

    freed_by = ""
    """The function of the driver that frees it."""

    def __init__(self, cuda: EmulatedPyCUDA, handle: Any) -> None:
        context = cuda.get_current()
        assert context is not None, "it is made in a context"
        self.cuda = cuda
        self.handle = handle
        self.life = np.empty(0)  # Python's collector does not look into it, as into nothing of PyCUDA's.
        weakref.finalize(self.life, cuda.free, context, self.freed_by, handle).atexit = False


class Allocation(Owned):
    freed_by = "cuMemFree"

    def __int__(self) -> int:
        return int(self.handle)


class Event(Owned):
    freed_by = "cuEventDestroy"

    def __init__(self, cuda: EmulatedPyCUDA) -> None:
        super().__init__(cuda, cuda.ask("cuEventCreate", 0))

    def record(self) -> None:
        self.cuda.ask("cuEventRecord", self.handle, 0)

    def synchronize(self) -> None:
        self.cuda.ask("cuEventSynchronize", self.handle)

    def time_till(self, end: Event) -> float:
        return float(self.cuda.ask("cuEventElapsedTime", self.handle, end.handle))


class Module(Owned):
    freed_by = "cuModuleUnload"

    def get_function(self, name: str) -> Function:
        return Function(self, self.cuda.ask("cuModuleGetFunction", self.handle, name.encode()))


class Function:
    """A kernel, which keeps its module."""

    def __init__(self, module: Module, handle: Any) -> None:
        self.module = module
        self.ask = module.cuda.ask
        self.handle = handle
        self.form = ""

    def get_attribute(self, name: str) -> int:
        return int(self.ask("cuFuncGetAttribute", name, self.handle))

    def set_attribute(self, name: str, value: int) -> None:
        self.ask("cuFuncSetAttribute", self.handle, name, value)

    def prepare(self, kinds: Sequence[str | np.dtype[Any]]) -> None:
        self.form = "".join(kind if isinstance(kind, str) else kind.char for kind in kinds)

    def prepared_async_call(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        stream: None,
        *arguments: int,
        shared_size: int = 0,
    ) -> None:
        packed = struct.pack(self.form, *arguments)
        self.ask("cuLaunchKernel", self.handle, *grid, *block, shared_size, stream or 0, 0, packed)
