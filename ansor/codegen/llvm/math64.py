"""`exp` of float64 and its kin as inline polynomials.

`exp` is a Taylor polynomial on |r| <= ln(2)/2 with a remainder below 1e-17. `erf` calls the C
library, lane by lane.
"""

from __future__ import annotations

from math import factorial
from typing import Final

from ansor.codegen.llvm.evaluation import clamp, polynomial
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors

_EXP: Final = tuple(1.0 / factorial(k) for k in range(2, 14))
LN2_HIGH: Final = 0.693147180369123816490  # the last 32 bits are zero: products with an exponent are exact
LN2_LOW: Final = 1.90821492927058770002e-10
_LN2: Final = 0.6931471805599453
OCTAVES: Final = 1.4426950408889634  # 1 / ln 2, rounded to float64
MAGIC: Final = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer, kept in the low bits
_MAGIC_BITS: Final = 0x4338000000000000


def constant(v: Vectors, x: float) -> Value:
    return v.number(x, "double")


def integer(v: Vectors, x: int) -> Value:
    return v.number(x, "i64")


def exp_parts(v: Vectors, x: Value) -> tuple[Value, Value]:
    """`exp(x)` as `(p, n)` with `exp(x) = (1 + p) * 2**n`, for |x| < 1000."""
    shifted = v.fma(x, constant(v, OCTAVES), constant(v, MAGIC))
    n = v.binary("fsub", shifted, constant(v, MAGIC))
    r = v.fma(n, constant(v, -LN2_HIGH), x)
    r = v.fma(n, constant(v, -LN2_LOW), r)
    return _exp_rest(v, r), _integer_of(v, shifted)


def _exp_rest(v: Vectors, r: Value) -> Value:
    """`exp(r) - 1` for |r| <= ln(2)/2."""
    return v.fma(v.binary("fmul", r, r), polynomial(v, r, _EXP), r)


def _integer_of(v: Vectors, shifted: Value) -> Value:
    """The integer that `MAGIC` was added to."""
    return v.binary("sub", v.convert("bitcast", shifted, "i64"), integer(v, _MAGIC_BITS))


def power_of_two(v: Vectors, n: Value) -> Value:
    biased = v.binary("add", n, integer(v, 1023))
    return v.convert("bitcast", v.binary("shl", biased, integer(v, 52)), "double")


def exp(v: Vectors, x: Value) -> Value:
    return _scaled(v, *exp_parts(v, clamp(v, x, -746.0, 710.0)))


def exp2(v: Vectors, x: Value) -> Value:
    """With n the nearest integer, whose power is exact, and r = (x - n) * ln 2."""
    x = clamp(v, x, -1076.0, 1025.0)
    shifted = v.binary("fadd", x, constant(v, MAGIC))
    rest = v.binary("fsub", x, v.binary("fsub", shifted, constant(v, MAGIC)))
    return _scaled(v, _exp_rest(v, v.binary("fmul", rest, constant(v, _LN2))), _integer_of(v, shifted))


def expm1(v: Vectors, x: Value) -> Value:
    """(2**n - 1) + 2**n * p, which does not cancel; 2**1024 is 2**1023 twice."""
    p, n = exp_parts(v, clamp(v, x, -40.0, 710.0))
    last = integer(v, 1023)
    scale = power_of_two(v, v.intrinsic("smin", n, last))
    once = v.fma(scale, p, v.binary("fsub", scale, constant(v, 1.0)))
    result = v.select(v.compare("sgt", n, last), v.binary("fadd", once, once), once)
    return v.intrinsic("copysign", result, x)


def _scaled(v: Vectors, p: Value, n: Value) -> Value:
    """`(1 + p) * 2**n`: two factors of 2**(n/2) reach both infinity and the denormals."""
    if v.machine.has_scaling:
        return v.scale(v.binary("fadd", p, constant(v, 1.0)), v.convert("trunc", n, "i32"))
    half = v.binary("ashr", n, integer(v, 1))
    scaled = v.binary("fmul", v.binary("fadd", p, constant(v, 1.0)), power_of_two(v, half))
    return v.binary("fmul", scaled, power_of_two(v, v.binary("sub", n, half)))


def sigmoid(v: Vectors, x: Value) -> Value:
    """1 / (1 + e) or e / (1 + e), with e = exp(-|x|)."""
    one = constant(v, 1.0)
    small = exp(v, v.binary("fsub", constant(v, -0.0), v.intrinsic("fabs", x)))
    top = v.select(v.compare("olt", x, constant(v, 0.0)), small, one)
    return v.binary("fdiv", top, v.binary("fadd", one, small))


def tanh(v: Vectors, x: Value) -> Value:
    """T / (t + 2) with t = exp(2|x|) - 1, which does not cancel: t = (2**n - 1) + 2**n * p."""
    magnitude = clamp(v, v.intrinsic("fabs", x), 0.0, 22.0)
    p, n = exp_parts(v, v.binary("fadd", magnitude, magnitude))
    scale = power_of_two(v, n)
    t = v.fma(scale, p, v.binary("fsub", scale, constant(v, 1.0)))
    return v.intrinsic("copysign", v.binary("fdiv", t, v.binary("fadd", t, constant(v, 2.0))), x)


def erf(v: Vectors, x: Value) -> Value:
    return v.each_lane("erf", "double", x)
