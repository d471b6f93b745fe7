"""`sin`, `cos` and `tan`: a multiple of pi/2 is taken off the argument, and a polynomial takes what is left.

With n = round(|x| * 2/pi) and r = |x| - n * pi/2, at most pi/4, the last bit of n says whether sine or
cosine of r is the result, and the one before whether its sign changes. `cos` has n + 1 in place of n.

pi/2 has more bits than a number: it is a sum of parts whose products with n are exact below 2**20, with fused
multiply-adds or without. float32 is reduced in float64, to r that is rounded once. Beyond 2**20 it is
multiplied by 2/pi in pieces, of whose products, all exact, multiples of 4 are left out (Payne and Hanek's,
SIGNUM Newsletter 18(1), 1983). float64 keeps what is rounded off r; beyond 2**20 the C library computes both.
A branch leaves that out where no lane is so large. Functions of the same angle share all but the choice.

float32 has minimax polynomials (by iteratively reweighted least squares on Chebyshev points, weighted to
relative error, which is below 2**-27), float64 Taylor's with a remainder below 2e-18.
"""

from __future__ import annotations

from math import factorial
from typing import Final

from ansor.codegen.llvm.evaluation import polynomial, rounded
from ansor.codegen.llvm.math64 import MAGIC
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors

_FAR: Final = 2.0**20
_TWO_OVER_PI: Final = 0x517CC1B727220A94FE13ABE8FA9A6EE06DB14ACC9E21C820FF2  # times 2**203
_PIECE: Final = 29  # bits, whose product with a float32 is a float64; seven reach down to 2**-75 of 2**128
_PIECES: Final = tuple(
    (_TWO_OVER_PI >> (203 - end) & ((1 << _PIECE) - 1)) / 2**end for end in range(_PIECE, 204, _PIECE)
)
_HALF_PI: Final = 1.5707963267948966
_HALF_PI_PARTS: Final = (
    1.5707963267341256,
    6.077100506303966e-11,
    2.0222662487111665e-21,
    8.4784276603689e-32,
)
"""Three of 33 bits each, and the rest."""
_HALF_PI_REST: Final = 6.077100506506192e-11
"""What follows the first of them."""
_SIN_SINGLE: Final = (-0.16666655242443085, 0.00833215843886137, -0.00019514957966748625)
_COS_SINGLE: Final = (0.04166664555668831, -0.0013887364184483886, 2.4438089894829318e-05)
_SIN_DOUBLE: Final = tuple((-1.0) ** k / factorial(2 * k + 1) for k in range(1, 9))
_COS_DOUBLE: Final = tuple((-1.0) ** k / factorial(2 * k) for k in range(2, 9))

Reduced = tuple[Value, Value]
"""r, and a number of 64 bits that ends with those of n."""


def sin(v: Vectors, x: Value) -> Value:
    return _chosen(v, x, 0)


def cos(v: Vectors, x: Value) -> Value:
    return _chosen(v, x, 1)


def tan(v: Vectors, x: Value) -> Value:
    """The quotient of both; of an odd n that of cosine and sine, with another sign."""
    n, sine, cosine = _parts(v, x)
    odd = _last_bit(v, n)
    quotient = v.binary("fdiv", v.select(odd, cosine, sine), v.select(odd, sine, cosine))
    sign = v.binary("shl", n, v.number(_width(x) - 1, n.type))
    return _flipped(v, quotient, v.binary("xor", sign, _sign(v, x)))


def _parts(v: Vectors, x: Value) -> tuple[Value, ...]:
    """n, and sine and cosine of r, found once for an angle, before loops in which it stays the same."""
    with v.fn.outside(x.depth):
        key = ("angle", x.text, x.lanes)
        known: tuple[Value, ...] | None = v.fn.known.get(key)
        if known is None:
            magnitude = v.intrinsic("fabs", x)
            limit = v.number(_FAR, x.type)
            near, far = (_near_single, _far_single) if x.type == "float" else (_near_double, _far_double)
            some = v.any_lane(v.compare("ogt", v.frozen(magnitude), limit))
            known = v.fn.known[key] = v.branches(
                some,
                lambda: far(v, magnitude, v.compare("ogt", magnitude, limit)),
                lambda: near(v, magnitude),
            )
    return known


def _nearest(v: Vectors, x: Value) -> Reduced:
    """The integer nearest to x * 2/pi, for x from 0 to `_FAR`, as a float64 and as the end of 64 bits."""
    magic = v.number(MAGIC, "double")
    shifted = v.fma(x, v.number(_TWO_OVER_PI / 2**203, "double"), magic)
    return v.binary("fsub", shifted, magic), v.convert("bitcast", shifted, "i64")


