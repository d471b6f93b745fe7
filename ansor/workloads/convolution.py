"""Convolutions: the paper's C1D, C2D, C3D, GRP, DIL, and the subgraph conv2d + bn + relu.

Images are `[n, h, w, c]` (one spatial dimension more or less elsewhere), weights `[kernel..., ci, co]`. One
kernel size, stride, padding and dilation serves all spatial dimensions. Where the paper gives no group or
dilation the arguments end early, so keys stay short. Weights have the images' dtype unless `weight_dtype`
names another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ansor import te
from ansor.errors import DefinitionError
from ansor.te import Expr, Tensor
from ansor.workloads.catalogue import ARITHMETIC, Arguments, Array, constant_shape, workload
from ansor.workloads.parts import (
    output_dtype,
    pad,
    padded_array,
    per_group,
    product,
    sum_dtype,
    sums,
    tap,
    window_count,
    zero,
)

# -- the common form ---------------------------------------------------------------------------------

# Axes are named after the parameters of these: what schedules and printed programs show.
_AXES: dict[int, Callable[[Callable[..., Expr]], Callable[..., Expr]]] = {
    1: lambda at: lambda n, l, c: at(n, (l,), c),  # noqa: E741
    2: lambda at: lambda n, h, w, c: at(n, (h, w), c),
    3: lambda at: lambda n, d, h, w, c: at(n, (d, h, w), c),
}
_TAPS = {1: ("rl",), 2: ("rh", "rw"), 3: ("rd", "rh", "rw")}


def convolve(
    x: Tensor,
    w: Tensor,
    *,
    stride: int,
    padding: int,
    dilation: int = 1,
    groups: int = 1,
    out_dtype: str = "",
) -> Tensor:
    """The convolution of `x` `[n, spatial..., ci]` by `w` `[kernel..., ci / groups, co]`."""
    batch, *sizes, channels = constant_shape(x)
    *kernel, in_group, out_channels = constant_shape(w)
    if channels != in_group * groups or out_channels % groups:
        raise DefinitionError(
            f"{groups} groups do not divide the convolution's {channels} input "
            f"and {out_channels} output channels"
        )
    out_group = out_channels // groups
    rank = len(sizes)
    counts = output_sizes(sizes, kernel, stride, padding, dilation)
    out = output_dtype(x.dtype, out_dtype)
    widths = (0, *[padding] * rank, 0)
    padded = pad(x, widths, widths, zero(x.dtype))
    taps = tuple(te.reduce_axis((0, k), name) for k, name in zip(kernel, _TAPS[rank], strict=True))
    rc = te.reduce_axis((0, in_group), "rc")

    def element(n: Expr, position: tuple[Expr, ...], c: Expr) -> Expr:
        source = [p * stride + t * dilation for p, t in zip(position, taps, strict=True)]
        channel = rc if groups == 1 else te.indexdiv(c, out_group) * in_group + rc
        return te.sum(product(padded(n, *source, channel), w(*taps, rc, c), sum_dtype(out)), axis=[*taps, rc])

    attrs = {"layout_free_placeholders": [w]}
    return sums((batch, *counts, out_channels), _AXES[rank](element), out, name="Conv", attrs=attrs)


def output_sizes(
    sizes: Sequence[int], kernel: Sequence[int], stride: int, padding: int, dilation: int
) -> tuple[int, ...]:
    pairs = zip(sizes, kernel, strict=True)
    return tuple(window_count(size, taps, stride, padding, dilation) for size, taps in pairs)


def convolve_array(arrays: Sequence[Array], args: Arguments) -> Array:
    """`convolve` in numpy: one matrix product per tap of the kernel."""
    x, w = arrays[:2]
    stride, padding, dilation, groups = (
        args.get(name, default)
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))
    )
    *kernel, in_group, out_channels = w.shape
    counts = output_sizes(x.shape[1:-1], kernel, stride, padding, dilation)
    padded = padded_array(x, padding)
    result = np.zeros((x.shape[0], *counts, groups, 1, out_channels // groups), x.dtype)
    for offset in np.ndindex(*kernel):
        part = tap(padded, [o * dilation for o in offset], counts, stride)
        grouped = part.reshape(*part.shape[:-1], groups, 1, in_group)
        weight = np.moveaxis(w[offset].reshape(in_group, groups, out_channels // groups), 1, 0)
        result += np.matmul(grouped, weight)
    return result.reshape(x.shape[0], *counts, out_channels)


# -- one, two, three dimensions ----------------------------------------------------------------------


@workload(
    convolve_array,
    benchmark=[
        (1, 256, 64, 128, 3, 2, 1),
        (1, 128, 128, 256, 1, 2, 0),
        (1, 64, 256, 256, 5, 1, 2),
        (1, 32, 512, 512, 3, 1, 1),
    ],
    small=[(1, 13, 5, 6, 3, 2, 1), (2, 9, 4, 8, 3, 1, 2, 2), (1, 8, 4, 6, 1, 1, 0, 1, 2)],
    dtypes=ARITHMETIC,
)
def conv1d(
    n: int,
    l: int,  # noqa: E741
    ci: int,
    co: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    dtype: str = "float32",
    out_dtype: str = "",
) -> list[Tensor]:
    """Convolution of sequences `[n, l, ci]`."""
    x = te.placeholder((n, l, ci), dtype, "X")
    w = te.placeholder((kernel, per_group(ci, groups), co), dtype, "W")
    y = convolve(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups, out_dtype=out_dtype)
    return [x, w, y]


@workload(
    convolve_array,
    benchmark=[
        (1, 224, 224, 3, 64, 7, 2, 3),
        (1, 56, 56, 64, 64, 1, 1, 0),
        (1, 14, 14, 256, 256, 3, 1, 1),
        (1, 7, 7, 512, 512, 3, 1, 1),
    ],
    small=[(1, 9, 7, 5, 6, 3, 2, 1), (2, 6, 6, 4, 8, 3, 1, 0), (1, 8, 8, 3, 4, 1, 1, 0)],
    dtypes=ARITHMETIC,
)
def conv2d(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    dtype: str = "float32",
    out_dtype: str = "",
    weight_dtype: str = "",
) -> list[Tensor]:
    """Convolution of images `[n, h, w, ci]`."""
    x = te.placeholder((n, h, w, ci), dtype, "X")
    weight = te.placeholder((kernel, kernel, per_group(ci, groups), co), weight_dtype or dtype, "W")
    y = convolve(
        x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups, out_dtype=out_dtype
    )
    return [x, weight, y]


@workload(
    convolve_array,
    benchmark=[
        (1, 16, 224, 224, 3, 64, 7, 2, 3),
        (1, 16, 56, 56, 64, 64, 1, 1, 0),
        (1, 16, 14, 14, 256, 256, 3, 1, 1),
        (1, 16, 7, 7, 512, 512, 3, 1, 1),
    ],
    small=[(1, 4, 5, 6, 3, 4, 3, 2, 1), (1, 3, 4, 4, 2, 5, 2, 1, 0)],
    dtypes=ARITHMETIC,
)
def conv3d(
    n: int,
    d: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    dtype: str = "float32",
    out_dtype: str = "",
) -> list[Tensor]:
    """Convolution of volumes `[n, d, h, w, ci]`."""
    x = te.placeholder((n, d, h, w, ci), dtype, "X")
    weight = te.placeholder((kernel, kernel, kernel, per_group(ci, groups), co), dtype, "W")
    y = convolve(
        x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups, out_dtype=out_dtype
    )
    return [x, weight, y]


@workload(
    convolve_array,
    benchmark=[
        (1, 56, 56, 64, 128, 3, 2, 1, 1, 4),
        (1, 56, 56, 64, 64, 1, 1, 0, 1, 4),
        (1, 14, 14, 256, 256, 3, 1, 1, 1, 4),
        (1, 7, 7, 512, 512, 3, 1, 1, 1, 4),
    ],
    small=[(1, 7, 6, 8, 12, 3, 1, 1, 1, 4), (1, 9, 9, 6, 4, 3, 2, 1, 1, 2), (1, 6, 6, 8, 8, 1, 1, 0, 1, 2)],
    dtypes=ARITHMETIC,
)
def group_conv2d(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    dtype: str = "float32",
    out_dtype: str = "",
) -> list[Tensor]:
    """Convolution of images in which each group of channels sees its own group only."""
    return conv2d(n, h, w, ci, co, kernel, stride, padding, dilation, groups, dtype, out_dtype)


@workload(
    convolve_array,
    benchmark=[
        (1, 224, 224, 3, 64, 7, 2, 3, 2),
        (1, 56, 56, 64, 64, 1, 1, 0, 2),
        (1, 14, 14, 256, 256, 3, 1, 1, 2),
        (1, 7, 7, 512, 512, 3, 1, 1, 2),
    ],
    small=[(1, 9, 8, 4, 6, 3, 1, 2, 2), (1, 11, 11, 3, 4, 3, 2, 1, 3), (1, 6, 6, 8, 8, 1, 1, 0, 2)],
    dtypes=ARITHMETIC,
)
def dilated_conv2d(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    dtype: str = "float32",
    out_dtype: str = "",
) -> list[Tensor]:
    """Convolution of images by a kernel whose taps lie `dilation` pixels apart."""
    return conv2d(n, h, w, ci, co, kernel, stride, padding, dilation, 1, dtype, out_dtype)


def bn_relu(conv: Tensor) -> list[Tensor]:
    """Batch normalisation of `[n, h, w, c]` (a factor and a summand per channel), then ReLU.

    Returns
    -------
    list[Tensor]
        The factors and the summands, inputs `[c]`; the output.
    """
    scale, shift = (te.placeholder(conv.shape[-1:], conv.dtype, name) for name in ("Scale", "Shift"))
    scaled = te.compute(conv.shape, lambda n, h, w, c: conv[n, h, w, c] * scale[c], name="Mul")
    shifted = te.compute(conv.shape, lambda n, h, w, c: scaled[n, h, w, c] + shift[c], name="Add")
    y = te.compute(conv.shape, lambda n, h, w, c: te.maximum(shifted[n, h, w, c], 0.0), name="Relu")
    return [scale, shift, y]


def convolve_bn_relu_array(arrays: Sequence[Array], args: Arguments) -> Array:
    """`convolve`, then `bn_relu`, in numpy."""
    scale, shift = arrays[2:]
    result: Array = np.maximum(convolve_array(arrays, args) * scale + shift, 0)
    return result


@workload(
    convolve_bn_relu_array,
    benchmark=[
        (1, 224, 224, 3, 64, 7, 2, 3),
        (1, 56, 56, 64, 128, 3, 2, 1),
        (1, 28, 28, 128, 256, 1, 2, 0),
        (1, 7, 7, 512, 512, 3, 1, 1),
    ],
    small=[(1, 9, 7, 5, 6, 3, 2, 1), (1, 6, 6, 4, 8, 1, 2, 0)],
)
def conv2d_bn_relu(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    dtype: str = "float32",
) -> list[Tensor]:
    """Convolution of images, then batch normalisation (a factor and a summand per channel), then ReLU."""
    x, weight, conv = conv2d(n, h, w, ci, co, kernel, stride, padding, dilation, 1, dtype)
    return [x, weight, *bn_relu(conv)]
