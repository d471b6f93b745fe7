"""What several workloads share: accumulation dtypes, padding, output sizes; in te and in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ansor import te
from ansor.checks import check_integer
from ansor.dtypes import dtype_info, is_float
from ansor.errors import DefinitionError
from ansor.te import Expr, Tensor
from ansor.workloads.catalogue import Array, constant_shape


def output_dtype(dtype: str, out_dtype: str = "") -> str:
    """The dtype of sums of products: `out_dtype` if given; int32 for narrow integers; else `dtype`."""
    if out_dtype:
        dtype_info(out_dtype)
        return out_dtype
    return dtype if is_float(dtype) or dtype_info(dtype).bits >= 32 else "int32"


def wide_float(dtype: str) -> str:
    """The dtype in which to add up many values of a float dtype: at least float32."""
    if not is_float(dtype):
        raise DefinitionError(f"this workload is for float dtypes, found {dtype}")
    return "float32" if dtype_info(dtype).bits < 32 else dtype


def sum_dtype(out: str) -> str:
    """The dtype in which products are computed and added up whose sums become elements of `out`."""
    return wide_float(out) if is_float(out) else out


def sums(
    shape: Sequence[int | Expr],
    element: Callable[..., Expr],
    out: str,
    name: str,
    attrs: Mapping[str, Any] | None = None,
) -> Tensor:
    """The sums that `element` gives in `sum_dtype(out)`, each rounded once to `out`."""
    if sum_dtype(out) == out:
        return te.compute(shape, element, name=name, attrs=attrs)
    wide = te.compute(shape, element, name="Sum", attrs=attrs)
    return te.compute(shape, lambda *index: te.cast(wide(*index), out), name=name)


def product(a: Expr, b: Expr, dtype: str) -> Expr:
    """`a * b`, both converted to `dtype` first."""
    return te.cast(a, dtype) * te.cast(b, dtype)


def pad(
    x: Tensor,
    low: Sequence[int],
    high: Sequence[int],
    value: Expr,
    name: str = "Pad",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor:
    """`x` with `low[d]` elements of `value` before and `high[d]` after dimension `d`; `x` if all are 0."""
    if not any(low) and not any(high):
        return x
    shape = constant_shape(x)

    def element(*index: Expr) -> Expr:
        inside: list[Expr] = []
        for i, extent, before, after in zip(index, shape, low, high, strict=True):
            inside += [i >= before] if before else []
            inside += [i < extent + before] if after else []
        source = [i - before for i, before in zip(index, low, strict=True)]
        return te.if_then_else(te.all(*inside), x(*source), value)

    padded = [extent + before + after for extent, before, after in zip(shape, low, high, strict=True)]
    return te.compute(padded, element, name=name, attrs=attrs)


def zero(dtype: str) -> Expr:
    return te.const(0, dtype)


def window_count(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """How many windows of `kernel` taps, `dilation` apart, fit into `size` elements padded on both sides."""
    check_integer("kernel", kernel, low=1)
    check_integer("stride", stride, low=1)
    check_integer("padding", padding, low=0)
    check_integer("dilation", dilation, low=1)
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def per_group(channels: int, groups: int) -> int:
    """Channels of each group; `convolve` sees to it that they divide."""
    return channels // check_integer("groups", groups, low=1)


def padded_array(x: Array, padding: int, value: float = 0.0) -> Array:
    """`x`, batch first and channels last, padded alike on both sides of each dimension in between."""
    widths = [(0, 0), *[(padding, padding)] * (x.ndim - 2), (0, 0)]
    return np.pad(x, widths, constant_values=value)


def tap(x: Array, offset: Sequence[int], counts: Sequence[int], stride: int) -> Array:
    """What the tap of the kernel at `offset` meets of padded `x` in each of `counts` windows."""
    slices = [slice(o, o + (n - 1) * stride + 1, stride) for o, n in zip(offset, counts, strict=True)]
    return x[(slice(None), *slices)]
