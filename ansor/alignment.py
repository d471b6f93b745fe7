"""Where arrays begin in memory, and arrays that begin on a cache line.

A vector as long as a cache line that does not begin on one lies across two, and takes two accesses. Arrays
that ansor makes begin on lines: outputs, inputs in a program's layout. Those of callers are where numpy puts
them, often 16 bytes behind a line: there programs are measured with their inputs, and the cost model expects
them there.

Processors tell by the last twelve bits of addresses, at first, whether a load reads what an earlier store has
yet to write ("4K aliasing"). Where an output begins a line or a few behind an input in these bits, as arrays
allocated one after the other do, loads of the next elements wait for stores: silu of 4 MiB takes 1.4 of its
time (2 cores of a Zen 4). So outputs begin elsewhere in a page than inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import addressof, c_char
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.dtypes import to_numpy
from ansor.errors import DefinitionError

Array = NDArray[Any]

LINE: Final = 64
"""Bytes that arrays made here are aligned to: a cache line, and the widest vector."""
PAGE: Final = 4096
"""Addresses that differ by a multiple of so many bytes are taken for the same at first."""
CALLERS: Final = 16
"""Bytes behind the beginning of a line at which a numpy array on Linux begins that has pages of its own.

Others begin at any multiple of 16 bytes: on a line is one of four, and the best, of cases.
"""


def bytes_of(array: Array) -> NDArray[np.uint8]:
    """View a contiguous array as bytes, shape ``(n_bytes,)``; some dtypes have no buffer of their own."""
    return array.reshape(-1).view(np.uint8)


def aligned_empty(shape: tuple[int, ...], dtype: str, apart_from: Sequence[Array] = ()) -> Array:
    """
    Allocate an uninitialised row-major array whose data begins at a multiple of 64 bytes.

    numpy aligns its own arrays to 16 bytes only: vectors as long as a cache line then lie across two, which
    costs up to a fifth of a kernel's speed. Outputs that a kernel returns are allocated by this function,
    apart from its inputs.

    Parameters
    ----------
    apart_from
        Arrays that are read while this one is written: it begins as far from where they do in a page of 4096
        bytes as possible, if it is that large.

    Raises
    ------
    DefinitionError
        If there is no such dtype, an extent is negative, or `apart_from` is one array, whose rows would be
        taken for arrays.
    """
    if any(extent < 0 for extent in shape):
        raise DefinitionError(f"aligned_empty of shape {tuple(shape)}: extents are 0 or more")
    given: object = apart_from
    if isinstance(given, np.ndarray):
        raise DefinitionError("apart_from is one array; pass a sequence of arrays, as apart_from=(x,)")
    return _empty(shape, to_numpy(dtype), apart_from)


def aligned_copy(array: Array, apart_from: Sequence[Array] = ()) -> Array:
    """Copy an array to row-major memory that begins on a line; for `apart_from` see `aligned_empty`."""
    copy = _empty(array.shape, array.dtype, apart_from)
    copy[...] = array
    return copy


def place_apart(size: int, others: Iterable[int]) -> tuple[int, int]:
    """Choose where an array of `size` bytes begins that is written while those at other addresses are read.

    Returns
    -------
    tuple[int, int]
        So many bytes behind a multiple of so many: in the middle of the widest part of a page where none of
        the others begins; anywhere on a line if it is smaller than a page, or there are none.
    """
    taken = sorted({address % PAGE for address in others}) if size >= PAGE else []
    if not taken:
        return 0, LINE
    ends = [*taken[1:], taken[0] + PAGE]
    width, start = max((end - begin, begin) for begin, end in zip(taken, ends, strict=True))
    return (start + width // 2) % PAGE // LINE * LINE, PAGE


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], apart_from: Sequence[Array] = ()) -> Array:
    size = prod(shape) * dtype.itemsize
    behind, unit = place_apart(size, map(address_of, apart_from))
    raw = np.empty(size + unit, np.uint8)
    return np.ndarray(shape, dtype, raw, (behind - address_of(raw)) % unit)


def address_of(array: Array) -> int:
    """Tell the address of the first element."""
    try:
        buffer: Any = array
        return addressof(c_char.from_buffer(buffer))  # three times as fast as the general way below
    except (TypeError, ValueError, BufferError):  # read-only, empty, or a dtype without a buffer format
        return int(array.ctypes.data)
