"""`log` and its kin, of float32 and float64: the exponent, and what `log(1 + f)` is for a mantissa 1 + f.

That is `f - f*f/2` and a rest: for float32 a polynomial, for float64 the series of the inverse hyperbolic
tangent on |s| <= 0.172, whose remainder is below 1e-17.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ansor.codegen.llvm import exponential, math64
from ansor.codegen.llvm.evaluation import polynomial
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
_ATANH: Final = tuple(2.0 / (2 * k + 3) for k in range(10))


@dataclass(frozen=True, slots=True)
class _Format:
    """What is known of a type of floats.

    integer
        The type of its bits.
    mantissa
        How many of them are below the exponent.
    last
        The exponent that is 1 below its greatest.
    root
        The bits of sqrt(1/2): exponents change there.
    ln2, octaves
        ln 2, whose high part times an exponent is exact, and 1 / ln 2: rounded, and what is rounded off.
    rest
        `log(1 + f) - f + f*f/2` by f and its square.
    """

    integer: str
    mantissa: int
    last: int
    root: int
    ln2: tuple[float, float]
    octaves: tuple[float, float]
    rest: Callable[[Vectors, Value, Value], Value]


def _rest_by_polynomial(v: Vectors, f: Value, square: Value) -> Value:
    return v.binary("fmul", v.binary("fmul", square, f), polynomial(v, f, _LOG))


def _rest_by_tangent(v: Vectors, f: Value, square: Value) -> Value:
    """`s * (f*f/2 + R)` with s = f / (2 + f)."""
    s = v.binary("fdiv", f, v.binary("fadd", f, v.number(2.0, f.type)))
    z = v.binary("fmul", s, s)
    series = v.binary("fmul", z, polynomial(v, z, _ATANH))
    return v.binary("fmul", s, v.fma(square, v.number(0.5, f.type), series))


_FORMATS: Final = {
    "float": _Format(
        integer="i32",
        mantissa=23,
        last=126,
        root=0x3F3504F3,
        ln2=(exponential.LN2_HIGH, exponential.LN2_LOW),
        octaves=(1.4426950216293335, 1.925963033500011e-08),
        rest=_rest_by_polynomial,
    ),
    "double": _Format(
        integer="i64",
        mantissa=52,
        last=1022,
        root=0x3FE6A09E667F3BCD,
        ln2=(math64.LN2_HIGH, math64.LN2_LOW),
        octaves=(math64.OCTAVES, 2.0355273740931033e-17),
        rest=_rest_by_tangent,
    ),
}


def log(v: Vectors, x: Value) -> Value:
    n, f = _parts(v, x)
    return _with_limits(v, x, _of_parts(v, n, f))


def log2(v: Vectors, x: Value) -> Value:
    """The sum n + log(1 + f) / ln 2; powers of two are exact."""
    high, low = (v.number(part, x.type) for part in _FORMATS[x.type].octaves)
    n, f = _parts(v, x)
    tail = v.fma(f, low, v.binary("fmul", _tail(v, f), high))
    return _with_limits(v, x, v.binary("fadd", n, v.fma(f, high, tail)))


def log1p(v: Vectors, x: Value) -> Value:
    """log(u) with u = 1 + x, what was rounded off u being added to f: without 2**e that is x."""
    form, one = _FORMATS[x.type], v.number(1.0, x.type)
    u = v.binary("fadd", x, one)
    lost = v.binary("fsub", x, v.binary("fsub", u, one))
    e, f = _exponent_and_fraction(v, u)
    least = v.intrinsic("smin", e, v.number(form.last, form.integer))
    exponent = v.binary("shl", least, v.number(form.mantissa, form.integer))
    bits = v.binary("sub", v.convert("bitcast", one, form.integer), exponent)
    f = v.fma(lost, v.convert("bitcast", bits, x.type), f)
    result = _of_parts(v, v.convert("sitofp", e, x.type), f)
    return v.intrinsic("copysign", _with_limits(v, u, result), x)


def _parts(v: Vectors, x: Value) -> tuple[Value, Value]:
    """The numbers of x = 2**n * (1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1], also of denormals."""
    form = _FORMATS[x.type]
    is_small = v.compare("olt", x, v.number(2.0**-form.last, x.type))
    scaled = v.select(is_small, v.binary("fmul", x, v.number(2.0**form.mantissa, x.type)), x)
    e, f = _exponent_and_fraction(v, scaled)
    e = v.select(is_small, v.binary("sub", e, v.number(form.mantissa, form.integer)), e)
    return v.convert("sitofp", e, x.type), f


def _exponent_and_fraction(v: Vectors, x: Value) -> tuple[Value, Value]:
    """The same of normal numbers, n as an integer."""
    form = _FORMATS[x.type]
    mantissa = v.number(form.mantissa, form.integer)
    bits = v.convert("bitcast", x, form.integer)
    e = v.binary("ashr", v.binary("sub", bits, v.number(form.root, form.integer)), mantissa)
    fraction = v.binary("sub", bits, v.binary("shl", e, mantissa))
    return e, v.binary("fsub", v.convert("bitcast", fraction, x.type), v.number(1.0, x.type))


def _tail(v: Vectors, f: Value, n: Value | None = None) -> Value:
    """`log(1 + f) - f`; with n and the low part of `n * ln 2`."""
    form = _FORMATS[f.type]
    square = v.binary("fmul", f, f)
    rest = form.rest(v, f, square)
    rest = rest if n is None else v.fma(n, v.number(form.ln2[1], f.type), rest)
    return v.fma(square, v.number(-0.5, f.type), rest)


def _of_parts(v: Vectors, n: Value, f: Value) -> Value:
    high = v.number(_FORMATS[f.type].ln2[0], f.type)
    return v.fma(n, high, v.binary("fadd", f, _tail(v, f, n)))


def _with_limits(v: Vectors, x: Value, result: Value) -> Value:
    """The logarithm of x, infinities and NaN among them."""
    infinity, zero = v.number(float("inf"), x.type), v.number(0.0, x.type)
    result = v.select(v.compare("oeq", x, infinity), infinity, result)
    result = v.select(v.compare("oeq", x, zero), v.number(float("-inf"), x.type), result)
    invalid = v.compare("ult", x, zero)  # unordered or less: negative and NaN
    return v.select(invalid, v.number(float("nan"), x.type), result)
