"""Sizes of tensors whose shapes are numbers."""

from __future__ import annotations

from math import prod

from ansor.dtypes import dtype_info
from ansor.te.expr import int_value
from ansor.te.tensor import Tensor


def elements_of(tensor: Tensor) -> int:
    """Elements of a tensor; a symbolic one counts as empty."""
    return prod(int_value(extent) or 0 for extent in tensor.shape)


def size_bytes(tensor: Tensor) -> int:
    """Size of a tensor [bytes]; a symbolic one counts as empty."""
    return elements_of(tensor) * dtype_info(tensor.dtype).bytes
