"""Mathematical functions of float64 as inline polynomials; also what float32's `pow` is computed with.

`exp` is a Taylor polynomial on |r| <= ln(2)/2, `log` the series of the inverse hyperbolic tangent on
|s| <= 0.172, both with a remainder below 1e-17. `erf` and `pow` call the C library, lane by lane.
"""

from __future__ import annotations

from math import factorial
from typing import Final

from ansor.codegen.llvm.evaluation import clamp, polynomial, rounded
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors

_EXP: Final = tuple(1.0 / factorial(k) for k in range(2, 14))
_ATANH: Final = tuple(2.0 / (2 * k + 3) for k in range(10))
_LN2_HIGH: Final = 0.693147180369123816490  # the last 32 bits are zero: products with an exponent are exact
_LN2_LOW: Final = 1.90821492927058770002e-10
_LN2: Final = 0.6931471805599453
_OCTAVES_HIGH: Final = 1.4426950408889634  # 1 / ln 2, rounded to float64
_OCTAVES_LOW: Final = 2.0355273740931033e-17  # what is rounded off
MAGIC: Final = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer, kept in the low bits
_MAGIC_BITS: Final = 0x4338000000000000


def constant(v: Vectors, x: float) -> Value:
    return v.number(x, "double")


def integer(v: Vectors, x: int) -> Value:
    return v.number(x, "i64")


def exp_parts(v: Vectors, x: Value) -> tuple[Value, Value]:
    """`exp(x)` as `(p, n)` with `exp(x) = (1 + p) * 2**n`, for |x| < 1000."""
    shifted = v.fma(x, constant(v, _OCTAVES_HIGH), constant(v, MAGIC))
    n = v.binary("fsub", shifted, constant(v, MAGIC))
    r = v.fma(n, constant(v, -_LN2_HIGH), x)
    r = v.fma(n, constant(v, -_LN2_LOW), r)
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


def log(v: Vectors, x: Value) -> Value:
    n, f = _log_parts(v, x)
    return _log_limits(v, x, _log_of_parts(v, n, f))


def log2(v: Vectors, x: Value) -> Value:
    """The sum n + log(1 + f) / ln 2; powers of two are exact."""
    n, f = _log_parts(v, x)
    half_square, rest = _log_rest(v, f)
    tail = v.binary("fmul", v.binary("fsub", rest, half_square), constant(v, _OCTAVES_HIGH))
    tail = v.fma(f, constant(v, _OCTAVES_LOW), tail)
    octaves = v.binary("fadd", n, v.fma(f, constant(v, _OCTAVES_HIGH), tail))
    return _log_limits(v, x, octaves)


def log1p(v: Vectors, x: Value) -> Value:
    """log(u) with u = 1 + x, what was rounded off u being added to f: without 2**e that is x."""
    one = constant(v, 1.0)
    u = v.binary("fadd", x, one)
    lost = v.binary("fsub", x, v.binary("fsub", u, one))
    e, f = _exponent_and_fraction(v, u)
    scale = power_of_two(v, v.binary("sub", integer(v, 0), v.intrinsic("smin", e, integer(v, 1022))))
    f = v.fma(lost, scale, f)
    result = _log_of_parts(v, v.convert("sitofp", e, "double"), f)
    return v.intrinsic("copysign", _log_limits(v, u, result), x)


def _log_parts(v: Vectors, x: Value) -> tuple[Value, Value]:
    """The numbers of x = 2**n * (1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1], also of denormals."""
    is_small = v.compare("olt", x, constant(v, 2.0**-1022))
    scaled = v.select(is_small, v.binary("fmul", x, constant(v, 2.0**52)), x)
    e, f = _exponent_and_fraction(v, scaled)
    e = v.select(is_small, v.binary("sub", e, integer(v, 52)), e)
    return v.convert("sitofp", e, "double"), f


def _exponent_and_fraction(v: Vectors, x: Value) -> tuple[Value, Value]:
    """The same of normal numbers, n as an integer."""
    bits = v.convert("bitcast", x, "i64")
    offset = v.binary("sub", bits, integer(v, 0x3FE6A09E667F3BCD))  # sqrt(1/2): exponents change there
    e = v.binary("ashr", offset, integer(v, 52))
    mantissa = v.binary("sub", bits, v.binary("shl", e, integer(v, 52)))
    return e, v.binary("fsub", v.convert("bitcast", mantissa, "double"), constant(v, 1.0))


def _log_rest(v: Vectors, f: Value) -> tuple[Value, Value]:
    """`log(1 + f) = f - (f*f/2 - s * (f*f/2 + R))`, s = f / (2 + f), as f*f/2 and the last product."""
    s = v.binary("fdiv", f, v.binary("fadd", f, constant(v, 2.0)))
    z = v.binary("fmul", s, s)
    series = v.binary("fmul", z, polynomial(v, z, _ATANH))
    half_square = v.binary("fmul", v.binary("fmul", f, f), constant(v, 0.5))
    return half_square, v.binary("fmul", s, v.binary("fadd", half_square, series))


def _log_of_parts(v: Vectors, n: Value, f: Value) -> Value:
    half_square, rest = _log_rest(v, f)
    tail = v.binary("fsub", half_square, v.fma(n, constant(v, _LN2_LOW), rest))
    return v.fma(n, constant(v, _LN2_HIGH), v.binary("fsub", f, tail))


def _log_limits(v: Vectors, x: Value, result: Value) -> Value:
    """The logarithm of x, infinities and NaN among them."""
    infinity, zero = constant(v, float("inf")), constant(v, 0.0)
    result = v.select(v.compare("oeq", x, infinity), infinity, result)
    result = v.select(v.compare("oeq", x, zero), constant(v, float("-inf")), result)
    return v.select(v.compare("ult", x, zero), constant(v, float("nan")), result)


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


def power(v: Vectors, x: Value, y: Value) -> Value:
    return v.each_lane("pow", "double", x, y)


def power_of_singles(v: Vectors, x: Value, y: Value) -> Value:
    """`pow` of float32 values given as doubles: exp(y * log|x|) has 20 bits to spare.

    The C library's rules for signs: a negative base with an odd exponent gives a negative result, with an
    exponent that is no integer NaN; `pow(x, 0)` and `pow(1, y)` are 1 whatever the other is.
    """
    one, zero = constant(v, 1.0), constant(v, 0.0)
    magnitude = v.intrinsic("fabs", x)
    unit = v.compare("oeq", magnitude, one)
    exponent = v.select(unit, zero, v.binary("fmul", y, log(v, magnitude)))
    result = exp(v, exponent)
    half = v.binary("fmul", y, constant(v, 0.5))
    whole = v.compare("oeq", rounded(v, y), y)
    odd = v.binary("and", whole, v.compare("une", rounded(v, half), half))
    signed = v.select(odd, v.intrinsic("copysign", result, x), result)
    invalid = v.binary("and", v.compare("olt", x, zero), v.compare("une", rounded(v, y), y))
    finite = v.compare("one", v.intrinsic("fabs", x), constant(v, float("inf")))
    result = v.select(v.binary("and", invalid, finite), constant(v, float("nan")), signed)
    unknown = v.compare("uno", x, y)
    result = v.select(unknown, constant(v, float("nan")), result)
    trivial = v.binary("or", v.compare("oeq", y, zero), v.compare("oeq", x, one))
    return v.select(trivial, one, result)
