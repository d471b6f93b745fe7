"""`DeviceArray`: an array in a device's memory, which stays there from call to call.

A `DeviceModule` takes these and numpy arrays alike, and on CUDA what shows `__cuda_array_interface__` (arrays
of PyTorch, CuPy, JAX, Numba). Those are used where they lie; numpy arrays are copied to the device and back.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.codegen.c.dialect import POINTER_ALIGNMENT
from ansor.dtypes import to_numpy
from ansor.errors import ArgumentError
from ansor.runtime.device.door import Device, Memory, open_device
from ansor.task.target import Target

Array = npt.NDArray[Any]
_DEFAULT_STREAMS: Final = (None, 0, 1)


class DeviceArray:
    """A dense row-major array in a device's memory.

    Made by `ansor.device_array` and `ansor.device_empty`, and by calls of modules.

    Attributes
    ----------
    device
        Where it is.
    memory
        Its memory there.
    shape, dtype
        As of a numpy array.
    writable
        Whether it may be an output.
    """

    __slots__ = ("_keep", "device", "dtype", "memory", "shape", "writable")

    def __init__(
        self,
        device: Device,
        memory: Memory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        writable: bool = True,
        keep: object = None,
    ) -> None:
        self.device = device
        self.memory = memory
        self.shape = shape
        self.dtype = dtype
        self.writable = writable
        self._keep = keep

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def numpy(self) -> Array:
        """Copy it to a new numpy array, when the calls that write it are done.

        Raises
        ------
        RunError
            If one of them failed.
        """
        array = np.empty(self.shape, self.dtype)
        self.device.download(self.memory, array)
        return array

    def copy_from(self, array: Array) -> None:
        """Overwrite it with a numpy array of its shape and dtype.

        Raises
        ------
        ArgumentError
            If that has another shape or dtype.
        """
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ArgumentError(
                f"copy_from: {array.dtype} of shape {array.shape} does not fit {self!r}; pass such an array"
            )
        self.device.upload(np.ascontiguousarray(array), self.memory)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """How CUDA libraries see it, without a copy; only arrays on CUDA devices have it."""
        if self.device.kind != "cuda":
            raise AttributeError(f"{self!r} is not in the memory of a CUDA device")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (int(self.memory.handle), not self.writable),
            "version": 3,
            "stream": 1,
        }

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on {self.device.name!r}>"


def device_array(array: Array, target: Target | str) -> DeviceArray:
    """
    Copy a numpy array to a device.

    Parameters
    ----------
    array
        What to copy.
    target
        An "opencl" or "cuda" target, or just the kind.

    Raises
    ------
    TargetError
        If there is no such device.
    RunError
        If its memory does not suffice.
    """
    made = device_empty(np.shape(array), str(np.asarray(array).dtype), target)
    made.copy_from(np.asarray(array))
    return made


def device_empty(shape: tuple[int, ...], dtype: str, target: Target | str) -> DeviceArray:
    """Make an uninitialised array on a device; as `device_array`."""
    return empty_on(open_device(Target(target).kind), tuple(shape), dtype)


def empty_on(device: Device, shape: tuple[int, ...], dtype: str) -> DeviceArray:
    """Make an uninitialised array on an open device."""
    numpy_dtype = to_numpy(dtype)
    return DeviceArray(device, device.allocate(prod(shape) * numpy_dtype.itemsize), shape, numpy_dtype)


def adopt(device: Device, value: object) -> DeviceArray | None:
    """View what lies on this device as a `DeviceArray`; None if it does not.

    Raises
    ------
    ArgumentError
        If it is on another device, not contiguous, or its library does not show it.
    """
    if isinstance(value, DeviceArray):
        if value.device is not device:
            raise ArgumentError(f"{value!r} is not on {device.name!r}; copy it there by .numpy()")
        return value
    if device.kind != "cuda":
        return None
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except Exception as error:  # A library's own, as of PyTorch for a tensor that requires a gradient.
        raise ArgumentError(
            f"a {type(value).__name__} does not show its memory ({error}); pass a plain array, as .detach() "
            "gives"
        ) from None
    return None if interface is None else _from_interface(device, value, interface)


def _from_interface(device: Device, value: object, interface: dict[str, Any]) -> DeviceArray:
    """View a foreign array on the GPU, after what its stream still has to do."""
    shape = tuple(int(extent) for extent in interface["shape"])
    dtype = np.dtype(interface["typestr"])
    strides = interface.get("strides")
    if strides is not None and not _is_dense(shape, tuple(strides), dtype.itemsize):
        raise ArgumentError(
            f"a {type(value).__name__} of shape {shape} has strides {tuple(strides)} bytes and is not "
            "contiguous in row-major order; pass a contiguous copy"
        )
    address, read_only = interface["data"]
    if address % POINTER_ALIGNMENT:
        raise ArgumentError(
            f"a {type(value).__name__} of shape {shape} starts at an address that is no multiple of "
            f"{POINTER_ALIGNMENT}; pass a copy"
        )
    stream = interface.get("stream")
    if stream not in _DEFAULT_STREAMS:
        device.synchronize_stream(int(stream))
    memory = Memory(int(address), prod(shape) * dtype.itemsize)
    return DeviceArray(device, memory, shape, dtype, writable=not read_only, keep=value)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether strides in bytes are those of a row-major array; where an extent is 1 they do not matter."""
    step = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return 0 in shape
        step *= extent
    return True
