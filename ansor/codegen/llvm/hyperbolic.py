"""`sinh` and `cosh`, half of the difference and of the sum of exp(|x|) = 2**n * (1 + p) and its inverse.

Half of exp(|x|), twice 2**(n - 2) * (1 + p), overflows only where they do. `sinh` keeps the places of p near
0: with q = (exp(|x|) - 1) / 4 it is 2*q + q / (2*q + 1/2).
"""

from __future__ import annotations

from ansor.codegen.llvm import exponential, math64
from ansor.codegen.llvm.evaluation import clamp
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors


def sinh(v: Vectors, x: Value) -> Value:
    p, scale = _parts(v, x)
    quarter = v.fma(scale, p, v.binary("fsub", scale, v.number(0.25, x.type)))
    half = v.binary("fadd", quarter, quarter)
    rest = v.binary("fdiv", quarter, v.binary("fadd", half, v.number(0.5, x.type)))
    result = v.intrinsic("copysign", v.binary("fadd", half, rest), x)
    least = v.number(2.0**-12 if x.type == "float" else 2.0**-26, x.type)
    return v.select(v.compare("olt", v.intrinsic("fabs", x), least), x, result)


def cosh(v: Vectors, x: Value) -> Value:
    p, scale = _parts(v, x)
    quarter = v.fma(scale, p, scale)
    half = v.binary("fadd", quarter, quarter)
    return v.binary("fadd", half, v.binary("fdiv", v.number(0.25, x.type), half))


def _parts(v: Vectors, x: Value) -> tuple[Value, Value]:
    """The numbers p and 2**(n - 2), of an |x| that is no larger than it takes to make results infinite."""
    magnitude = v.intrinsic("fabs", x)
    if x.type == "float":
        p, bits = exponential.exp_rest(v, clamp(v, magnitude, None, 89.5), 125)
        return p, exponential.power_of_two(v, bits)
    p, n = math64.exp_parts(v, clamp(v, magnitude, None, 710.5))
    return p, math64.power_of_two(v, v.binary("sub", n, v.number(2, "i64")))
