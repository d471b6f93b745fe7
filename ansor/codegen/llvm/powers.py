"""Powers: `pow` of any and of common exponents, and roots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ansor.codegen.llvm import logarithm, math64
from ansor.codegen.llvm.evaluation import rounded
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors


def power(v: Vectors, x: Value, y: Value) -> Value:
    """`pow` of either type: float32 by float64's logarithm and exponential, float64 by the C library."""
    special = _constant_power(v, x, y)
    if special is not None:
        return special
    if x.type == "double":
        return v.each_lane("pow", "double", x, y)
    wide = [v.convert("fpext", value, "double") for value in (x, y)]
    return v.convert("fptrunc", _power_of_singles(v, *wide), "float")


def _power_of_singles(v: Vectors, x: Value, y: Value) -> Value:
    """`pow` of float32 values given as doubles: exp(y * log|x|) has 20 bits to spare.

    The C library's rules for signs: a negative base with an odd exponent gives a negative result, with an
    exponent that is no integer NaN; `pow(x, 0)` and `pow(1, y)` are 1 whatever the other is.
    """
    one, zero = math64.constant(v, 1.0), math64.constant(v, 0.0)
    magnitude = v.intrinsic("fabs", x)
    unit = v.compare("oeq", magnitude, one)
    exponent = v.select(unit, zero, v.binary("fmul", y, logarithm.log(v, magnitude)))
    result = math64.exp(v, exponent)
    half = v.binary("fmul", y, math64.constant(v, 0.5))
    whole = v.compare("oeq", rounded(v, y), y)
    odd = v.binary("and", whole, v.compare("une", rounded(v, half), half))
    signed = v.select(odd, v.intrinsic("copysign", result, x), result)
    invalid = v.binary("and", v.compare("olt", x, zero), v.compare("une", rounded(v, y), y))
    finite = v.compare("one", v.intrinsic("fabs", x), math64.constant(v, float("inf")))
    result = v.select(v.binary("and", invalid, finite), math64.constant(v, float("nan")), signed)
    unknown = v.compare("uno", x, y)
    result = v.select(unknown, math64.constant(v, float("nan")), result)
    trivial = v.binary("or", v.compare("oeq", y, zero), v.compare("oeq", x, one))
    return v.select(trivial, one, result)


def _constant_power(v: Vectors, x: Value, y: Value) -> Value | None:
    """`pow` for the exponents in `POWERS`; None for others."""
    for exponent, of in POWERS.items():
        if y.text == v.number(exponent, y.type).text:
            return of(v, x)
    return None


def _square(v: Vectors, x: Value) -> Value:
    return v.binary("fmul", x, x)


def _root(v: Vectors, x: Value) -> Value:
    """The power of 0.5: unlike sqrt, pow gives +0 at -0 and infinity at minus infinity."""
    root = v.binary("fadd", sqrt(v, x), v.number(0.0, x.type))
    lowest = v.compare("oeq", x, v.number(float("-inf"), x.type))
    return v.select(lowest, v.number(float("inf"), x.type), root)


def sqrt(v: Vectors, x: Value) -> Value:
    return v.intrinsic("sqrt", x)


def rsqrt(v: Vectors, x: Value) -> Value:
    return _reciprocal(v, sqrt(v, x))


def _reciprocal(v: Vectors, x: Value) -> Value:
    return v.div(v.number(1.0, x.type), x)


POWERS: Final[dict[float, Callable[[Vectors, Value], Value]]] = {
    1.0: lambda v, x: x,
    2.0: _square,
    3.0: lambda v, x: v.binary("fmul", _square(v, x), x),
    4.0: lambda v, x: _square(v, _square(v, x)),
    -1.0: _reciprocal,
    0.5: _root,
    -0.5: lambda v, x: _reciprocal(v, _root(v, x)),
}
"""The exponents that programs are written with, whose powers are a few instructions."""
