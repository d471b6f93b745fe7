"""Matrix products: the paper's GMM, and its common company.

`weight_dtype` is the dtype of the second operand where it differs from the first one's, as in products of
unsigned activations and signed weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ansor import te
from ansor.te import Tensor
from ansor.workloads.catalogue import ARITHMETIC, Arguments, Array, workload
from ansor.workloads.parts import output_dtype, product, sum_dtype, sums


def _matmul(arrays: Sequence[Array], args: Arguments) -> Array:
    a, b = arrays
    result: Array = np.matmul(a, b)
    return result


def _matmul_add(arrays: Sequence[Array], args: Arguments) -> Array:
    a, b, c = arrays
    result: Array = np.matmul(a, b) + c
    return result


def _dense(arrays: Sequence[Array], args: Arguments) -> Array:
    x, w = arrays
    result: Array = np.matmul(x, w.T)
    return result


@workload(
    _matmul,
    benchmark=[(128, 128, 128), (512, 512, 32), (512, 512, 512), (1024, 1024, 1024)],
    small=[(7, 9, 11), (16, 16, 32), (1, 5, 3)],
    dtypes=ARITHMETIC,
)
def matmul(
    n: int, m: int, k: int, dtype: str = "float32", out_dtype: str = "", weight_dtype: str = ""
) -> list[Tensor]:
    """Matrix product: C[n, m] = A[n, k] B[k, m]."""
    out = output_dtype(dtype, out_dtype)
    a, b = te.placeholder((n, k), dtype, "A"), te.placeholder((k, m), weight_dtype or dtype, "B")
    r = te.reduce_axis((0, k), "k")
    c = sums(
        (n, m),
        lambda i, j: te.sum(product(a[i, r], b[r, j], sum_dtype(out)), axis=r),
        out,
        name="C",
        attrs={"layout_free_placeholders": [b]},
    )
    return [a, b, c]


@workload(
    _matmul_add,
    benchmark=[(1024, 1024, 1024), (512, 512, 512), (128, 128, 128)],
    small=[(7, 11, 9), (16, 32, 16)],
    dtypes=ARITHMETIC,
)
def matmul_add(n: int, l: int, m: int, dtype: str = "float32", out_dtype: str = "") -> list[Tensor]:  # noqa: E741
    """Matrix product plus a matrix: out[n, m] = A[n, l] B[l, m] + C[n, m]."""
    result = output_dtype(dtype, out_dtype)
    acc = sum_dtype(result)
    a, b = te.placeholder((n, l), dtype, "A"), te.placeholder((l, m), dtype, "B")
    c = te.placeholder((n, m), result, "C")
    k = te.reduce_axis((0, l), "k")
    ab = te.compute(
        (n, m),
        lambda i, j: te.sum(product(a[i, k], b[k, j], acc), axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [b]},
    )
    out = te.compute((n, m), lambda i, j: te.cast(ab[i, j] + te.cast(c[i, j], acc), result), name="out")
    return [a, b, c, out]


@workload(
    _matmul,
    benchmark=[(12, 128, 128, 64), (16, 128, 128, 64), (4, 512, 512, 512)],
    small=[(3, 5, 7, 6), (2, 8, 16, 8)],
    dtypes=ARITHMETIC,
)
def batch_matmul(
    batch: int, n: int, m: int, k: int, dtype: str = "float32", out_dtype: str = ""
) -> list[Tensor]:
    """Matrix product of each element of a batch: C[b, n, m] = A[b, n, k] B[b, k, m]."""
    out = output_dtype(dtype, out_dtype)
    a, b = te.placeholder((batch, n, k), dtype, "A"), te.placeholder((batch, k, m), dtype, "B")
    r = te.reduce_axis((0, k), "k")
    c = sums(
        (batch, n, m),
        lambda b_, i, j: te.sum(product(a[b_, i, r], b[b_, r, j], sum_dtype(out)), axis=r),
        out,
        name="C",
        attrs={"layout_free_placeholders": [b]},
    )
    return [a, b, c]


@workload(
    _dense,
    benchmark=[(1, 2048, 1000), (16, 512, 1000), (128, 768, 3072)],
    small=[(3, 17, 10), (1, 32, 8)],
    dtypes=ARITHMETIC,
)
def dense(
    batch: int,
    in_features: int,
    out_features: int,
    dtype: str = "float32",
    out_dtype: str = "",
    weight_dtype: str = "",
) -> list[Tensor]:
    """Fully connected layer: Y[b, o] = sum over i of X[b, i] W[o, i]."""
    out = output_dtype(dtype, out_dtype)
    x = te.placeholder((batch, in_features), dtype, "X")
    w = te.placeholder((out_features, in_features), weight_dtype or dtype, "W")
    k = te.reduce_axis((0, in_features), "k")
    y = sums(
        (batch, out_features),
        lambda b, o: te.sum(product(x[b, k], w[o, k], sum_dtype(out)), axis=k),
        out,
        name="Y",
        attrs={"layout_free_placeholders": [w]},
    )
    return [x, w, y]
