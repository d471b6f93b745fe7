"""`erf` and `tanh` of float32 in sixteen pieces, whose coefficients one instruction looks up.

Both are odd, and 1 from some number on. Below it |x| falls into one of 16 pieces, each with a polynomial
of its own around an anchor at its upper end:

    f(anchor + t) = (f(anchor) + t) + t * q(t)

The first piece has its anchor at 0: there the sum is |x|, rounded not at all. Other anchors are floats of
which f is, to a hundredth of a unit in the last place, a float, too (the accurate tables of Gal and Bachelis,
ACM TOMS 17(1), 1991). As t is negative, the sum is rounded to half a unit of the result. Where f is 1 is the
last anchor, and |x| goes no further. The second piece has its anchor inside, since t is exact for no less
than half of an anchor, and where its sums are not in another binade than results.

Beside one exponential for all numbers, and for `tanh` a quotient, this is fewer instructions, and all lookups
are under way at a time: on an Emerald Rapids `erf` of what the first cache holds takes 0.55 of the time,
`tanh` 0.85, of what lies in memory 0.7 and 0.8, which is as fast as a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors

_PIECES: Final = 16
_WIDTHS: Final = 15.4  # to the end: numbers are rounded to the nearest piece, the first is half as wide
_NEIGHBOURS: Final = 50  # floats on either side that may be an anchor
_MAGIC: Final = 12582912.0  # 1.5 * 2**23: adding it rounds a float to an integer, kept in the low bits


@dataclass(frozen=True, slots=True)
class Pieces:
    """
    An odd function that is 1 from `end` on: anchors, its values there, and the coefficients of q by power.

    Each tuple has an entry for each of 16 pieces, which are `width` long.
    """

    end: float
    width: float
    anchors: tuple[float, ...]
    values: tuple[float, ...]
    coefficients: tuple[tuple[float, ...], ...]

    def call(self, v: Vectors, x: Value) -> Value:
        """The function of `x`; only for a machine that has 512-bit registers."""
        end = v.number(self.end, "float")
        magnitude = v.intrinsic("fabs", x)
        magnitude = v.select(v.compare("ogt", magnitude, end), end, magnitude)  # NaN stays
        shifted = v.fma(magnitude, v.number(1 / self.width, "float"), v.number(_MAGIC, "float"))
        piece = v.convert("bitcast", shifted, "i32")
        t = v.binary("fsub", magnitude, v.lookup(self.anchors, piece))
        q = v.lookup(self.coefficients[-1], piece)
        for coefficient in reversed(self.coefficients[:-1]):
            q = v.fma(q, t, v.lookup(coefficient, piece))
        result = v.fma(t, q, v.binary("fadd", t, v.lookup(self.values, piece)))
        return v.intrinsic("copysign", result, x)


@cache
def erf() -> Pieces:
    """`erf` is 1 from 3.92 on, rounded to float32."""
    return _fitted(math.erf, end=4.0, second=0.8, degree=6)


@cache
def tanh() -> Pieces:
    """`tanh` is 1 from 9.02 on, rounded to float32."""
    return _fitted(math.tanh, end=9.25, second=0.95, degree=7)


def _fitted(function: Callable[[float], float], end: float, second: float, degree: int) -> Pieces:
    """Interpolate q at Chebyshev points of each piece; `second` widths from 0 is the second anchor."""
    width = end / _WIDTHS
    near = (second * width, *((piece + 0.5) * width for piece in range(2, _PIECES - 1)))
    anchors = (0.0, *(_anchor(function, x) for x in near), end)
    values = tuple(float(np.float32(function(anchor))) for anchor in anchors)
    rows = []
    for piece, (anchor, value) in enumerate(zip(anchors, values, strict=True)):

        def q(t: float, anchor: float = anchor, value: float = value) -> float:
            return (function(anchor + t) - value) / t - 1

        domain = (max(0.0, (piece - 0.5) * width) - anchor, min(end, (piece + 0.5) * width) - anchor)
        fit = Chebyshev.interpolate(np.vectorize(q), degree - 1, domain)
        rows.append([float(np.float32(c)) for c in fit.convert(kind=Polynomial).coef])
    return Pieces(end, width, anchors, values, tuple(zip(*rows, strict=True)))


def _anchor(function: Callable[[float], float], near: float) -> float:
    """Of the floats near a number, the one whose value is nearest to a float."""
    middle, step = float(np.float32(near)), float(np.spacing(np.float32(near)))
    floats = [middle + i * step for i in range(-_NEIGHBOURS, _NEIGHBOURS + 1)]
    return min(floats, key=lambda x: abs(function(x) - float(np.float32(function(x)))))
