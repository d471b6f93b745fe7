"""Convolutions of other forms: the paper's DEP, T2D (transposed) and CAP (capsules); channels first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ansor import te
from ansor.checks import check_integer
from ansor.te import Expr, Tensor
from ansor.workloads.catalogue import ARITHMETIC, Arguments, Array, workload
from ansor.workloads.convolution import convolve_array, output_sizes
from ansor.workloads.parts import output_dtype, pad, padded_array, product, sum_dtype, sums, tap, zero


def _depthwise(arrays: Sequence[Array], args: Arguments) -> Array:
    x, w = arrays
    counts = output_sizes(x.shape[1:-1], w.shape[:2], args["stride"], args["padding"], args["dilation"])
    padded = padded_array(x, args["padding"])
    result = np.zeros((x.shape[0], *counts, x.shape[-1]), x.dtype)
    for offset in np.ndindex(*w.shape[:2]):
        result += tap(padded, [o * args["dilation"] for o in offset], counts, args["stride"]) * w[offset]
    return result


@workload(
    _depthwise,
    benchmark=[
        (1, 112, 112, 32, 3, 1, 1),
        (1, 112, 112, 64, 3, 2, 1),
        (1, 14, 14, 512, 3, 2, 1),
        (1, 7, 7, 1024, 3, 1, 1),
    ],
    small=[(1, 9, 7, 5, 3, 2, 1), (2, 6, 6, 8, 3, 1, 1), (1, 9, 9, 4, 3, 1, 0, 2)],
    dtypes=ARITHMETIC,
)
def depthwise_conv2d(
    n: int,
    h: int,
    w: int,
    c: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    dtype: str = "float32",
    out_dtype: str = "",
) -> list[Tensor]:
    """Convolution of each channel of images `[n, h, w, c]` by a kernel of its own."""
    out = output_dtype(dtype, out_dtype)
    x = te.placeholder((n, h, w, c), dtype, "X")
    weight = te.placeholder((kernel, kernel, c), dtype, "W")
    oh, ow = output_sizes((h, w), (kernel, kernel), stride, padding, dilation)
    padded = pad(x, (0, padding, padding, 0), (0, padding, padding, 0), zero(dtype))
    rh, rw = te.reduce_axis((0, kernel), "rh"), te.reduce_axis((0, kernel), "rw")
    y = sums(
        (n, oh, ow, c),
        lambda n, h, w, c: te.sum(
            product(
                padded[n, h * stride + rh * dilation, w * stride + rw * dilation, c],
                weight[rh, rw, c],
                sum_dtype(out),
            ),
            axis=[rh, rw],
        ),
        out,
        name="Conv",
    )
    return [x, weight, y]


def _transposed(arrays: Sequence[Array], args: Arguments) -> Array:
    """Scatter: each input pixel adds its kernel into the output, `stride` pixels from its neighbour's."""
    x, w = arrays
    stride, padding, kernel = args["stride"], args["padding"], args["kernel"]
    n, height, width, _ = x.shape
    reach = [(size - 1) * stride for size in (height, width)]
    full = np.zeros((n, reach[0] + kernel, reach[1] + kernel, w.shape[-1]), x.dtype)
    for i, j in np.ndindex(kernel, kernel):
        full[:, i : i + reach[0] + 1 : stride, j : j + reach[1] + 1 : stride] += np.matmul(x, w[i, j])
    return full[:, padding : full.shape[1] - padding, padding : full.shape[2] - padding]


