"""Workloads that reduce rows: the paper's NRM, and its subgraph transpose + batch_matmul + softmax.

Rows are added up in float32 even where the data are narrower floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ansor import te
from ansor.te import Tensor
from ansor.workloads.catalogue import Arguments, Array, workload
from ansor.workloads.parts import wide_float

LAYER_NORM_EPSILON = 1e-5


def _norm(arrays: Sequence[Array], args: Arguments) -> Array:
    (x,) = arrays
    result: Array = np.sqrt(np.sum(np.square(x), axis=(1, 2)))
    return result


@workload(
    _norm,
    benchmark=[(1, 256, 256), (1, 512, 512), (1, 1024, 1024), (1, 4096, 1024)],
    small=[(3, 7, 9), (1, 16, 8)],
)
def norm(batch: int, m: int, n: int, dtype: str = "float32") -> list[Tensor]:
    """Euclidean norm of each matrix of a batch."""
    acc = wide_float(dtype)
    x = te.placeholder((batch, m, n), dtype, "X")
    i, j = te.reduce_axis((0, m), "i"), te.reduce_axis((0, n), "j")
    squares = te.compute(
        (batch,),
        lambda b: te.sum(te.cast(x[b, i, j], acc) * te.cast(x[b, i, j], acc), axis=[i, j]),
        name="S",
    )
    y = te.compute((batch,), lambda b: te.cast(te.sqrt(squares[b]), dtype), name="Norm")
    return [x, y]


def _softmax_rows(x: Array) -> Array:
    powers: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    rows: Array = powers / powers.sum(axis=-1, keepdims=True)
    return rows


def _softmax(arrays: Sequence[Array], args: Arguments) -> Array:
    return _softmax_rows(arrays[0])


@workload(
    _softmax,
    benchmark=[(1024, 1024), (16, 1000), (1536, 128)],
    small=[(5, 9), (8, 16)],
)
def softmax(m: int, n: int, dtype: str = "float32") -> list[Tensor]:
    """Softmax of each row."""
    acc = wide_float(dtype)
    x = te.placeholder((m, n), dtype, "X")
    k1, k2 = te.reduce_axis((0, n), "k1"), te.reduce_axis((0, n), "k2")
    largest = te.compute((m,), lambda i: te.max(x[i, k1], axis=k1), name="RowMax")
    powers = te.compute(
        (m, n), lambda i, j: te.exp(te.cast(x[i, j], acc) - te.cast(largest[i], acc)), name="Exp"
    )
    total = te.compute((m,), lambda i: te.sum(powers[i, k2], axis=k2), name="RowSum")
    y = te.compute((m, n), lambda i, j: te.cast(powers[i, j] / total[i], dtype), name="Softmax")
    return [x, y]


def _layer_norm(arrays: Sequence[Array], args: Arguments) -> Array:
    x, gamma, beta = arrays
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centered).mean(axis=-1, keepdims=True)
    result: Array = centered / np.sqrt(variance + LAYER_NORM_EPSILON) * gamma + beta
    return result


@workload(
    _layer_norm,
    benchmark=[(128, 768), (512, 1024)],
    small=[(5, 9), (4, 16)],
)
def layer_norm(m: int, n: int, dtype: str = "float32") -> list[Tensor]:
    """Each row less its mean, over its standard deviation, then a factor and a summand per column."""
    acc = wide_float(dtype)
    x = te.placeholder((m, n), dtype, "X")
    gamma, beta = te.placeholder((n,), dtype, "Gamma"), te.placeholder((n,), dtype, "Beta")
    k1, k2 = te.reduce_axis((0, n), "k1"), te.reduce_axis((0, n), "k2")
    share = te.const(1.0 / n, acc)
    total = te.compute((m,), lambda i: te.sum(te.cast(x[i, k1], acc), axis=k1), name="RowSum")
    centered = te.compute((m, n), lambda i, j: te.cast(x[i, j], acc) - total[i] * share, name="Centered")
    squares = te.compute((m,), lambda i: te.sum(centered[i, k2] * centered[i, k2], axis=k2), name="SquareSum")
    scale = te.compute((m,), lambda i: te.rsqrt(squares[i] * share + LAYER_NORM_EPSILON), name="Scale")
    # One broadcast operand per stage: cheap to inline, where a stage with several would look worth tiling.
    normal = te.compute((m, n), lambda i, j: centered[i, j] * scale[i], name="Normal")
    scaled = te.compute((m, n), lambda i, j: normal[i, j] * te.cast(gamma[j], acc), name="Mul")
    y = te.compute(
        (m, n), lambda i, j: te.cast(scaled[i, j] + te.cast(beta[j], acc), dtype), name="LayerNorm"
    )
    return [x, gamma, beta, y]


def _attention_scores(arrays: Sequence[Array], args: Arguments) -> Array:
    queries, keys = (np.moveaxis(array, 2, 1) for array in arrays)
    return _softmax_rows(np.matmul(queries, np.swapaxes(keys, -1, -2)))


@workload(
    _attention_scores,
    benchmark=[(1, 128, 12, 64), (1, 128, 16, 64), (1, 64, 12, 128), (1, 128, 12, 128)],
    small=[(1, 5, 2, 3), (2, 8, 2, 4)],
)
def attention_scores(
    batch: int, length: int, heads: int, features: int, dtype: str = "float32"
) -> list[Tensor]:
    """Transpose, batch_matmul and softmax: softmax(Q K^T) of each head.

    Q and K are `[batch, length, heads, features]`.
    """
    acc = wide_float(dtype)
    q = te.placeholder((batch, length, heads, features), dtype, "Q")
    k = te.placeholder((batch, length, heads, features), dtype, "K")
    rows = (batch, heads, length)
    qt = te.compute((*rows, features), lambda b, h, i, e: q[b, i, h, e], name="Qt")
    kt = te.compute((batch, heads, features, length), lambda b, h, e, j: k[b, j, h, e], name="Kt")
    r = te.reduce_axis((0, features), "r")
    scores = te.compute(
        (*rows, length),
        lambda b, h, i, j: te.sum(te.cast(qt[b, h, i, r], acc) * te.cast(kt[b, h, r, j], acc), axis=r),
        name="G",
    )
    k1, k2 = te.reduce_axis((0, length), "k1"), te.reduce_axis((0, length), "k2")
    largest = te.compute(rows, lambda b, h, i: te.max(scores[b, h, i, k1], axis=k1), name="RowMax")
    powers = te.compute(
        (*rows, length), lambda b, h, i, j: te.exp(scores[b, h, i, j] - largest[b, h, i]), name="Exp"
    )
    total = te.compute(rows, lambda b, h, i: te.sum(powers[b, h, i, k2], axis=k2), name="RowSum")
    y = te.compute(
        (*rows, length),
        lambda b, h, i, j: te.cast(powers[b, h, i, j] / total[b, h, i], dtype),
        name="Softmax",
    )
    return [q, k, y]
