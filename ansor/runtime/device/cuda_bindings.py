"""The CUDA driver by NVIDIA's cuda-bindings: the door to them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final

from ansor.errors import BuildError, NoDeviceError, RunError
from ansor.runtime.device.cuda import Launcher, asked_bytes, check_threads, lost, no_driver
from ansor.runtime.device.door import Array, KernelArgument, KernelCall, Memory

_NO_DEVICE: Final = 100
_OUT_OF_MEMORY: Final = 2
_UNSUITABLE: Final = frozenset((1, 200, 209, 218, 222, 300))
"""Codes that tell of a program that is none, or none for this device; others tell of the device."""
_NOT_FOUND: Final = 500
_FATAL: Final = frozenset((700, 702, 710, *range(714, 722)))
"""Codes of kernels that failed, after which nothing works in their context any more."""


def device_names() -> list[str]:
    """See `ansor.runtime.device.cuda.Binding`."""
    try:
        cu: Any = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise ImportError(f"cuda-bindings: {error}") from None
    try:
        code = int(cu.cuInit(0)[0])
    except (RuntimeError, OSError) as error:  # the bindings load the driver's library at the first call
        raise no_driver(error) from None
    if code == _NO_DEVICE:
        return []
    if code:
        raise NoDeviceError(f"the NVIDIA driver does not work ({_name(cu, code)}); see `nvidia-smi`")
    with _asking():
        count = int(_value(cu, cu.cuDeviceGetCount()))
        return [_device_name(cu, _value(cu, cu.cuDeviceGet(number))) for number in range(count)]


def make_driver(number: int) -> BindingsDriver:
    return BindingsDriver(import_module("cuda.bindings.driver"), number)


class BindingsDriver:
    """See `ansor.runtime.device.cuda.Driver`."""

    binding = "cuda-bindings"

    def __init__(self, cu: Any, number: int) -> None:
        self._cu = cu
        self.number = number
        with _asking():
            self._device = _value(cu, cu.cuDeviceGet(number))
            self.name = _device_name(cu, self._device)
            self.memory_bytes = int(_value(cu, cu.cuDeviceTotalMem(self._device)))
            self.cuda_release = int(_value(cu, cu.cuDriverGetVersion())) // 1000
        self._context: Any = None
        self._stream: Any = None
        self._events: tuple[Any, Any] | None = None
        self._timing = threading.Lock()
        """Of the stream and the events, which all timings share."""

    def attribute(self, name: str) -> int:
        kind = getattr(self._cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        with _asking():
            return int(_value(self._cu, self._cu.cuDeviceGetAttribute(kind, self._device)))

    def open(self) -> None:
        cu = self._cu
        with _asking():
            self._context = _value(cu, cu.cuDevicePrimaryCtxRetain(self._device))
        with _asking(), self.current():
            self._stream = _value(cu, cu.cuStreamCreate(0))
            self._events = (_value(cu, cu.cuEventCreate(0)), _value(cu, cu.cuEventCreate(0)))

    @contextmanager
    def current(self) -> Iterator[None]:
        _value(self._cu, self._cu.cuCtxPushCurrent(self._context))
        try:
            yield
        finally:
            self._cu.cuCtxPopCurrent()

    def load(self, binary: bytes) -> _Module:
        cu = self._cu
        code, handle = cu.cuModuleLoadData(binary)
        if int(code) in _UNSUITABLE:
            raise BuildError(f"{self.name} does not load the program: {_name(cu, int(code))}")
        _value(cu, (code,))
        return _Module(self, handle)

    def unload(self, handle: Any) -> None:
        with self.current():
            self._cu.cuCtxSynchronize()  # A kernel of it may still run.
            self._cu.cuModuleUnload(handle)

    def launcher(self, module: _Module, call: KernelCall) -> _Launch:
        cu = self._cu
        code, function = cu.cuModuleGetFunction(module.handle, call.kernel.encode())
        if int(code) == _NOT_FOUND:
            raise BuildError(f"the program has no kernel {call.kernel!r}: {_name(cu, int(code))}")
        _value(cu, (code,))
        most = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        check_threads(call, int(_value(cu, cu.cuFuncGetAttribute(most, function))))
        if asked_bytes(call):
            allowed = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _value(cu, cu.cuFuncSetAttribute(function, allowed, asked_bytes(call)))
        return _Launch(cu, module, function, call)

    def allocate(self, size: int) -> _Allocation:
        code, address = self._cu.cuMemAlloc(size)
        if int(code) == _OUT_OF_MEMORY:
            raise RunError(f"{self.name} has no {size} bytes of memory left")
        _value(self._cu, (code,))
        return _Allocation(self, int(address))

    def free(self, address: int) -> None:
        with self.current():
            self._cu.cuMemFree(address)

    def to_device(self, address: int, data: Array) -> None:
        _value(self._cu, self._cu.cuMemcpyHtoD(address, int(data.ctypes.data), data.nbytes))

    def from_device(self, data: Array, address: int) -> None:
        _value(self._cu, self._cu.cuMemcpyDtoH(int(data.ctypes.data), address, data.nbytes))

    def fill(self, address: int, byte: int, size: int) -> None:
        _value(self._cu, self._cu.cuMemsetD8(address, byte, size))

    def graph(self, launchers: Sequence[Launcher], calls: int) -> Launcher | None:
        # Node by node: while a stream is captured, nothing in the process may free memory or use the default
        # stream.
        cu = self._cu
        made = [one for one in launchers if isinstance(one, _Launch)]
        assert len(made) == len(launchers)
        try:
            graph = _value(cu, cu.cuGraphCreate(0))
        except RunError:
            return None
        try:
            node = None
            for _ in range(calls):
                for launch in made:
                    node = launch.add_to(graph, node)
            executable = _value(cu, cu.cuGraphInstantiate(graph, 0))
        except RunError:
            return None
        finally:
            cu.cuGraphDestroy(graph)
        cu.cuGraphUpload(executable, self._stream)
        return _Graph(self, made, executable)

    def launch_graph(self, executable: Any, stream: Any) -> None:
        _value(self._cu, self._cu.cuGraphLaunch(executable, stream or 0))

    def destroy_graph(self, executable: Any) -> None:
        with self.current():
            self._cu.cuGraphExecDestroy(executable)

    def timed(self, work: Callable[[Any], None]) -> float:
        assert self._events is not None
        cu, (start, end) = self._cu, self._events
        with self._timing:
            _value(cu, cu.cuEventRecord(start, self._stream))
            work(self._stream)
            _value(cu, cu.cuEventRecord(end, self._stream))
            _value(cu, cu.cuEventSynchronize(end))
            return float(_value(cu, cu.cuEventElapsedTime(start, end))) * 1e-3

    def synchronize(self) -> None:
        _value(self._cu, self._cu.cuCtxSynchronize())

    def synchronize_stream(self, stream: int) -> None:
        _value(self._cu, self._cu.cuStreamSynchronize(stream))


@contextmanager
def _asking() -> Iterator[None]:
    """Turn a failure of the driver, while it is asked for a device, into a `NoDeviceError`."""
    try:
        yield
    except RunError as error:
        raise NoDeviceError(f"{error}; see `nvidia-smi`") from None


class _Module:
    """A loaded program, unloaded with the last reference to it."""

    __slots__ = ("_driver", "handle")

    def __init__(self, driver: BindingsDriver, handle: Any) -> None:
        self._driver = driver
        self.handle = handle

    def __del__(self) -> None:
        with suppress(Exception):  # At the interpreter's exit the driver may be gone already.
            self._driver.unload(self.handle)


class _Launch:
    """One launch: called with a stream, or put into a graph. It keeps what the launch needs."""

    __slots__ = ("_arguments", "_call", "_cu", "_function", "_module", "_values")

    def __init__(self, cu: Any, module: _Module, function: Any, call: KernelCall) -> None:
        self._cu = cu
        self._module = module
        self._function = function
        self._call = call
        self._values = [_c_value(argument) for argument in call.arguments]
        places = (ctypes.addressof(value) for value in self._values)
        self._arguments = (ctypes.c_void_p * max(1, len(self._values)))(*places)

    def __call__(self, stream: Any) -> None:
        call, arguments = self._call, ctypes.addressof(self._arguments)
        (code,) = self._cu.cuLaunchKernel(
            self._function, *call.grid, *call.block, asked_bytes(call), stream or 0, arguments, 0
        )
        if int(code):
            why = _meaning(self._cu, int(code))
            raise RunError(f"launching {call.kernel} in blocks of {call.block} threads failed: {why}")

    def add_to(self, graph: Any, after: Any | None) -> Any:
        """Make it a node of a graph, behind another one, if any; gives the node."""
        cu, call = self._cu, self._call
        node = cu.CUDA_KERNEL_NODE_PARAMS()
        node.func = self._function
        node.gridDimX, node.gridDimY, node.gridDimZ = call.grid
        node.blockDimX, node.blockDimY, node.blockDimZ = call.block
        node.sharedMemBytes = asked_bytes(call)
        node.kernelParams = ctypes.addressof(self._arguments)
        node.extra = 0
        before = [] if after is None else [after]
        return _value(cu, cu.cuGraphAddKernelNode(graph, before, len(before), node))


class _Graph:
    """Launches that are one, destroyed with the last reference to it. It keeps what they need."""

    __slots__ = ("_driver", "_executable", "_launches")

    def __init__(self, driver: BindingsDriver, launches: Sequence[_Launch], executable: Any) -> None:
        self._driver = driver
        self._launches = launches
        self._executable = executable

    def __call__(self, stream: Any) -> None:
        self._driver.launch_graph(self._executable, stream)

    def __del__(self) -> None:
        with suppress(Exception):  # At the interpreter's exit the driver may be gone already.
            self._driver.destroy_graph(self._executable)


class _Allocation:
    """Device memory that is freed with this object; its int is its address."""

    __slots__ = ("_address", "_driver")

    def __init__(self, driver: BindingsDriver, address: int) -> None:
        self._driver = driver
        self._address = address

    def __int__(self) -> int:
        return self._address

    def __del__(self) -> None:
        with suppress(Exception):  # At the interpreter's exit the driver may be gone already.
            self._driver.free(self._address)


def _c_value(argument: KernelArgument) -> Any:
    """An argument as C passes it."""
    if isinstance(argument, Memory):
        return ctypes.c_void_p(int(argument.handle))
    return getattr(ctypes, f"c_{argument.dtype}")(int(argument))


def _value(cu: Any, answer: tuple[Any, ...]) -> Any:
    """What a call of the driver gave, without its error code.

    Raises
    ------
    RunError
        If it failed.
    """
    code = int(answer[0])
    if code:
        raise RunError(f"the CUDA driver failed with {_meaning(cu, code)}")
    return answer[1] if len(answer) > 1 else None


def _meaning(cu: Any, code: int) -> str:
    """The name of an error, what it means, and what to do if nothing works any more."""
    name = _name(cu, code)
    return lost(name) if code in _FATAL else name


def _name(cu: Any, code: int) -> str:
    """The name of an error and what it means."""
    try:
        result = cu.CUresult(code)
    except ValueError:  # of a driver that is newer than the binding
        return f"error {code}"
    said = (cu.cuGetErrorName(result)[1], cu.cuGetErrorString(result)[1])
    return ": ".join(text.decode() if isinstance(text, bytes) else str(text) for text in said)


def _device_name(cu: Any, device: Any) -> str:
    name = _value(cu, cu.cuDeviceGetName(256, device))
    return bytes(name).split(b"\0")[0].decode().strip()
