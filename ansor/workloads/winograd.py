"""3 x 3 convolution by Winograd's algorithm, F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3): fewer multiplications.

A tile of `m x m` outputs comes from `a x a` inputs, `a = m + 2`, by `a x a` products instead of `9 m x m`:

    Y = A' [(G g G') * (B' d B)] A

with the tile's inputs d, the kernel g, and products summed over channels: for each of the `a x a` places a
matrix product. Against the direct form that is 2.25 times less arithmetic for m = 2, and 4 times for m = 4.

**Error.** The sums are of larger numbers that cancel. Let A, B, G have the columns and rows below; for random
data the rounding error of one dimension grows over that of the direct form by the factor

    kappa = sqrt(max_j sum_t A[t, j]^2 |G[t]|^2 |B[:, t]|^2 / 3),

of two dimensions by its square (`amplification`): 1.7 for m = 2, and 31 for m = 4.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016, section 4, for the
matrices; the factor follows from independent rounding errors of the products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from ansor import te
from ansor.checks import check_integer
from ansor.errors import DefinitionError
from ansor.schedule.access import AMPLIFICATION_ATTR, UNROLLED_TILES_ATTR
from ansor.task.registry import register_workload
from ansor.te import Expr, Tensor
from ansor.workloads.catalogue import workload
from ansor.workloads.convolution import bn_relu, convolve_array, convolve_bn_relu_array, output_sizes
from ansor.workloads.convolution_forms import channels_first_array
from ansor.workloads.parts import pad, zero

Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class _Algorithm:
    """The matrices of F(m, 3), rows by place in the transformed tile (of `b`: by input)."""

    a: Matrix
    b: Matrix
    g: Matrix


_ALGORITHMS: Final = {
    2: _Algorithm(
        a=((1, 0), (1, 1), (1, -1), (0, -1)),
        b=((1, 0, 0, 0), (0, 1, -1, 1), (-1, 1, 1, 0), (0, 0, 0, -1)),
        g=((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    ),
    4: _Algorithm(
        a=((1, 0, 0, 0), (1, 1, 1, 1), (1, -1, 1, -1), (1, 2, 4, 8), (1, -2, 4, -8), (0, 0, 0, 1)),
        b=(
            (4, 0, 0, 0, 0, 0),
            (0, -4, 4, -2, 2, 4),
            (-5, -4, -4, -1, -1, 0),
            (0, 1, -1, 2, -2, -5),
            (1, 1, 1, 1, 1, 0),
            (0, 0, 0, 0, 0, 1),
        ),
        g=(
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
    ),
}
"""By the length of an output tile."""
TILES: Final = tuple(_ALGORITHMS)

_BENCHMARK: Final = (
    (1, 56, 56, 64, 64),
    (1, 28, 28, 128, 128),
    (1, 14, 14, 256, 256, 2),
    (1, 7, 7, 512, 512, 2),
)
_SMALL: Final = ((1, 9, 7, 5, 6, 4, 1), (2, 8, 6, 4, 8, 2, 0), (1, 5, 6, 3, 4, 2, 1))
_DTYPES: Final = ("float32", "float64")


def amplification(tile: int) -> float:
    """How much larger than in the direct form rounding errors are (see the module)."""
    matrices = _algorithm(tile)
    inputs = [sum(row[t] ** 2 for row in matrices.b) for t in range(len(matrices.a))]
    kernels = [sum(value**2 for value in row) for row in matrices.g]
    columns = range(len(matrices.a[0]))
    worst = max(
        sum(a[j] ** 2 * k * d for a, k, d in zip(matrices.a, kernels, inputs, strict=True)) for j in columns
    )
    return worst / 3


def _algorithm(tile: int) -> _Algorithm:
    if check_integer("tile", tile) not in _ALGORITHMS:
        raise DefinitionError(f"there is no Winograd algorithm for tiles of {tile!r}; there are 2 and 4")
    return _ALGORITHMS[tile]


def _transpose(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _combined(matrix: Matrix, column: Expr, value: Callable[[int], Expr]) -> Expr:
    """The sum of `matrix[row][column] * value(row)`, written out for each column, of the same values."""
    known = cache(value)
    sums = [_sum([row[at] for row in matrix], known) for at in range(len(matrix[0]))]
    result = sums[-1]
    for at in reversed(range(len(sums) - 1)):
        result = te.select(te.indexmod(column, len(sums)) == at, sums[at], result)
    return result


def _sum(factors: Sequence[float], value: Callable[[int], Expr]) -> Expr:
    """The sum of factors times values; those that are 0 are left out."""
    total: Expr | None = None
    for row, factor in enumerate(factors):
        if factor == 0:
            continue
        term = value(row) if abs(factor) == 1 else value(row) * abs(factor)
        if total is None:
            total = term if factor > 0 else -term
        else:
            total = total + term if factor > 0 else total - term
    assert total is not None
    return total


def _transformed_weight(weight: Tensor, tile: int, channels_first: bool = False) -> Tensor:
    """`G g G'` for each pair of channels, `[a, a, ci, co]`; of `[3, 3, ci, co]` or `[co, ci, 3, 3]`."""
    g, a = _transpose(_algorithm(tile).g), tile + 2
    co, ci = weight.shape[:2] if channels_first else weight.shape[:1:-1]

    def tap(rh: int, rw: Expr, rc: Expr, c: Expr) -> Expr:
        return weight(c, rc, rh, rw) if channels_first else weight(rh, rw, rc, c)

    half = te.compute(
        (a, 3, ci, co),
        lambda e, rw, rc, c: _combined(g, e, lambda rh: tap(rh, rw, rc, c)),
        name="KernelHalf",
        attrs={UNROLLED_TILES_ATTR: {"e": a, "rw": 3}},
    )
    return te.compute(
        (a, a, ci, co),
        lambda e, v, rc, c: _combined(g, v, lambda rw: half[e, rw, rc, c]),
        name="Kernel",
        attrs={UNROLLED_TILES_ATTR: {"e": a, "v": a}},
    )


def _convolved(x: Tensor, kernel: Tensor, tile: int, padding: int, constant: bool) -> Tensor:
    """The convolution of `x` by a transformed kernel; `constant`: its layout is free."""
    matrices, m, a = _algorithm(tile), tile, tile + 2
    n, h, w, ci = (int(extent) for extent in x.shape)  # type: ignore[arg-type]
    co = kernel.shape[-1]
    oh, ow = output_sizes((h, w), (3, 3), 1, padding, 1)
    down, across = -(-oh // m), -(-ow // m)
    tiles = n * down * across

    low, high = (0, padding, padding, 0), (0, down * m + 2 - h - padding, across * m + 2 - w - padding, 0)
    padded = pad(x, low, high, zero(x.dtype), attrs={UNROLLED_TILES_ATTR: {}})

    def source(p: Expr, e: int, v: Expr, c: Expr) -> Expr:
        image, row, column = te.indexdiv(p, down * across), te.indexdiv(p, across), te.indexmod(p, across)
        return padded(image, te.indexmod(row, down) * m + e, column * m + v, c)

    half = te.compute(
        (a, a, tiles, ci),
        lambda e, v, p, c: _combined(matrices.b, e, lambda row: source(p, row, v, c)),
        name="TileHalf",
        attrs={UNROLLED_TILES_ATTR: {"e": a, "v": a}},
    )
    transformed = te.compute(
        (a, a, tiles, ci),
        lambda e, v, p, c: _combined(matrices.b, v, lambda row: half[e, row, p, c]),
        name="Tile",
        attrs={UNROLLED_TILES_ATTR: {"e": a, "v": a}},
    )
    rc = te.reduce_axis((0, ci), "rc")
    products = te.compute(
        (a, a, tiles, co),
        lambda e, v, p, c: te.sum(transformed[e, v, p, rc] * kernel[e, v, rc, c], axis=rc),
        name="Products",
        attrs={"layout_free_placeholders": [kernel]} if constant else {},
    )
    back = te.compute(
        (m, a, tiles, co),
        lambda y, v, p, c: _combined(matrices.a, y, lambda row: products[row, v, p, c]),
        name="Back",
        attrs={UNROLLED_TILES_ATTR: {"y": m, "v": a}},
    )

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        p = (n * down + te.indexdiv(h, m)) * across + te.indexdiv(w, m)
        return _combined(matrices.a, w, lambda row: back[te.indexmod(h, m), row, p, c])

    attrs = {UNROLLED_TILES_ATTR: {"h": m, "w": m}, AMPLIFICATION_ATTR: amplification(m)}
    return te.compute((n, oh, ow, co), element, name="Conv", attrs=attrs)


@workload(
    convolve_array,
    benchmark=_BENCHMARK,
    small=_SMALL,
    dtypes=_DTYPES,
)
def conv2d_winograd(
    n: int, h: int, w: int, ci: int, co: int, tile: int = 4, padding: int = 1, dtype: str = "float32"
) -> list[Tensor]:
    """Convolution of images by 3 x 3 kernels, by Winograd's algorithm for output tiles of 2 x 2 or 4 x 4."""
    x = te.placeholder((n, h, w, ci), dtype, "X")
    weight = te.placeholder((3, 3, ci, co), dtype, "W")
    return [x, weight, _convolved(x, _transformed_weight(weight, tile), tile, padding, constant=False)]


