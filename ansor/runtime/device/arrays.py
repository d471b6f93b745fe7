"""`DeviceArray`: an array in a device's memory, which stays there from call to call.

A `DeviceModule` takes these and numpy arrays alike, and on CUDA arrays of other libraries on the same device:
of PyTorch, CuPy, JAX by DLPack, of Numba by `__cuda_array_interface__`. Those are used where they lie; numpy
arrays are copied to the device and back. The other way round a `DeviceArray` on CUDA shows itself by both.

Programs run on the default stream, after what an array's library has still to do with it; by DLPack it says
what, by the other interface only if it names its stream. Who uses a stream of his own that does not wait for
the default one waits for the program himself, unless his library named it.

Memory of OpenCL belongs to a context, and that of other libraries is another one: nothing is shared.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.codegen.c.dialect import POINTER_ALIGNMENT
from ansor.dtypes import to_numpy
from ansor.errors import ArgumentError
from ansor.runtime.device import dlpack
from ansor.runtime.device.dlpack import DeviceType
from ansor.runtime.device.door import Device, Memory, open_device
from ansor.task.target import Target

Array = npt.NDArray[Any]
_DEFAULT_STREAM: Final = 1
"""Of CUDA, the one on which programs run, in the words of both interfaces."""
_DEFAULT_STREAMS: Final = (None, 0, _DEFAULT_STREAM)
_ON_DEVICE: Final = {
    "cuda": frozenset((DeviceType.CUDA, DeviceType.CUDA_MANAGED)),
    "opencl": frozenset((DeviceType.OPENCL,)),
}
_DLPACK_TYPES: Final = {"cuda": DeviceType.CUDA, "opencl": DeviceType.OPENCL}


class DeviceArray:
    """A dense row-major array in a device's memory.

    Made by `ansor.device_array`, `ansor.device_empty` and `ansor.from_dlpack`, and by calls of modules.

    Attributes
    ----------
    device
        Where it is.
    memory
        Its memory there.
    shape, dtype
        As of a numpy array.
    writable
        Whether it may be an output, or overwritten by `copy_from`.
    stream
        A stream of another library that uses it and does not wait for the default one; usually None.
    """

    __slots__ = ("_keep", "device", "dtype", "memory", "shape", "stream", "writable")

    def __init__(
        self,
        device: Device,
        memory: Memory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        writable: bool = True,
        keep: object = None,
        stream: int | None = None,
    ) -> None:
        self.device = device
        self.memory = memory
        self.shape = shape
        self.dtype = dtype
        self.writable = writable
        self.stream = stream
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
            If that has another shape or dtype, or this is read-only.
        """
        if not self.writable:
            raise ArgumentError(
                f"copy_from: {self!r} is read-only; make another one with ansor.device_array, which may be "
                "overwritten"
            )
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ArgumentError(
                f"copy_from: {array.dtype} of shape {array.shape} does not fit {self!r}; pass such an array"
            )
        self.device.upload(np.ascontiguousarray(array), self.memory)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """How CUDA libraries see it, without a copy; only arrays on CUDA devices have it.

        Of dtypes that this interface has no word for (bfloat16) they have it not, and are seen by DLPack.
        """
        if self.device.kind != "cuda" or self.dtype.kind == "V":
            raise AttributeError(
                f"{self!r} has no __cuda_array_interface__, which is for CUDA and its dtypes"
            )
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._address, not self.writable),
            "version": 3,
            "stream": _DEFAULT_STREAM,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Type and number of its device, in the words of DLPack."""
        return int(_DLPACK_TYPES[self.device.kind]), self.device.info.number

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """How other libraries see it by DLPack, without a copy (`torch.from_dlpack(array)`); on CUDA only.

        What runs on `stream`, in the words of the array API standard, sees what was launched before.

        Raises
        ------
        BufferError
            If it is not on CUDA, or a copy or another device is asked for.
        """
        if self.device.kind != "cuda":
            raise BufferError(f"{self!r} is in memory that OpenCL does not share; copy it by .numpy()")
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"{self!r} is given as it is and where it is; copy it by .numpy()")
        if stream not in (None, -1, _DEFAULT_STREAM):
            self.device.synchronize()
        memory = dlpack.Memory(
            self._address,
            self.shape,
            None,
            str(self.dtype),
            self.__dlpack_device__(),
            self.writable,
            self,
        )
        return dlpack.exported(memory, versioned=max_version is not None and max_version[0] >= 1)

    @property
    def _address(self) -> int:
        """Of its first element on a CUDA device, 0 if it has none."""
        return int(self.memory.handle) if self.nbytes else 0

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


def from_dlpack(array: object) -> DeviceArray:
    """
    View an array of another library in the memory of the CUDA device, without a copy.

    Programs take such arrays as they are; this gives what is made of them: one that they share.

    Parameters
    ----------
    array
        Something with `__dlpack__`, such as a tensor of PyTorch: dense, in row-major order.

    Raises
    ------
    ArgumentError
        If it is elsewhere, not contiguous, or its library does not give it.
    TargetError
        If there is no such device.
    """
    where = dlpack.device_of(array)
    kind = type(array).__name__
    if where is None or where[0] not in _ON_DEVICE["cuda"]:
        place = "not shown by DLPack" if where is None else f"in {_place(where)}"
        raise ArgumentError(
            f"from_dlpack: a {kind} is {place}; only memory of CUDA devices is shared, "
            "ansor.device_array copies numpy arrays to a device"
        )
    adopted = adopt(open_device("cuda"), array)
    assert adopted is not None
    return adopted


def adopt(device: Device, value: object) -> DeviceArray | None:
    """View what lies on this device as a `DeviceArray`; None if it lies in the host's memory.

    Raises
    ------
    ArgumentError
        If it is on another device, not contiguous, or its library does not show it.
    """
    if isinstance(value, DeviceArray):
        if value.device is not device:
            raise ArgumentError(f"{value!r} is not on {device.name!r}; copy it there by .numpy()")
        return value
    where = dlpack.device_of(value)
    if where is not None:
        if where[0] in (DeviceType.CPU, DeviceType.CUDA_HOST):
            return None
        if device.kind != "cuda" or where[0] not in _ON_DEVICE["cuda"] or where[1] != device.info.number:
            raise ArgumentError(
                f"a {type(value).__name__} is in {_place(where)}, and the program runs on {device.name!r}; "
                "pass a numpy array, or an array of ansor.device_array"
            )
        if hasattr(value, "__dlpack__"):
            return _from_dlpack(device, value)
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


def _place(where: tuple[int, int]) -> str:
    """Memory by DLPack's type and number."""
    kind, number = where
    try:
        name = DeviceType(kind).name.replace("_", " ").lower()
    except ValueError:
        name = f"another kind of device (DLPack's type {kind})"
    return f"memory of {name}, number {number}"


