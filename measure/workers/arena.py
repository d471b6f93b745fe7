"""Memory for the arguments of a program that is not trusted: each array between guards, outputs poisoned.

An argument's memory looks like this; ``|`` are page boundaries::

    | no access | canary ... data ... canary | no access |

The data lie as far to the right as their place in a cache line allows, so that the next line behind them
faults at once; those of large outputs, as their place in a page does (`ansor.alignment.place_apart`). The
canaries are pseudo-random bytes, compared after the run: writes in between are noticed, reads are not. Faults
are crashes of the worker; canaries give a message that names the argument.

Poison is what an output holds before the program runs, chosen so that an element that is not written, or that
is accumulated into without having been initialised, cannot come out right:

- floats: NaN, a large positive and a large negative number by turns (a forgotten initialisation of a maximum
  would go unnoticed over NaN alone);
- integers: the expected value with bits flipped; bools: the opposite of the expected value.

A period of three keeps the poison out of step with tile sizes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ansor.alignment import LINE, bytes_of, place_apart
from ansor.dtypes import dtype_info, is_float, to_numpy
from ansor.errors import RunError

Array = npt.NDArray[Any]

HUGE_BYTES: Final = 4 << 20
_PAGE: Final = mmap.PAGESIZE
_PROT_NONE: Final = 0
_FLIP: Final = 0x5A
_BIG: Final = {
    "float64": (np.uint64(0x7FE0_0000_0000_0000), np.uint64(0xFFE0_0000_0000_0000)),
    "float32": (np.uint32(0x7F00_0000), np.uint32(0xFF00_0000)),
    "float16": (np.uint16(0x7B00), np.uint16(0xFB00)),
    "bfloat16": (np.uint16(0x7F00), np.uint16(0xFF00)),
}


class GuardedArray:
    """One array in memory of its own between guard pages (`arguments.ArgumentMemory`).

    Parameters
    ----------
    behind_line
        Where the data start, so many bytes behind a multiple of 64.
    apart_from
        Arrays that are read while this one is written; it starts apart from them instead.

    Attributes
    ----------
    array
        The data, row-major, uninitialised at first.
    address
        Where the data start.

    Raises
    ------
    RunError
        If there is no memory for it.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        behind_line: int = 0,
        apart_from: Sequence[GuardedArray] = (),
    ) -> None:
        numpy_dtype = to_numpy(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * numpy_dtype.itemsize
        behind, unit = behind_line, LINE
        if apart_from:
            behind, unit = place_apart(size, (other.address for other in apart_from))
        room = -(-(size + behind) // unit) * unit
        inner = max(_PAGE, -(-room // _PAGE) * _PAGE)
        try:
            memory = mmap.mmap(-1, inner + 2 * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            raise RunError(f"no memory for an argument of {size} bytes: {error}") from None
        if size >= HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # As numpy does for large arrays, so that timings compare.
                memory.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(memory, np.uint8)
        base = int(whole.ctypes.data)
        _forbid(base, _PAGE)
        _forbid(base + _PAGE + inner, _PAGE)
        start = _PAGE + inner - room + behind
        self._before = whole[_PAGE:start]
        self._after = whole[start + size : _PAGE + inner]
        self._canary = canary_bytes(max(len(self._before), len(self._after)))
        self.array: Array = whole[start : start + size].view(numpy_dtype).reshape(shape)
        self._dtype = dtype
        self.address: int = base + start
        self.restore_canaries()

    def write(self, values: Array) -> None:
        self.array[...] = values

    def poison(self, expected: Array) -> None:
        poison(self.array, self._dtype, expected)

    def read(self) -> Array:
        return self.array

    def restore_canaries(self) -> None:
        self._before[:] = self._canary[: len(self._before)]
        self._after[:] = self._canary[: len(self._after)]

    def damage(self) -> str | None:
        """Where the surroundings of the data were written to, None if they are intact."""
        return damage_around(self._before, self._after, self._canary)


def damage_around(
    before: npt.NDArray[np.uint8], after: npt.NDArray[np.uint8], canary: npt.NDArray[np.uint8]
) -> str | None:
    """Where what stands around an argument is no longer as the canary begins, None if it is."""
    past = np.flatnonzero(after != canary[: len(after)])
    if len(past):
        return f"{past[0] + 1} byte(s) past its end"
    short = np.flatnonzero(before != canary[: len(before)])
    if len(short):
        return f"{len(before) - short[-1]} byte(s) before its start"
    return None


def canary_bytes(count: int) -> npt.NDArray[np.uint8]:
    """What stands around an argument, the same each time."""
    return np.random.default_rng(0xCA9A).integers(1, 255, count, np.uint8)


def _forbid(address: int, size: int) -> None:
    """Make pages inaccessible."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), _PROT_NONE):
        raise RunError(f"cannot protect memory: {os.strerror(ctypes.get_errno())}")


def poison(array: Array, dtype: str, expected: Array) -> None:
    """Fill an output with values that are wrong everywhere; see the module's text."""
    if dtype == "bool":
        np.logical_not(expected, out=array)
    elif is_float(dtype):
        words = array.reshape(-1).view(np.dtype(f"u{dtype_info(dtype).bytes}"))
        high, low = _BIG[dtype]
        words[0::3] = np.iinfo(words.dtype).max
        words[1::3] = high
        words[2::3] = low
    else:
        np.bitwise_xor(
            bytes_of(np.ascontiguousarray(expected)),
            np.uint8(_FLIP),
            out=bytes_of(array),
        )