def conv2d_winograd_prepared(
    n: int, h: int, w: int, ci: int, co: int, tile: int = 4, padding: int = 1, dtype: str = "float32"
) -> list[Tensor]:
    """`conv2d_winograd` with weights that the caller transforms once, by `ansor.transform_layout`."""
    x = te.placeholder((n, h, w, ci), dtype, "X")
    kernel = te.prepared(_transformed_weight(te.placeholder((3, 3, ci, co), dtype, "W"), tile))
    return [x, kernel, _convolved(x, kernel, tile, padding, constant=True)]


register_workload("ansor.conv2d_winograd_prepared", conv2d_winograd_prepared)


def _convolved_channels_first(x: Tensor, kernel: Tensor, tile: int, padding: int, constant: bool) -> Tensor:
    """`_convolved` of images `[n, ci, h, w]`, with copies that turn them."""
    n, ci, h, w = x.shape
    last = te.compute((n, h, w, ci), lambda n, h, w, c: x[n, c, h, w], name="ChannelsLast")
    y = _convolved(last, kernel, tile, padding, constant)
    n, oh, ow, co = y.shape
    first: Tensor = te.compute((n, co, oh, ow), lambda n, c, h, w: y[n, h, w, c], name="ChannelsFirst")
    return first


@workload(
    channels_first_array,
    benchmark=_BENCHMARK,
    small=_SMALL,
    dtypes=_DTYPES,
)
def conv2d_nchw_winograd(
    n: int, h: int, w: int, ci: int, co: int, tile: int = 4, padding: int = 1, dtype: str = "float32"
) -> list[Tensor]:
    """`conv2d_winograd` of images `[n, ci, h, w]` by weights `[co, ci, 3, 3]`, turned before and after."""
    x, weight = te.placeholder((n, ci, h, w), dtype, "X"), te.placeholder((co, ci, 3, 3), dtype, "W")
    kernel = _transformed_weight(weight, tile, channels_first=True)
    return [x, weight, _convolved_channels_first(x, kernel, tile, padding, constant=False)]


