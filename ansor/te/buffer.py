"""Buffers: the arrays that loop nests load from and store to.

They live beside the expressions because `Load` is one; everything else about loop nests is in `ansor.ir`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ansor.dtypes import dtype_info
from ansor.te.construct import int_value

if TYPE_CHECKING:
    from ansor.te.nodes import Expr


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A dense row-major array; `shape` holds ints, or expressions of symbolic sizes for parameters.

    `scope` is "global" (parameters, scratch memory), "shared", "local" (private memory) or "register"
    (see the invariants of `ansor.ir.nest`). `strides`, in elements, overrides the row-major ones.
    Shared memory of some `lead` is filled so many iterations ahead (`ansor.ir.passes.multi_buffers`).
    `swizzled` rows are stored in different orders, once `ansor.ir.passes.swizzle` has been there.
    """

    name: str
    dtype: str
    shape: tuple[int | Expr, ...]
    scope: str = "global"
    strides: tuple[int, ...] | None = None
    lead: int = 0
    swizzled: bool = False

    @property
    def constant_shape(self) -> tuple[int, ...]:
        """The shape as ints; a ValueError for a symbolic one."""
        values = [int_value(extent) for extent in self.shape]
        if any(value is None for value in values):
            raise ValueError(f"buffer {self.name!r} has a symbolic shape")
        return tuple(value for value in values if value is not None)

    @property
    def elements(self) -> int:
        """Elements that a constant-shaped buffer's memory has, padding by strides included."""
        shape = self.constant_shape
        return prod(shape) if self.strides is None or not shape else shape[0] * self.strides[0]

    @property
    def size_bytes(self) -> int:
        """Bytes of a constant-shaped buffer, padding by strides included."""
        return self.elements * dtype_info(self.dtype).bytes


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a dense array."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides))[len(strides) - len(shape) :]
