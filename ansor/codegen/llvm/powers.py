"""Powers: `pow` of any and of common exponents, and roots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ansor.codegen.llvm import math64
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors


def power(v: Vectors, x: Value, y: Value) -> Value:
    """`pow` of either type; float32 by a logarithm and an exponential of float64."""
    special = _constant_power(v, x, y)
    if special is not None:
        return special
    if x.type == "double":
        return math64.power(v, x, y)
    wide = [v.convert("fpext", value, "double") for value in (x, y)]
    return v.convert("fptrunc", math64.power_of_singles(v, *wide), "float")


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
