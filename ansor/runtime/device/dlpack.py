"""DLPack: arrays that libraries hand each other without a copy, as a capsule around a C struct.

A producer makes the capsule, a consumer takes the struct out of it and says by a call when it needs the
memory no more. `exported` makes one, `imported` takes one; nothing here touches the memory itself.

Source: the header dlpack.h, version 1.1 (the struct without a version is that of version 0.8), and the Python
array API standard on `__dlpack__`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np

from ansor.dtypes import DTYPES, dtype_info
from ansor.errors import ArgumentError


class DeviceType(IntEnum):
    """Where memory is, by the header's numbers; there are more."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    OPENCL = 4
    CUDA_MANAGED = 13


VERSION: Final = (1, 0)
"""Of the structs that are made and asked for."""
_PLAIN: Final = b"dltensor"
_VERSIONED: Final = b"dltensor_versioned"
_USED: Final = {_PLAIN: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}
_READ_ONLY: Final = 1
_CODES: Final = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_BFLOAT: Final = 4


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("number", ctypes.c_int32))


class _DType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Plain(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_STRUCTS: Final[dict[bytes, type[_Plain] | type[_Versioned]]] = {_PLAIN: _Plain, _VERSIONED: _Versioned}

# Capsules are passed as addresses, too: one that is being destroyed must not be referred to again.
_new_capsule: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_valid: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
_Deleter: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """
    Where an array lies.

    Attributes
    ----------
    address
        Of its first element.
    shape, strides
        In elements; strides are None for a dense row-major array.
    dtype
        Its name.
    device
        Type (`DeviceType`, or a number that is none of these) and number of the device.
    writable
        Whether it may be written.
    keep
        Whoever keeps the memory.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    device: tuple[int, int]
    writable: bool
    keep: object


def device_of(value: object) -> tuple[int, int] | None:
    """Type and number of the device that an array of another library says to be on; None if it says none.

    Raises
    ------
    ArgumentError
        If it is nowhere, as a tensor without data.
    """
    if isinstance(value, np.ndarray | np.generic):
        return None
    ask = getattr(value, "__dlpack_device__", None)
    if ask is None:
        return None
    try:
        kind, number = ask()
    except Exception as error:  # a library's own
        raise ArgumentError(f"a {type(value).__name__} does not tell where it is ({error})") from None
    return int(kind), int(number)


# -- from another library ------------------------------------------------------------------------------


def imported(value: Any, stream: int | None) -> Memory:
    """
    Take the memory of an array of another library.

    Parameters
    ----------
    value
        Something with `__dlpack__`.
    stream
        On which it will be used, in the words of `__dlpack__`.

    Raises
    ------
    ArgumentError
        If its library does not give it, or its dtype is none of ours.
    """
    kind = type(value).__name__
    try:
        try:
            capsule = value.__dlpack__(stream=stream, max_version=VERSION)
        except TypeError:  # of a library that knows no versions yet
            capsule = value.__dlpack__(stream=stream)
    except Exception as error:  # A library's own, as of PyTorch for a tensor that requires a gradient.
        raise ArgumentError(
            f"a {kind} does not give its memory by DLPack ({error}); pass a plain array, as .detach() gives"
        ) from None
    name = next((name for name in _STRUCTS if _is_valid(id(capsule), name)), None)
    if name is None:
        raise ArgumentError(f"the __dlpack__ of a {kind} gives {capsule!r}, which is no DLPack capsule")
    address = _get_pointer(id(capsule), name)
    assert address is not None
    _set_name(id(capsule), _USED[name])
    found = _STRUCTS[name].from_address(address)
    keep = _Owner(address, found.deleter)
    if isinstance(found, _Versioned) and found.major != VERSION[0]:
        raise ArgumentError(f"a {kind} is given by version {found.major} of DLPack; {VERSION[0]} is known")
    tensor = found.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    return Memory(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None,
        _dtype_name(kind, tensor.dtype),
        (tensor.device.type, tensor.device.number),
        not (isinstance(found, _Versioned) and found.flags & _READ_ONLY),
        keep,
    )


class _Owner:
    """Says, when nothing refers to it any more, that a struct of another library is needed no more."""

    __slots__ = ("_address", "_deleter")

    def __init__(self, address: int, deleter: int | None) -> None:
        self._address = address
        self._deleter = deleter

    def __del__(self) -> None:
        if self._deleter:
            _Deleter(self._deleter)(self._address)


def _dtype_name(kind: str, dtype: _DType) -> str:
    for name in DTYPES:
        if _dtype_code(name) == (dtype.code, dtype.bits, dtype.lanes):
            return name
    raise ArgumentError(
        f"a {kind} has elements of {dtype.bits} bits, {dtype.lanes} lanes and code {dtype.code} of DLPack; "
        f"dtypes are {', '.join(DTYPES)}"
    )


def _dtype_code(name: str) -> tuple[int, int, int]:
    """Code, bits and lanes of a dtype in memory."""
    info = dtype_info(name)
    return (_BFLOAT if name == "bfloat16" else _CODES[info.kind], 8 * info.bytes, 1)


# -- to another library --------------------------------------------------------------------------------


def exported(memory: Memory, versioned: bool) -> object:
    """
    Make a capsule of an array; whoever takes its struct keeps `memory.keep`.

    Parameters
    ----------
    versioned
        Whether the consumer knows structs with a version.

    Raises
    ------
    BufferError
        If it does not, and the array is read-only, which the other struct cannot say.
    """
    if not memory.writable and not versioned:
        raise BufferError("the array is read-only, and its consumer knows no version of DLPack that says so")
    name = _VERSIONED if versioned else _PLAIN
    made = _STRUCTS[name]()
    rank = len(memory.shape)
    strides = memory.strides or _dense(memory.shape)
    extents = (ctypes.c_int64 * max(1, rank))(*memory.shape)
    steps = (ctypes.c_int64 * max(1, rank))(*strides)
    tensor = made.tensor
    tensor.data = memory.address
    tensor.device = _Device(*memory.device)
    tensor.ndim = rank
    tensor.dtype = _DType(*_dtype_code(memory.dtype))
    tensor.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    made.deleter = ctypes.cast(_deleter, ctypes.c_void_p)
    if isinstance(made, _Versioned):
        made.major, made.minor = VERSION
        made.flags = 0 if memory.writable else _READ_ONLY
    address = ctypes.addressof(made)
    _given[address] = (made, extents, steps, memory.keep)
    return _new_capsule(address, name, ctypes.cast(_destructor, ctypes.c_void_p))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a row-major array."""
    steps = [1]
    for extent in reversed(shape[1:]):
        steps.append(steps[-1] * extent)
    return tuple(reversed(steps))[: len(shape)]


_given: Final[dict[int, tuple[object, ...]]] = {}
"""What other libraries were given, by the address of the struct, with all that must live as long."""


def _forget(address: int) -> None:
    """What consumers call."""
    _given.pop(address, None)


def _drop(capsule: int) -> None:
    """What Python calls with a capsule that it destroys: nobody may have taken the struct."""
    for name in _STRUCTS:
        if _is_valid(capsule, name):
            _given.pop(_get_pointer(capsule, name) or 0, None)


_deleter: Final = _Deleter(_forget)
_destructor: Final = _Destructor(_drop)