@workload(
    _transposed,
    benchmark=[
        (1, 4, 4, 512, 256, 4, 2, 1),
        (1, 8, 8, 256, 128, 4, 2, 1),
        (1, 16, 16, 128, 64, 4, 2, 1),
        (1, 32, 32, 64, 3, 4, 2, 1),
    ],
    small=[
        (1, 4, 3, 5, 6, 4, 2, 1),
        (1, 5, 4, 3, 4, 3, 2, 1),
        (2, 3, 3, 4, 2, 3, 1, 1),
        (1, 3, 4, 2, 3, 2, 3, 0),
    ],
    dtypes=ARITHMETIC,
)
def transposed_conv2d(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    dtype: str = "float32",
    out_dtype: str = "",
) -> list[Tensor]:
    """Transposed convolution of images: the gradient of `conv2d`, as in decoders.

    Output row y meets tap r of the kernel where y + padding - r is a multiple of the stride. These taps are
    r = (y + padding) mod stride + stride * t, so the reduction runs over t alone and multiplies no zeros
    but those of the border (and of the last taps, where the stride does not divide the kernel).
    """
    out = output_dtype(dtype, out_dtype)
    x = te.placeholder((n, h, w, ci), dtype, "X")
    weight = te.placeholder((kernel, kernel, ci, co), dtype, "W")
    check_integer("padding", padding, low=0)
    taps = -(-kernel // check_integer("stride", stride, low=1))
    # Pixels are read from padding // stride - (taps - 1) to size - 1 + (kernel - 1 - padding) // stride.
    low = max(0, taps - 1 - padding // stride)
    high = max(0, (kernel - 1 - padding) // stride)
    padded = pad(x, (0, low, low, 0), (0, high, high, 0), zero(dtype))
    rest = taps * stride - kernel
    whole = pad(weight, (0, 0, 0, 0), (rest, rest, 0, 0), zero(dtype), name="PadW")
    rh, rw = te.reduce_axis((0, taps), "rh"), te.reduce_axis((0, taps), "rw")
    rc = te.reduce_axis((0, ci), "rc")

    def source(position: Expr, t: Expr) -> Expr:
        return te.indexdiv(position + padding, stride) + (low - t)

    def phase(position: Expr, t: Expr) -> Expr:
        return te.indexmod(position + padding, stride) + t * stride

    y = sums(
        (n, (h - 1) * stride - 2 * padding + kernel, (w - 1) * stride - 2 * padding + kernel, co),
        lambda n, h, w, c: te.sum(
            product(
                padded[n, source(h, rh), source(w, rw), rc],
                whole[phase(h, rh), phase(w, rw), rc, c],
                sum_dtype(out),
            ),
            axis=[rh, rw, rc],
        ),
        out,
        name="Conv",
        attrs={"layout_free_placeholders": [weight]},
    )
    return [x, weight, y]


def channels_first_array(arrays: Sequence[Array], args: Arguments) -> Array:
    """`conv2d_nchw` in numpy."""
    x, w = arrays
    return np.moveaxis(convolve_array([np.moveaxis(x, 1, -1), w.transpose(2, 3, 1, 0)], args), -1, 1)


@workload(
    channels_first_array,
    benchmark=[
        (1, 224, 224, 3, 64, 7, 2, 3),
        (1, 56, 56, 64, 64, 3, 1, 1),
        (1, 56, 56, 64, 64, 1, 1, 0),
        (1, 56, 56, 128, 128, 3, 2, 1),
        (1, 28, 28, 128, 128, 3, 1, 1),
        (1, 14, 14, 256, 256, 3, 1, 1),
        (1, 14, 14, 1024, 256, 1, 1, 0),
        (1, 7, 7, 512, 512, 3, 1, 1),
        (1, 7, 7, 512, 2048, 1, 1, 0),
    ],
    small=[(1, 9, 7, 5, 16, 3, 2, 1), (2, 6, 6, 4, 8, 3, 1, 0), (1, 7, 7, 3, 16, 1, 1, 0, 1)],
    dtypes=ARITHMETIC,
)
def conv2d_nchw(
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
    out_dtype: str = "",
) -> list[Tensor]:
    """Convolution of images `[n, ci, h, w]` by weights `[co, ci, kernel, kernel]`, as PyTorch keeps them."""
    out = output_dtype(dtype, out_dtype)
    x = te.placeholder((n, ci, h, w), dtype, "X")
    weight = te.placeholder((co, ci, kernel, kernel), dtype, "W")
    oh, ow = output_sizes((h, w), (kernel, kernel), stride, padding, dilation)
    padded = pad(x, (0, 0, padding, padding), (0, 0, padding, padding), zero(dtype))
    rc = te.reduce_axis((0, ci), "rc")
    rh, rw = te.reduce_axis((0, kernel), "rh"), te.reduce_axis((0, kernel), "rw")
    y = sums(
        (n, co, oh, ow),
        lambda n, c, h, w: te.sum(
            product(
                padded[n, rc, h * stride + rh * dilation, w * stride + rw * dilation],
                weight[c, rc, rh, rw],
                sum_dtype(out),
            ),
            axis=[rc, rh, rw],
        ),
        out,
        name="Conv",
        attrs={"layout_free_placeholders": [weight]},
    )
    return [x, weight, y]


def _capsule(arrays: Sequence[Array], args: Arguments) -> Array:
    x, w = arrays
    counts = output_sizes(x.shape[1:3], w.shape[:2], args["stride"], args["padding"], 1)
    p = args["padding"]
    padded = np.pad(x, [(0, 0), (p, p), (p, p), (0, 0), (0, 0), (0, 0)])
    size = x.shape[3]
    result = np.zeros((x.shape[0], *counts, size, size, w.shape[-1]), x.dtype)
    for offset in np.ndindex(*w.shape[:2]):
        # [n, y, x, i, k, ci] times [k, j, ci, co] over k and ci.
        result += np.tensordot(tap(padded, offset, counts, args["stride"]), w[offset], axes=([4, 5], [0, 2]))
    return result


@workload(
    _capsule,
    benchmark=[
        (1, 16, 16, 32, 32, 3, 2, 1),
        (1, 8, 8, 32, 32, 3, 1, 1),
        (1, 16, 16, 8, 16, 3, 2, 1),
        (1, 8, 8, 16, 16, 3, 1, 1),
    ],
    small=[(1, 5, 4, 3, 4, 3, 2, 1, 3), (1, 4, 4, 2, 3, 2, 1, 0, 2)],
    dtypes=ARITHMETIC,
)
def capsule_conv2d(
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    capsule: int = 4,
    dtype: str = "float32",
    out_dtype: str = "",
) -> list[Tensor]:
    """Convolution of images whose elements are `capsule` x `capsule` matrices, multiplied as matrices."""
    out = output_dtype(dtype, out_dtype)
    x = te.placeholder((n, h, w, capsule, capsule, ci), dtype, "X")
    weight = te.placeholder((kernel, kernel, capsule, capsule, ci, co), dtype, "W")
    oh, ow = output_sizes((h, w), (kernel, kernel), stride, padding, 1)
    widths = (0, padding, padding, 0, 0, 0)
    padded = pad(x, widths, widths, zero(dtype))
    rh, rw = te.reduce_axis((0, kernel), "rh"), te.reduce_axis((0, kernel), "rw")
    k, rc = te.reduce_axis((0, capsule), "k"), te.reduce_axis((0, ci), "rc")
    y = sums(
        (n, oh, ow, capsule, capsule, co),
        lambda n, h, w, i, j, c: te.sum(
            product(
                padded[n, h * stride + rh, w * stride + rw, i, k, rc],
                weight[rh, rw, k, j, rc, c],
                sum_dtype(out),
            ),
            axis=[rh, rw, k, rc],
        ),
        out,
        name="Conv",
        attrs={"layout_free_placeholders": [weight]},
    )
    return [x, weight, y]
