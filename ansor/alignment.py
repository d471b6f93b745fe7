"""Where arrays begin in memory, and arrays that begin on a cache line.

A vector as long as a cache line that does not begin on one lies across two, and takes two accesses. Arrays
that ansor makes begin on lines: outputs, inputs in a program's layout. Those of callers are where numpy puts
them, often 16 bytes behind a line: there programs are measured with their inputs, and the cost model expects
them there.
"""

from __future__ import annotations

from ctypes import addressof, c_char
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.dtypes import to_numpy

Array = NDArray[Any]

LINE: Final = 64
"""Bytes that arrays made here are aligned to: a cache line, and the widest vector."""
CALLERS: Final = 16
"""Bytes behind the beginning of a line at which a numpy array on Linux begins that has pages of its own.

Others begin at any multiple of 16 bytes: on a line is one of four, and the best, of cases.
"""


def aligned_empty(shape: tuple[int, ...], dtype: str) -> Array:
    """
    Allocate an uninitialised row-major array whose data begins at a multiple of 64 bytes.

    numpy aligns its own arrays to 16 bytes only: vectors as long as a cache line then lie across two, which
    costs up to a fifth of a kernel's speed. Outputs that a kernel returns are allocated by this function.

    Raises
    ------
    DefinitionError
        If there is no such dtype.
    """
    return _empty(shape, to_numpy(dtype))


def aligned_copy(array: Array) -> Array:
    """Copy an array to row-major memory that begins at a multiple of 64 bytes."""
    copy = _empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    size = prod(shape) * dtype.itemsize
    raw = np.empty(size + LINE, np.uint8)
    start = -address_of(raw) % LINE
    return raw[start : start + size].view(dtype).reshape(shape)


def address_of(array: Array) -> int:
    """Tell the address of the first element."""
    try:
        buffer: Any = array
        return addressof(c_char.from_buffer(buffer))  # three times as fast as the general way below
    except (TypeError, ValueError, BufferError):  # read-only, empty, or a dtype without a buffer format
        return int(array.ctypes.data)