def _chosen(v: Vectors, x: Value, quarter: int) -> Value:
    """Sine or cosine of r, with its sign; `quarter` is added to n, and without it x has a sign, too."""
    n, sine, cosine = _parts(v, x)
    n = v.binary("add", n, v.number(quarter, n.type)) if quarter else n
    sign = v.binary("shl", v.binary("and", n, v.number(2, n.type)), v.number(_width(x) - 2, n.type))
    if not quarter:
        sign = v.binary("xor", sign, _sign(v, x))
    return _flipped(v, v.select(_last_bit(v, n), cosine, sine), sign)


def _last_bit(v: Vectors, n: Value) -> Value:
    return v.compare("ne", v.binary("and", n, v.number(1, n.type)), v.number(0, n.type))


def _width(x: Value) -> int:
    return 32 if x.type == "float" else 64


def _sign(v: Vectors, x: Value) -> Value:
    """The sign bit alone, in an integer."""
    type_ = f"i{_width(x)}"
    return v.binary("and", v.convert("bitcast", x, type_), v.number(-(1 << _width(x) - 1), type_))


def _flipped(v: Vectors, x: Value, sign: Value) -> Value:
    """`x`, whose sign changes where there is a sign bit in an integer."""
    return v.convert("bitcast", v.binary("xor", v.convert("bitcast", x, sign.type), sign), x.type)


# -- float32 -----------------------------------------------------------------------------------------


def _near_single(v: Vectors, magnitude: Value) -> tuple[Value, ...]:
    return _of_reduced(v, *_near(v, v.convert("fpext", magnitude, "double")))


def _far_single(v: Vectors, magnitude: Value, beyond: Value) -> tuple[Value, ...]:
    wide = v.convert("fpext", magnitude, "double")
    both = zip(_far(v, wide), _near(v, wide), strict=True)
    return _of_reduced(v, *(v.select(beyond, a, b) for a, b in both))


def _of_reduced(v: Vectors, reduced: Value, n: Value) -> tuple[Value, ...]:
    r = v.convert("fptrunc", reduced, "float")
    z = v.binary("fmul", r, r)
    sine = v.fma(v.binary("fmul", r, z), polynomial(v, z, _SIN_SINGLE), r)
    cosine = v.fma(z, polynomial(v, z, (-0.5, *_COS_SINGLE)), v.number(1.0, "float"))
    return v.convert("trunc", n, "i32"), sine, cosine


def _near(v: Vectors, x: Value) -> Reduced:
    """For a float32, as a float64, from 0 to `_FAR`."""
    n, bits = _nearest(v, x)
    r = v.fma(n, v.number(-_HALF_PI_PARTS[0], "double"), x)
    return v.fma(n, v.number(-_HALF_PI_REST, "double"), r), bits


def _far(v: Vectors, x: Value) -> Reduced:
    """For any float32 from 0 on, as a float64; r is NaN of infinity."""
    n = r = v.number(0.0, "double")
    for piece in _PIECES:
        product = v.binary("fmul", x, v.number(piece, "double"))
        fours = rounded(v, v.binary("fmul", product, v.number(0.25, "double")))
        product = v.binary("fsub", product, v.binary("fmul", fours, v.number(4.0, "double")))
        r = v.binary("fadd", r, product)
        whole = rounded(v, r)
        r, n = v.binary("fsub", r, whole), v.binary("fadd", n, whole)
    bits = v.convert("bitcast", v.binary("fadd", n, v.number(MAGIC, "double")), "i64")
    return v.binary("fmul", r, v.number(_HALF_PI, "double")), bits


# -- float64 -----------------------------------------------------------------------------------------


def _near_double(v: Vectors, magnitude: Value) -> tuple[Value, ...]:
    n, bits = _nearest(v, magnitude)
    first, second, third, fourth = (v.number(-part, "double") for part in _HALF_PI_PARTS)
    exact = v.fma(n, first, magnitude)
    high = v.fma(n, second, exact)
    low = v.fma(n, second, v.binary("fsub", exact, high))
    low = v.fma(n, fourth, v.fma(n, third, low))
    r = v.binary("fadd", high, low)
    rest = v.binary("fadd", v.binary("fsub", high, r), low)
    z = v.binary("fmul", r, r)
    tail = v.fma(v.binary("fmul", r, z), polynomial(v, z, _SIN_DOUBLE), rest)
    sine = v.binary("fadd", r, tail)
    moved = v.binary("fmul", v.binary("fsub", v.number(-0.0, "double"), r), rest)
    tail = v.fma(z, polynomial(v, z, (-0.5, *_COS_DOUBLE)), moved)
    return bits, sine, v.binary("fadd", v.number(1.0, "double"), tail)


def _far_double(v: Vectors, magnitude: Value, beyond: Value) -> tuple[Value, ...]:
    far = v.number(0, "i64"), *(v.each_lane(name, "double", magnitude) for name in ("sin", "cos"))
    return tuple(v.select(beyond, a, b) for a, b in zip(far, _near_double(v, magnitude), strict=True))