def _from_dlpack(device: Device, value: object) -> DeviceArray:
    """View a foreign array on the GPU; its library lets the default stream wait for it."""
    found = dlpack.imported(value, _DEFAULT_STREAM)
    dtype = to_numpy(found.dtype)
    strides = None if found.strides is None else tuple(step * dtype.itemsize for step in found.strides)
    _check_place(value, found.shape, strides, dtype, found.address)
    memory = Memory(found.address, prod(found.shape) * dtype.itemsize)
    return DeviceArray(device, memory, found.shape, dtype, writable=found.writable, keep=(value, found.keep))


def _from_interface(device: Device, value: object, interface: dict[str, Any]) -> DeviceArray:
    """View a foreign array on the GPU, after what its stream still has to do."""
    shape = tuple(int(extent) for extent in interface["shape"])
    dtype = np.dtype(interface["typestr"])
    strides = interface.get("strides")
    if interface.get("mask") is not None:
        raise ArgumentError(f"a {type(value).__name__} of shape {shape} has a mask; pass its data")
    address, read_only = interface["data"]
    address = int(address or 0)
    _check_place(value, shape, None if strides is None else tuple(strides), dtype, address)
    stream = interface.get("stream")
    foreign = None if stream in _DEFAULT_STREAMS else int(stream)
    if foreign is not None:
        device.synchronize_stream(foreign)
    memory = Memory(address, prod(shape) * dtype.itemsize)
    return DeviceArray(device, memory, shape, dtype, writable=not read_only, keep=value, stream=foreign)


def _check_place(
    value: object, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: np.dtype[Any], address: int
) -> None:
    """Refuse a foreign array that is not dense, its strides in bytes, or not aligned as kernels want it."""
    if strides is not None and not _is_dense(shape, strides, dtype.itemsize):
        raise ArgumentError(
            f"a {type(value).__name__} of shape {shape} has strides {strides} bytes and is not "
            "contiguous in row-major order; pass a contiguous copy"
        )
    if address % POINTER_ALIGNMENT:
        raise ArgumentError(
            f"a {type(value).__name__} of shape {shape} starts at an address that is no multiple of "
            f"{POINTER_ALIGNMENT}; pass a copy"
        )


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether strides in bytes are those of a row-major array; where an extent is 1 they do not matter."""
    step = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return 0 in shape
        step *= extent
    return True
