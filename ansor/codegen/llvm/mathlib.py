"""Mathematical functions as inline polynomials, for any number of lanes.

float32 functions reduce their argument, evaluate a polynomial of our own fit (minimax by iteratively
reweighted least squares on Chebyshev points, weighted to relative error) and reconstruct. They handle
infinities, NaN, signed zeros, denormals and overflow. `MAX_ULP` holds the largest errors found against a
float64 reference, on dense samples of all float32 values and on every one where a function errs most. With
the lookups of AVX-512 `erf` and `tanh` are those of `ansor.codegen.llvm.pieces`; `sin` and `cos` are in
`ansor.codegen.llvm.trigonometry`.

float16 and bfloat16 are computed in float32 and rounded; float64 is in `ansor.codegen.llvm.math64`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ansor.codegen.llvm import halves, math64, pieces, trigonometry
from ansor.codegen.llvm.dtype_map import is_narrow_float
from ansor.codegen.llvm.math64 import polynomial
from ansor.codegen.llvm.text import Value
from ansor.codegen.llvm.vectors import Vectors
from ansor.dtypes import is_float
from ansor.errors import BuildError

_EXACT: Final = {"floor": "floor", "ceil": "ceil", "abs": "fabs"}
_EXP: Final = (
    0.4999999403953552,
    0.1666651964187622,
    0.04166839271783829,
    0.008368780836462975,
    0.0013814467238262296,
)
_ROOTS: Final = tuple(2.0 ** (k / 16) for k in range(16))
_EXP_NEAR: Final = (0.5000162124633789, 0.1666703224182129)
_LOG: Final = (
    0.3333331346511841,
    -0.25000008940696716,
    0.2000211924314499,
    -0.1666799634695053,
    0.14219552278518677,
    -0.1240558922290802,
    0.11888162046670914,
    -0.11675652116537094,
    0.06746640801429749,
)
_TANH: Final = (
    -0.333333283662796,
    0.13333125412464142,
    -0.053936757147312164,
    0.02164689637720585,
    -0.008047142997384071,
    0.0020264608319848776,
)
_ERF_SMALL: Final = (
    0.12837916612625122,
    -0.37612631916999817,
    0.11283687502145767,
    -0.026858942583203316,
    0.005199907347559929,
    -0.0008130018250085413,
    8.316795720020309e-05,
)
_ERF_LARGE: Final = (
    -1.1285570859909058,
    -0.6356009244918823,
    -0.1053096354007721,
    0.022723324596881866,
    -0.002960382727906108,
    6.047294300515205e-05,
    4.3454012484289706e-05,
    -4.7642920435464475e-06,
)
_LN2_HIGH: Final = 0.693359375
_LN2_LOW: Final = -2.12194440e-4
_LN2: Final = 0.6931471805599453
_OCTAVES_HIGH: Final = 1.4426950216293335  # 1 / ln 2, rounded to float32
_OCTAVES_LOW: Final = 1.925963033500011e-08  # what is rounded off
MAX_ULP: Final = {
    "exp": 1.2,
    "exp2": 1.1,
    "expm1": 1.6,
    "log": 0.9,
    "log2": 2.0,
    "log1p": 1.4,
    "tanh": 1.4,
    "sigmoid": 3.1,
    "erf": 1.4,
    "rsqrt": 1.5,
    "pow": 0.51,
    "sin": 1.6,
    "cos": 1.5,
}
"""Largest errors of the float32 functions, in units in the last place, rounded up; `sqrt`, `fma` and the
rounding functions are exact, the float64 functions stay below 4. By a table of roots, which AVX-512 machines
use, `exp` is within 1; without, `sigmoid` is within 2.5."""
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


def call(v: Vectors, name: str, args: list[Value], dtype: str) -> Value:
    """The intrinsic `name` of `ansor.te.expr.INTRINSICS` on register values of `dtype`."""
    if not is_float(dtype):
        if dtype.startswith("uint"):
            return args[0]
        return v.intrinsic("abs", args[0], extra="i1 false")
    if name in _EXACT:
        return v.intrinsic(_EXACT[name], args[0])
    if name == "round":
        return math64.rounded(v, args[0])
    if name == "sqrt":
        return _rounded(v, _sqrt(v, args[0]), dtype)
    if dtype == "float64":
        return _double(v, name, args)
    native = args[0].type
    wide = [v.convert("fpext", arg, "float") if native == "half" else arg for arg in args]
    if name == "fma":
        result = v.intrinsic("fma", *wide)
    else:
        function = _SINGLE.get(name)
        if function is None:
            raise BuildError(f"the LLVM back end has no intrinsic {name!r}; it has {', '.join(_SINGLE)}")
        result = function(v, *wide)
    return v.convert("fptrunc", result, "half") if native == "half" else _rounded(v, result, dtype)


def _rounded(v: Vectors, value: Value, dtype: str) -> Value:
    return halves.rounded(v, value, dtype) if is_narrow_float(dtype, v.machine) else value


def _double(v: Vectors, name: str, args: list[Value]) -> Value:
    if name == "fma":
        return v.intrinsic("fma", *args)
    if name == "pow":
        special = _constant_power(v, *args)
        return special if special is not None else math64.power(v, *args)
    return _DOUBLE[name](v, *args)


def _sqrt(v: Vectors, x: Value) -> Value:
    return v.intrinsic("sqrt", x)


# -- float32 -----------------------------------------------------------------------------------------


def _constant(v: Vectors, x: float) -> Value:
    return v.number(x, "float")


def _clamp(v: Vectors, x: Value, low: float | None, high: float | None) -> Value:
    """`x` between bounds; NaN stays."""
    if high is not None:
        x = v.select(v.compare("ogt", x, _constant(v, high)), _constant(v, high), x)
    if low is not None:
        x = v.select(v.compare("olt", x, _constant(v, low)), _constant(v, low), x)
    return x


def _octaves(v: Vectors, x: Value, magic: float, base: _Base) -> tuple[Value, Value, Value]:
    """`base**x` as `exp(r) * 2**n`: r, n, and the sum of `magic` and n before it was rounded off.

    The sum with `magic` makes n a multiple of its last place.
    """
    if base is _TWO:
        shifted = v.binary("fadd", x, _constant(v, magic))
    else:
        shifted = v.fma(x, _constant(v, 1.4426950408889634), _constant(v, magic))
    n = v.binary("fsub", shifted, _constant(v, magic))
    if base is _TWO:
        return v.binary("fmul", v.binary("fsub", x, n), _constant(v, _LN2)), n, shifted
    r = v.fma(n, _constant(v, -_LN2_HIGH), x)
    return v.fma(n, _constant(v, -_LN2_LOW), r), n, shifted


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
    rest, bits = _exp_rest(v, x, more, base)
    return v.binary("fadd", rest, _constant(v, 1.0)), bits


def _exp_rest(v: Vectors, x: Value, more: int, base: _Base = _E) -> tuple[Value, Value]:
    """The same with that float less 1, which is exact to the last places of itself.

    Multiplications are few, and the chain of operations is short: as many loop iterations as fit the
    processor's window are under way at a time, and there where vectors are short the chain decides.
    """
    r, _, shifted = _octaves(v, x, _MAGIC + more, base)
    square = v.binary("fmul", r, r)
    low, high = polynomial(v, r, _EXP[:2]), polynomial(v, r, _EXP[2:4])
    rest = v.fma(v.fma(square, _constant(v, _EXP[4]), high), square, low)
    return v.fma(rest, square, r), v.convert("bitcast", shifted, "i32")


def _power_of_two(v: Vectors, bits: Value) -> Value:
    """2**n, a normal number, of bits whose low 9 are n + 127."""
    return v.convert("bitcast", v.binary("shl", bits, v.number(23, "i32")), "float")


def _exp(v: Vectors, x: Value, high: float | None = None, base: _Base = _E) -> Value:
    """`base**x`, or `base**high` where x is more; 2**n, or two factors, reach infinity and the denormals.

    Where several vectors are computed at a time, a branch leaves that out if it makes no difference to any.
    There is none around what does not change where it is used: that can be computed before.
    """
    if v.machine.has_range:
        return _exp_by_table(v, x if high is None else _clamp(v, x, None, high), base)
    most = base.greatest if high is None else high
    if v.machine.has_scaling:
        mantissa, bits = _exp_parts(v, _clamp(v, x, base.least, most), 0, base)
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
    mantissa, bits = _exp_parts(v, _clamp(v, x, base.least, most), 254, base)
    half = v.binary("lshr", bits, v.number(1, "i32"))
    scaled = v.binary("fmul", mantissa, _power_of_two(v, half))
    return v.binary("fmul", scaled, _power_of_two(v, v.binary("sub", bits, half)))


def _exp_of_usual(v: Vectors, x: Value, base: _Base) -> Value:
    """For |x| that are usual: a normal number, made by adding n to the exponent of one near 1."""
    mantissa, bits = _exp_parts(v, x, 0, base)
    exponent = v.binary("shl", bits, v.number(23, "i32"))
    return v.convert("bitcast", v.binary("add", v.convert("bitcast", mantissa, "i32"), exponent), "float")


def _exp_moderate(v: Vectors, x: Value) -> Value:
    """Exp for |x| < 80."""
    mantissa, bits = _exp_parts(v, x, 127)
    return v.binary("fmul", mantissa, _power_of_two(v, bits))


def _expm1(v: Vectors, x: Value) -> Value:
    """expm1: (2**n - 1) + 2**n * p, which does not cancel; 2**128 is 2**127 twice."""
    p, bits = _exp_rest(v, _clamp(v, x, -18.0, _E.greatest), 127)
    last = v.number(_MAGIC_BITS + 254, "i32")
    scale = _power_of_two(v, v.intrinsic("smin", bits, last))
    once = v.fma(scale, p, v.binary("fsub", scale, _constant(v, 1.0)))
    twice = v.compare("sgt", bits, last)
    result = v.select(twice, v.binary("fadd", once, once), once)
    return v.intrinsic("copysign", result, x)


def _log(v: Vectors, x: Value) -> Value:
    n, f = _log_parts(v, x)
    return _log_limits(v, x, _log_of_parts(v, n, f))


def _log2(v: Vectors, x: Value) -> Value:
    """log2: n + log(1 + f) / ln 2; powers of two are exact."""
    n, f = _log_parts(v, x)
    tail = v.binary("fmul", _log_tail(v, f), _constant(v, _OCTAVES_HIGH))
    tail = v.fma(f, _constant(v, _OCTAVES_LOW), tail)
    octaves = v.binary("fadd", n, v.fma(f, _constant(v, _OCTAVES_HIGH), tail))
    return _log_limits(v, x, octaves)


def _log1p(v: Vectors, x: Value) -> Value:
    """log1p: log(u) with u = 1 + x, what was rounded off u being added to f: without 2**e that is x."""
    one = _constant(v, 1.0)
    u = v.binary("fadd", x, one)
    lost = v.binary("fsub", x, v.binary("fsub", u, one))
    e, f = _exponent_and_fraction(v, u)
    exponent = v.binary("shl", v.intrinsic("smin", e, v.number(126, "i32")), v.number(23, "i32"))
    scale = v.convert("bitcast", v.binary("sub", v.convert("bitcast", one, "i32"), exponent), "float")
    f = v.fma(lost, scale, f)
    result = _log_of_parts(v, v.convert("sitofp", e, "float"), f)
    return v.intrinsic("copysign", _log_limits(v, u, result), x)


def _log_parts(v: Vectors, x: Value) -> tuple[Value, Value]:
    """The numbers of x = 2**n * (1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1], also of denormals."""
    is_small = v.compare("olt", x, _constant(v, 2.0**-126))
    scaled = v.select(is_small, v.binary("fmul", x, _constant(v, 2.0**23)), x)
    e, f = _exponent_and_fraction(v, scaled)
    e = v.select(is_small, v.binary("sub", e, v.number(23, "i32")), e)
    return v.convert("sitofp", e, "float"), f


def _exponent_and_fraction(v: Vectors, x: Value) -> tuple[Value, Value]:
    """The same of normal numbers, n as an integer."""
    bits = v.convert("bitcast", x, "i32")
    offset = v.binary("sub", bits, v.number(0x3F3504F3, "i32"))  # sqrt(1/2): exponents change there
    e = v.binary("ashr", offset, v.number(23, "i32"))
    mantissa = v.binary("sub", bits, v.binary("shl", e, v.number(23, "i32")))
    return e, v.binary("fsub", v.convert("bitcast", mantissa, "float"), _constant(v, 1.0))


def _log_tail(v: Vectors, f: Value, n: Value | None = None) -> Value:
    """`log(1 + f) - f`; with n and the low part of `n * ln 2`."""
    square = v.binary("fmul", f, f)
    tail = v.binary("fmul", v.binary("fmul", square, f), polynomial(v, f, _LOG))
    tail = tail if n is None else v.fma(n, _constant(v, _LN2_LOW), tail)
    return v.fma(square, _constant(v, -0.5), tail)


def _log_of_parts(v: Vectors, n: Value, f: Value) -> Value:
    return v.fma(n, _constant(v, _LN2_HIGH), v.binary("fadd", f, _log_tail(v, f, n)))


def _log_limits(v: Vectors, x: Value, result: Value) -> Value:
    """The logarithm of x, infinities and NaN among them."""
    infinity = _constant(v, float("inf"))
    result = v.select(v.compare("oeq", x, infinity), infinity, result)
    zero = _constant(v, 0.0)
    result = v.select(v.compare("oeq", x, zero), _constant(v, float("-inf")), result)
    invalid = v.compare("ult", x, zero)  # unordered or less: negative and NaN
    return v.select(invalid, _constant(v, float("nan")), result)


def _tanh(v: Vectors, x: Value) -> Value:
    """tanh: an odd polynomial below 0.65, else 1 - 2 / (exp(2|x|) + 1)."""
    if v.machine.has_range:  # it looks up as well
        return pieces.tanh().call(v, x)
    magnitude = _clamp(v, v.intrinsic("fabs", x), None, 10.0)
    one = _constant(v, 1.0)
    grown = v.binary("fadd", _exp_moderate(v, v.binary("fadd", magnitude, magnitude)), one)
    large = v.binary("fsub", one, v.binary("fdiv", _constant(v, 2.0), grown))
    square = v.binary("fmul", x, x)
    small = v.fma(v.binary("fmul", square, x), polynomial(v, square, _TANH), x)
    is_small = v.compare("olt", magnitude, _constant(v, 0.65))
    return v.intrinsic("copysign", v.select(is_small, small, large), x)


def _sigmoid(v: Vectors, x: Value) -> Value:
    """sigmoid: e / (1 + e), with e = exp(x) of an x where that is finite, and 1 + e equal to e."""
    e = _exp(v, x, 88.0)
    return v.binary("fdiv", e, v.binary("fadd", e, _constant(v, 1.0)))


def _erf(v: Vectors, x: Value) -> Value:
    """erf: an odd polynomial below 0.9296875, else 1 - exp(polynomial), which is 1 from 4 on."""
    if v.machine.has_range:
        return pieces.erf().call(v, x)
    magnitude = _clamp(v, v.intrinsic("fabs", x), None, 4.0)
    exponent = v.binary("fmul", magnitude, polynomial(v, magnitude, _ERF_LARGE))
    large = v.binary("fsub", _constant(v, 1.0), _exp_moderate(v, exponent))
    square = v.binary("fmul", x, x)
    small = v.fma(x, polynomial(v, square, _ERF_SMALL), x)
    is_small = v.compare("olt", magnitude, _constant(v, 0.9296875))
    return v.select(is_small, small, v.intrinsic("copysign", large, x))


def _rsqrt(v: Vectors, x: Value) -> Value:
    return v.div(_constant(v, 1.0), _sqrt(v, x))


def _pow(v: Vectors, x: Value, y: Value) -> Value:
    special = _constant_power(v, x, y)
    if special is not None:
        return special
    wide = [v.convert("fpext", value, "double") for value in (x, y)]
    return v.convert("fptrunc", math64.power_of_singles(v, *wide), "float")


def _constant_power(v: Vectors, x: Value, y: Value) -> Value | None:
    """`pow` for the exponents in `POWERS`; None for others."""
    for exponent, power in POWERS.items():
        if y.text == v.number(exponent, y.type).text:
            return power(v, x)
    return None


def _square(v: Vectors, x: Value) -> Value:
    return v.binary("fmul", x, x)


def _root(v: Vectors, x: Value) -> Value:
    """The power of 0.5: unlike sqrt, pow gives +0 at -0 and infinity at minus infinity."""
    root = v.binary("fadd", _sqrt(v, x), v.number(0.0, x.type))
    lowest = v.compare("oeq", x, v.number(float("-inf"), x.type))
    return v.select(lowest, v.number(float("inf"), x.type), root)


POWERS: Final[dict[float, Callable[[Vectors, Value], Value]]] = {
    1.0: lambda v, x: x,
    2.0: _square,
    3.0: lambda v, x: v.binary("fmul", _square(v, x), x),
    4.0: lambda v, x: _square(v, _square(v, x)),
    -1.0: lambda v, x: v.div(v.number(1.0, x.type), x),
    0.5: _root,
}
"""The exponents that programs are written with, whose powers are a few instructions."""

_SINGLE: Final[dict[str, Callable[..., Value]]] = {
    "exp": _exp,
    "exp2": lambda v, x: _exp(v, x, base=_TWO),
    "expm1": _expm1,
    "log": _log,
    "log2": _log2,
    "log1p": _log1p,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "rsqrt": _rsqrt,
    "pow": _pow,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
}

_DOUBLE: Final[dict[str, Callable[..., Value]]] = {
    "exp": math64.exp,
    "exp2": math64.exp2,
    "expm1": math64.expm1,
    "log": math64.log,
    "log2": math64.log2,
    "log1p": math64.log1p,
    "tanh": math64.tanh,
    "sigmoid": math64.sigmoid,
    "erf": math64.erf,
    "rsqrt": math64.rsqrt,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
}
