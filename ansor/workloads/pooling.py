"""Pooling of images `[n, h, w, c]`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ansor import te
from ansor.checks import check_integer
from ansor.dtypes import is_float
from ansor.errors import DefinitionError
from ansor.te import Expr, Tensor
from ansor.workloads.catalogue import ARITHMETIC, Arguments, Array, workload
from ansor.workloads.parts import pad, padded_array, tap, wide_float, window_count, zero


def _windows(arrays: Sequence[Array], args: Arguments, filler: float) -> list[Array]:
    """What each tap of the pooling window meets."""
    (x,) = arrays
    kernel, stride, padding = args["kernel"], args["stride"], args["padding"]
    counts = [window_count(size, kernel, stride, padding) for size in x.shape[1:3]]
    padded = padded_array(x, padding, filler)
    return [tap(padded, offset, counts, stride) for offset in np.ndindex(kernel, kernel)]


def _max_pool(arrays: Sequence[Array], args: Arguments) -> Array:
    dtype = arrays[0].dtype
    lowest = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
    result: Array = np.maximum.reduce(_windows(arrays, args, lowest))
    return result


def _avg_pool(arrays: Sequence[Array], args: Arguments) -> Array:
    counts = _windows([np.ones_like(arrays[0])], args, 0)
    mean: Array = np.add.reduce(_windows(arrays, args, 0)) / np.add.reduce(counts)
    return mean


def _check_padding(kernel: int, padding: int) -> None:
    if check_integer("padding", padding, low=0) >= check_integer("kernel", kernel, low=1):
        raise DefinitionError(
            f"some pooling windows of {kernel} would hold no pixel with padding {padding}; "
            "pad by less than the window"
        )


@workload(
    _max_pool,
    benchmark=[(1, 112, 112, 64, 3, 2, 1), (1, 56, 56, 256, 2, 2, 0)],
    small=[(1, 9, 7, 5, 3, 2, 1), (2, 6, 6, 4, 2, 2, 0)],
    dtypes=ARITHMETIC,
)
def max_pool2d(
    n: int, h: int, w: int, c: int, kernel: int, stride: int = 1, padding: int = 0, dtype: str = "float32"
) -> list[Tensor]:
    """Largest value of each window of each channel."""
    _check_padding(kernel, padding)
    x = te.placeholder((n, h, w, c), dtype, "X")
    widths = (0, padding, padding, 0)
    lowest = te.const(-math.inf, dtype) if is_float(dtype) else te.min_value(dtype)
    padded = pad(x, widths, widths, lowest)
    rh, rw = te.reduce_axis((0, kernel), "rh"), te.reduce_axis((0, kernel), "rw")
    oh, ow = (window_count(size, kernel, stride, padding) for size in (h, w))
    y = te.compute(
        (n, oh, ow, c),
        lambda n, h, w, c: te.max(padded[n, h * stride + rh, w * stride + rw, c], axis=[rh, rw]),
        name="Pool",
    )
    return [x, y]


@workload(
    _avg_pool,
    benchmark=[(1, 56, 56, 256, 2, 2, 0), (1, 7, 7, 512, 7, 1, 0), (1, 56, 56, 64, 3, 2, 1)],
    small=[(1, 9, 7, 5, 3, 2, 1), (1, 6, 6, 4, 6, 1, 0)],
)
def avg_pool2d(
    n: int, h: int, w: int, c: int, kernel: int, stride: int = 1, padding: int = 0, dtype: str = "float32"
) -> list[Tensor]:
    """Mean of each window of each channel; padding does not count."""
    _check_padding(kernel, padding)
    acc = wide_float(dtype)
    x = te.placeholder((n, h, w, c), dtype, "X")
    widths = (0, padding, padding, 0)
    padded = pad(x, widths, widths, zero(dtype))
    rh, rw = te.reduce_axis((0, kernel), "rh"), te.reduce_axis((0, kernel), "rw")
    oh, ow = (window_count(size, kernel, stride, padding) for size in (h, w))
    total = te.compute(
        (n, oh, ow, c),
        lambda n, h, w, c: te.sum(
            te.cast(padded[n, h * stride + rh, w * stride + rw, c], acc), axis=[rh, rw]
        ),
        name="Sum",
    )

    def pixels(position: Expr, size: int) -> Expr:
        """How many of the window's rows (or columns) lie in the image."""
        if not padding:
            return te.const(kernel)
        first = position * stride - padding
        return te.minimum(first + kernel, size) - te.maximum(first, 0)

    y = te.compute(
        (n, oh, ow, c),
        lambda y, i, j, ch: te.cast(total[y, i, j, ch] / te.cast(pixels(i, h) * pixels(j, w), acc), dtype),
        name="Pool",
    )
    return [x, y]
