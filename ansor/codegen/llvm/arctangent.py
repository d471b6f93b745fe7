"""`atan`: of |x| up to 1 an odd polynomial of x, beyond that of -1/|x|, to which pi/2 is added.

The polynomials interpolate at Chebyshev points of x**2; they are within 2**-26 and 2**-54 of the result.
"""

from __future__ import annotations

from typing import Final

from ansor.codegen.llvm.evaluation import polynomial
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors

_SINGLE: Final = (
    -0.3333333432674408,
    0.19999949634075165,
    -0.14284004271030426,
    0.11088261753320694,
    -0.08931826800107956,
    0.07031914591789246,
    -0.04896051436662674,
    0.026305001229047775,
    -0.00914462935179472,
    0.001488691894337535,
)
_DOUBLE: Final = (
    -0.3333333333333333,
    0.19999999999999554,
    -0.14285714285648404,
    0.11111111107234799,
    -0.09090908969557403,
    0.07692305354678655,
    -0.06666636435777692,
    0.05882074956371294,
    -0.05261265735709454,
    0.04752086773576656,
    -0.04308119655330471,
    0.03872640214042632,
    -0.033750132001619734,
    0.027567942297344678,
    -0.020238706986393514,
    0.012756172907694298,
    -0.006575683344151699,
    0.002622977891906089,
    -0.0007518472526973822,
    0.0001368724853148122,
    -1.1832505417555692e-05,
)
_HALF_PI: Final = {
    "float": (1.5707963705062866, -4.371139000186241e-08),
    "double": (1.5707963267948966, 6.123233995736766e-17),
}
"""pi/2 as a number and what is rounded off it."""


def atan(v: Vectors, x: Value) -> Value:
    magnitude = v.intrinsic("fabs", x)
    one, zero = v.number(1.0, x.type), v.number(0.0, x.type)
    is_large = v.compare("ogt", magnitude, one)
    high, low = (v.select(is_large, v.number(part, x.type), zero) for part in _HALF_PI[x.type])
    top = v.select(is_large, v.number(-1.0, x.type), magnitude)
    r = v.binary("fdiv", top, v.select(is_large, magnitude, one))
    z = v.binary("fmul", r, r)
    tail = v.fma(v.binary("fmul", r, z), polynomial(v, z, _SINGLE if x.type == "float" else _DOUBLE), low)
    return v.intrinsic("copysign", v.binary("fadd", high, v.binary("fadd", r, tail)), x)
