"""What `bench_cpu` and `bench_gpu` tune beyond the catalogue, in the catalogue's form.

These are elementwise chains, and a product of matrices whose operands may be rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

import ansor
from ansor import te, workloads
from ansor.intrinsics import ROUNDED_OPERANDS_ATTR
from ansor.workloads import Workload
from ansor.workloads.catalogue import Arguments, Array


@ansor.register_workload
def scale_shift_add_relu(m: int, n: int) -> list[te.Tensor]:
    """Each column times a factor plus a summand, plus another matrix, then ReLU: 3 reads, 1 write."""
    x, other = te.placeholder((m, n), name="X"), te.placeholder((m, n), name="Other")
    scale, shift = te.placeholder((n,), name="Scale"), te.placeholder((n,), name="Shift")
    scaled = te.compute((m, n), lambda i, j: x[i, j] * scale[j], name="Mul")
    shifted = te.compute((m, n), lambda i, j: scaled[i, j] + shift[j], name="Add")
    both = te.compute((m, n), lambda i, j: shifted[i, j] + other[i, j], name="Residual")
    y = te.compute((m, n), lambda i, j: te.maximum(both[i, j], 0.0), name="Relu")
    return [x, scale, shift, other, y]


@ansor.register_workload
def silu(m: int, n: int) -> list[te.Tensor]:
    """Each element times its logistic function: 1 read, 1 write, an exponential."""
    x = te.placeholder((m, n), name="X")
    sigmoid = te.compute((m, n), lambda i, j: te.sigmoid(x[i, j]), name="Sigmoid")
    y = te.compute((m, n), lambda i, j: x[i, j] * sigmoid[i, j], name="Silu")
    return [x, y]


@ansor.register_workload
def rounded_matmul(n: int, m: int, k: int) -> list[te.Tensor]:
    """Matrix product of float32 whose operands may be rounded to tfloat32: C[n, m] = A[n, k] B[k, m]."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(a[i, r] * b[r, j], axis=r),
        name="C",
        attrs={ROUNDED_OPERANDS_ATTR: "tfloat32"},
    )
    return [a, b, c]


def _scale_shift_add_relu(arrays: Sequence[Array], args: Arguments) -> Array:
    x, scale, shift, other = arrays
    result: Array = np.maximum(x * scale + shift + other, 0)
    return result


def _silu(arrays: Sequence[Array], args: Arguments) -> Array:
    (x,) = arrays
    result: Array = x / (1 + np.exp(-x))
    return result


def _rounded_matmul(arrays: Sequence[Array], args: Arguments) -> Array:
    a, b = arrays
    result: Array = np.matmul(a, b)
    return result


_SMALL: Final = ((5, 9), (8, 16))
OTHERS: Final[Mapping[str, Workload]] = {
    "scale_shift_add_relu": Workload(
        "scale_shift_add_relu", scale_shift_add_relu, _scale_shift_add_relu, _SMALL, _SMALL, ("float32",)
    ),
    "silu": Workload("silu", silu, _silu, _SMALL, _SMALL, ("float32",)),
    "rounded_matmul": Workload(
        "rounded_matmul", rounded_matmul, _rounded_matmul, ((16, 16, 32),), ((16, 16, 32),), ("float32",)
    ),
}


def workload(name: str) -> Workload:
    """One of this module, or an entry of the catalogue."""
    return OTHERS.get(name) or workloads.get_workload(name)


def task_arguments(name: str) -> dict[str, Any]:
    """What tells `ansor.SearchTask` the workload: the registered name, or the function of this module."""
    return {"func": OTHERS[name].function if name in OTHERS else workload(name).registered_name}
