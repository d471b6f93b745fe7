"""Division of floats; of vectors by a number that is the same in all lanes and steps, without dividing.

A vector division takes longer than the four instructions here: Zen 4 loads, divides and stores 16 floats in
5.9 cycles, 3.9 with these. Of `a / s`, with r the rounded `1 / s` from outside the loop, the first guess `q
= a * r` is wrong by at most 1.5 units in the last place, its remainder `a - q * s` is exact in a fused
multiply-add, and `q + remainder * r` is the correctly rounded quotient (P. Markstein, IBM Journal of
Research and Development 34(1), 1990). The guess may be half a unit worse than that theorem wants, but what
is left of its error, 1.5 units / 2**24, could change the rounding only of quotients near a tie; all
significands for which `numerator * 2**k - tie * divisor` is 1 to 4 in absolute value have been tried, and
are right.

What is zero, infinite or NaN has no remainder, or none that is a number: the guess is right. Divisors of
less than 1 or more than 2**24 divide as they are: quotients might leave the range of normal numbers. The
remainder of dividends below 2**-100 may be rounded: their quotients may be the other neighbour of the exact
one.
"""

from __future__ import annotations

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
    if abs(frexp(number)[0]) == 0.5:
        return v.binary("fmul", a, v.number(1 / number, "float"))
    return _by_reciprocal(v, a, v.number(1 / number, "float"), v.number(-number, "float"))


def _by_either(v: Vectors, a: Value, b: Value) -> Value:
    """By the reciprocal, if the divisor turns out to allow it."""
    fn = v.fn
    size = v.intrinsic("fabs", b)
    moderate = v.both(
        v.compare("oge", size, v.number(1.0, "float")), v.compare("ole", size, v.number(_GREATEST, "float"))
    )
    assert moderate is not None
    reciprocal = v.div(v.number(1.0, "float"), b)
    negated = fn.inside(f"fneg float {b.text}", "float", 1, b.depth)
    fn.open_branch()
    quick = _by_reciprocal(v, a, reciprocal, negated)
    quick_side = fn.close()
    fn.open_branch()
    slow = v.div(a, b)
    slow_side = fn.close()
    fn.join(moderate, quick_side, slow_side)
    sides = f"[ {quick.text}, %{quick_side.label} ], [ {slow.text}, %{slow_side.label} ]"
    return fn.here(f"phi {a.full_type} {sides}", a.type, a.lanes)


def _by_reciprocal(v: Vectors, a: Value, reciprocal: Value, negated: Value) -> Value:
    guess = v.binary("fmul", a, reciprocal)
    rest = v.intrinsic("fma", guess, negated, a)
    better = v.intrinsic("fma", rest, reciprocal, guess)
    return v.select(v.compare("one", rest, v.number(0.0, "float")), better, guess)
