"""How much memory the threads of a block share: their arrays lie one behind the other, each on a boundary."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from numpy.typing import NDArray

from ansor.ir.nest import Alloc, Buffer, Stmt, walk_statements

SHARED_ALIGNMENT: Final = 16
"""Bytes that arrays in shared memory begin at multiples of: the longest vector that is copied at once."""

_N = TypeVar("_N", int, NDArray[Any])


def in_whole(size: _N) -> _N:
    """The bytes up to the next array, of one that takes `size` bytes; a number or a column of them."""
    whole: _N = -(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
    return whole


def shared_buffers(body: Stmt) -> tuple[Buffer, ...]:
    """The arrays that a block shares, in the order of their allocation; all exist side by side."""
    allocated = (stmt.buffer for stmt in walk_statements(body) if isinstance(stmt, Alloc))
    return tuple(buffer for buffer in allocated if buffer.scope == "shared")


def shared_bytes(body: Stmt) -> int:
    """Bytes of shared memory that a block takes."""
    return sum(in_whole(buffer.size_bytes) for buffer in shared_buffers(body))
