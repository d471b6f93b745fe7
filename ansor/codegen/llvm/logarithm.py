"""`log` of float32 and its kin: the exponent, and a polynomial of the mantissa."""

from __future__ import annotations

from typing import Final

from ansor.codegen.llvm.evaluation import polynomial, single
from ansor.codegen.llvm.exponential import LN2_HIGH, LN2_LOW
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors

_LOG: Final = (
    0.3333331346511841,
    -0.25000008940696716,
    0.2000211924314499,
    -0.1666799634695053,
    0.14219552278518677,
    -0.1240558922290802,
    0.11888162046670914,
    -0.11675652116537094,
    0.06746640801429749,
)
_OCTAVES_HIGH: Final = 1.4426950216293335  # 1 / ln 2, rounded to float32
_OCTAVES_LOW: Final = 1.925963033500011e-08  # what is rounded off


def log(v: Vectors, x: Value) -> Value:
    n, f = _log_parts(v, x)
    return _log_limits(v, x, _log_of_parts(v, n, f))


def log2(v: Vectors, x: Value) -> Value:
    """log2: n + log(1 + f) / ln 2; powers of two are exact."""
    n, f = _log_parts(v, x)
    tail = v.binary("fmul", _log_tail(v, f), single(v, _OCTAVES_HIGH))
    tail = v.fma(f, single(v, _OCTAVES_LOW), tail)
    octaves = v.binary("fadd", n, v.fma(f, single(v, _OCTAVES_HIGH), tail))
    return _log_limits(v, x, octaves)


def log1p(v: Vectors, x: Value) -> Value:
    """log1p: log(u) with u = 1 + x, what was rounded off u being added to f: without 2**e that is x."""
    one = single(v, 1.0)
    u = v.binary("fadd", x, one)
    lost = v.binary("fsub", x, v.binary("fsub", u, one))
    e, f = _exponent_and_fraction(v, u)
    exponent = v.binary("shl", v.intrinsic("smin", e, v.number(126, "i32")), v.number(23, "i32"))
    scale = v.convert("bitcast", v.binary("sub", v.convert("bitcast", one, "i32"), exponent), "float")
    f = v.fma(lost, scale, f)
    result = _log_of_parts(v, v.convert("sitofp", e, "float"), f)
    return v.intrinsic("copysign", _log_limits(v, u, result), x)


def _log_parts(v: Vectors, x: Value) -> tuple[Value, Value]:
    """The numbers of x = 2**n * (1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1], also of denormals."""
    is_small = v.compare("olt", x, single(v, 2.0**-126))
    scaled = v.select(is_small, v.binary("fmul", x, single(v, 2.0**23)), x)
    e, f = _exponent_and_fraction(v, scaled)
    e = v.select(is_small, v.binary("sub", e, v.number(23, "i32")), e)
    return v.convert("sitofp", e, "float"), f


def _exponent_and_fraction(v: Vectors, x: Value) -> tuple[Value, Value]:
    """The same of normal numbers, n as an integer."""
    bits = v.convert("bitcast", x, "i32")
    offset = v.binary("sub", bits, v.number(0x3F3504F3, "i32"))  # sqrt(1/2): exponents change there
    e = v.binary("ashr", offset, v.number(23, "i32"))
    mantissa = v.binary("sub", bits, v.binary("shl", e, v.number(23, "i32")))
    return e, v.binary("fsub", v.convert("bitcast", mantissa, "float"), single(v, 1.0))


def _log_tail(v: Vectors, f: Value, n: Value | None = None) -> Value:
    """`log(1 + f) - f`; with n and the low part of `n * ln 2`."""
    square = v.binary("fmul", f, f)
    tail = v.binary("fmul", v.binary("fmul", square, f), polynomial(v, f, _LOG))
    tail = tail if n is None else v.fma(n, single(v, LN2_LOW), tail)
    return v.fma(square, single(v, -0.5), tail)


def _log_of_parts(v: Vectors, n: Value, f: Value) -> Value:
    return v.fma(n, single(v, LN2_HIGH), v.binary("fadd", f, _log_tail(v, f, n)))


def _log_limits(v: Vectors, x: Value, result: Value) -> Value:
    """The logarithm of x, infinities and NaN among them."""
    infinity = single(v, float("inf"))
    result = v.select(v.compare("oeq", x, infinity), infinity, result)
    zero = single(v, 0.0)
    result = v.select(v.compare("oeq", x, zero), single(v, float("-inf")), result)
    invalid = v.compare("ult", x, zero)  # unordered or less: negative and NaN
    return v.select(invalid, single(v, float("nan")), result)
