"""What functions of float32 and float64 are made of: polynomials, bounds, and rounding to integers."""

from __future__ import annotations

from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors


def single(v: Vectors, x: float) -> Value:
    """A literal of float32."""
    return v.number(x, "float")


def polynomial(v: Vectors, x: Value, coefficients: tuple[float, ...]) -> Value:
    """`sum(coefficients[k] * x**k)` by Horner's rule, in the dtype of x."""
    result = v.number(coefficients[-1], x.type)
    for coefficient in reversed(coefficients[:-1]):
        result = v.fma(result, x, v.number(coefficient, x.type))
    return result


def clamp(v: Vectors, x: Value, low: float | None, high: float | None) -> Value:
    """`x` between bounds; NaN stays."""
    if high is not None:
        bound = v.number(high, x.type)
        x = v.select(v.compare("ogt", x, bound), bound, x)
    if low is not None:
        bound = v.number(low, x.type)
        x = v.select(v.compare("olt", x, bound), bound, x)
    return x


def rounded(v: Vectors, x: Value) -> Value:
    """The nearest integer, halves to even, of a float or double; by additions where it is no instruction."""
    if v.machine.vector_bits > 128 or not v.machine.arch.startswith("x86"):
        return v.intrinsic("roundeven", x)
    big = v.number(2.0**52 if x.type == "double" else 2.0**23, x.type)
    magnitude = v.intrinsic("fabs", x)
    near = v.binary("fsub", v.binary("fadd", magnitude, big), big)
    kept = v.select(v.compare("olt", magnitude, big), near, magnitude)
    return v.intrinsic("copysign", kept, x)
