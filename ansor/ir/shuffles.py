"""Values that the threads of a warp give each other, without memory and without a barrier.

A *shuffle* is a store to private memory whose whole value is a call of `SHUFFLE`: every thread gets what the
argument is in the thread of its block whose threadIdx.x differs in the bits of a distance, a power of two.

    S.other[] = shuffle_xor(S.part[], 16)

It is a place where threads meet, as a barrier is: all threads of the block come by equally often. CUDA has
an instruction for it where both threads are in one warp; OpenCL C has none on all devices.

Source: `__shfl_xor_sync`, CUDA C++ programming guide.
"""

from __future__ import annotations

from typing import Final

from ansor.ir.nest import Barrier, Buffer, Commit, Stmt, Store
from ansor.te.expr import INDEX_DTYPE, Call, Const, Expr, distinct_nodes

SHUFFLE: Final = "shuffle_xor"
WARP: Final = 32
"""Threads of a warp, on all GPUs with such an instruction."""


def shuffle(buffer: Buffer, indices: tuple[Expr, ...], value: Expr, distance: int) -> Store:
    """The store to a private element of what `value` is in the thread at a distance."""
    call = Call(SHUFFLE, (value, Const(distance, INDEX_DTYPE)), value.dtype)
    return Store(buffer, indices, call)


def shuffled(stmt: Stmt) -> tuple[Expr, int] | None:
    """What a shuffle gives to another thread, and the distance; None for another statement."""
    match stmt:
        case Store(value=Call(name=name, args=(value, Const(value=distance)))) if name == SHUFFLE:
            return value, int(distance)
        case _:
            return None


def has_shuffle(expr: Expr) -> bool:
    """Whether a call of `SHUFFLE` is in an expression."""
    return any(isinstance(node, Call) and node.name == SHUFFLE for node in distinct_nodes(expr))


def is_meeting(stmt: Stmt) -> bool:
    """Whether all threads of a block come by this statement itself together: to meet, or to count copies."""
    return isinstance(stmt, (Barrier, Commit)) or shuffled(stmt) is not None