def conv2d_nchw_winograd_prepared(
    n: int, h: int, w: int, ci: int, co: int, tile: int = 4, padding: int = 1, dtype: str = "float32"
) -> list[Tensor]:
    """`conv2d_nchw_winograd` with weights that the caller transforms once, by `ansor.transform_layout`."""
    x, weight = te.placeholder((n, ci, h, w), dtype, "X"), te.placeholder((co, ci, 3, 3), dtype, "W")
    kernel = te.prepared(_transformed_weight(weight, tile, channels_first=True))
    return [x, kernel, _convolved_channels_first(x, kernel, tile, padding, constant=True)]


register_workload("ansor.conv2d_nchw_winograd_prepared", conv2d_nchw_winograd_prepared)


@workload(
    convolve_bn_relu_array,
    benchmark=_BENCHMARK,
    small=_SMALL,
    dtypes=_DTYPES,
)
def conv2d_bn_relu_winograd(
    n: int, h: int, w: int, ci: int, co: int, tile: int = 4, padding: int = 1, dtype: str = "float32"
) -> list[Tensor]:
    """`conv2d_winograd`, then batch normalisation (a factor and a summand per channel), then ReLU."""
    x, weight, conv = conv2d_winograd(n, h, w, ci, co, tile, padding, dtype)
    return [x, weight, *bn_relu(conv)]


def conv2d_bn_relu_winograd_prepared(
    n: int, h: int, w: int, ci: int, co: int, tile: int = 4, padding: int = 1, dtype: str = "float32"
) -> list[Tensor]:
    """`conv2d_bn_relu_winograd` with weights that the caller transforms once, by `ansor.transform_layout`."""
    x, kernel, conv = conv2d_winograd_prepared(n, h, w, ci, co, tile, padding, dtype)
    return [x, kernel, *bn_relu(conv)]


register_workload("ansor.conv2d_bn_relu_winograd_prepared", conv2d_bn_relu_winograd_prepared)
