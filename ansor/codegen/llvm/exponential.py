"""`exp` of float32 and its kin: an integer power of two times a polynomial near 1."""

from __future__ import annotations

from typing import Final, NamedTuple

from ansor.codegen.llvm.evaluation import clamp, polynomial, single
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors

_EXP: Final = (
    0.4999999403953552,
    0.1666651964187622,
    0.04166839271783829,
    0.008368780836462975,
    0.0013814467238262296,
)
_ROOTS: Final = tuple(2.0 ** (k / 16) for k in range(16))
_EXP_NEAR: Final = (0.5000162124633789, 0.1666703224182129)
LN2_HIGH: Final = 0.693359375
LN2_LOW: Final = -2.12194440e-4
_LN2: Final = 0.6931471805599453
_MAGIC: Final = 12582912.0  # 1.5 * 2**23: adding it rounds a float to an integer, kept in the low bits
_MAGIC_BITS: Final = 0x4B400000  # its own, of which the low 22 are 0


class _Base(NamedTuple):
    """What a power of a base can be taken of: below `least` it is 0, above `greatest` infinite.

    `usual` has the bits of a float up to which the powers of it and of its negative are normal numbers.
    """

    least: float
    greatest: float
    usual: int


_E: Final = _Base(-104.0, 89.0, 0x42AE0000)
_TWO: Final = _Base(-151.0, 129.0, 0x42FA0000)


def _octaves(v: Vectors, x: Value, magic: float, base: _Base) -> tuple[Value, Value, Value]:
    """`base**x` as `exp(r) * 2**n`: r, n, and the sum of `magic` and n before it was rounded off.

    The sum with `magic` makes n a multiple of its last place.
    """
    if base is _TWO:
        shifted = v.binary("fadd", x, single(v, magic))
    else:
        shifted = v.fma(x, single(v, 1.4426950408889634), single(v, magic))
    n = v.binary("fsub", shifted, single(v, magic))
    if base is _TWO:
        return v.binary("fmul", v.binary("fsub", x, n), single(v, _LN2)), n, shifted
    r = v.fma(n, single(v, -LN2_HIGH), x)
    return v.fma(n, single(v, -LN2_LOW), r), n, shifted


def _exp_by_table(v: Vectors, x: Value, base: _Base) -> Value:
    """`exp(x)`: 2**floor(n) * 2**(k/16) * exp(r), n = floor(n) + k/16 being near x / ln 2.

    The sum with a number so large that its last place is 1/16 rounds to n, and has k in its low bits. A table
    of 16 floats, looked up by one instruction, makes the polynomial short. Where x is so large that r is not
    small, or is infinite or NaN, n alone decides, if r is any moderate number: bounding it takes one
    instruction, clamping x two.
    """
    r, n, shifted = _octaves(v, x, _MAGIC / 16, base)
    r = v.bound(r, 1 / 32)
    root = v.lookup(_ROOTS, v.convert("bitcast", shifted, "i32"))
    rest = v.binary("fmul", r, polynomial(v, r, (1.0, *_EXP_NEAR)))
    return v.scale_by_floor(v.fma(rest, root, root), n)


def _exp_parts(v: Vectors, x: Value, more: int, base: _Base = _E) -> tuple[Value, Value]:
    """`base**x` for moderate x as a float near 1, and bits whose low 9 are an exponent of two and `more`."""
    rest, bits = exp_rest(v, x, more, base)
    return v.binary("fadd", rest, single(v, 1.0)), bits


def exp_rest(v: Vectors, x: Value, more: int, base: _Base = _E) -> tuple[Value, Value]:
    """The same with that float less 1, which is exact to the last places of itself.

    Multiplications are few, and the chain of operations is short: as many loop iterations as fit the
    processor's window are under way at a time, and there where vectors are short the chain decides.
    """
    r, _, shifted = _octaves(v, x, _MAGIC + more, base)
    square = v.binary("fmul", r, r)
    low, high = polynomial(v, r, _EXP[:2]), polynomial(v, r, _EXP[2:4])
    rest = v.fma(v.fma(square, single(v, _EXP[4]), high), square, low)
    return v.fma(rest, square, r), v.convert("bitcast", shifted, "i32")


def power_of_two(v: Vectors, bits: Value) -> Value:
    """2**n, a normal number, of bits whose low 9 are n + 127."""
    return v.convert("bitcast", v.binary("shl", bits, v.number(23, "i32")), "float")


def exp(v: Vectors, x: Value, high: float | None = None, base: _Base = _E) -> Value:
    """`base**x`, or `base**high` where x is more; 2**n, or two factors, reach infinity and the denormals.

    Where several vectors are computed at a time, a branch leaves that out if it makes no difference to any.
    There is none around what does not change where it is used: that can be computed before.
    """
    if v.machine.has_range:
        return _exp_by_table(v, x if high is None else clamp(v, x, None, high), base)
    most = base.greatest if high is None else high
    if v.machine.has_scaling:
        mantissa, bits = _exp_parts(v, clamp(v, x, base.least, most), 0, base)
        return v.scale(mantissa, v.binary("sub", bits, v.number(_MAGIC_BITS, "i32")))
    if x.lanes * 32 <= v.machine.vector_bits or x.depth < v.fn.depth:
        return _exp_of_any(v, x, most, base)
    key = ("exp", x.text, x.lanes, most, base)
    known: Value | None = v.fn.known.get(key)
    if known is None:
        largest = v.convert("bitcast", v.intrinsic("fabs", v.frozen(x)), "i32")
        beyond = v.any_lane(v.compare("sgt", v.folded("smax", largest), v.number(base.usual, "i32")))
        known = v.branch(beyond, lambda: _exp_of_any(v, x, most, base), lambda: _exp_of_usual(v, x, base))
        v.fn.known[key] = known
    return known


def _exp_of_any(v: Vectors, x: Value, most: float, base: _Base) -> Value:
    mantissa, bits = _exp_parts(v, clamp(v, x, base.least, most), 254, base)
    half = v.binary("lshr", bits, v.number(1, "i32"))
    scaled = v.binary("fmul", mantissa, power_of_two(v, half))
    return v.binary("fmul", scaled, power_of_two(v, v.binary("sub", bits, half)))


def _exp_of_usual(v: Vectors, x: Value, base: _Base) -> Value:
    """For |x| that are usual: a normal number, made by adding n to the exponent of one near 1."""
    mantissa, bits = _exp_parts(v, x, 0, base)
    exponent = v.binary("shl", bits, v.number(23, "i32"))
    return v.convert("bitcast", v.binary("add", v.convert("bitcast", mantissa, "i32"), exponent), "float")


def exp_moderate(v: Vectors, x: Value) -> Value:
    """Exp for |x| < 80."""
    mantissa, bits = _exp_parts(v, x, 127)
    return v.binary("fmul", mantissa, power_of_two(v, bits))


def exp2(v: Vectors, x: Value) -> Value:
    return exp(v, x, base=_TWO)


def expm1(v: Vectors, x: Value) -> Value:
    """expm1: (2**n - 1) + 2**n * p, which does not cancel; 2**128 is 2**127 twice."""
    p, bits = exp_rest(v, clamp(v, x, -18.0, _E.greatest), 127)
    last = v.number(_MAGIC_BITS + 254, "i32")
    scale = power_of_two(v, v.intrinsic("smin", bits, last))
    once = v.fma(scale, p, v.binary("fsub", scale, single(v, 1.0)))
    twice = v.compare("sgt", bits, last)
    result = v.select(twice, v.binary("fadd", once, once), once)
    return v.intrinsic("copysign", result, x)
