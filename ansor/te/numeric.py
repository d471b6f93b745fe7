"""What each operator does to numpy arrays: the numeric semantics of expressions, executable.

The rules are stated in `ansor.te.intrinsics`; here they are carried out for the oracle, which prefers
exactness to speed: elementary functions of the narrower floats are computed in float64 and rounded once.

All functions expect operands of the node's dtype and give an array (or numpy scalar) of it. They run under
`quiet()`: infinities, NaN and wrapping are values here, not warnings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ansor.dtypes import dtype_info, is_float, to_numpy
from ansor.te.expr import BinaryOp, Number

Array = npt.NDArray[Any]


def quiet() -> np.errstate:
    """Return the context in which the functions of this module are to be called."""
    return np.errstate(all="ignore")


def constant(value: Number, dtype: str) -> Array:
    """`value` rounded to `dtype`, as an array of rank 0."""
    return _rounded(np.asarray(value), dtype)


def _rounded(a: Array, dtype: str) -> Array:
    """Converted to a dtype, to the nearest number of it; of 64 bits numpy's bfloat16 are rounded twice."""
    if dtype == "bfloat16" and a.dtype.kind in "iuf" and a.dtype.itemsize >= 4:
        a = _odd_float32(a if a.dtype.kind == "f" else _odd_float64(a))
    return a.astype(to_numpy(dtype))


def _odd_float64(a: Array) -> Array:
    """Integers as float64; beyond 2**53 what is between two multiples of 2**12 is the middle of them."""
    exact, step = 1 << 53, 1 << 12
    large = (a > exact) | (a < -exact) if a.dtype.kind == "i" else a > exact
    last = a % a.dtype.type(step) if a.dtype.itemsize == 8 else np.zeros_like(a)
    whole = np.where(large, a - last, a).astype(np.float64)
    return whole + np.where(large & (last != 0), step / 2, 0.0)


def _odd_float32(a: Array) -> Array:
    """Floats as float32, what is between two of them as the odd one: rounded again it is rounded once."""
    near = a.astype(np.float32)
    back, bits = near.astype(a.dtype), near.view(np.uint32)
    moved = np.where(np.abs(back) > np.abs(a), bits - np.uint32(1), bits + np.uint32(1)).astype(np.uint32)
    return np.where((back != a) & ~np.isnan(a) & (bits % 2 == 0), moved.view(np.float32), near)


# -- operators ---------------------------------------------------------------------------------------


def _trunc_div(a: Array, b: Array) -> Array:
    exact: Array = np.floor_divide(a - np.fmod(a, b), b)
    return exact


BINARY: Mapping[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.divide,
    BinaryOp.FLOORDIV: np.floor_divide,
    BinaryOp.FLOORMOD: np.remainder,
    BinaryOp.TRUNCDIV: _trunc_div,
    BinaryOp.TRUNCMOD: np.fmod,
    BinaryOp.BITAND: np.bitwise_and,
    BinaryOp.BITOR: np.bitwise_or,
    BinaryOp.XOR: np.bitwise_xor,
    BinaryOp.SHL: np.left_shift,
    BinaryOp.SHR: np.right_shift,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
}
"""Element-wise operators. Quotient and remainder by 0 are 0; minimum and maximum propagate NaN."""


def apply_cast(a: Array, source: str, dtype: str) -> Array:
    """`a`, of dtype `source`, converted to `dtype`."""
    if dtype == "bool":
        return np.not_equal(a, constant(0, source))
    if source == "bfloat16" and not is_float(dtype):
        a = a.astype(np.float32)
    return _rounded(a, dtype)


# -- intrinsics --------------------------------------------------------------------------------------


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # in (0, 1]: cannot overflow
    result: Array = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return result


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """`p + e == a * b` exactly, for float64 of moderate size (Dekker's algorithm)."""

    def halves(x: Array) -> tuple[Array, Array]:
        big = x * 134217729.0  # 2**27 + 1
        high = big - (big - x)
        return high, x - high

    product = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _fma(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of float64 with a single rounding, but for a last bit in rare cases."""
    product, product_error = _two_product(a, b)
    total = product + c
    back = total - product
    sum_error = (product - (total - back)) + (c - back)
    error = product_error + sum_error
    exact = np.where(error == 0, total, total + error)  # adding 0 would lose the sign of -0
    overflowed = np.isfinite(a) & np.isfinite(b) & np.isinf(c)  # where only the rounded product is infinite
    result: Array = np.where(np.isfinite(exact), exact, np.where(overflowed, c, a * b + c))
    return result


def _pow(x: Array, y: Array) -> Array:
    # Of a single exponent 0.5 numpy takes the square root, which differs at minus infinity and -0.
    power = np.power(x, y)
    result: Array = np.where(y == 0.5, np.where(x == -np.inf, np.inf, np.abs(power)), power)
    return result


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(np.float64)


_IN_FLOAT64: Mapping[str, Callable[..., Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "pow": _pow,
    "fma": _fma,
}


def apply_call(name: str, args: list[Array], dtype: str) -> Array:
    """Intrinsic `name` of `args`, all of `dtype`."""
    if dtype_info(dtype).kind != "float":
        return np.abs(args[0])  # the one intrinsic of integers; the least integer wraps to itself
    exact = _IN_FLOAT64[name](*(np.asarray(arg).astype(np.float64) for arg in args))
    return _rounded(np.asarray(exact), dtype)
