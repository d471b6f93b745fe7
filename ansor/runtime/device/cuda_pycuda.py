"""The CUDA driver by PyCUDA, which has no graphs of launches: the door to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from traceback import clear_frames
from typing import Any

from ansor.errors import BuildError, NoDeviceError, RunError
from ansor.runtime.device.cuda import Launcher, asked_bytes, check_threads, lost, no_driver
from ansor.runtime.device.door import Array, KernelCall, Memory


def device_names() -> list[str]:
    """See `ansor.runtime.device.cuda.Binding`."""
    try:
        cuda: Any = import_module("pycuda.driver")
    except ImportError as error:
        if "libcuda" in str(error) or "nvcuda" in str(
            error
        ):  # it is there, and linked to the driver's library
            raise no_driver(error) from None
        raise ImportError(f"PyCUDA: {error}") from None
    try:
        cuda.init()
    except cuda.Error as error:
        if "no CUDA-capable device" in str(error):
            return []
        raise NoDeviceError(f"the NVIDIA driver does not work ({error}); see `nvidia-smi`") from None
    with _asking(cuda):
        return [str(cuda.Device(number).name()) for number in range(int(cuda.Device.count()))]


def make_driver(number: int) -> PyCUDADriver:
    return PyCUDADriver(import_module("pycuda.driver"), number)


class PyCUDADriver:
    """See `ansor.runtime.device.cuda.Driver`."""

    binding = "pycuda"

    def __init__(self, cuda: Any, number: int) -> None:
        self._cuda = cuda
        self.number = number
        with _asking(cuda):
            self._device = cuda.Device(number)
            self.name = str(self._device.name())
            self.memory_bytes = int(self._device.total_memory())
            self.cuda_release = int(cuda.get_driver_version()) // 1000
        self._context: Any = None
        self._timing = threading.Lock()
        """Of the default stream."""

    def attribute(self, name: str) -> int:
        with _asking(self._cuda):
            return int(self._device.get_attribute(getattr(self._cuda.device_attribute, name)))

    def open(self) -> None:
        with _asking(self._cuda):
            self._context = self._device.retain_primary_context()

    @contextmanager
    def current(self) -> Iterator[None]:
        # Pushed and popped each time: PyCUDA ends the process with a thread that leaves a context behind.
        self._switch(self._context.push)
        try:
            try:
                yield
            except self._cuda.Error as error:
                clear_frames(error.__traceback__)  # What they hold of PyCUDA's is freed in its context.
                why = lost(str(error)) if self._is_lost() else error
                raise RunError(f"the CUDA driver failed: {why}") from None
        except BaseException:
            with suppress(RunError):
                self._switch(self._context.pop)
            raise
        self._switch(self._context.pop)

    def _switch(self, how: Callable[[], None]) -> None:
        """Push the context, or pop it; the driver tells of kernels that failed there, too.

        The context is detached then: PyCUDA would keep it on this thread's stack, and make it current to free
        what is in it, which ends the process if that fails.
        """
        try:
            how()
        except self._cuda.Error as error:
            with suppress(self._cuda.Error):
                self._cuda.Context.get_current()  # Takes it off the stack if another thread has detached it.
                self._context.detach()
            raise RunError(f"the CUDA driver failed: {lost(str(error))}") from None

    def _is_lost(self) -> bool:
        """Whether nothing works in the context any more. PyCUDA's errors have no code that tells.

        A kernel that failed is told of by whatever is asked after it; of other errors nothing is left.
        """
        try:
            self.synchronize()
        except self._cuda.Error:
            return True
        return False

    def _refused(self, what: str, error: Exception) -> Exception:
        """What to raise where the driver refuses a program, which is not at fault if the context is lost."""
        return error if self._is_lost() else BuildError(f"{what}: {error}")

    def load(self, binary: bytes) -> _Module:
        try:
            return _Module(self, self._cuda.module_from_buffer(binary))
        except self._cuda.Error as error:
            raise self._refused(f"{self.name} does not load the program", error) from None

    def launcher(self, module: _Module, call: KernelCall) -> Launcher:
        try:
            kept = _Kept(self, module.held.get_function(call.kernel))
        except self._cuda.Error as error:
            raise self._refused(f"the program has no kernel {call.kernel!r}", error) from None
        attributes = self._cuda.function_attribute
        check_threads(call, int(kept.held.get_attribute(attributes.MAX_THREADS_PER_BLOCK)))
        shared = asked_bytes(call)
        if shared:
            kept.held.set_attribute(attributes.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        kept.held.prepare(["P" if isinstance(one, Memory) else one.dtype for one in call.arguments])
        values = [int(one.handle) if isinstance(one, Memory) else int(one) for one in call.arguments]

        def launch(stream: Any, _keep: object = module) -> None:
            kept.held.prepared_async_call(call.grid, call.block, stream, *values, shared_size=shared)

        return launch

    def allocate(self, size: int) -> _Kept:
        try:
            return _Kept(self, self._cuda.mem_alloc(size))
        except self._cuda.MemoryError:
            raise RunError(f"{self.name} has no {size} bytes of memory left") from None

    def to_device(self, address: int, data: Array) -> None:
        self._cuda.memcpy_htod(address, data)

    def from_device(self, data: Array, address: int) -> None:
        self._cuda.memcpy_dtoh(data, address)

    def fill(self, address: int, byte: int, size: int) -> None:
        self._cuda.memset_d8(address, byte, size)

    def graph(self, launchers: Sequence[Launcher], calls: int) -> Launcher | None:
        return None

    def timed(self, work: Callable[[Any], None]) -> float:
        with self._timing:
            start, end = self._cuda.Event(), self._cuda.Event()
            start.record()
            work(None)
            end.record()
            end.synchronize()
            return float(start.time_till(end)) * 1e-3

    def synchronize(self) -> None:
        self._cuda.Context.synchronize()

    def synchronize_stream(self, stream: int) -> None:
        self._cuda.Context.synchronize()


class _Kept:
    """Refers to something of PyCUDA's, and drops it in its context; the int of memory is its address.

    With the last reference PyCUDA frees what is on the device. It makes the context current for that in the
    thread alone that opened the device: in others everything would stay.
    """

    __slots__ = ("_driver", "held")

    def __init__(self, driver: PyCUDADriver, held: Any) -> None:
        self._driver = driver
        self.held = held

    def __int__(self) -> int:
        return int(self.held)

    def __del__(self) -> None:
        with suppress(Exception), self._driver.current():  # At the interpreter's exit the driver may be gone.
            del self.held


class _Module(_Kept):
    """A loaded program, which its functions keep, too."""

    __slots__ = ()

    def __del__(self) -> None:
        with suppress(Exception), self._driver.current():
            self._driver.synchronize()  # A kernel of it may still run.
        super().__del__()


@contextmanager
def _asking(cuda: Any) -> Iterator[None]:
    """Turn a failure of the driver, while it is asked for a device, into a `NoDeviceError`."""
    try:
        yield
    except cuda.Error as error:
        raise NoDeviceError(f"the CUDA driver failed: {error}; see `nvidia-smi`") from None
