"""Division of floats; of vectors by a number that is the same in all lanes and steps, without dividing.

A vector division takes longer than the two instructions here: Zen 4 loads, divides and stores 16 floats in
5.3 cycles, 2.0 with these. The reciprocal of the divisor `s` is known outside the loop, in two parts: `high`,
`1 / s` rounded toward zero, and `low`, the float nearest to what is missing. Then `a * low + a * high`, with
the second product in a fused multiply-add, differs from the quotient before it is rounded by no more than
2**-47 of it (N. Brisebarre, J.-M. Muller, S. K. Raina, "Accelerating correctly rounded floating-point
division when the divisor is known in advance", IEEE Transactions on Computers 53(8), 2004). So it is the
float nearest to the quotient, but for those that lie that near the middle between two floats: of all pairs
of significands one in a hundred million gives the other neighbour, an error of 0.5000002 units in the last
place. All quotients that are floats are exact.

The parts have the sign of `s`, so zeros, infinities and NaN give what they should. Divisors of less than 1
or more than 2**24 divide as they are: quotients might leave the range of normal numbers. Where quotients
are below 2**-100, the first product may be rounded to fewer bits, and an error may reach one unit.
"""

from __future__ import annotations

from fractions import Fraction
from math import frexp
from struct import pack, unpack
from typing import Final

from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors

_LEAST_LANES: Final = 4
_GREATEST: Final = 2.0**24


def divided(v: Vectors, a: Value, b: Value) -> Value:
    """`a / b`, of the type of `a`."""
    if a.type != "float" or a.lanes < _LEAST_LANES or b.lanes > 1 or not v.machine.has_fma:
        return v.div(a, b)
    if not b.text.startswith("%"):
        return _by_constant(v, a, b)
    return _by_either(v, a, b) if b.depth < a.depth else v.div(a, b)


def _by_constant(v: Vectors, a: Value, b: Value) -> Value:
    number = unpack("<d", pack("<Q", int(b.text, 16)))[0]
    if not 1 <= abs(number) <= _GREATEST:
        return v.div(a, b)
    exact = 1 / Fraction(number)
    if abs(frexp(number)[0]) == 0.5:
        return v.binary("fmul", a, v.number(float(exact), "float"))
    high = _toward_zero(exact)
    low = float(exact - Fraction(high))  # the literal is rounded to a float
    return _by_parts(v, a, v.number(high, "float"), v.number(low, "float"))


def _toward_zero(number: Fraction) -> float:
    """A normal number cut to the 24 significant bits of a float."""
    unit = Fraction(2) ** (frexp(float(number))[1] - 24)
    return float(int(number / unit) * unit)


def _by_either(v: Vectors, a: Value, b: Value) -> Value:
    """By the parts of the reciprocal, if the divisor turns out to allow it."""
    size = v.intrinsic("fabs", b)
    moderate = v.both(
        v.compare("oge", size, v.number(1.0, "float")), v.compare("ole", size, v.number(_GREATEST, "float"))
    )
    assert moderate is not None
    high, low = _reciprocal(v, b)
    return v.branch(moderate, lambda: _by_parts(v, a, high, low), lambda: v.div(a, b))


def _reciprocal(v: Vectors, b: Value) -> tuple[Value, Value]:
    """The parts of `1 / b`; the lower one is never zero, since an infinite dividend times zero is NaN."""
    one = v.number(1.0, "float")
    negated = v.fn.inside(f"fneg float {b.text}", "float", 1, b.depth)
    nearest = v.div(one, b)
    bits = v.convert("bitcast", nearest, "i32")
    smaller = v.convert("bitcast", v.binary("sub", bits, v.number(1, "i32")), "float")
    beyond = v.compare("olt", v.intrinsic("fma", nearest, negated, one), v.number(0.0, "float"))
    high = v.select(beyond, smaller, nearest)
    low = v.div(v.intrinsic("fma", high, negated, one), b)
    negligible = v.binary("fmul", high, v.number(2.0**-64, "float"))
    return high, v.select(v.compare("oeq", low, v.number(0.0, "float")), negligible, low)


def _by_parts(v: Vectors, a: Value, high: Value, low: Value) -> Value:
    return v.intrinsic("fma", a, high, v.binary("fmul", a, low))
